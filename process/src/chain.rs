//! An error with its sources, on one line.

use std::error::Error;
use std::fmt;

/// Joins an error and its sources with `: `.
///
/// Only this type joins sources: `Display` of our errors does not repeat the source.
#[derive(Debug)]
pub struct Chain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to read `{path}`")]
    struct ReadError {
        path: &'static str,
        source: io::Error,
    }

    #[test]
    fn sources_follow_in_order() {
        let error = ReadError {
            path: "a",
            source: io::Error::new(io::ErrorKind::NotFound, "no such file"),
        };
        assert_eq!(Chain(&error).to_string(), "failed to read `a`: no such file");
    }
}
