//! Events on pods that wait for an object of admission.

use cluster_model::view::ObjectKey;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ListParams;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client, Resource as _};

/// Reporting controller of the events on waiting pods.
const REPORTER: &str = "dranet-admission";

/// The most bytes of the note of an event (`NoteLengthLimit` in
/// `pkg/apis/core/validation/events.go`).
const NOTE_MAX: usize = 1_024;

/// Sends a warning that an object which the pod waits for is not created. Returns true if it was sent.
pub(crate) async fn warn_of_creation(client: &Client, pod: &Pod, reason: &str, note: &str) -> bool {
    let event = warning("Create", reason, beginning(note, NOTE_MAX));
    recorder(client).publish(&event, &pod.object_ref(&())).await.is_ok()
}

/// A warning that an action is not taken, or not what it could be.
pub(crate) fn warning(action: &str, reason: &str, note: &str) -> Event {
    Event {
        type_: EventType::Warning,
        reason: reason.to_owned(),
        note: Some(note.to_owned()),
        action: action.to_owned(),
        secondary: None,
    }
}

/// Sends events.
pub(crate) fn recorder(client: &Client) -> Recorder {
    let source = Reporter { controller: REPORTER.to_owned(), instance: None };
    Recorder::new(client.clone(), source)
}

/// A pod as what an event is about.
pub(crate) fn about_pod(namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(Pod::API_VERSION.to_owned()),
        kind: Some(Pod::KIND.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// The owner of an object of a namespace as what an event is about.
pub(crate) fn about_owner(namespace: &str, owner: &OwnerReference) -> ObjectReference {
    ObjectReference {
        api_version: Some(owner.api_version.clone()),
        kind: Some(owner.kind.clone()),
        namespace: Some(namespace.to_owned()),
        name: Some(owner.name.clone()),
        uid: Some(owner.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Reads one pod with only the permission to list pods.
pub(crate) async fn read_pod(client: &Client, key: &ObjectKey) -> kube::Result<Option<Pod>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let named = ListParams::default().fields(&format!("metadata.name={}", key.name));
    Ok(pods.list(&named).await?.items.into_iter().next())
}

/// The beginning of a text, of at most so many bytes.
pub(crate) fn beginning(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, bytes, expected) in
            [("quota", 9, "quota"), ("quota", 2, "qu"), ("éé", 3, "é"), ("é", 1, ""), ("", 0, "")]
        {
            assert_eq!(beginning(text, bytes), expected);
        }
    }
}
