//! The flags of `worth-bench`, `alignment-bench` and `preemption-bench`.

use std::path::PathBuf;

use clap::Parser;

use crate::claims::Alignment;
use crate::communication::{PublishedBandwidths, SHARE};

/// The loads that are compared by default.
pub const LOADS: [f64; 3] = [0.7, 0.85, 0.95];
/// The shares of jobs of high priority that are compared by default.
const HIGH_SHARES: [f64; 3] = [0.1, 0.3, 0.5];
/// The default load of `-o json`.
pub const LOAD: f64 = 0.85;

/// Replays a trace of jobs on a simulated cluster, once for each scheduling policy, and compares
/// how long jobs wait and run, and what devices they get.
#[derive(Clone, Debug, Parser)]
#[command(name = "worth", version)]
pub struct Args {
    /// The jobs and the cluster.
    #[command(flatten)]
    pub scene: SceneArgs,
    /// Whether pods wait for aligned NICs or only prefer them
    #[arg(long, value_enum, default_value_t = Alignment::Preferred)]
    pub alignment: Alignment,
    /// Writes a chart of the comparison as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
}

/// Replays a trace of jobs on a simulated cluster, once for each way to give pods GPUs and NICs,
/// and compares how long jobs run and wait, and how near their NICs are.
#[derive(Clone, Debug, Parser)]
#[command(name = "alignment", version)]
pub struct AlignmentArgs {
    /// The jobs and the cluster.
    #[command(flatten)]
    pub scene: SceneArgs,
}

/// Replays a trace of jobs of two priorities on a simulated cluster, once for each way to evict jobs,
/// and compares how long jobs of high priority wait, and what others lose.
#[derive(Clone, Debug, Parser)]
#[command(name = "preemption", version)]
pub struct PreemptionArgs {
    /// The jobs and the cluster.
    #[command(flatten)]
    pub scene: SceneArgs,
    /// Share of the jobs that have high priority, 0 to 1; may be repeated [default: 0.1, 0.3 and 0.5]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub high: Vec<f64>,
    /// Minutes between two checkpoints of a job. One that was evicted goes on from its last checkpoint;
    /// without this flag, it begins again
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub checkpoint: Option<u64>,
}

/// The jobs, the cluster, and the replays.
#[derive(Clone, Debug, clap::Args)]
pub struct SceneArgs {
    /// Trace: a CSV file with the columns of docs/worth.md; may be gzipped
    #[arg(long, value_name = "FILE")]
    pub trace: PathBuf,
    /// Nodes of the cluster [default: the fewest that can carry the load]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub nodes: Option<u32>,
    /// Average share of GPUs that the jobs need, above 0 and up to 1; may be repeated. The times
    /// between submissions are stretched to reach it exactly [default: 0.7, 0.85 and 0.95; 0.85
    /// with `-o json`; the trace as it is with --nodes]
    #[arg(long, value_name = "SHARE", value_parser = load)]
    pub load: Vec<f64>,
    /// Machine type of the nodes, a fixture of topology-graph; if repeated, nodes of each type in
    /// turn. All GPUs must have the same driver
    #[arg(long, value_name = "NAME", default_value = "azure-ndh100v5")]
    pub machine: Vec<String>,
    /// Maximum number of nodes on one fabric; all fabrics have the same size
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub fabric_nodes: u32,
    /// Maximum number of nodes of an NVLink domain within a fabric; all domains of a fabric have the
    /// same size [default: nodes have no domain]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub domain_nodes: Option<u32>,
    /// Share of a job's time that is communication at full speed, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = SHARE, value_parser = share)]
    pub communication_share: f64,
    /// Published bandwidths of that communication [default: mi300x for AMD's GPUs, h100 for H100,
    /// otherwise gb300]
    #[arg(long, value_enum)]
    pub bandwidths: Option<PublishedBandwidths>,
    /// Number of replays per policy that are averaged. Each starts at another point of the trace,
    /// moves the earlier jobs to the end, and breaks ties with another seed
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub repeats: u64,
    /// Minutes after which no further replay begins. The replays that all policies have finished
    /// are averaged. 0: no limit
    #[arg(long, value_name = "MINUTES", default_value_t = 0)]
    pub time_limit: u64,
    /// Seed of the first replay; each further replay adds 1
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Format of the output
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// A format of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// A Markdown table for each load.
    Table,
    /// The comparison of one load as JSON.
    Json,
}

impl PreemptionArgs {
    /// The shares of jobs of high priority to compare.
    pub fn shares(&self) -> Vec<f64> {
        if self.high.is_empty() { HIGH_SHARES.to_vec() } else { self.high.clone() }
    }
}

impl SceneArgs {
    /// The loads to compare; `None` keeps the times of the trace.
    pub fn loads(&self) -> Vec<Option<f64>> {
        match (self.load.as_slice(), self.nodes, self.output) {
            ([], Some(_), _) => vec![None],
            ([], None, Output::Json) => vec![Some(LOAD)],
            ([], None, Output::Table) => LOADS.map(Some).to_vec(),
            (loads, ..) => loads.iter().copied().map(Some).collect(),
        }
    }
}

fn load(text: &str) -> Result<f64, String> {
    number(text).filter(|load| *load > 0.0 && *load <= 1.0).ok_or_else(|| {
        format!("invalid load `{text}`: must be above 0 and at most 1, such as 0.85")
    })
}

fn share(text: &str) -> Result<f64, String> {
    let share = number(text).filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("invalid share `{text}`: must be from 0 to 1"))
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn args(line: &str) -> Result<Args, clap::Error> {
        Args::try_parse_from(
            ["worth", "--trace", "t.csv"].into_iter().chain(line.split_whitespace()),
        )
    }

    #[test]
    fn the_flags_are_consistent() {
        Args::command().debug_assert();
        AlignmentArgs::command().debug_assert();
        PreemptionArgs::command().debug_assert();
    }

    #[test]
    fn the_load_follows_nodes_and_format() {
        let loads = |line: &str| args(line).unwrap().scene.loads();
        assert_eq!(loads(""), LOADS.map(Some));
        assert_eq!(loads("-o json"), [Some(LOAD)]);
        assert_eq!(loads("--nodes 5"), [None]);
        assert_eq!(loads("--nodes 5 --load 0.5 -o json"), [Some(0.5)]);
    }

    #[test]
    fn shares_outside_their_range_are_refused() {
        for line in ["--load 0", "--load 1.5", "--load x", "--communication-share -1", "--nodes 0"]
        {
            assert!(args(line).is_err(), "{line}");
        }
    }
}
