//! The nodes on which a pod can have its volumes, and pod affinity by labels of namespaces.

use super::*;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};

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
        "metadata": {"name": "data", "namespace": "n", "uid": "1"},
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
    let lost = json!({"status": {"phase": "Lost"}});
    let ending = json!({"metadata": {"deletionTimestamp": "2026-11-29T00:00:00Z"}});
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
        (Some(&lost), Some(&none), &none, "", "has lost its volume"),
        (Some(&ending), Some(&none), &none, "", "is being deleted"),
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

/// A pod that names these claims.
fn with_claims(claims: &[&str]) -> Value {
    let volumes = claims.iter().enumerate().map(|(number, claim)| {
        json!({"name": format!("v{number}"), "persistentVolumeClaim": {"claimName": claim}})
    });
    json!({"volumes": volumes.collect::<Vec<_>>()})
}

fn fits_with(world: &World, spec: &Value) -> (String, String) {
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    let attempt = room.attempt(&Ask::new(&pod(spec)), [NODE, "b"]).unwrap();
    let why = attempt.barred().first().map(|(_, why)| why.to_string());
    (attempt.fits().join(" "), why.unwrap_or_default())
}

#[test]
fn volumes_that_are_made_need_storage_that_is_left() {
    let driver = |counts: bool| -> CSIDriver {
        from(json!({"metadata": {"name": "x"}, "spec": {"storageCapacity": counts}}))
    };
    let left = |zone: &str, capacity: &str, maximum: Value| -> CSIStorageCapacity {
        from(json!({
            "metadata": {"name": zone, "namespace": "csi"}, "storageClassName": "c",
            "nodeTopology": {"matchLabels": {"zone": zone}},
            "capacity": capacity, "maximumVolumeSize": maximum,
        }))
    };
    let enough = || left("y", "5Gi", Value::Null);
    for (driver, capacities, expected) in [
        (None, vec![], "a b"),
        (Some(driver(false)), vec![], "a b"),
        (Some(driver(true)), vec![], ""),
        (Some(driver(true)), vec![enough()], "b"),
        (Some(driver(true)), vec![enough(), left("z", "900Mi", Value::Null)], "b"),
        (Some(driver(true)), vec![enough(), left("z", "2Gi", json!("512Mi"))], "b"),
        (Some(driver(true)), vec![enough(), left("z", "1Gi", Value::Null)], "a b"),
    ] {
        let mut world = world();
        world.view.apply(class(&json!({}))).unwrap();
        world.view.apply(claim(&json!({}))).unwrap();
        if let Some(driver) = driver {
            world.view.apply(driver).unwrap();
        }
        let shown = format!("{capacities:?}");
        for capacity in capacities {
            world.view.apply(capacity).unwrap();
        }
        let (found, said) = fits_with(&world, &with_claims(&["data"]));
        assert_eq!(found, expected, "{shown}");
        assert!(found == "a b" || said.contains("more storage than is left"), "{said}");
    }
}

#[test]
fn a_node_attaches_as_many_volumes_of_a_driver_as_it_can() {
    let of_driver = |name: &str| {
        let source = json!({"driver": "x", "volumeHandle": name});
        let spec = json!({"csi": source, "nodeAffinity": null});
        volume(&json!({"metadata": {"name": name}, "spec": spec}))
    };
    let bound = |name: &str| {
        let annotations = json!({"pv.kubernetes.io/bind-completed": "yes"});
        claim(&json!({
            "metadata": {"name": name, "annotations": annotations}, "spec": {"volumeName": name},
        }))
    };
    let attached = |name: &str| -> VolumeAttachment {
        let source = json!({"persistentVolumeName": name});
        let spec = json!({"attacher": "x", "nodeName": NODE, "source": source});
        from(json!({"metadata": {"name": name}, "spec": spec}))
    };
    for (limit, running, attachments, asked, expected) in [
        (None, &["p"][..], &[][..], &["q", "r"][..], "a b"),
        (Some(2), &["p"], &[], &["q"], "a b"),
        (Some(1), &["p"], &[], &["q"], "b"),
        (Some(1), &["p"], &[], &["p"], "a b"),
        (Some(2), &["p"], &[], &["q", "r"], "b"),
        (Some(2), &["p"], &["p"], &["q"], "a b"),
        (Some(2), &["p"], &["r"], &["q"], "b"),
        (Some(1), &["p"], &[], &["late"], "b"),
    ] {
        let mut world = world();
        world.view.apply(class(&json!({}))).unwrap();
        world.view.apply(claim(&json!({"metadata": {"name": "late"}}))).unwrap();
        for name in ["p", "q", "r"] {
            world.view.apply(of_driver(name)).unwrap();
            world.view.apply(bound(name)).unwrap();
        }
        let driver = json!({"name": "x", "nodeID": "a", "allocatable": {"count": limit}});
        let on_node = json!({"metadata": {"name": NODE}, "spec": {"drivers": [driver]}});
        world.view.apply(from::<CSINode>(on_node)).unwrap();
        for name in attachments {
            world.view.apply(attached(name)).unwrap();
        }
        world.run("running", NODE, &with_claims(running));
        let (found, said) = fits_with(&world, &with_claims(asked));
        assert_eq!(found, expected, "{limit:?} {attachments:?} {asked:?}");
        assert!(found == "a b" || said.contains("as many volumes of its driver"), "{said}");
    }
}

