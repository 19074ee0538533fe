//! Reads from the kubelet's configuration file how it chooses the GPUs of device plugins. The file needs
//! no right in the cluster; the kubelet's endpoint `/configz` would need `nodes/proxy`.

use cluster_model::topology_policy::{KubeletConfigError, TopologyPolicy};
use process::chain::Chain;
use std::path::PathBuf;
use std::{fs, io};

/// The kubelet's configuration file, which may change while the driver runs.
#[derive(Debug, Default)]
pub(crate) struct KubeletConfig {
    path: Option<PathBuf>,
    /// The last error, so that each is logged once.
    error: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("failed to read the kubelet's configuration `{}`", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("the kubelet's configuration `{}` is invalid", path.display())]
    Invalid { path: PathBuf, source: Box<KubeletConfigError> },
}

impl KubeletConfig {
    /// The file at this path, or none.
    pub(crate) fn at(path: Option<PathBuf>) -> Self {
        Self { path, error: None }
    }

    /// The policy that the file says; `None` without a file that can be read.
    pub(crate) fn topology_policy(&mut self) -> Option<TopologyPolicy> {
        match self.read()? {
            Ok(policy) => {
                self.error = None;
                Some(policy)
            }
            Err(error) => {
                let error = Chain(&error).to_string();
                if self.error.as_ref() != Some(&error) {
                    tracing::warn!(
                        error,
                        "The policy of the kubelet's topology manager is unknown"
                    );
                }
                self.error = Some(error);
                None
            }
        }
    }

    fn read(&self) -> Option<Result<TopologyPolicy, ReadError>> {
        let path = self.path.clone()?;
        let text = fs::read_to_string(&path);
        let text = text.map_err(|source| ReadError::Io { path: path.clone(), source });
        Some(text.and_then(|text| {
            let policy = TopologyPolicy::of_config(&text);
            policy.map_err(|source| ReadError::Invalid { path, source: Box::new(source) })
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_leaves_the_policy_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.yaml");
        let mut config = KubeletConfig::at(Some(path.clone()));
        assert_eq!(config.topology_policy(), None);
        assert!(config.error.as_ref().is_some_and(|error| error.contains("failed to read")));
        fs::write(&path, "topologyManagerPolicy: restricted\n").unwrap();
        assert_eq!(config.topology_policy(), Some(TopologyPolicy::Restricted));
        assert_eq!(config.error, None);
        fs::write(&path, "topologyManagerPolicy: other\n").unwrap();
        assert_eq!(config.topology_policy(), None);
        assert!(config.error.as_ref().is_some_and(|error| error.contains("`other`")));
        assert_eq!(KubeletConfig::default().topology_policy(), None);
    }
}
