//! Flags of `graph`.

use super::source::SourceArgs;
use std::path::PathBuf;
use topology_graph::{Fold, Format, Theme};

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
    /// Output format: matrix, tree, json, dot, mermaid, nccl-xml or svg
    #[arg(long, short, value_name = "FORM", default_value_t = Format::Matrix)]
    pub output: Format,
    /// How it looks.
    #[command(flatten)]
    pub look: LookArgs,
    /// Compare with another node; with --root or --nccl-xml, with another folder, archive, or graph that
    /// was written with -o json
    #[arg(long, value_name = "OTHER", conflicts_with_all = ["output", "capture"])]
    pub diff: Option<String>,
    /// Show only the path between two devices and its bottleneck. A device is `GPU0`, `NIC3`, `mlx5_0`, `ens1`,
    /// a UUID, or a PCI address
    #[arg(long, num_args = 2, value_names = ["FROM", "TO"], conflicts_with_all = ["output", "diff", "capture"])]
    pub path: Option<Vec<String>>,
    /// Compare with the text of `nvidia-smi topo -m`, `rocm-smi --showtopo` or `amd-smi topology` in this file,
    /// and list the cells that differ
    #[arg(long, value_name = "FILE", conflicts_with_all = ["output", "diff", "path", "capture"])]
    pub compare: Option<PathBuf>,
    /// Record the machine in an archive (tar, gzip) and print nothing
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
    /// When NICs with equal values share one row and one column of the matrix: auto (if a line would
    /// have more than 160 characters), always, or never
    #[arg(long, value_name = "WHEN", default_value_t = Fold::Auto)]
    pub fold: Fold,
    /// Colours of the picture (-o svg): auto (the viewer decides), light, or dark
    #[arg(long, value_name = "THEME", default_value_t = Theme::Auto)]
    pub theme: Theme,
}

/// A machine that is read directly.
#[derive(clap::Args, Clone, Debug)]
pub struct MachineArgs {
    /// Read a machine from this folder (with its `sys` and `proc`), this archive (tar, gzip or bzip2),
    /// this graph that was written with -o json, the output of `lspci -tv`, `lspci -vvv` or both, or
    /// `lspci -PP`, or XML of hwloc (`lstopo --of xml`)
    #[arg(long, value_name = "PATH", conflicts_with_all = ["snapshot", "kubeconfig", "context", "node"])]
    pub root: Option<PathBuf>,
    /// NCCL topology file to add to the machine of --root, or to show alone
    #[arg(long, value_name = "FILE", conflicts_with_all = ["snapshot", "kubeconfig", "context", "node", "vm_size"])]
    pub nccl_xml: Option<PathBuf>,
    /// Size of the virtual machine, to add what its hypervisor hides; only with --root
    #[arg(long, value_name = "SIZE", requires = "root")]
    pub vm_size: Option<String>,
}
