//! Which templates are marked, kept or collected: decided from who refers to each, for how
//! long nobody has, and the time.

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

pub(super) fn due(
    template: TemplateUse,
    keep_unused: SignedDuration,
    now: Timestamp,
) -> Option<TemplateAction> {
    let TemplateUse { created, unused_since, used } = template;
    match unused_since {
        Some(_) if used => Some(TemplateAction::Keep),
        Some(since) if now.duration_since(since) >= keep_unused => Some(TemplateAction::Collect),
        None if !used && now.duration_since(created) >= NEW.min(keep_unused) => {
            Some(TemplateAction::Mark)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marked_and_an_hour_later_collected() {
        let hour = SignedDuration::from_hours(1);
        let at = |minutes: i64| Timestamp::from_second(minutes * 60).unwrap();
        for (created, unused_since, used, now, expected) in [
            (0, None, true, 600, None),
            (0, None, false, 0, None),
            (0, None, false, 1, Some(TemplateAction::Mark)),
            (0, Some(1), false, 60, None),
            (0, Some(1), false, 61, Some(TemplateAction::Collect)),
            (0, Some(1), true, 30, Some(TemplateAction::Keep)),
            (0, Some(1), true, 600, Some(TemplateAction::Keep)),
            // A clock that went back.
            (10, None, false, 5, None),
            (0, Some(100), false, 61, None),
        ] {
            let unused_since = unused_since.map(at);
            let template = TemplateUse { created: at(created), unused_since, used };
            assert_eq!(due(template, hour, at(now)), expected, "{template:?} at {now}");
        }
        let template = TemplateUse { created: at(0), unused_since: None, used: false };
        assert_eq!(
            due(template, SignedDuration::ZERO, at(0)),
            Some(TemplateAction::Mark),
            "none is kept"
        );
    }
}
