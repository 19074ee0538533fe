//! Which cluster a client connects to, found as kubectl finds it: the file of the flag; otherwise the files
//! of `$KUBECONFIG`, of which those that do not exist are left out; otherwise `~/.kube/config`; otherwise
//! the pod's service account.

use crate::args::KubeArgs;
use kube::Config;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};

/// The flags and the files select no cluster.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A kubeconfig file is missing or malformed.
    #[error("failed to read kubeconfig `{}`", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The error.
        source: Box<KubeconfigError>,
    },
    /// No configuration was named and none was found.
    #[error("found no cluster to connect to: {looked_for}, and this is no pod; set --kubeconfig")]
    Absent {
        /// What was looked for, and does not exist.
        looked_for: String,
        /// Why the pod's service account is not usable.
        source: Box<InClusterError>,
    },
    /// No context is selected.
    #[error("{place} has no current context: {there}; set --context")]
    NoContext {
        /// The files.
        place: String,
        /// The contexts that exist.
        there: String,
    },
    /// There is no such context.
    #[error("{place} has no context `{context}`: {there}")]
    UnknownContext {
        /// The context.
        context: String,
        /// The files.
        place: String,
        /// The contexts that exist.
        there: String,
    },
}

/// Where a configuration is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Kubeconfig files.
    Files {
        /// Those that were read.
        paths: Vec<PathBuf>,
        /// The context.
        context: String,
        /// The program that supplies credentials.
        command: Option<String>,
    },
    /// The service account of the pod in which the program runs.
    ServiceAccount,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Files { paths, context, command } = self else {
            return f.write_str("the pod's service account");
        };
        write!(f, "kubeconfig {}, context `{context}`", named(paths))?;
        command.as_ref().map_or(Ok(()), |it| write!(f, ", credentials from the command `{it}`"))
    }
}

/// `` `a` and `b` ``.
fn named(paths: &[PathBuf]) -> String {
    let paths = paths.iter().map(|path| format!("`{}`", path.display()));
    paths.collect::<Vec<_>>().join(" and ")
}

/// The configuration that the flags select, and where it is from.
pub(crate) async fn config(args: &KubeArgs) -> Result<(Config, Origin), ConfigError> {
    let variable = env::var_os("KUBECONFIG");
    let home = env::var_os("HOME").map(PathBuf::from);
    let candidates = candidates(args.kubeconfig.as_deref(), variable.as_deref(), home.as_deref());
    let is_named = args.kubeconfig.is_some();
    let paths: Vec<PathBuf> =
        candidates.iter().filter(|path| is_named || path.exists()).cloned().collect();
    if paths.is_empty() && args.context.is_none() {
        let config = Config::incluster().map_err(|error| absent(&candidates, error))?;
        return Ok((config, Origin::ServiceAccount));
    }
    let file = read(&paths)?;
    let (context, command) = selected(&file, &paths, args.context.as_deref())?;
    let options = KubeConfigOptions { context: Some(context.clone()), ..Default::default() };
    let config = Config::from_custom_kubeconfig(file, &options).await;
    let config = config.map_err(|source| ConfigError::Kubeconfig {
        path: paths.first().cloned().unwrap_or_default(),
        source: Box::new(source),
    })?;
    Ok((config, Origin::Files { paths, context, command }))
}

/// The files that may have the configuration: those that the first source of several names.
fn candidates(flag: Option<&Path>, variable: Option<&OsStr>, home: Option<&Path>) -> Vec<PathBuf> {
    if let Some(path) = flag {
        return vec![path.to_owned()];
    }
    let listed = variable.map(|paths| env::split_paths(paths).collect::<Vec<_>>());
    let listed = listed.unwrap_or_default().into_iter();
    let listed: Vec<PathBuf> = listed.filter(|path| !path.as_os_str().is_empty()).collect();
    if listed.is_empty() {
        return home.map(|home| home.join(".kube/config")).into_iter().collect();
    }
    listed
}

fn absent(candidates: &[PathBuf], source: InClusterError) -> ConfigError {
    let looked_for = if candidates.is_empty() {
        "neither $KUBECONFIG nor $HOME is set".to_owned()
    } else {
        let does = if candidates.len() == 1 { "does" } else { "do" };
        format!("{} {does} not exist", named(candidates))
    };
    ConfigError::Absent { looked_for, source: Box::new(source) }
}

