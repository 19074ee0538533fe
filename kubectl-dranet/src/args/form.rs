//! Output formats, and the severity that sets the exit code.

use crate::answer::Severity;

/// Output format of an answer.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text, for a person.
    Text,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Output format of a list.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListForm {
    /// A table, for a person.
    Text,
    /// The table with more columns.
    Wide,
    /// Kind and name, one per line.
    Name,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

impl ListForm {
    pub(super) fn is_table(self) -> bool {
        matches!(self, Self::Text | Self::Wide)
    }
}

/// Output format of machine types.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachinesForm {
    /// A table, for a person.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// The ResourceSlices of a node.
    Slices,
    /// A node and its ResourceSlices, for the node group of a Cluster Autoscaler.
    Nodegroup,
    /// Templates of ResourceSlices, for a provider of Karpenter.
    Karpenter,
    /// A node that kwok plays, with its NodeTopology and ResourceSlices.
    Kwok,
}

/// Output format of a plan.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanFormat {
    /// The answer, for a person.
    Text,
    /// The template and the rewritten pod as YAML documents.
    Yaml,
    /// One JSON object: pod, template, join, level, steps, and the devices of each node.
    Json,
}

/// What `plan` shows besides its answer.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The ResourceClaimTemplate.
    Claim,
    /// The rewritten pod.
    Pod,
    /// The matrix of paths of each shape of node.
    Matrix,
}

/// A severity as a flag.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailOn {
    /// The object does less than it seems to.
    Note,
    /// It works now, but will not always work.
    Warning,
    /// It does not work: no such pod can be scheduled now.
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
