//! Which extended resources are accelerators, and which are parts of one, follows from the table of
//! drivers. It is set once for a process, so this file has one test.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use cluster_model::drivers::{Drivers, DriversFile, set};
use migration::{Options, migrate};

/// What a pod with this limit and one NIC becomes: its annotation, and the notes.
fn of_limit(resource: &str, amount: u64) -> (Option<String>, Vec<String>) {
    let pod = serde_json::json!({
        "kind": "Pod",
        "metadata": {"name": "a", "annotations": {"k8s.v1.cni.cncf.io/networks": "n"}},
        "spec": {"containers": [
            {"name": "c", "resources": {"limits": {"rdma/x": 1, resource: amount}}},
        ]},
    });
    let migration = migrate(&[pod], &Options::default());
    let pod = migration.documents.iter().find(|it| it["kind"] == "Pod").unwrap();
    let limits = &pod["spec"]["containers"][0]["resources"]["limits"];
    assert_eq!(limits[resource], amount, "{resource} stays");
    let annotation = pod["metadata"]["annotations"]["dranet.io/aligned-nics"].as_str();
    let notes = migration.notes.into_iter().map(|note| note.text).collect();
    (annotation.map(str::to_owned), notes)
}

/// The table of drivers says what is a GPU and what is a part of one.
#[test]
fn accelerators_and_their_parts_are_those_of_the_table() {
    let gaudi = "accelerators: [{driver: gaudi.intel.com, class: gaudi.intel.com, \
                 pciVendor: \"1da3\", pciClasses: [\"1200\"], extendedResources: [intel.com/gaudi]}]";
    let file = DriversFile::parse(gaudi).unwrap();
    set(&Drivers::with(file)).unwrap();
    let whole = ["nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/xe", "intel.com/gaudi"];
    for resource in whole {
        let (annotation, notes) = of_limit(resource, 1);
        assert_eq!(annotation.as_deref(), Some("1"), "{resource}: {notes:?}");
    }
    let (annotation, notes) = of_limit("nvidia.com/mig-1g.10gb", 1);
    assert_eq!(annotation.as_deref(), Some("1"), "one part is aligned");
    let says = |notes: &[String], text: &str| notes.iter().any(|note| note.contains(text));
    assert!(says(&notes, "if the DRA driver gpu.nvidia.com publishes such parts"), "{notes:?}");
    for (resource, amount) in [
        ("nvidia.com/mig-1g.10gb", 2),
        ("nvidia.com/gpu.shared", 1),
        ("amd.com/cpx_nps4", 1),
        ("gpu.intel.com/millicores", 100),
    ] {
        let (annotation, notes) = of_limit(resource, amount);
        assert_eq!(annotation, None, "{resource}");
        let text = format!("`{resource}` is a part or a share of a GPU");
        assert!(says(&notes, &text), "{notes:?}");
    }
}
