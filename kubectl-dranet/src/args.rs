//! Commands and flags.

use crate::capacity::PodShape;
use admission::fabric::FabricPlacement;
use admission::lint::Severity;
use admission::plan::Policy;
use cluster_model::names::{ADMISSION_NAMESPACE, NIC_CLASS};
use process::args::KubeArgs;
use std::path::PathBuf;
use topology_graph::{Fold, Format, Theme};

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
    /// Show why a pod is pending: what fails on which nodes, who holds the devices, and the
    /// smallest change that would let it run
    #[command(after_help = "Exit code: 0 where each pod runs or fits, 3 where one does not.\n\n\
                            Only devices, node selectors and node affinity are looked at; \
                            `kubectl describe pod` tells of CPU, memory and node taints.")]
    Explain(ExplainArgs),
    /// Show what running pods got: the path of each GPU to its NICs, against what was promised
    /// and what was possible
    #[command(
        after_help = "Exit code: 0, or 3 where a pod has less than was promised to it, or a \
                            NIC does not carry what it could."
    )]
    Verify(VerifyArgs),
    /// Show how many more pods of a shape fit, by type of machine and fabric, and what keeps
    /// larger ones out
    Capacity(CapacityArgs),
    /// Show what is wrong, in this cluster, with claims or claim templates that were written by hand
    #[command(
        after_help = "Exit code: 0 where nothing counts, 3 where a finding is as bad as --fail-on or worse."
    )]
    Lint(LintArgs),
    /// Show what of this cluster keeps pods with annotations from what they ask for
    #[command(
        after_help = "Exit code: 0 where nothing counts, 3 where a finding is as bad as --fail-on or worse."
    )]
    Doctor(DoctorArgs),
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

/// What admission knows beside the cluster's devices.
#[derive(clap::Args, Clone, Debug)]
pub struct AdmissionArgs {
    /// Namespace of what names none; without it that of the kubeconfig's context
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Namespace of admission, where it remembers machines
    #[arg(long, value_name = "NAME", default_value = ADMISSION_NAMESPACE)]
    pub admission_namespace: String,
}

/// Flags of `graph`.
#[derive(clap::Args, Clone, Debug)]
pub struct GraphArgs {
    /// Show this node only
    pub node: Option<String>,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// The machine, instead of a node.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// Form of the output: matrix, tree, json, dot, mermaid, nccl-xml or svg
    #[arg(long, short, value_name = "FORM", default_value_t = Format::Matrix)]
    pub output: Format,
    /// How it looks.
    #[command(flatten)]
    pub look: LookArgs,
    /// Show instead what is different in this one: another node, or with --root or --nccl-xml another
    /// folder, archive, or graph that was written with -o json
    #[arg(long, value_name = "OTHER", conflicts_with_all = ["output", "capture"])]
    pub diff: Option<String>,
    /// Show instead the way between two devices and where it is narrowest: `GPU0`, `NIC3`, `mlx5_0`,
    /// `ens1`, a UUID, or a PCI address
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], conflicts_with_all = ["output", "diff", "capture"])]
    pub path: Option<Vec<String>>,
    /// Write what is read of the machine as an archive (tar, gzip) and show nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["snapshot", "kubeconfig", "context", "node", "nccl_xml", "output"])]
    pub capture: Option<PathBuf>,
    /// Replace GUIDs and UUIDs in the capture
    #[arg(long, requires = "capture")]
    pub mask: bool,
}

/// How a graph looks.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct LookArgs {
    /// Leave NICs out of the matrix
    #[arg(long)]
    pub gpus_only: bool,
    /// When NICs with equal cells share one row and one column of the matrix: auto (where a line
    /// would have more than 160 characters), always, or never
    #[arg(long, value_name = "WHEN", default_value_t = Fold::Auto)]
    pub fold: Fold,
    /// Colours of the picture (-o svg): auto (as the viewer prefers), light, or dark
    #[arg(long, value_name = "THEME", default_value_t = Theme::Auto)]
    pub theme: Theme,
}

/// A machine that is read directly.
#[derive(clap::Args, Clone, Debug)]
pub struct MachineArgs {
    /// Read the machine below this folder (its `sys` and `proc`), in this archive (tar, gzip or
    /// bzip2), or from this graph that was written with -o json
    #[arg(long, value_name = "PATH", conflicts_with_all = ["snapshot", "kubeconfig", "context", "node"])]
    pub root: Option<PathBuf>,
    /// Topology file of NCCL: laid over the machine of --root, or shown alone
    #[arg(long, value_name = "FILE", conflicts_with_all = ["snapshot", "kubeconfig", "context", "node", "vm_size"])]
    pub nccl_xml: Option<PathBuf>,
    /// Size of the virtual machine, for what its hypervisor hides; only with --root
    #[arg(long, value_name = "SIZE", requires = "root")]
    pub vm_size: Option<String>,
}

