//! What came of each module, in a file that lasts until the next boot, as what it tells does.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModulesReport {
    /// The kernel that it was done for.
    pub kernel: String,
    /// The modules in the order in which they were asked for.
    pub modules: Vec<ModuleReport>,
}

/// What came of one module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleReport {
    /// Its name as the kernel has it.
    pub name: String,
    /// In one word.
    pub outcome: Outcome,
    /// Why; may be empty.
    #[serde(default)]
    pub detail: String,
}

/// What can come of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was loaded now.
    Loaded,
    /// It was loaded before.
    AlreadyLoaded,
    /// It is a part of the kernel.
    BuiltIn,
    /// Something else does what it would do.
    NotNeeded,
    /// What it needs is not there yet.
    Waiting,
    /// The kernel has no such module.
    Absent,
    /// The host's administrator forbids it.
    Forbidden,
    /// The kernel refused it.
    Failed,
}

/// A report cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is none.
    #[error("it is no report on modules")]
    Malformed(#[from] serde_json::Error),
}

impl Outcome {
    /// Whether the module does its work, or is not needed.
    pub fn is_well(self) -> bool {
        matches!(self, Self::Loaded | Self::AlreadyLoaded | Self::BuiltIn | Self::NotNeeded)
    }

    fn words(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::AlreadyLoaded => "was loaded before",
            Self::BuiltIn => "is built into the kernel",
            Self::NotNeeded => "is not needed",
            Self::Waiting => "is not loaded yet",
            Self::Absent => "is absent",
            Self::Forbidden => "is forbidden",
            Self::Failed => "failed to load",
        }
    }
}

/// `mlx5_ib failed to load: …`.
impl fmt::Display for ModuleReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, outcome, detail } = self;
        write!(f, "{name} {}", outcome.words())?;
        match detail.as_str() {
            "" => Ok(()),
            detail => write!(f, ": {detail}"),
        }
    }
}

impl ModulesReport {
    /// Writes it, whole or not at all.
    pub(super) fn store(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(&new, path)
    }

    /// Reads it; `None` where nothing was ever asked for.
    ///
    /// # Errors
    /// The file cannot be read, or is no report.
    pub fn read(path: &Path) -> Result<Option<Self>, ReportError> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The modules that do not do their work.
    pub fn lacking(&self) -> impl Iterator<Item = &ModuleReport> {
        self.modules.iter().filter(|module| !module.outcome.is_well())
    }
}
