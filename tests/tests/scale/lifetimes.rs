//! How long pods run: durations of the jobs of a trace, or times of the same kind, many short and few
//! long.

use std::{path::Path, time::Duration};

use simulator::trace::Trace;
use tests::{SeededRng, setting};

/// The shortest and the longest time.
const RANGE: [f64; 2] = [5.0, 150.0];
/// The duration of a job in a trace that takes the median time here, in seconds.
const MEDIAN: f64 = 1_800.0;

/// Lifetimes of pods.
#[derive(Debug)]
pub(crate) struct Lifetimes(Vec<Duration>);

impl Lifetimes {
    /// Those of the trace `$DRANET_TRACE`, an hour in a minute, or distributed evenly on a logarithmic
    /// scale.
    ///
    /// # Errors
    ///
    /// Fails if the trace cannot be read.
    pub(crate) fn from_environment() -> anyhow::Result<Self> {
        let path: String = setting("DRANET_TRACE", String::new())?;
        let [shortest, longest] = RANGE;
        let seconds: Vec<f64> = if path.is_empty() {
            (0..=100)
                .map(|step| shortest * (longest / shortest).powf(f64::from(step) / 100.0))
                .collect()
        } else {
            let trace = Trace::load(Path::new(&path))?;
            let median = (shortest * longest).sqrt();
            trace
                .jobs
                .iter()
                .map(|job| (job.duration / MEDIAN * median).clamp(shortest, longest))
                .collect()
        };
        Ok(Self(seconds.into_iter().map(Duration::from_secs_f64).collect()))
    }

    /// A random one.
    pub(crate) fn pick(&self, random: &mut SeededRng) -> Duration {
        *random.pick(&self.0)
    }
}