#[test]
fn a_driver_that_must_be_on_a_node_keeps_pods_off_the_others() {
    let mut world = world();
    world.view.apply(class(&json!({}))).unwrap();
    world.view.apply(claim(&json!({}))).unwrap();
    let driver =
        json!({"metadata": {"name": "x"}, "spec": {"preventPodSchedulingIfMissing": true}});
    world.view.apply(from::<CSIDriver>(driver)).unwrap();
    assert_eq!(fits_with(&world, &with_claims(&["data"])).0, "a b", "drivers are not known");
    let on_b =
        json!({"metadata": {"name": "b"}, "spec": {"drivers": [{"name": "x", "nodeID": "b"}]}});
    world.view.apply(from::<CSINode>(on_b)).unwrap();
    let (found, said) = fits_with(&world, &with_claims(&["data"]));
    assert_eq!(found, "b");
    assert!(said.contains("needs a CSI driver"), "{said}");
}

#[test]
fn one_pod_at_a_time_has_a_volume_of_one_pod() {
    let mut world = world();
    world.view.apply(class(&json!({}))).unwrap();
    world.view.apply(claim(&json!({"spec": {"accessModes": ["ReadWriteOncePod"]}}))).unwrap();
    let with_priority = |priority: i32| {
        let mut spec = with_claims(&["data"]);
        spec["priority"] = priority.into();
        spec
    };
    assert_eq!(fits_with(&world, &with_priority(0)).0, "a b");
    world.run("running", NODE, &with_priority(5));
    let (found, said) = fits_with(&world, &with_priority(5));
    assert_eq!(found, "");
    assert!(said.contains("only one pod may use it"), "{said}");
    let budget = budget(&world.view);
    let room = Room::new(&world.view, &world.nodes, &budget);
    let preempted = |priority| {
        let ask = Ask::new(&pod(&with_priority(priority)));
        room.preempt(&ask, [NODE, "b"]).unwrap().map(|it| (it.node, it.victims.len()))
    };
    assert_eq!(preempted(5), None);
    assert_eq!(preempted(6), Some((NODE, 1)));
}

/// The smallest claim takes the smallest volume that serves it; what one takes is not there for another.
#[test]
fn claims_share_the_volumes_that_are_free() {
    let sized = |name: &str, size: &str| {
        volume(&json!({
            "metadata": {"name": name},
            "spec": {"capacity": {"storage": size}, "nodeAffinity": null},
        }))
    };
    let asking = |name: &str, size: &str| {
        let resources = json!({"requests": {"storage": size}});
        claim(&json!({"metadata": {"name": name}, "spec": {"resources": resources}}))
    };
    let mut world = world();
    world.view.apply(class(&json!({"provisioner": "kubernetes.io/no-provisioner"}))).unwrap();
    world.view.apply(sized("small", "1Gi")).unwrap();
    world.view.apply(sized("large", "9Gi")).unwrap();
    world.view.apply(asking("p", "1Gi")).unwrap();
    world.view.apply(asking("q", "5Gi")).unwrap();
    world.view.apply(asking("r", "1Gi")).unwrap();
    assert_eq!(fits_with(&world, &with_claims(&["q", "p"])).0, "a b");
    assert_eq!(fits_with(&world, &with_claims(&["q", "p", "r"])).0, "");
    let taken = {
        let budget = budget(&world.view);
        let room = Room::new(&world.view, &world.nodes, &budget);
        room.taken_volumes(NODE, &Ask::new(&pod(&with_claims(&["p"]))))
    };
    let names: Vec<_> = taken.1.iter().map(|it| it.metadata.name.clone().unwrap()).collect();
    assert_eq!(names, ["small"]);
    taken.0.into_iter().for_each(|it| world.view.apply(it).unwrap());
    taken.1.into_iter().for_each(|it| world.view.apply(it).unwrap());
    assert_eq!(fits_with(&world, &with_claims(&["q"])).0, "a b");
    assert_eq!(fits_with(&world, &with_claims(&["q", "r"])).0, "", "p has the small one");
    assert_eq!(fits_with(&world, &with_claims(&["p"])).0, "a b");
}

#[test]
fn a_claim_that_is_created_for_a_pod_has_the_default_class() {
    let ephemeral = json!({"volumes": [{"name": "data", "ephemeral": {"volumeClaimTemplate": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }}}]});
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
    let topologies = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["z"]}]}]);
    let mut world = world();
    world.view.apply(class(&json!({"metadata": {"name": "other"}}))).unwrap();
    assert_eq!(fits_with(&world, &ephemeral).0, "", "no class is the default");
    let default =
        json!({"metadata": {"annotations": annotations}, "allowedTopologies": topologies});
    world.view.apply(class(&default)).unwrap();
    assert_eq!(fits_with(&world, &ephemeral).0, "a");
    // A claim of that name belongs to nobody.
    let name = format!("{}-data", pod(&json!({})).metadata.name.unwrap_or_default());
    world.view.apply(claim(&json!({"metadata": {"name": name}}))).unwrap();
    let (found, said) = fits_with(&world, &ephemeral);
    assert_eq!(found, "");
    assert!(said.contains("belongs to another object"), "{said}");
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
