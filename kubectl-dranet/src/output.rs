//! What a command says.

use std::process::ExitCode;

/// Exit code for a denial, a pod that does not fit, or findings.
const DENIED: u8 = 3;

/// A command's output and result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The text for standard output.
    pub text: String,
    /// Whether a pod would be denied, does not fit or got less than was promised, or a
    /// claim or the cluster has relevant findings.
    pub denied: bool,
    /// What could not be read although it matters, for standard error.
    pub notes: Vec<String>,
}

impl Output {
    /// 0, or 3 for a denial or findings.
    pub fn exit_code(&self) -> ExitCode {
        if self.denied { ExitCode::from(DENIED) } else { ExitCode::SUCCESS }
    }
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        Self { text, denied: false, notes: Vec::new() }
    }
}
