//! Commands and flags.

mod bench;
mod cluster;
mod defrag;
mod files;
mod form;
mod graph;
mod pods;
mod simulate;
mod source;
mod ui;

pub use bench::{Against, BenchArgs};
pub use cluster::{
    CapacityArgs, DoctorArgs, FabricArgs, LintArgs, MachinesArgs, PoolsArgs, TopArgs, TrialArgs,
    VersionArgs,
};
pub use defrag::{DefragArgs, OwnerName, OwnerNameError};
pub use files::{
    CompletionArgs, DiffArgs, ManArgs, MigrateArgs, MigrateFormat, Shell, SnapshotArgs,
};
pub use form::{FailOn, Form, ListForm, MachinesForm, PlanFormat, Shown};
pub use graph::{GraphArgs, LookArgs, MachineArgs};
pub use pods::{ExplainArgs, PlanArgs, PolicyArgs, SubjectArgs, VerifyArgs};
pub use simulate::{AddedNodes, AddedNodesError, SimulateArgs};
pub use source::{AdmissionArgs, SourceArgs, UserArgs};
pub use ui::UiArgs;

use cluster_model::snapshot::UNPACKED_MIB;
use std::path::PathBuf;

/// Shows how GPUs and RDMA NICs are connected and what an annotated pod would get.
#[derive(clap::Parser, Clone, Debug)]
#[command(
    name = "kubectl-dranet",
    bin_name = "kubectl dranet",
    version,
    after_help = "Exit codes: 0 success; 1 the command failed; 2 invalid flags; 3 a pod is denied, does \
                  not fit or has less than promised, or a finding is as severe as --fail-on.\n\n\
                  `kubectl dranet COMMAND --help` has examples."
)]
pub struct Args {
    /// File with drivers of accelerators and NICs that are not built in, as the cluster's programs
    /// have it
    #[arg(long, value_name = "FILE", global = true)]
    pub drivers: Option<PathBuf>,
    /// Maximum size of the objects of compressed files after decompression, in MiB
    #[arg(long, value_name = "MIB", global = true, default_value_t = UNPACKED_MIB)]
    pub max_unpacked_mib: u32,
    /// What to show.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Show the PCIe and NUMA distances between the GPUs and NICs of nodes
    #[command(after_help = "Examples:
  kubectl dranet graph                             the matrix of each shape of node
  kubectl dranet graph NODE -o svg > node.svg      a picture
  kubectl dranet graph NODE --path GPU0 mlx5_3     the path between two devices
  kubectl dranet graph --root / --capture m.tar.gz record this machine, to look at it elsewhere")]
    Graph(GraphArgs),
    /// Show what admission makes of a pod, why, and which devices it would get
    #[command(after_help = "Exit code: 3 if a pod is denied, otherwise 0.

Examples:
  kubectl dranet plan -f job.yaml                  any kind that has pod templates
  kubectl dranet plan pod/train-0 -n training      a pod of the cluster
  kubectl dranet plan -f pod.yaml --show claim,pod the claim and the pod that it becomes
  kubectl dranet plan -f pod.yaml -o yaml | kubectl apply -f -")]
    Plan(PlanArgs),
    /// Show why a pod is pending: what fails on which nodes, who holds the devices, and the
    /// smallest change that would let it run
    #[command(after_help = "Exit code: 3 if a pod neither runs nor fits, otherwise 0.

It checks devices, quotas, LimitRanges, node selectors and node affinity, whether nodes are ready, \
their taints, CPU, memory and other requests, host ports, volumes, pod affinity and topology spread. A \
note names what cannot be checked.

Examples:
  kubectl dranet explain pod/train-0 -n training
  kubectl dranet explain job/train -n training     the first of its pods that waits
  kubectl dranet explain --pending -A              all that wait
  kubectl dranet explain -f job.yaml -o json")]
    Explain(ExplainArgs),
    /// Show what running pods got: the path from each GPU to its NICs, compared with what was
    /// promised and what was possible
    #[command(
        after_help = "Exit code: 3 if a pod has less than promised, if the port or the PCIe \
link of a NIC is down or degraded, or with --gpudirect if a NIC cannot reach the memory of its GPU; \
otherwise 0.

Examples:
  kubectl dranet verify -A
  kubectl dranet verify -A --gpudirect
  kubectl dranet verify -n training -l app=train -o wide"
    )]
    Verify(VerifyArgs),
    /// Show how many more pods of a shape fit, by machine type and fabric, and what keeps larger
    /// pods out
    #[command(after_help = "Examples:
  kubectl dranet capacity
  kubectl dranet capacity --shape 8gpu:8nic --shape 2gpu:2nic:switch -o json")]
    Capacity(CapacityArgs),
    /// Schedule pods one after another on the cluster as it is, or with more nodes: show where
    /// each would land, and what would stay pending and why
    #[command(after_help = "Exit code: 3 if a pod stays pending, otherwise 0.

