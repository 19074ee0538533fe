//! Events on pods that wait for an object of admission.

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource as _};

/// Reporting controller of the events on waiting pods.
pub(crate) const REPORTER: &str = "dranet-admission";

/// The most bytes of the note of an event (`NoteLengthLimit` in
/// `pkg/apis/core/validation/events.go`).
const NOTE_MAX: usize = 1_024;

/// Sends a warning that an object which the pod waits for is not created. Returns true if it was sent.
pub(crate) async fn warn_of_creation(client: &Client, pod: &Pod, reason: &str, note: &str) -> bool {
    let event = Event {
        type_: EventType::Warning,
        reason: reason.to_owned(),
        note: Some(beginning(note, NOTE_MAX).to_owned()),
        action: "Create".to_owned(),
        secondary: None,
    };
    let source = Reporter { controller: REPORTER.to_owned(), instance: None };
    let recorder = Recorder::new(client.clone(), source);
    recorder.publish(&event, &pod.object_ref(&())).await.is_ok()
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
