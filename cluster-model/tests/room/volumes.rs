//! The nodes on which a pod can have its volumes, and pod affinity by labels of namespaces.

use super::*;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

/// Node `a` in zone `z`, node `b` in zone `y`.
fn world() -> World {
    let mut world = World::new(&[(NODE, 2)]);
    let zone = json!({"metadata": {"labels": {"zone": "y", "topology.kubernetes.io/zone": "y"}}});
    world.node("b", 2, &zone);
    world
}

fn class(fields: &Value) -> StorageClass {
    let mut class = json!({
        "metadata": {"name": "c"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer",
    });
    json_patch::merge(&mut class, fields);
    from(class)
}

fn volume(fields: &Value) -> PersistentVolume {
    let mut volume = json!({
        "metadata": {"name": "v"},
        "spec": {
            "storageClassName": "c", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"],
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "zone", "operator": "In", "values": ["y"]},
            ]}]}},
        },
        "status": {"phase": "Available"},
    });
    json_patch::merge(&mut volume, fields);
    from(volume)
}

fn claim(fields: &Value) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": {"name": "data", "namespace": "n"},
        "spec": {
            "storageClassName": "c", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    json_patch::merge(&mut claim, fields);
    from(claim)
}

/// The nodes on which a pod fits with its volume, and why not on the first of the others.
fn fits(world: &World) -> (String, String) {
    let spec = json!({"volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "emptyDir": {}},
    ]});
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    let attempt = room.attempt(&Ask::new(&pod(&spec)), [NODE, "b"]).unwrap();
    let why = attempt.barred().first().map(|(_, why)| why.to_string());
    (attempt.fits().join(" "), why.unwrap_or_default())
}

#[test]
fn a_volume_decides_on_which_nodes_its_pod_can_be() {
    let bound = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "v"},
    });
    let selected =
        json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "b"}}});
    let none = json!({});
    let zonal = json!({
        "metadata": {"labels": {"topology.kubernetes.io/zone": "x__z"}},
        "spec": {"nodeAffinity": null},
    });
    let topologies = json!({"allowedTopologies": [{"matchLabelExpressions": [
        {"key": "zone", "values": ["x", "z"]},
    ]}]});
    let static_class = json!({"provisioner": "kubernetes.io/no-provisioner"});
    let immediate = json!({"volumeBindingMode": "Immediate"});
    let small = json!({"spec": {"capacity": {"storage": "1Mi"}}});
    let taken = json!({"spec": {"claimRef": {"name": "other", "namespace": "n"}}});
    let own = json!({"spec": {"claimRef": {"name": "data", "namespace": "n"}}, "status": null});
    let released = json!({"status": {"phase": "Released"}});
    let attributes = json!({"spec": {"volumeAttributesClassName": "fast"}});
    let fast = json!({"spec": {"selector": {"matchLabels": {"disk": "fast"}}}});
    let labelled = json!({"metadata": {"labels": {"disk": "fast"}}});
    let block = json!({"spec": {"volumeMode": "Block"}});
    for (of_claim, of_volume, of_class, expected, why) in [
        (Some(&bound), Some(&none), &none, "b", "has a volume in another zone or on another node"),
        (Some(&bound), Some(&zonal), &none, "a", "has a volume in another zone"),
        (Some(&bound), None, &none, "", "is bound to a volume that does not exist"),
        (Some(&selected), None, &none, "b", "has a volume in another zone or on another node"),
        (Some(&none), None, &none, "a b", ""),
        (Some(&none), None, &topologies, "a", "has a StorageClass that makes no volumes here"),
        (Some(&none), Some(&none), &static_class, "b", "finds no free volume"),
        (Some(&none), Some(&small), &static_class, "", "finds no free volume"),
        (Some(&none), Some(&taken), &static_class, "", "finds no free volume"),
        (Some(&none), Some(&own), &static_class, "b", "finds no free volume"),
        (Some(&none), Some(&released), &static_class, "", "finds no free volume"),
        (Some(&none), Some(&attributes), &static_class, "", "finds no free volume"),
        (Some(&attributes), Some(&attributes), &static_class, "b", "finds no free volume"),
        (Some(&fast), Some(&none), &static_class, "", "finds no free volume"),
        (Some(&fast), Some(&labelled), &static_class, "b", "finds no free volume"),
        (Some(&block), Some(&none), &static_class, "", "finds no free volume"),
        (Some(&block), Some(&block), &static_class, "b", "finds no free volume"),
        (Some(&none), None, &immediate, "", "has no volume yet"),
        (None, None, &none, "", "PersistentVolumeClaim data does not exist"),
    ] {
        let mut world = world();
        world.view.apply(class(of_class)).unwrap();
        if let Some(fields) = of_volume {
            world.view.apply(volume(fields)).unwrap();
        }
        if let Some(fields) = of_claim {
            world.view.apply(claim(fields)).unwrap();
        }
        let (found, said) = fits(&world);
        assert_eq!(found, expected, "{of_claim:?} {of_volume:?} {of_class}: {said}");
        assert!(said.contains(why), "{said}");
    }
    // Without any volume, claim or class, nothing is known.
    assert_eq!(fits(&world()).0, "a b");
}

#[test]
fn affinity_selects_namespaces_by_their_labels() {
    let affinity = |selector: Value| {
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}},
            "namespaceSelector": selector,
        }]}}})
    };
    for (selector, known, expected) in [
        (json!({}), true, "a"),
        (json!({"matchLabels": {"team": "t"}}), true, "a"),
        (json!({"matchLabels": {"team": "other"}}), true, ""),
        (json!({"matchLabels": {"team": "other"}}), false, "a"),
    ] {
        let mut world = world();
        world.run("x", NODE, &json!({}));
        if known {
            let labels = json!({"metadata": {"name": "n", "labels": {"team": "t"}}});
            world.view.apply(from::<Namespace>(labels)).unwrap();
        }
        let budget = budget(&world.view);
        let room = Room::new(&world.view, &world.nodes, &budget);
        let attempt = room.attempt(&Ask::new(&pod(&affinity(selector.clone()))), [NODE, "b"]);
        assert_eq!(attempt.unwrap().fits().join(" "), expected, "{selector} {known}");
    }
}
