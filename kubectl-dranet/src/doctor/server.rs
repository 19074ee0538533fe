//! The control plane: its version, its feature gates, and the speed of its controllers.

use super::finding::Findings;
use super::scene::{Scene, words};
use crate::answer::Severity;
use dra_allocator::MinorVersion;

/// Requests per second of kube-controller-manager without a flag
/// (`cmd/kube-controller-manager/app/options`, `--kube-api-qps`).
const DEFAULT_QPS: f64 = 20.0;
/// Requests that the resource claim controller makes for a claim.
const REQUESTS_PER_CLAIM: f64 = 2.0;

/// Feature gates of Kubernetes, and what does not work without them.
const GATES: [(&str, Severity, &str); 4] = [
    ("DynamicResourceAllocation", Severity::Error, "no claim is scheduled"),
    (
        "DRAPrioritizedList",
        Severity::Error,
        "claims lose their alternatives, which admission uses for cells and for preferred alignment",
    ),
    ("DRADeviceTaints", Severity::Warning, "taints do not keep pods off NICs whose port is down"),
    ("DRAConsumableCapacity", Severity::Note, "claims cannot share a NIC"),
];

/// A version that lacks what claims need, or that this program does not know.
pub(super) fn version(scene: &Scene<'_>, found: &mut Findings) {
    let server = scene.seen.server.as_deref().unwrap_or_default();
    let Some(minor) = minor(server) else { return };
    let place = format!("API server {server}");
    if minor < MinorVersion::V1_34.minor() {
        found
            .error(place, "does not serve resource.k8s.io/v1; upgrade to Kubernetes 1.34 or newer");
    } else if minor > MinorVersion::V1_37.minor() {
        found.note(
            place,
            "is newer than this program, which predicts allocations as Kubernetes 1.37 makes them",
        );
    }
}

fn minor(server: &str) -> Option<u8> {
    let rest = server.strip_prefix('v').unwrap_or(server).strip_prefix("1.")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Feature gates that are off.
pub(super) fn gates(scene: &Scene<'_>, found: &mut Findings) {
    for (name, severity, without) in GATES {
        if scene.seen.gates.get(name) == Some(&false) {
            let message = format!("is off, so {without}; enable it in every component");
            found.add(severity, format!("feature gate {name}"), message);
        }
    }
}

/// How fast claims are created from templates.
pub(super) fn claim_speed(scene: &Scene<'_>, found: &mut Findings) {
    for (name, pod) in scene.of_control_plane("kube-controller-manager") {
        let said = words(pod).find_map(|word| word.strip_prefix("--kube-api-qps="));
        let qps: f64 = said.and_then(|said| said.parse().ok()).unwrap_or(DEFAULT_QPS);
        if qps <= DEFAULT_QPS {
            let message = format!(
                "is limited to {qps} requests per second, which is {} claims per second; large jobs \
                 wait for their claims; raise --kube-api-qps and --kube-api-burst",
                qps / REQUESTS_PER_CLAIM
            );
            found.note(format!("kube-controller-manager {name}"), message);
        }
    }
}
