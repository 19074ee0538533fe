//! Reports the outcome of pods: a log line, and an event if the alignment is poor.

use crate::expected::PodName;
use crate::in_flight::Landed;
use crate::learn::BoundPod;
use dra_allocator::DeviceId;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use topology_graph::PathKind;

/// Writes events.
#[derive(Clone)]
pub(crate) struct Events(Recorder);

impl Events {
    pub(crate) fn new(client: Client) -> Self {
        let reporter = Reporter { controller: "dranet-scheduler-ext".into(), instance: None };
        Self(Recorder::new(client, reporter))
    }

    /// Sends an event on a pod with a pair that is farther apart than one NUMA node.
    pub(crate) async fn misaligned(&self, bound: &BoundPod) {
        let Some(event) = bound.path.and_then(event) else { return };
        let PodName { key, uid } = &bound.pod;
        let pod = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(key.name.clone()),
            namespace: Some(key.namespace.clone()),
            uid: Some(uid.clone()),
            ..ObjectReference::default()
        };
        if let Err(error) = self.0.publish(&event, &pod).await {
            tracing::warn!(pod = %key, %error, "Failed to send an event");
        }
    }
}

fn event(path: PathKind) -> Option<Event> {
    if path.satisfies(PathKind::Node) || path == PathKind::Unknown {
        return None;
    }
    let note = format!(
        "The farthest of the pod's GPU-NIC pairs is {path}: the devices are not on one NUMA \
         node. No node could give nearer ones, or the claim did not ask for them"
    );
    Some(Event {
        type_: EventType::Warning,
        reason: "Misaligned".into(),
        note: Some(note),
        action: "Allocate".into(),
        secondary: None,
    })
}

/// Logs a pod that got other devices than forecast.
pub(crate) fn log(landed: &Landed) {
    let Some(of) = landed.forecast.as_ref().filter(|of| !of.is_right) else { return };
    let predicted = names(&of.forecast.taken);
    let actual = names(&landed.actual);
    let pod = &landed.pod;
    if of.is_certain {
        tracing::warn!(%pod, node = of.node, predicted, actual, "Forecast was wrong");
    } else {
        tracing::info!(%pod, node = of.node, predicted, actual, "Node changed after its forecast");
    }
}

fn names(devices: &[DeviceId]) -> String {
    let mut names: Vec<_> = devices.iter().map(ToString::to_string).collect();
    names.sort();
    names.join(" ")
}
