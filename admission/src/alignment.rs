//! How a pod's GPUs and NICs belong together, and to whom.

use crate::denial::Denial;
use std::ops::Range;

/// The maximum number of devices of a claim (`AllocationResultsMaxSize` of `resource.k8s.io/v1`).
pub const CLAIM_DEVICES_MAX: u32 = 32;

/// Whether alignment is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlignmentPolicy {
    /// The pod is scheduled only with aligned devices.
    Required,
    /// Devices are aligned if possible, otherwise any that fit.
    Preferred,
}

/// How NICs are assigned to GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// Every GPU has its own NICs near it.
    Each,
    /// All GPUs and all NICs are near each other.
    Group,
    /// Every NIC is near as many GPUs, which share it. Never named by a user: it is tried for a group
    /// that is on no node as near as that.
    Shared,
}

/// A container that gets devices of the claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// The name of the container.
    pub container: String,
    /// Its GPUs, as a range of the pod's GPUs. Every container with a share gets the NICs.
    pub gpus: Range<u32>,
    /// Whether the container still runs when later ones start; others hand their GPUs on.
    pub stays: bool,
}

impl Share {
    /// The share of a container that stays.
    pub(crate) fn of_main(container: &str, gpus: Range<u32>) -> Self {
        Self { container: container.to_owned(), gpus, stays: true }
    }
}

/// Parses a count, of which a claim has room for all.
pub(crate) fn device_count(
    name: &'static str,
    value: &str,
    noun: &str,
    allowed: &str,
) -> Result<u32, Denial> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let why = match value.parse() {
        Ok(count @ 1..=CLAIM_DEVICES_MAX) if digits => return Ok(count),
        _ if digits && value.bytes().all(|byte| byte == b'0') => {
            "invalid value: zero asks for nothing".to_owned()
        }
        _ if digits => {
            format!("a claim holds at most {CLAIM_DEVICES_MAX} devices, GPUs and NICs together")
        }
        _ => format!("invalid value: not a number of {noun}"),
    };
    Err(Denial::new(name, value, why).allowed(allowed))
}