Claims, selectors, node affinity, taints, and requests of CPU, memory and other resources decide which nodes are possible. The scores of scheduler-ext rank them. If several nodes have the same score, kube-scheduler decides by its own scores. Pod affinity and topology spread are ignored; a note names each workload that has them.

Examples:
  kubectl dranet simulate -f job.yaml
  kubectl dranet simulate -f jobs.yaml --add-nodes p5.48xlarge=4
  kubectl dranet simulate -f jobs.yaml --snapshot cluster.gz -o json")]
    Simulate(SimulateArgs),
    /// Find the fewest pods to move so that a waiting pod, its group, or more pods of a shape fit
    #[command(
        after_help = "Exit code: 3 if no plan is found, or if --apply stops early, otherwise 0.

Without --apply it only reads. Only pods are moved that have the annotation `dranet.io/movable: \"true\"`, \
or whose controller --movable-owner names, and that a controller creates again.

kube-scheduler places the new pods: where one is on another node than planned, --apply stops.

Examples:
  kubectl dranet defrag pod/train-0 -n training
  kubectl dranet defrag -f job.yaml --count 4 --movable-owner Deployment/web
  kubectl dranet defrag pod/train-0 -n training --apply"
    )]
    Defrag(DefragArgs),
    /// Measure the bandwidth between two pods with aligned devices (`ib_write_bw` or an NCCL test),
    /// and compare it with the rates of their links
    #[command(after_help = "Exit code: 3 if the result is below --at-least, otherwise 0.

It creates two pods, reads their status, and deletes them at the end, also if you interrupt it. If \
it is killed, the pods end by themselves one minute after --timeout, and `kubectl delete pod -l \
bench.dranet.io/run` deletes them.

With --nccl it compares the bus bandwidth with the NICs of a pod together.

Examples:
  kubectl dranet bench
  kubectl dranet bench --nodes gpu-1,gpu-2 --gpu-memory
  kubectl dranet bench -- -x 3 -q 4                flags for ib_write_bw
  kubectl dranet bench --nccl --gpus 8 --nics 8
  kubectl dranet bench --dry-run")]
    Bench(BenchArgs),
    /// Find mistakes in hand-written claims and claim templates, and in annotated pods of the cluster
    #[command(after_help = "Exit code: 3 if a finding is at least as severe as --fail-on, \
otherwise 0.

Examples:
  kubectl dranet lint -f template.yaml             before you apply it
  kubectl dranet lint -A                           what is in the cluster")]
    Lint(LintArgs),
    /// Diagnose why annotated pods cannot be scheduled in this cluster
    #[command(after_help = "Exit code: 3 if a finding is at least as severe as --fail-on, \
otherwise 0.

Examples:
  kubectl dranet doctor
  kubectl dranet doctor --try                      also run an aligned pod
  kubectl dranet doctor --fail-on error -o json")]
    Doctor(DoctorArgs),
    /// Show which groups of pods wait for a fabric and why, and what is free on each fabric
    #[command(after_help = "Examples:
  kubectl dranet fabric
  kubectl dranet fabric -o yaml")]
    Fabric(FabricArgs),
    /// Show what is free on each node (GPUs, NICs, whole cells) and the state of its ports
    #[command(after_help = "Examples:
  kubectl dranet top
  kubectl dranet top --once -o wide -l node.kubernetes.io/instance-type=p5.48xlarge")]
    Top(TopArgs),
    /// Serve a page on this machine that shows the cluster as it changes: fabrics, nodes, devices and
    /// pods, and why pods wait
    #[command(
        after_help = "The page is read-only, and for this machine only: the address that is \
printed contains a token. On another machine, forward the port: `ssh -L PORT:127.0.0.1:PORT`.