/// The files as one. The first file that sets a value wins.
fn read(paths: &[PathBuf]) -> Result<Kubeconfig, ConfigError> {
    let mut all = Kubeconfig::default();
    for path in paths {
        let merged = Kubeconfig::read_from(path).and_then(|file| all.merge(file));
        all = merged.map_err(|source| ConfigError::Kubeconfig {
            path: path.clone(),
            source: Box::new(source),
        })?;
    }
    Ok(all)
}

/// The context, and the program that supplies its credentials.
fn selected(
    file: &Kubeconfig,
    paths: &[PathBuf],
    asked: Option<&str>,
) -> Result<(String, Option<String>), ConfigError> {
    let place = if paths.is_empty() {
        "any kubeconfig".to_owned()
    } else {
        format!("kubeconfig {}", named(paths))
    };
    let there: Vec<&str> = file.contexts.iter().map(|context| context.name.as_str()).collect();
    let there = if there.is_empty() {
        "it has none".to_owned()
    } else {
        format!("it has {}", there.join(", "))
    };
    let current = file.current_context.as_deref().filter(|context| !context.is_empty());
    let Some(name) = asked.or(current) else {
        return Err(ConfigError::NoContext { place, there });
    };
    let context = file.contexts.iter().find(|context| context.name == name);
    let context = context.ok_or_else(|| ConfigError::UnknownContext {
        context: name.to_owned(),
        place,
        there,
    })?;
    let user = context.context.as_ref().and_then(|context| context.user.as_deref());
    let user = file.auth_infos.iter().find(|known| Some(known.name.as_str()) == user);
    let exec = user.and_then(|user| user.auth_info.as_ref()?.exec.as_ref());
    let command = exec.and_then(|exec| {
        let words = exec.command.iter().chain(exec.args.iter().flatten());
        Some(words.cloned().collect::<Vec<_>>().join(" ")).filter(|command| !command.is_empty())
    });
    Ok((name.to_owned(), command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn files_are_looked_for_as_kubectl_does() {
        let home = Some(Path::new("/home/jane"));
        let of = |flag: Option<&str>, variable: Option<&str>| {
            let found = candidates(flag.map(Path::new), variable.map(OsStr::new), home);
            found.iter().map(|path| path.display().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(of(Some("/flag"), Some("/a:/b")), ["/flag"]);
        assert_eq!(of(None, Some("/a::/b")), ["/a", "/b"]);
        assert_eq!(of(None, Some("")), ["/home/jane/.kube/config"]);
        assert_eq!(of(None, None), ["/home/jane/.kube/config"]);
        assert!(candidates(None, None, None).is_empty());
    }

    fn kubeconfig(context: &str) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {context}\n\
             clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:6443'}}}}]\n\
             contexts: [{{name: {context}, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, \
             command: aws, args: [eks, get-token], interactiveMode: Never}}}}}}]\n"
        )
    }

    #[test]
    fn errors_name_the_files_and_their_contexts() {
        let folder = env::temp_dir().join(format!("kubeconfig-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let paths = [folder.join("one"), folder.join("two")];
        fs::write(&paths[0], kubeconfig("red")).unwrap();
        fs::write(&paths[1], kubeconfig("blue")).unwrap();
        let file = read(&paths).unwrap();
        let command = Some("aws eks get-token".to_owned());
        assert_eq!(selected(&file, &paths, None).unwrap(), ("red".to_owned(), command.clone()));
        assert_eq!(selected(&file, &paths, Some("blue")).unwrap().0, "blue");
        let error = selected(&file, &paths, Some("green")).unwrap_err().to_string();
        let named = named(&paths);
        assert_eq!(error, format!("kubeconfig {named} has no context `green`: it has red, blue"));
        let origin = Origin::Files { paths: paths.to_vec(), context: "red".to_owned(), command };
        let expected = format!(
            "kubeconfig {named}, context `red`, credentials from the command `aws eks get-token`"
        );
        assert_eq!(origin.to_string(), expected);
        fs::remove_dir_all(&folder).unwrap();
    }
}
