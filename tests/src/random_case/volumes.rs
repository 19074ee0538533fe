//! Kinds of volumes: which exist, which are chosen, and what limits them.

use serde_json::{Value, json};

use super::{Case, ZONE, push, with_cpus};
use crate::random::Random;

pub(super) fn zonal(case: &mut Case, nodes: &[String], random: &mut Random) {
    case.give_zones(nodes);
    // Its controllers delete a volume later than the next case begins.
    let name = format!("tests-zonal-{}", case.seed);
    let zone = json!({"key": ZONE, "operator": "In", "values": [random.pick(&["a", "b"])]});
    case.objects.push(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "storageClassName": "tests-zonal", "local": {"path": "/none"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
        },
    }));
    let bound = json!({"pv.kubernetes.io/bind-completed": "yes"});
    if random.below(4) > 0 {
        case.objects.push(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "annotations": bound},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "tests-zonal",
                "volumeName": name, "resources": {"requests": {"storage": "1Gi"}},
            },
        }));
    }
    mount(&mut case.pod["spec"], &name);
}

/// Lets a pod have the volume of a claim.
fn mount(spec: &mut Value, claim: &str) {
    let volume = json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}});
    push(&mut spec["volumes"], volume);
}

/// A class of volumes that exist, or that this provisioner makes.
fn class(case: &mut Case, provisioner: &str) -> String {
    let name = format!("{}-{}", provisioner.replace('/', "-"), case.seed);
    let object = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer",
    });
    if !case.objects.contains(&object) {
        case.objects.push(object);
    }
    name
}

/// A volume in a zone, or in none, of a CSI driver if one is given.
fn volume_in(
    case: &mut Case,
    (name, class, size): (&str, &str, &str),
    mode: &str,
    (zone, driver): (Option<&str>, Option<&str>),
) {
    let mut volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size}, "accessModes": [mode], "storageClassName": class,
        },
    });
    match driver {
        Some(driver) => volume["spec"]["csi"] = json!({"driver": driver, "volumeHandle": name}),
        None => volume["spec"]["hostPath"] = json!({"path": "/none"}),
    }
    if let Some(zone) = zone {
        let zone = json!({"key": ZONE, "operator": "In", "values": [zone]});
        volume["spec"]["nodeAffinity"] =
            json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}});
    }
    case.objects.push(volume);
}

/// A claim, bound to the volume of its name if it says so.
fn claim(case: &mut Case, (name, class, size): (&str, &str, &str), mode: &str, is_bound: bool) {
    let mut claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": [mode], "storageClassName": class,
            "resources": {"requests": {"storage": size}},
        },
    });
    if is_bound {
        claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        claim["spec"]["volumeName"] = json!(name);
    }
    case.objects.push(claim);
}

/// Claims whose volumes are chosen for the pod, of volumes of several sizes and zones.
pub(super) fn to_choose(case: &mut Case, nodes: &[String], random: &mut Random) {
    case.give_zones(nodes);
    let class = class(case, "kubernetes.io/no-provisioner");
    let seed = case.seed;
    for number in 0..=random.below(4) {
        let zone = *random.pick(&[None, Some("a"), Some("b")]);
        let size = *random.pick(&["1Gi", "2Gi", "4Gi"]);
        let name = format!("tests-late-{seed}-{number}");
        volume_in(case, (&name, &class, size), "ReadWriteOnce", (zone, None));
    }
    for number in 0..=random.below(2) {
        let name = format!("asked-{seed}-{number}");
        let size = *random.pick(&["1Gi", "2Gi"]);
        claim(case, (&name, &class, size), "ReadWriteOnce", false);
        mount(&mut case.pod["spec"], &name);
    }
}

/// A volume that one pod may use at a time, which another may have.
pub(super) fn of_one_pod(case: &mut Case, nodes: &[String], random: &mut Random) {
    case.give_zones(nodes);
    let name = format!("tests-one-{}", case.seed);
    volume_in(case, (&name, "tests-one", "1Gi"), "ReadWriteOncePod", (None, None));
    claim(case, (&name, "tests-one", "1Gi"), "ReadWriteOncePod", true);
    mount(&mut case.pod["spec"], &name);
    if random.below(3) > 0 {
        let mut spec = with_cpus(1);
        mount(&mut spec, &name);
        case.run(random.pick(nodes).as_str(), &spec);
    }
}

/// Volumes of a CSI driver of which nodes attach few.
pub(super) fn attached(case: &mut Case, nodes: &[String], random: &mut Random) {
    let seed = case.seed;
    let driver = format!("csi-{seed}.tests.dranet.io");
    for node in nodes {
        let allocatable = json!({"count": random.pick(&[1, 1, 2])});
        case.objects.push(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": node},
            "spec": {"drivers": [
                {"name": driver, "nodeID": node, "allocatable": allocatable},
            ]},
        }));
    }
    let mut names = (0..).map(|number| format!("tests-csi-{seed}-{number}"));
    let mut make = |case: &mut Case| {
        let name = names.next().unwrap_or_default();
        volume_in(case, (&name, "tests-csi", "1Gi"), "ReadWriteOnce", (None, Some(&driver)));
        claim(case, (&name, "tests-csi", "1Gi"), "ReadWriteOnce", true);
        name
    };
    for node in nodes {
        if random.below(2) == 0 {
            let mut spec = with_cpus(1);
            mount(&mut spec, &make(case));
            case.run(node, &spec);
        }
    }
    for _ in 0..=random.below(2) {
        let name = make(case);
        mount(&mut case.pod["spec"], &name);
    }
}

/// A driver that has too little storage left for the volume that is to be made: nobody makes any.
pub(super) fn storage_left(case: &mut Case, nodes: &[String], random: &mut Random) {
    case.give_zones(nodes);
    let driver = format!("left-{}.tests.dranet.io", case.seed);
    let class = class(case, &driver);
    case.objects.push(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": driver},
        "spec": {"storageCapacity": true, "attachRequired": false},
    }));
    for zone in ["a", "b"] {
        if random.below(2) == 0 {
            case.objects.push(json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
                "metadata": {"name": format!("left-{zone}")}, "storageClassName": class,
                "nodeTopology": {"matchLabels": {ZONE: zone}}, "capacity": "1Gi",
            }));
        }
    }
    let name = format!("left-{}", case.seed);
    claim(case, (&name, &class, "2Gi"), "ReadWriteOnce", false);
    mount(&mut case.pod["spec"], &name);
}
