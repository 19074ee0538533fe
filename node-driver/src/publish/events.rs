//! Events on the Node about its NICs. Which events to send is a pure comparison. Sending
//! may fail and is not retried.
//!
//! [`event`] also creates the events on other objects.

use cluster_model::names::DRIVER;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use process::chain::Chain;
use publication::health::problem::Words;
use publication::health::{Problem, Problems};
use publication::judge::WithheldNic;
use publication::node::NodeIdentity;
pub(crate) use publication::notice::Notice;
use std::collections::btree_set::Difference;
use std::collections::{BTreeMap, BTreeSet};

/// Namespace for events on cluster-scoped objects, as the kubelet uses it.
const NAMESPACE: &str = "default";

/// What a look has found that people are told where it differs from the look before.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// The problems of NICs.
    pub(crate) problems: Problems,
    /// What is not published.
    pub(crate) withheld: Vec<WithheldNic>,
    /// Whether anything is published.
    pub(crate) has_devices: bool,
}

impl Findings {
    /// The events for a change from these findings to others.
    pub(crate) fn notices(&self, now: &Self) -> Vec<Notice> {
        let mut notices = of_problems(&self.problems, &now.problems);
        if self.withheld != now.withheld && !now.withheld.is_empty() && !now.has_devices {
            notices.push(nothing_published(&now.withheld));
        }
        notices
    }
}

/// One event per kind of change, naming the NICs.
fn of_problems(before: &Problems, now: &Problems) -> Vec<Notice> {
    let mut notices = Vec::new();
    for problem in Problem::ALL {
        let (was, is) = (with(before, problem), with(now, problem));
        let Words { came: (came, came_text), went: (went, went_text), .. } = problem.words();
        let came_note = note(is.difference(&was), came_text);
        notices.extend(came_note.map(|note| Notice::warning(came, &note)));
        let went_note = note(was.difference(&is), went_text);
        notices.extend(went_note.map(|note| Notice::normal(went, &note)));
    }
    notices
}

/// The text about these devices; `None` if there are none.
fn note(devices: Difference<'_, &str>, text: &str) -> Option<String> {
    let devices: Vec<&str> = devices.copied().collect();
    (!devices.is_empty()).then(|| format!("{}: {text}", devices.join(", ")))
}

/// A node that publishes no NIC although it has some.
fn nothing_published(withheld: &[WithheldNic]) -> Notice {
    let reasons: Vec<_> = withheld
        .iter()
        .map(|WithheldNic { name, interface, reason }| match interface {
            Some(interface) => format!("{name} ({interface}): {reason}"),
            None => format!("{name}: {reason}"),
        })
        .collect();
    Notice::warning("NoNICPublished", &reasons.join("; "))
}

fn with(problems: &BTreeMap<String, BTreeSet<Problem>>, problem: Problem) -> BTreeSet<&str> {
    let has = problems.iter().filter(|(_, problems)| problems.contains(&problem));
    has.map(|(device, _)| device.as_str()).collect()
}

/// Sends events on one Node.
#[derive(Clone, Debug)]
pub(crate) struct NodeEvents {
    events: Api<Event>,
    node: NodeIdentity,
}

impl NodeEvents {
    /// Sends by this client.
    pub(crate) fn new(client: &Client, node: NodeIdentity) -> Self {
        Self { events: Api::namespaced(client.clone(), NAMESPACE), node }
    }

    /// Sends these events.
    pub(crate) async fn say(&self, notices: Vec<Notice>) {
        for notice in notices {
            let regarding = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(self.node.name.clone()),
                uid: Some(self.node.uid.clone()),
                ..ObjectReference::default()
            };
            let event = event(regarding, &self.node.name, "Watching", &notice);
            if let Err(error) = self.events.create(&PostParams::default(), &event).await {
                let (reason, note) = (notice.reason, &notice.note);
                tracing::warn!(reason, note, error = %Chain(&error), "Event not written");
            }
        }
    }
}

/// An event in the API's form: about an object, from the driver of a node, with an
/// optional related object.
pub(crate) fn event(
    regarding: ObjectReference,
    node: &str,
    action: &str,
    notice: &Notice,
) -> Event {
    let Notice { is_warning, reason, note } = notice;
    let namespace = regarding.namespace.clone().unwrap_or_else(|| NAMESPACE.to_owned());
    let metadata = ObjectMeta {
        // The server rejects a prefix that ends with a dot.
        generate_name: regarding.name.as_ref().map(|name| format!("{name}-")),
        namespace: Some(namespace),
        ..ObjectMeta::default()
    };
    Event {
        metadata,
        event_time: Some(MicroTime(Timestamp::now())),
        action: Some(action.to_owned()),
        reason: Some((*reason).to_owned()),
        note: Some(note.clone()),
        type_: Some(if *is_warning { "Warning" } else { "Normal" }.to_owned()),
        regarding: Some(regarding),
        reporting_controller: Some(DRIVER.to_owned()),
        reporting_instance: Some(node.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use publication::notice::NOTE_MAX;

    fn problems(all: &[(&str, &[Problem])]) -> Problems {
        let own = |(device, problems): &(&str, &[Problem])| {
            ((*device).to_owned(), problems.iter().copied().collect())
        };
        all.iter().map(own).collect()
    }

    #[test]
    fn each_change_has_its_event() {
        let before = problems(&[("a", &[Problem::PortDown]), ("b", &[Problem::Gone])]);
        let now = problems(&[
            ("a", &[Problem::PortDown, Problem::PortFlapping]),
            ("c", &[Problem::PortDown, Problem::LinkDegraded]),
            ("d", &[Problem::PortDown]),
        ]);
        assert!(of_problems(&now, &now).is_empty());
        let said = |before, now| {
            let line = |notice: &Notice| {
                let kind = if notice.is_warning { "Warning" } else { "Normal" };
                format!("{kind} {} {}\n", notice.reason, notice.note)
            };
            of_problems(before, now).iter().map(line).collect::<String>()
        };
        insta::assert_snapshot!(said(&before, &now), @"
        Warning NICPortDown c, d: no port is active; check the cable, the switch and the subnet manager
        Warning NICPortFlapping a: the port goes down repeatedly; check the cable and the switch
        Warning NICLinkDegraded c: the PCIe link runs slower or narrower than the NIC supports; check slot and riser
        Normal NICGoneNoMore b: it is back, or no pod has it any more
        ");
        insta::assert_snapshot!(said(&now, &Problems::new()), @"
        Normal NICPortUp a, c, d: a port is active again
        Normal NICPortSteady a: the port has been steady for two minutes
        Normal NICLinkRestored c: the PCIe link runs at full speed
        ");
    }

    #[test]
    fn notes_are_cut_to_the_limit_of_the_api() {
        let names: Vec<_> = (0..64).map(|index| format!("pci-000{index:02}-00-00-0-ä")).collect();
        let down: Vec<_> =
            names.iter().map(|name| (name.as_str(), &[Problem::PortDown][..])).collect();
        let notices = of_problems(&Problems::new(), &problems(&down));
        assert_eq!(notices.len(), 1);
        assert!((NOTE_MAX - 3..=NOTE_MAX).contains(&notices[0].note.len()));
    }
}