Examples:
  kubectl dranet ui
  kubectl dranet ui --snapshot cluster.gz
  kubectl dranet ui -o cluster.html                one file, for a ticket"
    )]
    Ui(UiArgs),
    /// Show the addresses of NicPools: how many are used and free, and which claims use them
    #[command(after_help = "Examples:
  kubectl dranet pools
  kubectl dranet pools rdma -o json")]
    Pools(PoolsArgs),
    /// Show the known machine types, or what an autoscaler needs to know of a node of one
    #[command(after_help = "The devices of the node are healthy. Its names, addresses and serial \
numbers are those of the machine that it is a copy of.

Examples:
  kubectl dranet machines
  kubectl dranet machines azure-gb300 --built-in -o slices
  kubectl dranet machines Standard_ND128isr_GB300_v6 -o karpenter
  kubectl dranet machines aws-p5 --built-in -o kwok | kubectl apply -f -")]
    Machines(MachinesArgs),
    /// Write everything that the other commands need to one compressed file
    #[command(after_help = "The file has no volumes, environment variables or command lines of \
pods, and no Secrets. Every command reads it with --snapshot.

Examples:
  kubectl dranet snapshot -o cluster.gz
  kubectl dranet snapshot --mask -o for-a-bug-report.gz
  kubectl dranet explain pod/train-0 -n training --snapshot cluster.gz")]
    Snapshot(SnapshotArgs),
    /// Show what changed between two snapshots
    #[command(after_help = "Examples:
  kubectl dranet diff before.gz after.gz")]
    Diff(DiffArgs),
    /// Convert the networks and device plugins of a NIC operator, and the pods that use them
    #[command(after_help = "It reads NicClusterPolicy, MacvlanNetwork, HostDeviceNetwork, \
IPoIBNetwork, SriovNetwork, SriovNetworkNodePolicy, NetworkAttachmentDefinition, IPPool and CIDRPool, \
the ConfigMaps of the shared RDMA and the SR-IOV device plugin, pods, and objects with pod templates.

Examples:
  kubectl dranet migrate -f operator.yaml -f pods.yaml > dranet.yaml
  kubectl get nicclusterpolicy -o yaml | kubectl dranet migrate -f - -o json")]
    Migrate(MigrateArgs),
    /// Show the versions of this program, of the API server, and of the project's components
    #[command(after_help = "Examples:
  kubectl dranet version
  kubectl dranet version --client -o json")]
    Version(VersionArgs),
    /// Write the completion script for a shell
    #[command(after_help = "Examples:
  kubectl dranet completion bash > /etc/bash_completion.d/kubectl-dranet
  kubectl dranet completion kubectl > kubectl_complete-dranet && chmod +x kubectl_complete-dranet

kubectl runs `kubectl_complete-dranet` from the PATH to complete `kubectl dranet`.")]
    Completion(CompletionArgs),
    /// Show the manual page, or write the pages of all commands
    #[command(after_help = "Examples:
  kubectl dranet man | man -l -
  kubectl dranet man -o /usr/local/share/man/man1")]
    Man(ManArgs),
    /// Complete a command line, for `kubectl_complete-dranet`
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete {
        /// The words after `kubectl dranet`, the last of which is to be completed.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

impl Command {
    /// Returns true if the output is findings or answers as text, whose lines fit a terminal and in
    /// which words may be coloured.
    pub fn is_for_people(&self) -> bool {
        match self {
            Self::Plan(args) => args.output == PlanFormat::Text,
            Self::Explain(args) => args.output == Form::Text,
            Self::Verify(args) => args.output.is_table(),
            Self::Capacity(args) => args.output == Form::Text,
            Self::Simulate(args) => args.output == Form::Text,
            Self::Defrag(args) => args.output == Form::Text,
            Self::Bench(args) => args.output == Form::Text && !args.dry_run,
            Self::Lint(args) => args.output == Form::Text,
            Self::Doctor(args) => args.output == Form::Text,
            Self::Fabric(args) => args.output == Form::Text,
            Self::Top(args) => args.output.is_table(),
            Self::Pools(args) => args.output.is_table(),
            Self::Machines(args) => args.machine.is_none() && args.output == MachinesForm::Text,
            Self::Diff(args) => args.output == Form::Text,
            Self::Version(args) => args.output == Form::Text,
            Self::Graph(_)
            | Self::Snapshot(_)
            | Self::Ui(_)
            | Self::Migrate(_)
            | Self::Completion(_)
            | Self::Man(_)
            | Self::Complete { .. } => false,
        }
    }
}
