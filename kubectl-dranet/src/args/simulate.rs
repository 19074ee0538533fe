//! Flags of `simulate`.

use super::form::Form;
use super::pods::PolicyArgs;
use super::source::{AdmissionArgs, SourceArgs};
use std::path::PathBuf;
use std::str::FromStr;

/// Flags of `simulate`.
#[derive(clap::Args, Clone, Debug)]
pub struct SimulateArgs {
    /// File with pods, or with workloads of any kind that have pod templates, each as often as
    /// its `replicas` or `parallelism` say. `-` reads standard input. May be repeated
    #[arg(long = "filename", short, value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// Nodes to add first, as `SHAPE=NUMBER`. SHAPE is a machine type that `kubectl dranet machines`
    /// prints, the hash of a shape, or a node. The new nodes equal the first node of that shape, with
    /// nothing in use. May be repeated
    #[arg(long = "add-nodes", value_name = "SHAPE=NUMBER")]
    pub added: Vec<AddedNodes>,
    /// File with the metrics of the running scheduler-ext, as its page `/metrics` has them: nodes are
    /// ranked with what it has learned from pods that are gone. A running cluster is asked, where
    /// these metrics can be reached and you may get `pods/proxy`
    #[arg(long, value_name = "FILE")]
    pub extender_metrics: Option<PathBuf>,
    /// Let pods of lower priority give way to pods that wait for devices, as preemptor does
    #[arg(long)]
    pub preemption: bool,
    /// The cluster.
    #[command(flatten)]
    pub source: SourceArgs,
    /// What else admission knows.
    #[command(flatten)]
    pub admission: AdmissionArgs,
    /// Admission's settings.
    #[command(flatten)]
    pub policy: PolicyArgs,
    /// Output format
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    pub output: Form,
}

/// Nodes to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedNodes {
    /// A type of machine, the hash of a shape, or a node.
    pub shape: String,
    /// How many; at least one.
    pub number: usize,
}

/// Maximum number of nodes that a flag adds: what Kubernetes supports in a cluster.
const NODES_MAX: usize = 5_000;

/// Not a valid value of `--add-nodes`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid value `{0}`: write `SHAPE=NUMBER` with a number from 1 to {most}, as in \
     `p5.48xlarge=4`",
    most = NODES_MAX
)]
pub struct AddedNodesError(String);

impl FromStr for AddedNodes {
    type Err = AddedNodesError;

    fn from_str(text: &str) -> Result<Self, AddedNodesError> {
        Self::parse(text).ok_or_else(|| AddedNodesError(text.to_owned()))
    }
}

impl AddedNodes {
    fn parse(text: &str) -> Option<Self> {
        let (shape, number) = text.rsplit_once('=').filter(|(shape, _)| !shape.is_empty())?;
        let number = number.parse().ok().filter(|number| (1..=NODES_MAX).contains(number))?;
        Some(Self { shape: shape.to_owned(), number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_to_add_are_a_shape_and_a_number() {
        let added = |shape: &str, number| Ok(AddedNodes { shape: shape.to_owned(), number });
        assert_eq!("p5.48xlarge=4".parse(), added("p5.48xlarge", 4));
        assert_eq!("shape a=b=1".parse(), added("shape a=b", 1));
        for text in ["", "a", "=1", "a=", "a=0", "a=-1", "a=5001", "a=x"] {
            assert_eq!(text.parse::<AddedNodes>(), Err(AddedNodesError(text.to_owned())));
        }
    }
}
