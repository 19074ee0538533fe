//! Events on the Node, before they are sent.

/// Longest note that the API accepts (`NoteLengthLimit` of `events.k8s.io/v1`), in bytes.
pub const NOTE_MAX: usize = 1024;

/// An event before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether it may need action by an administrator.
    pub is_warning: bool,
    /// Its reason.
    pub reason: &'static str,
    /// Its text.
    pub note: String,
}

impl Notice {
    /// An event that may need action by an administrator. The note is cut to the API's limit.
    pub fn warning(reason: &'static str, note: &str) -> Self {
        Self { is_warning: true, ..Self::normal(reason, note) }
    }

    /// An event that needs no action. The note is cut to the API's limit.
    pub fn normal(reason: &'static str, note: &str) -> Self {
        let note = note[..note.floor_char_boundary(NOTE_MAX)].to_owned();
        Self { is_warning: false, reason, note }
    }
}
