//! The control plane: its version, its feature gates, and the speed of its controllers.

use crate::answer::{DoctorFinding, Severity};
use crate::source::Seen;
use dra_allocator::MinorVersion;
use serde_json::Value;

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

/// Examines what the API server and the pods of the control plane show.
pub(super) fn examine(seen: &Seen) -> Vec<DoctorFinding> {
    let mut findings: Vec<_> = seen.server.iter().filter_map(|it| version(it)).collect();
    let off = GATES.iter().filter(|(name, _, _)| seen.gates.get(*name) == Some(&false));
    findings.extend(off.map(|(name, severity, without)| {
        let message = format!("is off, so {without}; enable it in every component");
        DoctorFinding::new(*severity, format!("feature gate {name}"), message)
    }));
    findings.extend(seen.of_kind("Pod").filter_map(claim_speed));
    findings
}

fn version(server: &str) -> Option<DoctorFinding> {
    let rest = server.strip_prefix('v').unwrap_or(server).strip_prefix("1.")?;
    let minor: u8 = rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
    let place = format!("API server {server}");
    let (oldest, newest) = (MinorVersion::V1_34.minor(), MinorVersion::V1_37.minor());
    if minor < oldest {
        let message = "does not serve resource.k8s.io/v1; upgrade to Kubernetes 1.34 or newer";
        return Some(DoctorFinding::new(Severity::Error, place, message));
    }
    (minor > newest).then(|| {
        let message = "is newer than this program, which predicts allocations as Kubernetes 1.37 \
                       makes them";
        DoctorFinding::new(Severity::Note, place, message)
    })
}

/// Reports how fast claims are created from templates.
fn claim_speed(pod: &Value) -> Option<DoctorFinding> {
    let metadata = &pod["metadata"];
    let is_it = metadata["namespace"] == "kube-system"
        && metadata["labels"]["component"] == "kube-controller-manager";
    let container = is_it.then(|| &pod["spec"]["containers"][0])?;
    let words = ["command", "args"].iter().filter_map(|field| container[*field].as_array());
    let mut words = words.flatten().filter_map(Value::as_str);
    let said = words.find_map(|word| word.strip_prefix("--kube-api-qps="));
    let qps: f64 = said.and_then(|said| said.parse().ok()).unwrap_or(DEFAULT_QPS);
    (qps <= DEFAULT_QPS).then(|| {
        let message = format!(
            "is limited to {qps} requests per second, which is {} claims per second; large jobs \
             wait for their claims; raise --kube-api-qps and --kube-api-burst",
            qps / REQUESTS_PER_CLAIM
        );
        let name = metadata["name"].as_str().unwrap_or_default();
        DoctorFinding::new(Severity::Note, format!("kube-controller-manager {name}"), message)
    })
}
