//! What the run is measured by: a figure, its limit, and whether it is held.

use tests::suite::report;

/// The limits of a run, and those that were not held.
#[derive(Debug, Default)]
pub(crate) struct Bars {
    missed: Vec<String>,
}

impl Bars {
    /// A figure that must not be above its limit.
    pub(crate) fn at_most(&mut self, what: &str, figure: f64, limit: f64) {
        self.judge(&format!("{what}: {figure:.2} (at most {limit})"), figure <= limit);
    }

    /// A figure that must not be below its limit.
    pub(crate) fn at_least(&mut self, what: &str, figure: f64, limit: f64) {
        self.judge(&format!("{what}: {figure:.2} (at least {limit})"), figure >= limit);
    }

    fn judge(&mut self, line: &str, holds: bool) {
        report(&format!("{line} {}", if holds { "" } else { "NOT HELD" }));
        if !holds {
            self.missed.push(line.to_owned());
        }
    }

    /// # Errors
    ///
    /// Fails if a limit was not held.
    pub(crate) fn verdict(self) -> anyhow::Result<()> {
        anyhow::ensure!(self.missed.is_empty(), "limits not held: {:#?}", self.missed);
        Ok(())
    }
}
