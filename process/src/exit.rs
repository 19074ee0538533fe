//! Ends a program: its exit code, and the line that says why it failed.

use crate::chain::without_dumps;
use crate::printable::printable;
use std::process::{ExitCode, Termination};

/// Converts the result of a program into its exit code.
pub fn end<T: Termination>(outcome: anyhow::Result<T>) -> ExitCode {
    match outcome {
        Ok(done) => done.report(),
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the one line that says why the program ends")]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {}", printable(&one_line(error)));
    ExitCode::FAILURE
}

/// An error and its causes on one line, each cause once.
///
/// Only the first line of a cause is used; parsers add lines that show the location. Some libraries
/// repeat the source in their own text; the repetition is removed.
pub fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(|cause| without_dumps(&cause.to_string())) {
        let cause = cause.lines().next().unwrap_or_default().trim();
        if line.is_empty() {
            line.push_str(cause);
        } else if !line.contains(cause) {
            line.push_str(": ");
            line.push_str(cause);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_joined_once_and_on_one_line() {
        let error = anyhow::anyhow!("no such file")
            .context("failed to open `a`: no such file")
            .context("`a` is not valid YAML\n --> a:1")
            .context("failed to start");
        assert_eq!(
            one_line(&error),
            "failed to start: `a` is not valid YAML: failed to open `a`: no such file"
        );
    }
}
