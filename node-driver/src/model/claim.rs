//! How claims, their pods and their other devices are named.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A claim as the kubelet names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClaimRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID; a claim that was created again under the same name has another one.
    pub uid: String,
}

impl fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl ClaimRef {
    /// Whether the UID is safe in file names.
    pub fn has_safe_uid(&self) -> bool {
        is_safe_uid(&self.uid)
    }
}

/// Whether a text is a UID that is safe in file names: letters, digits and dashes only.
pub fn is_safe_uid(uid: &str) -> bool {
    (1..=64).contains(&uid.len()) && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// A pod that may use the claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRef {
    /// Its name; it is in the claim's namespace.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// A device of another driver in the same claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherDevice {
    /// The request that it satisfies.
    pub request: String,
    /// Its driver.
    pub driver: String,
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: String,
}
