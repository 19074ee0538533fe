//! Locates executables. Kubernetes' are in the cache that `tests/kubernetes/build` fills. Ours are
//! next to the running test, or in the folder that `DRANET_SHIPPED` names if shipped ones are
//! tested.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Context;

/// The only source of versions: `go.mod`.
const GO_MOD: &str = include_str!("../kubernetes/go.mod");
/// The same for the older versions of Kubernetes that are supported.
const OLDER_GO_MODS: [(&str, &str); 3] = [
    ("1.34", include_str!("../kubernetes/1.34/go.mod")),
    ("1.35", include_str!("../kubernetes/1.35/go.mod")),
    ("1.36", include_str!("../kubernetes/1.36/go.mod")),
];
/// The variable that selects one of them for the control plane.
const CHOICE: &str = "DRANET_KUBERNETES";
/// The `go.mod` of the container runtime.
const NODE_GO_MOD: &str = include_str!("../node/go.mod");

/// The version of the control plane, `v1.37.1`.
pub fn kubernetes_version() -> anyhow::Result<&'static str> {
    let choice = env::var_os(CHOICE).unwrap_or_default();
    version_in(go_mod_of(&choice.to_string_lossy())?, "k8s.io/kubernetes")
}

/// The `go.mod` of a version such as `1.34`; of the newest if `version` is empty.
fn go_mod_of(version: &str) -> anyhow::Result<&'static str> {
    if version.is_empty() {
        return Ok(GO_MOD);
    }
    let older = OLDER_GO_MODS.into_iter().find(|(name, _)| *name == version);
    older.map(|(_, go_mod)| go_mod).with_context(|| {
        let names = OLDER_GO_MODS.map(|(name, _)| name).join(", ");
        format!("invalid `{CHOICE}={version}`; allowed values: {names}")
    })
}

/// A binary of the control plane, by its name: `kube-apiserver`, `etcd`.
pub fn kubernetes(name: &str) -> anyhow::Result<PathBuf> {
    let directory = match name {
        "etcd" => format!("etcd/{}", version_in(GO_MOD, "go.etcd.io/etcd/server/v3")?),
        "kubectl" | "kubelet" => {
            format!("kubernetes/{}", version_in(GO_MOD, "k8s.io/kubernetes")?)
        }
        _ => format!("kubernetes/{}", kubernetes_version()?),
    };
    let remedy = "`tests/kubernetes/build` builds it, or with `--version`";
    existing(cache()?.join(directory).join(name), remedy)
}

/// A binary of the container runtime, by its name: `containerd`, `runc`, `bridge`.
pub fn node(name: &str) -> anyhow::Result<PathBuf> {
    let (folder, module) = match name {
        "containerd" | "containerd-shim-runc-v2" | "ctr" => {
            ("containerd", "github.com/containerd/containerd/v2")
        }
        "runc" => ("runc", "github.com/opencontainers/runc"),
        _ => ("cni", "github.com/containernetworking/plugins"),
    };
    let version = version_in(NODE_GO_MOD, module)?;
    let path = cache()?.join(format!("node/{folder}-{version}")).join(name);
    existing(path, "`tests/node/build` builds it")
}

/// The small GPU driver, `tests/kubernetes/gpu-driver`.
pub fn gpu_driver() -> anyhow::Result<PathBuf> {
    existing(cache()?.join("tools/gpu-driver"), "`tests/run guest` builds it")
}

/// The folder that holds QEMU and what it boots.
pub fn guest() -> anyhow::Result<PathBuf> {
    built("DRANET_GUEST", "tests/guest/build")
}

/// A tool for testing the chart, by its name: `helm`, `promtool`, `expressions`, `registry`,
/// `definitions`.
pub fn chart_tool(name: &str) -> anyhow::Result<PathBuf> {
    let path = built("DRANET_CHART", "tests/chart/build")?.join(name);
    anyhow::ensure!(path.exists(), "`{}` does not exist", path.display());
    Ok(path)
}

/// What `tests/neighbours/build` builds: Kueue's `kueue`, `definitions`, `webhooks.yaml`, `kueue-version`, `karpenter`,
/// `karpenter-definitions`, and `cluster-autoscaler` if it was asked for.
pub fn neighbour(name: &str) -> anyhow::Result<PathBuf> {
    let path = built("DRANET_NEIGHBOURS", "tests/neighbours/build")?.join(name);
    anyhow::ensure!(path.exists(), "`{}` does not exist", path.display());
    Ok(path)
}

