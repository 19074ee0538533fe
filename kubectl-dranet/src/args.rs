//! Commands and flags.

use cluster_model::names::NIC_CLASS;
use serve::args::KubeArgs;
use std::path::PathBuf;

/// Shows how GPUs and RDMA NICs are connected and what an annotated pod would get.
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "kubectl-dranet", bin_name = "kubectl dranet", version)]
pub struct Args {
    /// What to show.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Show the PCIe and NUMA distances between the GPUs and NICs of nodes
    Graph(GraphArgs),
    /// Show what admission would make of a pod, why, and which devices it would get
    Plan(PlanArgs),
}

/// Where the objects of the cluster come from.
#[derive(clap::Args, Clone, Debug)]
pub struct SourceArgs {
    /// File or folder of objects as `kubectl get -o yaml` writes them, instead of a live cluster
    #[arg(long, value_name = "PATH", conflicts_with_all = ["kubeconfig", "context"])]
    pub snapshot: Option<PathBuf>,
    /// The live cluster.
    #[command(flatten)]
    pub kube: KubeArgs,
}

/// Flags of `graph`.
#[derive(clap::Args, Clone, Debug)]
pub struct GraphArgs {
    /// Show this node only
    pub node: Option<String>,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Read the machine below this folder (its `sys` and `proc`) instead of a cluster
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["snapshot", "kubeconfig", "context", "node"])]
    pub root: Option<PathBuf>,
    /// Size of the virtual machine, for what its hypervisor hides; only with --root
    #[arg(long, value_name = "SIZE", requires = "root")]
    pub vm_size: Option<String>,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = GraphFormat::Matrix)]
    pub output: GraphFormat,
}

/// Form of a graph.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum GraphFormat {
    /// A matrix as `nvidia-smi topo -m` prints it.
    Matrix,
    /// The graph as JSON, as a NodeTopology holds it.
    Json,
    /// The graph as YAML.
    Yaml,
}

/// Flags of `plan`.
#[derive(clap::Args, Clone, Debug)]
pub struct PlanArgs {
    /// File with the pod; `-` reads standard input
    #[arg(long = "filename", short, value_name = "FILE")]
    pub file: PathBuf,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// DeviceClass of whole GPUs; without it the class named as the GPU driver
    #[arg(long, value_name = "NAME")]
    pub gpu_class: Option<String>,
    /// DeviceClass of the NICs
    #[arg(long, value_name = "NAME", default_value = NIC_CLASS)]
    pub nic_class: String,
    /// Search steps on one node that a claim may take the scheduler at worst
    #[arg(long, value_name = "NUMBER", default_value_t = admission::plan::STEPS_MAX)]
    pub max_steps: u64,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = PlanFormat::Text)]
    pub output: PlanFormat,
}

/// Form of a plan.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanFormat {
    /// Everything, for a person.
    Text,
    /// The template and the rewritten pod as YAML documents.
    Yaml,
    /// One JSON object: pod, template, join, level, steps, and the devices of each node.
    Json,
}
