//! Decides which templates are marked, kept or collected, and when, from whether anything refers to
//! them and for how long nothing has.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The grace period of a new template, since its pod is created after it.
const NEW: SignedDuration = SignedDuration::from_mins(1);

/// State of a managed template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TemplateUse {
    /// When it was created.
    pub(super) created: Timestamp,
    /// The time since when nothing has referred to it, from its annotation.
    pub(super) unused_since: Option<Timestamp>,
    /// True if a pod or a claim refers to it.
    pub(super) used: bool,
}

/// What to do with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateAction {
    /// Record that nothing refers to it.
    Mark,
    /// Remove that record.
    Keep,
    /// Delete it, after checking everything that could refer to it.
    Collect,
}

/// The next action on a template, and its time, as long as the references do not change. `None` if
/// only a change of references can require an action.
pub(super) fn due(
    template: TemplateUse,
    keep_unused: SignedDuration,
) -> Option<(Timestamp, TemplateAction)> {
    let TemplateUse { created, unused_since, used } = template;
    match unused_since {
        Some(_) if used => Some((Timestamp::MIN, TemplateAction::Keep)),
        Some(since) => Some((after(since, keep_unused), TemplateAction::Collect)),
        None if !used => Some((after(created, NEW.min(keep_unused)), TemplateAction::Mark)),
        None => None,
    }
}

fn after(since: Timestamp, time: SignedDuration) -> Timestamp {
    since.checked_add(time).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_and_an_hour_later_collected() {
        let at = |minutes: i64| Timestamp::from_second(minutes * 60).unwrap();
        for (created, unused_since, used, minutes, expected) in [
            (0, None, true, 60, None),
            (5, None, false, 60, Some((at(6), TemplateAction::Mark))),
            (5, Some(7), false, 60, Some((at(67), TemplateAction::Collect))),
            (5, Some(7), true, 60, Some((Timestamp::MIN, TemplateAction::Keep))),
            // Unused templates are not kept at all.
            (5, None, false, 0, Some((at(5), TemplateAction::Mark))),
            (5, Some(7), false, 0, Some((at(7), TemplateAction::Collect))),
        ] {
            let unused_since = unused_since.map(at);
            let template = TemplateUse { created: at(created), unused_since, used };
            let found = due(template, SignedDuration::from_mins(minutes));
            assert_eq!(found, expected, "{template:?} kept for {minutes} minutes");
        }
        // An unreadable mark counts as a time that never comes.
        let template =
            TemplateUse { created: at(0), unused_since: Some(Timestamp::MAX), used: false };
        let never = due(template, SignedDuration::from_hours(1));
        assert_eq!(never, Some((Timestamp::MAX, TemplateAction::Collect)));
    }
}
