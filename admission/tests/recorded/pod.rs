//! Random pods for a fleet.

use crate::cluster::{self, Gpus};
use crate::fleet::Fleet;
use crate::random::Random;
use serde_json::{Value, json};
use std::collections::BTreeMap;

type Annotations = &'static [(&'static str, &'static str)];

/// How near the devices are to be.
const NEAR: &[Annotations] = &[
    &[],
    &[],
    &[("alignment", "switch")],
    &[("alignment", "root-port")],
    &[("alignment", "root")],
    &[("alignment", "numa")],
    &[("alignment", "numa")],
    &[("alignment", "socket")],
];

const POLICIES: &[Annotations] =
    &[&[], &[], &[("alignment-policy", "required")], &[("alignment-policy", "preferred")]];

const PAIRINGS: &[Annotations] = &[&[], &[], &[], &[("pairing", "each")], &[("pairing", "group")]];

/// What a third of the pods asks for besides.
const WISHES: &[Annotations] = &[
    &[("nic-sharing", "shared"), ("nic-bandwidth", "50G")],
    &[("nic-sharing", "shared"), ("nic-bandwidth", "200G")],
    &[("nic-sharing", "shared")],
    &[("nic-sharing", "exclusive")],
    &[("nic-role", "storage")],
    &[("nic-role", "compute")],
    &[("rail", "same")],
    &[("rail", "same")],
    &[("aligned-cpus", "true"), ("alignment-policy", "required")],
    &[("aligned-nvmes", "1"), ("alignment-policy", "required")],
    &[("aligned-nvmes", "4"), ("alignment-policy", "required")],
    &[("nic-config", r#"{"interface": {"mtu": 4096}}"#)],
    &[("nic-config", r#"{"interface": {"type": "macvlan"}}"#)],
    &[("nic-pool", "rdma")],
    &[("nic-class", "dranet.net")],
    &[("gpu-class", "gpu.nvidia.com")],
    &[("gpu-class", "mig.nvidia.com"), ("gpus", "1")],
    &[("fabric", "same")],
    &[("fabric", "same"), ("fabric-size", "4"), ("fabric-wait", "60")],
    &[("fabric", "training"), ("fabric-level", "block=preferred")],
    &[("fabric", "training"), ("fabric-level", "nvlink")],
    &[("compute-domain", "auto")],
    &[("containers", "c0")],
];

/// Annotations of a few pods, which are denied for them, mostly.
const MISTAKES: &[Annotations] = &[
    &[("alignment", "near")],
    &[("pairing", "pairs")],
    &[("nic-bandwidth", "401G")],
    &[("nic-sharing", "shared"), ("nic-bandwidth", "401G")],
    &[("aligned-cpus", "yes")],
    &[("aligned-nvmes", "40")],
    &[("nic-config", r#"{"interface": {"addresses": ["10.0.0.7/24"]}}"#)],
    &[("nic-config", r#"{"interface": {"type": "passthrough"}}"#)],
    &[("nic-class", "none")],
    &[("gpu-class", "gpu.amd.com")],
    &[("fabric-size", "2")],
    &[("fabric", "same"), ("domain-size", "2")],
    &[("containers", "c0,c1")],
    &[("gpus", "3")],
];

/// The annotations of a pod; later ones replace earlier ones.
fn annotations(random: &mut Random) -> BTreeMap<&'static str, &'static str> {
    let mut all: BTreeMap<_, _> = BTreeMap::new();
    for choices in [NEAR, POLICIES, PAIRINGS] {
        all.extend(random.pick(choices).iter().copied());
    }
    for chances in [3, 9] {
        if random.below(chances) == 0 {
            all.extend(random.pick(WISHES).iter().copied());
        }
    }
    if random.below(16) == 0 {
        all.extend(random.pick(MISTAKES).iter().copied());
    }
    all
}

fn resource(random: &mut Random, fleet: &Fleet) -> &'static str {
    let parts = ["nvidia.com/mig-1g.10gb", "nvidia.com/mig-1g.10gb.me", "nvidia.com/gpu"];
    match fleet.machine(random) {
        _ if random.below(100) == 0 => *random.pick(&["nvidia.com/gpu.shared", "amd.com/gpu"]),
        _ if fleet.has_parts() => *random.pick(&parts),
        machine if machine.fixture.contains("mi300x") => "amd.com/gpu",
        machine if machine.gpus == Gpus::Intel => "gpu.intel.com/xe",
        _ => "nvidia.com/gpu",
    }
}

/// The number of NICs for a pod with so many GPUs.
fn nics(random: &mut Random, gpus: u32) -> String {
    match random.below(12) {
        0..4 if gpus > 0 => "per-gpu".to_owned(),
        0..7 => gpus.max(1).to_string(),
        7 | 8 => (2 * gpus.max(1)).to_string(),
        9 | 10 => (1 + gpus / 2).to_string(),
        _ => random.below(11).to_string(),
    }
}

/// A pod with annotations of all kinds, in which few pods have mistakes.
pub(crate) fn new(random: &mut Random, fleet: &Fleet) -> Value {
    let mut gpus = *random.pick(&[0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 4, 8]);
    let resource = resource(random, fleet);
    if resource.contains("mig") {
        gpus = gpus.min(1);
    }
    let nics = nics(random, gpus);
    let mut annotations = annotations(random);
    if gpus == 0 {
        annotations.insert("gpus", "0");
    }
    let mut annotations: Vec<_> = annotations.into_iter().collect();
    annotations.push(("aligned-nics", &nics));
    let mut pod = cluster::pod(if gpus == 0 { "cpu" } else { resource }, gpus.max(1), &annotations);
    containers(&mut pod, random, resource, gpus);
    if random.below(8) > 0 {
        pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "batch/v1", "kind": "Job",
            "name": "train", "uid": random.below(50).to_string(), "controller": true }]);
    }
    match random.below(40) {
        0 => pod["spec"]["hostNetwork"] = true.into(),
        1 => pod["spec"]["schedulerName"] = "other".into(),
        2 => pod["metadata"]["namespace"] = "team".into(),
        3..7 => {
            let machine = fleet.machine(random).fixture;
            pod["spec"]["nodeSelector"] = json!({ "machine": machine });
        }
        7 => pod["spec"]["nodeSelector"] = json!({ "machine": "never-seen" }),
        8 => {
            let key = "deviceclass.resource.kubernetes.io/gpu.nvidia.com";
            pod["spec"]["containers"][0]["resources"] = json!({ "limits": { key: "1" } });
        }
        _ => {}
    }
    pod
}

/// Some pods have several containers, among which the GPUs are divided, or no limits.
fn containers(pod: &mut Value, random: &mut Random, resource: &str, gpus: u32) {
    pod["spec"]["containers"][0]["name"] = "c0".into();
    let with = |name: &str, gpus: u32| {
        let amounts = json!({ resource: gpus.to_string(), "cpu": "8" });
        json!({ "name": name, "resources": { "limits": amounts, "requests": amounts } })
    };
    match random.below(20) {
        0 if gpus > 1 => {
            pod["spec"]["containers"] = json!([with("c0", gpus / 2), with("c1", gpus - gpus / 2)]);
        }
        1 if gpus > 0 => pod["spec"]["initContainers"] = json!([with("i", 1)]),
        2 if gpus > 0 => {
            let mut sidecar = with("s", 1);
            sidecar["restartPolicy"] = "Always".into();
            pod["spec"]["initContainers"] = json!([sidecar]);
        }
        3 if gpus > 0 => {
            pod["spec"]["containers"] = json!([{ "name": "c0" }, { "name": "c1" }]);
            pod["metadata"]["annotations"]["dranet.io/gpus"] = gpus.to_string().into();
        }
        4 if gpus > 0 => pod["spec"]["containers"] = json!([with("c0", gpus), { "name": "c1" }]),
        5..9 if gpus > 0 => pod["spec"]["containers"] = json!([with("c0", gpus)]),
        _ => {}
    }
}
