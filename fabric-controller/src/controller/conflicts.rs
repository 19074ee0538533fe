//! Sends an event on each node whose sources of fabrics and domains disagree.

use super::Controller;
use super::report::recorder;
use crate::conflicts::{Conflict, conflicts};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType};
use std::collections::BTreeSet;

/// The most events of a round; the others follow in the next ones.
const AT_ONCE: usize = 20;

/// The events that have been sent: nodes with texts.
pub(super) type Told = BTreeSet<(String, String)>;

impl Controller {
    /// Sends the events that are due. Returns true if all were sent.
    pub(super) async fn report_conflicts(&self, told: &mut Told) -> bool {
        let found = conflicts(&self.view.read(), &self.level_sources);
        let due = due(&found, told);
        let is_all = due.len() <= AT_ONCE;
        let recorder = recorder(&self.client);
        let mut is_sent = true;
        for (node, note) in due.into_iter().take(AT_ONCE) {
            let event = Event {
                type_: EventType::Warning,
                reason: "FabricSourcesDisagree".to_owned(),
                note: Some(note.clone()),
                action: "LabelNode".to_owned(),
                secondary: None,
            };
            match recorder.publish(&event, &reference(&node)).await {
                Ok(()) => _ = told.insert((node, note)),
                Err(error) => {
                    tracing::debug!(node, %error, "Failed to send an event");
                    is_sent = false;
                }
            }
        }
        is_all && is_sent
    }
}

/// The events that have not been sent. Forgets those whose conflict has ended.
fn due(found: &[Conflict], told: &mut Told) -> Vec<(String, String)> {
    let mut wanted = Told::new();
    for conflict in found {
        let note = format!("{conflict}; the first source wins");
        let nodes = conflict.outliers().into_iter();
        wanted.extend(nodes.map(|node| (node.to_owned(), note.clone())));
    }
    told.retain(|event| wanted.contains(event));
    wanted.difference(told).cloned().collect()
}

fn reference(node: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.to_owned()),
        // As kubelet does, so that `kubectl describe node` shows it.
        uid: Some(node.to_owned()),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_conflict_is_reported_once_until_it_ends() {
        let part = |name: &str, nodes: &[&str]| {
            (name.to_owned(), nodes.iter().map(|node| (*node).to_owned()).collect())
        };
        let conflict = Conflict {
            level: None,
            domain: "f".to_owned(),
            source: "x".to_owned(),
            other: "y".to_owned(),
            parts: BTreeMap::from([part("a", &["n0", "n1"]), part("b", &["n2"])]),
        };
        let mut told = Told::new();
        let first = due(std::slice::from_ref(&conflict), &mut told);
        let [event] = &first[..] else { panic!("{first:?}") };
        assert_eq!(event.0, "n2");
        told.insert(event.clone());
        assert_eq!(due(std::slice::from_ref(&conflict), &mut told), []);
        assert_eq!(due(&[], &mut told), []);
        assert_eq!(due(&[conflict], &mut told), first, "it has come back");
    }
}
