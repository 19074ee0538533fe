//! Which templates are marked, kept or collected, and when: decided from who refers to each and
//! for how long nobody has.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// How long a new template is left alone: its pod is created after it.
const NEW: SignedDuration = SignedDuration::from_mins(1);

/// State of a managed template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TemplateUse {
    /// When it was created.
    pub(super) created: Timestamp,
    /// Since when nobody has referred to it, from its annotation.
    pub(super) unused_since: Option<Timestamp>,
    /// Whether a pod or a claim refers to it.
    pub(super) used: bool,
}

/// What to do with a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateAction {
    /// Record that nobody refers to it.
    Mark,
    /// Remove that record.
    Keep,
    /// Delete it, after checking everything that could refer to it.
    Collect,
}

/// What is to be done about a template, and from when on, if nobody begins or ceases to refer to
/// it. `None` where that alone can make anything due.
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
            // None is kept.
            (5, None, false, 0, Some((at(5), TemplateAction::Mark))),
            (5, Some(7), false, 0, Some((at(7), TemplateAction::Collect))),
        ] {
            let unused_since = unused_since.map(at);
            let template = TemplateUse { created: at(created), unused_since, used };
            let found = due(template, SignedDuration::from_mins(minutes));
            assert_eq!(found, expected, "{template:?} kept for {minutes} minutes");
        }
        // A mark that cannot be read is one of a time that never comes.
        let template =
            TemplateUse { created: at(0), unused_since: Some(Timestamp::MAX), used: false };
        let never = due(template, SignedDuration::from_hours(1));
        assert_eq!(never, Some((Timestamp::MAX, TemplateAction::Collect)));
    }
}
