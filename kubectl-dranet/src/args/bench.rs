//! Flags of `bench`.

use super::form::Form;
use process::args::KubeArgs;

/// An image that has perftest with CUDA, and a shell.
const IMAGE: &str = "ghcr.io/coreweave/nccl-tests:12.9.1-devel-ubuntu24.04-nccl2.29.2-1-d73ec07";

/// Flags of `bench`.
#[derive(clap::Args, Clone, Debug)]
pub struct BenchArgs {
    /// Image of both pods; it has `/bin/sh` and perftest's `ib_write_bw`
    #[arg(long, value_name = "IMAGE", default_value = IMAGE)]
    pub image: String,
    /// Nodes of the server and of the client; without it two that the scheduler chooses, of one
    /// fabric where the first has one
    #[arg(long, value_name = "NODE", value_delimiter = ',')]
    pub nodes: Vec<String>,
    /// Scheduler of the pods; without it the cluster's default
    #[arg(long, value_name = "NAME")]
    pub scheduler: Option<String>,
    /// Key of a taint that the pods tolerate beside those of GPU operators (`nvidia.com/gpu`,
    /// `amd.com/gpu`); may be repeated
    #[arg(long = "toleration", value_name = "KEY")]
    pub tolerations: Vec<String>,
    /// Write from and to the memory of GPUs (`--use_cuda=0`), for which the image's perftest is
    /// built with CUDA
    #[arg(long)]
    pub gpu_memory: bool,
    /// Bytes of a message
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub bytes: u32,
    /// Seconds to measure for
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub seconds: u16,
    /// Seconds to wait until both pods have been scheduled and the client has ended
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub timeout: u16,
    /// Percent of what the links promise that counts as well
    #[arg(long, value_name = "PERCENT", default_value_t = 80,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    pub at_least: u8,
    /// Print the pods, and create none
    #[arg(long)]
    pub dry_run: bool,
    /// Namespace of the pods; without it that of the kubeconfig's context
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The live cluster.
    #[command(flatten)]
    pub kube: KubeArgs,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}
