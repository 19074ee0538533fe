//! Sources of fabrics and domains that disagree.

use super::finding::Findings;
use super::scene::Scene;
use crate::settings::level_sources;
use fabric_controller::conflicts::conflicts;

/// A finding for each fabric and domain that another source divides.
pub(super) fn examine(scene: &Scene<'_>, found: &mut Findings) {
    for conflict in conflicts(scene.view, &level_sources(&scene.seen.kept)) {
        let place = match conflict.level {
            Some(level) => format!("{level} {}", conflict.domain),
            None => format!("fabric {}", conflict.domain),
        };
        let message = format!(
            "is divided by another source: {conflict}; the first source wins, so jobs may be placed \
             on nodes that are farther apart than they ask for; correct the labels, or name the \
             sources with --level-labels of fabric-controller"
        );
        found.warning(place, message);
    }
}
