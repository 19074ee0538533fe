//! Flags of `bench`.

use super::form::Form;
use process::args::KubeArgs;

/// An image that has perftest with CUDA, nccl-tests, Open MPI, and a shell.
const IMAGE: &str = "ghcr.io/coreweave/nccl-tests:12.9.1-devel-ubuntu24.04-nccl2.29.2-1-d73ec07";

/// What the bandwidth of aligned pods is compared with.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// Pods whose NIC is far from the GPU.
    Unaligned,
}

/// Flags of `bench`.
#[derive(clap::Args, Clone, Debug)]
pub struct BenchArgs {
    /// Image of both pods, with `/bin/sh` and perftest's `ib_write_bw`; with --nccl, Open MPI and
    /// nccl-tests
    #[arg(long, value_name = "IMAGE", default_value = IMAGE)]
    pub image: String,
    /// Nodes of the server and of the client; by default the scheduler chooses two nodes, on one fabric
    /// if the first node has one
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub nodes: Vec<String>,
    /// Scheduler of the pods; defaults to the cluster's default scheduler
    #[arg(long, value_name = "NAME")]
    pub scheduler: Option<String>,
    /// Key of a taint that the pods tolerate in addition to those of GPU operators (`nvidia.com/gpu`,
    /// `amd.com/gpu`); may be repeated
    #[arg(long = "toleration", value_name = "KEY")]
    pub tolerations: Vec<String>,
    /// Run an NCCL test over all GPUs and NICs of the pods, not `ib_write_bw`: a program of
    /// nccl-tests
    #[arg(long, value_name = "PROGRAM", num_args = 0..=1,
          default_missing_value = "all_reduce_perf")]
    pub nccl: Option<String>,
    /// Run the NCCL test three times, with one GPU per pod: with one NIC next to it, with one far
    /// from it, and with two next to it
    #[arg(long, value_enum, value_name = "PLACEMENT",
          conflicts_with_all = ["gpus", "nics", "gpu_memory", "seconds", "dry_run", "at_least"])]
    pub against: Option<Against>,
    /// GPUs of each pod; more than one needs --nccl
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "nccl",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub gpus: u32,
    /// NICs of each pod; more than one needs --nccl
    #[arg(long, value_name = "COUNT", default_value_t = 1, requires = "nccl",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub nics: u32,
    /// DeviceClass of the pods' GPUs, in a cluster with GPUs of several drivers
    #[arg(long, value_name = "NAME", conflicts_with = "against")]
    pub gpu_class: Option<String>,
    /// Use the memory of GPUs (`--use_cuda=0`); the image's perftest must be built with CUDA
    #[arg(long, conflicts_with = "nccl")]
    pub gpu_memory: bool,
    /// Size of a message in bytes; by default 1 MiB, with --nccl 1 GiB
    #[arg(long, value_name = "BYTES")]
    pub bytes: Option<u64>,
    /// Duration of the measurement in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, conflicts_with = "nccl")]
    pub seconds: u16,
    /// Maximum time in seconds until the result is there
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub timeout: u16,
    /// Percentage of the promised bandwidth; below it the exit code is 3
    #[arg(long, value_name = "PERCENT", default_value_t = 80,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub at_least: u8,
    /// Print the pods without creating them
    #[arg(long)]
    pub dry_run: bool,
    /// Flags for `ib_write_bw` of both pods, after `--`: a GID (`-x 3`), more connections (`-q 4`);
    /// with --nccl flags for the NCCL test
    #[arg(last = true, value_name = "FLAG")]
    pub flags: Vec<String>,
    /// Namespace of the pods; defaults to that of the kubeconfig's context
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The live cluster.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}
