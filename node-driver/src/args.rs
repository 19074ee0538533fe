//! The command line.

use crate::facts::cloud::CloudProvider;
use crate::kubelet::args::PluginArgs;
use clap::builder::PossibleValue;
use clap::{Parser, ValueEnum};
use cluster_model::node_labels::NodeLabels;
use process::args::{KubeArgs, LogArgs};
use publication::filter::{self, Filter};
use publication::health::taint::TaintArgs;
use publication::judge::{BindNics, Rules};
use publication::network::HostNics;
use publication::sharing::SharingArgs;
use serve::args::OperationsArgs;
use std::path::PathBuf;

/// Publish the RDMA NICs of this node as ResourceSlices, and the distances
/// between its GPUs and NICs as a NodeTopology
#[derive(Clone, Debug, Parser)]
#[command(name = "node-driver", version)]
#[command(
    after_help = "The container runtime runs `node-driver attach` as a hook, the kubelet runs `node-driver probe`, people run `node-driver inspect`, an init container runs `node-driver modules`, and the container of a vendor's NIC driver `node-driver vendor-driver`; all have --help."
)]
pub struct Args {
    /// Directory that contains the host's sys, proc, dev, run and etc
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Name of this machine's Node
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: String,
    /// Cluster to publish to
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Cloud whose metadata service names machine type and fabric; auto detects it from the firmware
    #[arg(long, value_enum, default_value_t = Cloud::Auto)]
    pub cloud: Cloud,
    /// Base address of the metadata service; defaults to the cloud's own, `http://169.254.169.254`
    /// or Alibaba's `http://100.100.100.200`
    #[arg(long, value_name = "URL")]
    pub imds_url: Option<String>,
    /// Path of an NCCL topology file on the host; defaults to the file that /etc/nccl.conf names,
    /// otherwise to that of nvidia-topologyd
    #[arg(long, value_name = "PATH", env = "NCCL_TOPO_FILE")]
    pub nccl_topo_file: Option<String>,
    /// File with drivers of accelerators and NICs that are not built in
    #[arg(long, value_name = "FILE")]
    pub drivers: Option<PathBuf>,
    /// What to publish: NICs and topology, or only the topology if another driver publishes the NICs
    #[arg(long, value_enum, default_value_t = Mode::Full)]
    pub mode: Mode,
    /// What is published of the NICs
    #[command(flatten)]
    pub nics: NicArgs,
    /// Which NICs claims can share
    #[command(flatten)]
    pub sharing: SharingArgs,
    /// Labels of nodes that bind NICs late in any case, as comma-separated KEY=VALUE that all must be
    /// there; repeatable, one of them selects a node. A node whose pods have NICs changes when these
    /// pods have ended
    #[arg(long = "late-nodes", value_name = "LABELS")]
    pub late_nodes: Vec<NodeLabels>,
    /// Kubelet's configuration file: its topologyManagerPolicy says on which NUMA nodes a pod gets the GPUs
    /// of a device plugin, and the extender forecasts with it; without the file it is published as
    /// unknown
    #[arg(long, value_name = "FILE")]
    pub kubelet_config: Option<PathBuf>,
    /// Taints for NICs with problems
    #[command(flatten)]
    pub taints: TaintArgs,
    /// Publish once and exit
    #[arg(long)]
    pub once: bool,
    /// Remove what was published for this node and exit
    #[arg(long, conflicts_with = "once")]
    pub cleanup: bool,
    /// Seconds between reads of the machine if no event arrives
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub rescan_seconds: u64,
    /// The kubelet and the container runtime
    #[command(flatten)]
    pub plugin: PluginArgs,
    /// How the host is prepared
    #[cfg(feature = "host-setup")]
    #[command(flatten)]
    pub setup: host_setup::args::SetupArgs,
    /// Health and metrics
    #[command(flatten)]
    pub operations: OperationsArgs,
    /// Logging
    #[command(flatten)]
    pub log: LogArgs,
}

/// Which NICs are published, and what for.
#[derive(clap::Args, Clone, Debug)]
pub struct NicArgs {
    /// Which NICs to publish: a CEL expression over `attributes`, a map of device attributes
    /// with the fields `StringValue`, `IntValue`, `BoolValue`; empty publishes all
    #[arg(long, value_name = "CEL", default_value = filter::DEFAULT)]
    pub filter: Filter,
    /// What NICs are for: a CEL expression as for `--filter` whose result is `compute`, `storage` or
    /// `management`; any other result, and an error, leaves the role that the driver finds
    #[arg(long, value_name = "CEL", default_value = "", hide_default_value = true)]
    pub nic_role: Filter,
    /// Rails of compute NICs: a CEL expression as for `--filter` whose result is the number of a rail; a
    /// NIC with any other result, and one on which it fails, has no rail. The node's own file `rails` in
    /// the directory of `--run-dir` comes first. Without both, NICs are numbered by PCI address
    #[arg(long, value_name = "CEL", default_value = "", hide_default_value = true)]
    pub nic_rail: Filter,
    /// NICs of the host and of pods
    #[command(flatten)]
    pub host_nics: HostNics,
    /// How pods get compute NICs: by name, as the scheduler chooses them, or late: the scheduler counts
    /// them, and when a pod starts it gets the NICs nearest to the GPUs that a device plugin gave it
    #[arg(long, value_enum, default_value_t = BindNics::Named)]
    pub bind_nics: BindNics,
}

impl NicArgs {
    /// The rules that the operator and this driver have for NICs, without taints.
    pub(crate) fn rules(&self) -> Rules {
        Rules {
            filter: self.filter.clone(),
            nic_role: self.nic_role.clone(),
            nic_rail: self.nic_rail.clone(),
            one_function_per_port: true,
            something_to_give: true,
            ..Rules::default()
        }
    }
}

/// What to publish.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// ResourceSlices and NodeTopology.
    Full,
    /// NodeTopology only.
    Topology,
}

/// Which cloud to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cloud {
    /// The cloud that the firmware names.
    Auto,
    /// A given cloud.
    Provider(CloudProvider),
}

impl Cloud {
    /// The given cloud, if any.
    pub fn provider(self) -> Option<CloudProvider> {
        match self {
            Self::Auto => None,
            Self::Provider(provider) => Some(provider),
        }
    }
}

impl ValueEnum for Cloud {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Auto,
            Self::Provider(CloudProvider::Alibaba),
            Self::Provider(CloudProvider::Aws),
            Self::Provider(CloudProvider::Azure),
            Self::Provider(CloudProvider::Gce),
            Self::Provider(CloudProvider::Oci),
            Self::Provider(CloudProvider::None),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Self::Auto => "auto",
            Self::Provider(CloudProvider::Alibaba) => "alibaba",
            Self::Provider(CloudProvider::Aws) => "aws",
            Self::Provider(CloudProvider::Azure) => "azure",
            Self::Provider(CloudProvider::Gce) => "gce",
            Self::Provider(CloudProvider::Oci) => "oci",
            Self::Provider(CloudProvider::None) => "none",
        }))
    }
}