/// What `kubectl dranet` prints.
///
/// # Errors
///
/// Fails with all of its output if the command does.
pub fn kubectl_dranet(args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(ours("kubectl-dranet")?).args(args).output()?;
    let [text, errors] = [output.stdout, output.stderr].map(String::from_utf8);
    let (text, errors) = (text?, errors?);
    anyhow::ensure!(output.status.success(), "kubectl dranet {}: {text}{errors}", args.join(" "));
    Ok(text)
}

/// The folder that a variable names. `tests/run` sets the variable; `script` builds the folder.
fn built(variable: &str, script: &str) -> anyhow::Result<PathBuf> {
    let folder = env::var_os(variable).map(PathBuf::from);
    folder.with_context(|| format!("${variable} is not set; `{script}` builds and prints it"))
}

/// The variable that names the folder of shipped programs.
const SHIPPED: &str = "DRANET_SHIPPED";

/// Whether programs are tested as shipped: optimised, so that their times mean something.
pub fn are_shipped() -> bool {
    env::var_os(SHIPPED).is_some()
}

/// A binary of this workspace, by its name: `node-driver`.
pub fn ours(name: &str) -> anyhow::Result<PathBuf> {
    let shipped = env::var_os(SHIPPED).map(|folder| Path::new(&folder).join(name));
    if let Some(shipped) = shipped.filter(|path| path.is_file()) {
        return Ok(shipped);
    }
    let test = env::current_exe().context("failed to find the running test")?;
    // A test is `target/debug/deps/NAME-HASH`, a binary `target/debug/NAME`.
    let directory = test.ancestors().find(|path| path.join("deps").is_dir());
    let directory = directory
        .with_context(|| format!("`{}` is not in a cargo target directory", test.display()))?;
    existing(directory.join(name), "`cargo build --workspace --bins` builds it")
}

/// A program in one of the folders of `PATH`.
pub fn on_path(name: &str) -> anyhow::Result<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let mut paths = env::split_paths(&folders).map(|folder| folder.join(name));
    paths.find(|path| path.is_file()).with_context(|| format!("`{name}` is not on the PATH"))
}

/// A file below the `tests` directory of the checkout.
pub fn in_tests(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A folder of the cache for what helps to find the cause of a failure: `guest-consoles`.
pub fn kept(name: &str) -> anyhow::Result<PathBuf> {
    Ok(cache()?.join(name))
}

/// The cache that `tests/run` and the scripts below `tests/` use as well.
fn cache() -> anyhow::Result<PathBuf> {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("DRANET_CACHE")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("dranet")))
        .or_else(|| Some(variable("HOME")?.join(".cache/dranet")))
        .context("none of DRANET_CACHE, XDG_CACHE_HOME and HOME is set")
}

fn existing(path: PathBuf, remedy: &str) -> anyhow::Result<PathBuf> {
    anyhow::ensure!(path.is_file(), "`{}` does not exist; {remedy}", path.display());
    Ok(path)
}

fn version_in(go_mod: &'static str, module: &str) -> anyhow::Result<&'static str> {
    go_mod
        .lines()
        .filter_map(|line| {
            // In a `require` block, or on a line with `require`.
            let line = line.trim();
            line.strip_prefix("require ").unwrap_or(line).split_once(' ')
        })
        .find_map(|(name, rest)| (name == module).then(|| rest.split(' ').next()).flatten())
        .with_context(|| format!("no version of `{module}` in its `go.mod`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_go_module() {
        let go_mod = "require (\n\tk8s.io/kubernetes v1.2.3\n\tk8s.io/api v0.2.3 // indirect\n)";
        assert_eq!(version_in(go_mod, "k8s.io/kubernetes").unwrap(), "v1.2.3");
        assert_eq!(version_in(go_mod, "k8s.io/api").unwrap(), "v0.2.3");
        assert!(version_in(go_mod, "k8s.io").is_err());
        assert_eq!(
            version_in("require k8s.io/kubernetes v1.2.3", "k8s.io/kubernetes").unwrap(),
            "v1.2.3"
        );
    }

    #[test]
    fn each_older_go_mod_has_the_version_that_selects_it() {
        for (name, go_mod) in OLDER_GO_MODS {
            let version = version_in(go_mod, "k8s.io/kubernetes").unwrap();
            assert!(version.starts_with(&format!("v{name}.")), "{name} is {version}");
        }
        let error = go_mod_of("1.33").unwrap_err().to_string();
        assert_eq!(error, "invalid `DRANET_KUBERNETES=1.33`; allowed values: 1.34, 1.35, 1.36");
    }

    #[test]
    fn the_error_for_a_missing_binary_says_what_builds_it() {
        let error = ours("no-such-binary").unwrap_err().to_string();
        assert!(error.ends_with("`cargo build --workspace --bins` builds it"), "{error}");
        assert!(error.contains("no-such-binary` does not exist"), "{error}");
    }
}
