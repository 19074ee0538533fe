//! Flags about the cluster that is read.

use cluster_model::names::ADMISSION_NAMESPACE;
use dra_allocator::MinorVersion;
use process::args::KubeArgs;
use std::path::PathBuf;

/// Where the objects of the cluster come from.
#[derive(clap::Args, Clone, Debug)]
pub struct SourceArgs {
    /// Read this instead of a live cluster: a file that `kubectl dranet snapshot` wrote, or a file or
    /// folder of objects from `kubectl get -o yaml`
    #[arg(long, value_name = "PATH", conflicts_with_all = ["kubeconfig", "context"])]
    pub snapshot: Option<PathBuf>,
    /// Kubernetes version of the cluster that --snapshot shows, such as `1.36`; defaults to the version
    /// in the snapshot, otherwise to the newest that is supported
    #[arg(long, value_name = "VERSION", value_parser = version, requires = "snapshot")]
    pub kubernetes_version: Option<MinorVersion>,
    /// The live cluster.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// The user of requests.
    #[command(flatten)]
    pub user: UserArgs,
}

/// On whose behalf to ask, as kubectl's flags of the same names.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct UserArgs {
    /// User on whose behalf to read the cluster, such as `jane` or
    /// `system:serviceaccount:NAMESPACE:NAME`
    #[arg(long = "as", value_name = "USER", conflicts_with = "snapshot")]
    pub name: Option<String>,
    /// Group on whose behalf to read the cluster, with --as; may be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "name")]
    pub groups: Vec<String>,
}

/// Parses a known Kubernetes version.
fn version(text: &str) -> Result<MinorVersion, String> {
    MinorVersion::parse(text).ok_or_else(|| {
        let (oldest, newest) = (MinorVersion::V1_34, MinorVersion::V1_37);
        format!("supported versions: {oldest} to {newest}")
    })
}

/// What admission knows in addition to the cluster's devices.
#[derive(clap::Args, Clone, Debug)]
pub struct AdmissionArgs {
    /// Namespace for objects that do not set one; defaults to that of the kubeconfig's context
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Namespace of admission, which remembers machine types there
    #[arg(long, value_name = "NAME", default_value = ADMISSION_NAMESPACE)]
    pub admission_namespace: String,
}