/// The pods that a command is about.
#[derive(clap::Args, Clone, Debug)]
#[group(required = true, multiple = false)]
pub struct SubjectArgs {
    /// Pod of the cluster, as NAME or pod/NAME
    pub pod: Option<String>,
    /// File with pods, or with workloads of any kind that have pod templates (Deployment, Job
    /// and others); `-` reads standard input
    #[arg(long = "filename", short, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// What admission was set to.
#[derive(clap::Args, Clone, Debug)]
pub struct PolicyArgs {
    /// DeviceClass of whole GPUs; without it the class named as the GPU driver
    #[arg(long, value_name = "NAME")]
    pub gpu_class: Option<String>,
    /// DeviceClass of the NICs
    #[arg(long, value_name = "NAME", default_value = NIC_CLASS)]
    pub nic_class: String,
    /// Search steps on one node that a claim may take the scheduler at worst
    #[arg(long, value_name = "NUMBER", default_value_t = admission::plan::STEPS_MAX)]
    pub max_steps: u64,
    /// Namespace whose pods may set addresses and routes of NICs; may be repeated, `*` is all
    #[arg(long = "network-namespace", value_name = "NAME")]
    pub network_namespaces: Vec<String>,
    /// Whether to decide as where the fabric controller is on, as the chart installs it
    #[arg(
        long, value_name = "BOOL", default_value_t = true, num_args = 0..=1,
        default_missing_value = "true", action = clap::ArgAction::Set
    )]
    pub fabric_controller: bool,
}

impl PolicyArgs {
    /// What admission decides by.
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            gpu_class: self.gpu_class.clone(),
            nic_class: self.nic_class.clone(),
            max_steps: self.max_steps,
            network_namespaces: self.network_namespaces.clone(),
            fabric: if self.fabric_controller {
                FabricPlacement::Gates
            } else {
                FabricPlacement::Off
            },
            ..Policy::default()
        }
    }
}

/// Flags of `plan`.
#[derive(clap::Args, Clone, Debug)]
pub struct PlanArgs {
    /// The pods.
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What admission knows beside.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// What admission was set to.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = PlanFormat::Text)]
    pub output: PlanFormat,
}

/// Flags of `explain`.
#[derive(clap::Args, Clone, Debug)]
pub struct ExplainArgs {
    /// The pods.
    #[command(flatten)]
    pub subject: SubjectArgs,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What admission knows beside.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// What admission was set to.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = TextOrJson::Text)]
    pub output: TextOrJson,
}

/// Flags of `verify`.
#[derive(clap::Args, Clone, Debug)]
pub struct VerifyArgs {
    /// Pod, as NAME or pod/NAME; without it every pod of the namespace that has GPUs and NICs
    pub pod: Option<String>,
    /// Pods of all namespaces
    #[arg(long, short = 'A', conflicts_with_all = ["pod", "namespace"])]
    pub all_namespaces: bool,
    /// Namespace of the pods; without it that of the kubeconfig's context
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = TextOrJson::Text)]
    pub output: TextOrJson,
}

/// Flags of `capacity`.
#[derive(clap::Args, Clone, Debug)]
pub struct CapacityArgs {
    /// Pods to count, as `1gpu:2nic` or with a level `2gpu:2nic:switch`; may be repeated.
    /// Without it: 1, 2, 4 and 8 GPUs with as many NICs
    #[arg(long = "shape", value_name = "SHAPE")]
    pub shapes: Vec<PodShape>,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What admission knows beside.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// What admission was set to.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = TextOrJson::Text)]
    pub output: TextOrJson,
}

/// Form of an answer.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextOrJson {
    /// Text, for a person.
    Text,
    /// One JSON document.
    Json,
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

/// Flags of `lint`.
#[derive(clap::Args, Clone, Debug)]
pub struct LintArgs {
    /// File with ResourceClaims or ResourceClaimTemplates; `-` reads standard input
    #[arg(long = "filename", short, value_name = "FILE")]
    pub file: PathBuf,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What admission knows beside.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// Search steps on one node that a claim may take the scheduler at worst
    #[arg(long, value_name = "NUMBER", default_value_t = admission::plan::STEPS_MAX)]
    pub max_steps: u64,
    /// The least bad finding that counts for the exit code
    #[arg(long, value_enum, default_value_t = FailOn::Warning)]
    pub fail_on: FailOn,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = LintFormat::Text)]
    pub output: LintFormat,
}

/// Flags of `doctor`.
#[derive(clap::Args, Clone, Debug)]
pub struct DoctorArgs {
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// DeviceClass of the NICs
    #[arg(long, value_name = "NAME", default_value = NIC_CLASS)]
    pub nic_class: String,
    /// The least bad finding that counts for the exit code
    #[arg(long, value_enum, default_value_t = FailOn::Warning)]
    pub fail_on: FailOn,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = LintFormat::Text)]
    pub output: LintFormat,
}

/// A severity as a flag.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailOn {
    /// The claim does less than it looks like.
    Note,
    /// It works now, and will not always.
    Warning,
    /// No pod with it can be scheduled as things are.
    Error,
}

impl From<FailOn> for Severity {
    fn from(flag: FailOn) -> Self {
        match flag {
            FailOn::Note => Self::Note,
            FailOn::Warning => Self::Warning,
            FailOn::Error => Self::Error,
        }
    }
}

/// Form of findings.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LintFormat {
    /// A line for each, for a person.
    Text,
    /// One JSON object with the findings.
    Json,
}
