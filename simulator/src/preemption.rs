//! Who decides which jobs leave for a job of higher priority that does not fit.

mod by_counts;
mod by_preemptor;

pub use by_counts::ByCounts;
pub use by_preemptor::ByPreemptor;
