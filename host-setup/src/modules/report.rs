//! The report on kernel modules, a file that is valid until the next boot, as the loaded modules
//! are.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

/// The results for all requested modules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModulesReport {
    /// The kernel's release.
    pub kernel: String,
    /// The modules, in the order of the request.
    pub modules: Vec<ModuleReport>,
}

/// The result for one module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleReport {
    /// Its name in the kernel's spelling.
    pub name: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The reason; may be empty.
    #[serde(default)]
    pub detail: String,
}

/// The outcome for a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It was loaded now.
    Loaded,
    /// It was loaded before.
    AlreadyLoaded,
    /// It is built into the kernel.
    BuiltIn,
    /// Another driver or module provides its function.
    NotNeeded,
    /// Another driver that it needs is not loaded yet.
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
    /// The file is not a valid report.
    #[error("malformed report on kernel modules")]
    Malformed(#[from] serde_json::Error),
}

impl Outcome {
    /// Whether the module is available or not needed.
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
    /// Writes the report atomically.
    pub(super) fn store(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(&new, path)
    }

    /// Reads the report; `None` if no modules were ever requested.
    ///
    /// # Errors
    /// The file cannot be read, or is not a valid report.
    pub fn read(path: &Path) -> Result<Option<Self>, ReportError> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The modules that are needed but not available.
    pub fn lacking(&self) -> impl Iterator<Item = &ModuleReport> {
        self.modules.iter().filter(|module| !module.outcome.is_well())
    }
}
