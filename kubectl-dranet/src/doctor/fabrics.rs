//! Sources of fabrics and domains that disagree.

use crate::answer::{DoctorFinding, Severity};
use crate::settings::level_sources;
use crate::source::Seen;
use fabric_controller::conflicts::conflicts;

/// A finding for each fabric and domain that another source divides.
pub(super) fn examine(seen: &Seen) -> Vec<DoctorFinding> {
    let found = conflicts(&seen.view, &level_sources(&seen.kept)).into_iter();
    let finding = found.map(|conflict| {
        let place = match conflict.level {
            Some(level) => format!("{level} {}", conflict.domain),
            None => format!("fabric {}", conflict.domain),
        };
        let message = format!(
            "is divided by another source: {conflict}; the first source wins, so jobs may be placed \
             on nodes that are farther apart than they ask for; correct the labels, or name the \
             sources with --level-labels of fabric-controller"
        );
        DoctorFinding::new(Severity::Warning, place, message)
    });
    finding.collect()
}
