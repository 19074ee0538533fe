//! Decides how long a remembered machine is kept: until its pool has not been seen for some time,
//! or until there are too many machines.
//!
//! An annotation of the ConfigMap holds the date on which each machine was last seen. Dates have a
//! precision of one day, so that the annotation is written once a day.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// The annotation of the ConfigMap: a JSON object with a date per key.
pub const LAST_SEEN: &str = "dranet.io/last-seen";

/// The maximum lag of a stored date.
const PRECISION: SignedDuration = SignedDuration::from_hours(24);

/// How long machines are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The time after which a machine that is gone is forgotten.
    pub forget_after: SignedDuration,
    /// The maximum number of machines.
    pub max: usize,
}

/// When each machine was last seen, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastSeen(BTreeMap<String, Timestamp>);

impl LastSeen {
    /// Parses the annotation; invalid entries count as never seen.
    pub fn parse(annotation: Option<&str>) -> Self {
        let texts: BTreeMap<String, String> =
            annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Self(texts.into_iter().filter_map(|(key, text)| Some((key, text.parse().ok()?))).collect())
    }

    /// The text of the annotation.
    pub fn to_annotation(&self) -> String {
        let texts: BTreeMap<&str, String> =
            self.0.iter().map(|(key, seen)| (key.as_str(), seen.to_string())).collect();
        serde_json::json!(texts).to_string()
    }

    /// Records which machines are present now, and decides which of all `entries` to forget: those
    /// not seen for `forget_after`, then those not seen for the longest time, until at most `max`
    /// remain. A present machine is never forgotten. An entry without a date counts as seen now.
    pub fn update(
        &mut self,
        entries: &BTreeSet<String>,
        present: &BTreeSet<String>,
        retention: Retention,
        now: Timestamp,
    ) -> BTreeSet<String> {
        for key in entries {
            let seen = self.0.entry(key.clone()).or_insert(now);
            if present.contains(key) && now.duration_since(*seen) >= PRECISION {
                *seen = now;
            }
        }
        let mut absent: Vec<(Timestamp, &String)> = entries
            .iter()
            .filter(|key| !present.contains(*key))
            .filter_map(|key| Some((*self.0.get(key)?, key)))
            .collect();
        absent.sort_unstable();
        let too_many = entries.len().saturating_sub(retention.max);
        let forgotten: BTreeSet<String> = absent
            .into_iter()
            .enumerate()
            .filter(|(index, (seen, _))| {
                *index < too_many || now.duration_since(*seen) >= retention.forget_after
            })
            .map(|(_, (_, key))| key.clone())
            .collect();
        self.0.retain(|key, _| entries.contains(key) && !forgotten.contains(key));
        forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[&str]) -> BTreeSet<String> {
        keys.iter().map(|key| (*key).to_owned()).collect()
    }

    fn day(day: i64) -> Timestamp {
        Timestamp::from_second(day * 24 * 3600).unwrap()
    }

    const MONTH: Retention =
        Retention { forget_after: SignedDuration::from_hours(30 * 24), max: 3 };

    #[test]
    fn a_machine_is_forgotten_some_time_after_its_pool_is_gone() {
        let mut seen = LastSeen::default();
        let entries = keys(&["a", "b"]);
        for (today, present, forgotten) in [
            // Without a date, an entry counts from now on.
            (0, keys(&["a", "b"]), keys(&[])),
            (10, keys(&["a"]), keys(&[])),
            (29, keys(&["a"]), keys(&[])),
            (30, keys(&["a"]), keys(&["b"])),
            (300, keys(&["a"]), keys(&[])),
        ] {
            let left: BTreeSet<_> = if today < 300 { entries.clone() } else { keys(&["a"]) };
            let found = seen.update(&left, &present, MONTH, day(today));
            assert_eq!(found, forgotten, "on day {today}");
            seen = LastSeen::parse(Some(&seen.to_annotation()));
        }
    }

    #[test]
    fn the_machines_unseen_for_longest_are_forgotten_first() {
        let mut seen = LastSeen::default();
        seen.update(&keys(&["a"]), &keys(&["a"]), MONTH, day(0));
        seen.update(&keys(&["a", "b"]), &keys(&["b"]), MONTH, day(1));
        let all = keys(&["a", "b", "c", "d", "e"]);
        let forgotten = seen.update(&all, &keys(&["c", "d", "e"]), MONTH, day(2));
        assert_eq!(forgotten, keys(&["a", "b"]));
        // Present machines are kept, however many there are.
        let many = keys(&["c", "d", "e", "f"]);
        assert_eq!(seen.update(&many, &many, MONTH, day(3)), keys(&[]));
    }

    #[test]
    fn an_invalid_annotation_counts_as_empty() {
        for text in [None, Some(""), Some("[]"), Some(r#"{"a":"yesterday"}"#)] {
            assert_eq!(LastSeen::parse(text), LastSeen::default(), "{text:?}");
        }
    }
}
