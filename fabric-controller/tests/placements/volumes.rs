//! Volumes of pods decide on the fabric of their gang, too.

use super::world::{World, from};
use cluster_model::view::{ClusterView, Index};
use fabric_controller::size::Size;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn add<K>(world: &mut World, object: Value)
where
    K: DeserializeOwned,
    ClusterView: Index<K>,
{
    world.view.apply(from::<K>(object)).unwrap();
}

/// A class whose volumes are made on any node, and a claim with a volume that only this node has.
fn volume_on(world: &mut World, claim: &str, node: &str) {
    add::<StorageClass>(
        world,
        json!({
            "metadata": {"name": "made"}, "provisioner": "csi.example.org",
            "volumeBindingMode": "WaitForFirstConsumer",
        }),
    );
    let host = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    add::<PersistentVolume>(
        world,
        json!({
            "metadata": {"name": claim},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}}},
        }),
    );
    add::<PersistentVolumeClaim>(
        world,
        json!({
            "metadata": {
                "name": claim, "namespace": "n",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"volumeName": claim, "storageClassName": "made"},
        }),
    );
}

fn with_claim(claim: &str) -> Value {
    json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]})
}

#[test]
fn a_gang_goes_where_its_volumes_are() {
    let mut world = World::new(3, 2);
    volume_on(&mut world, "data-a-0", "f1-n0");
    volume_on(&mut world, "data-a-1", "f1-n1");
    world.sizes.insert("a".to_owned(), Size { pods: 2, at_once: true });
    for pod in ["a-0", "a-1"] {
        world.pod(pod, "a", "d4", &with_claim(&format!("data-{pod}")));
    }
    assert_eq!(world.told()["a"], "2 to f1");
    volume_on(&mut world, "data-a-1", "f2-n1");
    let found = world.told();
    assert!(found["a"].contains("an empty fabric has at most 1"), "{found:?}");
}

/// The volume of the first pod of a StatefulSet is on one node; those of the others need not be.
#[test]
fn pods_to_come_have_volumes_of_their_own() {
    let mut world = World::new(2, 2);
    volume_on(&mut world, "data-a-0", "f1-n0");
    world.sizes.insert("a".to_owned(), Size { pods: 2, at_once: false });
    world.pod("a-0", "a", "d4", &with_claim("data-a-0"));
    assert_eq!(world.told()["a"], "1 to f1");
}

/// Pods of a job share a claim whose volume the first of them chooses: f0 has one on each of its nodes, of
/// which one has no room for both pods.
#[test]
fn a_claim_without_a_volume_is_chosen_by_the_first_pod() {
    let mut world = World::new(1, 2);
    add::<StorageClass>(
        &mut world,
        json!({
            "metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        }),
    );
    for node in ["f0-n0", "f0-n1"] {
        let host = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
        let affinity = json!({"nodeSelectorTerms": [{"matchExpressions": [host]}]});
        add::<PersistentVolume>(
            &mut world,
            json!({
                "metadata": {"name": node},
                "spec": {
                    "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": "1Gi"}, "nodeAffinity": {"required": affinity},
                },
                "status": {"phase": "Available"},
            }),
        );
    }
    let claim = json!({
        "metadata": {"name": "data", "namespace": "n", "uid": "u"},
        "spec": {
            "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    add::<PersistentVolumeClaim>(&mut world, claim.clone());
    world.sizes.insert("a".to_owned(), Size { pods: 2, at_once: true });
    let half = json!([{"name": "c", "resources": {"requests": {"cpu": "8"}}}]);
    for pod in ["a-0", "a-1"] {
        let mut spec = with_claim("data");
        spec["containers"] = half.clone();
        world.pod(pod, "a", "d1", &spec);
    }
    assert_eq!(world.told()["a"], "2 to f0");
    world.plain("other", "f0-n0", &json!({"containers": half}));
    let found = world.told();
    assert!(found["a"].starts_with("NoRoom: no fabric has room: 1 of 2"), "{found:?}");
    // Only one pod may use it.
    let mut world = World::new(1, 2);
    let mut claim = claim;
    claim["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    volume_on(&mut world, "data", "f0-n0");
    claim["spec"]["volumeName"] = "data".into();
    claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
    add::<PersistentVolumeClaim>(&mut world, claim);
    world.sizes.insert("a".to_owned(), Size { pods: 2, at_once: true });
    for pod in ["a-0", "a-1"] {
        world.pod(pod, "a", "d1", &with_claim("data"));
    }
    let found = world.told();
    assert!(found["a"].contains("has at most 1"), "{found:?}");
}
