//! The result that a test prints.

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Measured {
    /// Size of a message in bytes.
    pub(super) bytes: u64,
    /// Average over the run, in gigabits (10^9) per second.
    pub(super) gbps: f64,
}

/// Not the output of a test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum OutputError {
    #[error("the output has no table of bandwidths")]
    NoTable,
    #[error("the table in the output has no result")]
    NoResult,
    #[error("unknown unit of bandwidth `{0}`")]
    Unit(String),
}

impl Measured {
    /// Returns the measurement if its bandwidth can be compared.
    pub(super) fn checked(self) -> Result<Self, OutputError> {
        if self.gbps.is_finite() && self.gbps > 0.0 { Ok(self) } else { Err(OutputError::NoResult) }
    }
}
