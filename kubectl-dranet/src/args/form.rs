//! Forms of output, and what counts for the exit code.

use admission::lint::Severity;

/// Form of an answer.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text, for a person.
    Text,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// Form of a list.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListForm {
    /// A table, for a person.
    Text,
    /// The table with more columns.
    Wide,
    /// A line for each: its kind and name.
    Name,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
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
