//! Version numbers per node, so that results computed from a node can be checked for staleness.

use super::{ObjectKey, late_claims};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The version of everything that a result about a node depends on. Equal versions mean an equal
/// result; versions are never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeVersion {
    /// Changes with the node's devices, its graph, the node itself, and the cluster's version.
    pub devices: u64,
    /// Changes with device classes, equally for all nodes.
    pub classes: u64,
    /// Changes with the claims that hold the node's devices, and with pods that have GPUs of its device
    /// plugin.
    pub claims: u64,
}

impl NodeVersion {
    /// Returns true if the node has the same devices and the same ones are in use, whatever the
    /// classes say about them.
    pub fn has_same_devices(self, other: Self) -> bool {
        (self.devices, self.claims) == (other.devices, other.claims)
    }
}

/// The versions of all nodes. Values are behind pointers, because the view is copied while it is
/// read.
#[derive(Clone, Debug, Default)]
pub(super) struct Versions {
    all: NodeVersion,
    /// Those of nodes that have anything.
    nodes: HashMap<Arc<str>, NodeVersions>,
    /// Not below that of any node that had something: of those that come, and of all others.
    gone: NodeVersion,
    slices: HashMap<Arc<str>, Arc<SlicePlace>>,
    pools: HashMap<Arc<Pool>, PoolPlace>,
    /// The devices that each claim holds.
    claims: BTreeMap<ObjectKey, Arc<ClaimDevices>>,
}

/// The version of a node, and what it is kept for.
#[derive(Clone, Copy, Debug, Default)]
struct NodeVersions {
    own: NodeVersion,
    /// The number of its slices.
    slices: usize,
}

/// Driver and name.
type Pool = (String, String);

/// The location of a slice.
#[derive(Debug)]
struct SlicePlace {
    pool: Arc<Pool>,
    /// Its node; `None` if it is for several.
    node: Option<Arc<str>>,
}

/// The location of a pool.
#[derive(Clone, Debug, Default)]
struct PoolPlace {
    /// Its node; `None` if its slices are for several.
    node: Option<Arc<str>>,
    /// The number of its slices.
    slices: usize,
}

/// The devices of a claim.
#[derive(Debug, PartialEq)]
struct ClaimDevices {
    pools: BTreeSet<Pool>,
    /// A hash of all devices and shares.
    hash: u64,
}

impl Versions {
    pub(super) fn of(&self, node: &str) -> NodeVersion {
        let own = self.nodes.get(node).map_or(self.gone, |known| known.own);
        NodeVersion {
            devices: self.all.devices + own.devices,
            classes: self.all.classes,
            claims: self.all.claims + own.claims,
        }
    }

    pub(super) fn everything_changed(&mut self) {
        self.all.devices += 1;
    }

    pub(super) fn classes_changed(&mut self) {
        self.all.classes += 1;
    }

    pub(super) fn devices_changed(&mut self, node: &str) {
        self.node(node).own.devices += 1;
    }

    /// Forgets a node of which the view has nothing, unless it has slices. If it comes again, its versions
    /// are new.
    pub(super) fn forget(&mut self, node: &str) {
        let Some(known) = self.nodes.get(node).filter(|known| known.slices == 0) else { return };
        let NodeVersion { devices, classes: _, claims } = known.own;
        self.gone.devices = self.gone.devices.max(devices + 1);
        self.gone.claims = self.gone.claims.max(claims);
        self.nodes.remove(node);
    }

    /// Returns the node that the slice was of before.
    pub(super) fn apply_slice(&mut self, slice: &ResourceSlice) -> Option<Arc<str>> {
        let name = slice.metadata.name.as_deref().unwrap_or_default();
        let spec = &slice.spec;
        let pool = Arc::new((spec.driver.clone(), spec.pool.name.clone()));
        let node: Option<Arc<str>> = spec.node_name.as_deref().map(Arc::from);
        let before = self.delete_slice(name);
        self.slice_changed(node.as_deref());
        if let Some(node) = &node {
            self.node(node).slices += 1;
        }
        let of = self.pools.entry(Arc::clone(&pool)).or_default();
        of.node.clone_from(&node);
        of.slices += 1;
        self.slices.insert(name.into(), Arc::new(SlicePlace { pool, node }));
        before
    }

    /// Returns the node of the slice, if it was of one.
    pub(super) fn delete_slice(&mut self, name: &str) -> Option<Arc<str>> {
        let place = self.slices.remove(name)?;
        self.slice_changed(place.node.as_deref());
        if let Some(node) = &place.node {
            self.node(node).slices -= 1;
        }
        if let Some(of) = self.pools.get_mut(&place.pool) {
            of.slices -= 1;
            if of.slices == 0 {
                self.pools.remove(&place.pool);
            }
        }
        place.node.clone()
    }

    /// The taints of a known slice's devices changed.
    pub(super) fn slice_taints_changed(&mut self, name: &str) {
        let Some(place) = self.slices.get(name).cloned() else { return };
        self.slice_changed(place.node.as_deref());
    }

    pub(super) fn apply_claim(&mut self, claim: &ResourceClaim) {
        let key = ObjectKey::new(&claim.metadata);
        let held = ClaimDevices::new(claim);
        if self.claims.get(&key).map(|known| &**known) == held.as_ref() {
            return;
        }
        self.delete_claim(&key);
        if let Some(held) = held {
            self.claim_changed(&held);
            self.claims.insert(key, Arc::new(held));
        }
    }

    /// The pods with GPUs of a node's device plugin changed.
    pub(super) fn pods_changed(&mut self, node: &str) {
        self.node(node).own.claims += 1;
    }

    pub(super) fn delete_claim(&mut self, key: &ObjectKey) {
        if let Some(held) = self.claims.remove(key) {
            self.claim_changed(&held);
        }
    }

    fn slice_changed(&mut self, node: Option<&str>) {
        match node {
            Some(node) => self.node(node).own.devices += 1,
            None => self.everything_changed(),
        }
    }

    fn claim_changed(&mut self, held: &ClaimDevices) {
        let places = held.pools.iter().filter_map(|pool| self.pools.get(pool));
        let nodes: BTreeSet<Option<Arc<str>>> = places.map(|place| place.node.clone()).collect();
        for node in nodes {
            match node {
                Some(node) => self.node(&node).own.claims += 1,
                None => self.all.claims += 1,
            }
        }
    }

    fn node(&mut self, name: &str) -> &mut NodeVersions {
        let new = NodeVersions { own: self.gone, slices: 0 };
        self.nodes.entry(name.into()).or_insert(new)
    }
}

impl ClaimDevices {
    /// `None` if the claim holds nothing.
    fn new(claim: &ResourceClaim) -> Option<Self> {
        let allocation = claim.status.as_ref()?.allocation.as_ref()?;
        let results = allocation.devices.as_ref()?.results.as_deref()?;
        let mut hasher = DefaultHasher::new();
        for result in results {
            (&result.driver, &result.pool, &result.device).hash(&mut hasher);
            (&result.share_id, result.admin_access).hash(&mut hasher);
            for (name, quantity) in result.consumed_capacity.iter().flatten() {
                (name, &quantity.0).hash(&mut hasher);
            }
        }
        // Which NIC a place is says what is left for others.
        for (device, data) in late_claims::chosen(claim) {
            (&device.device, data.to_string()).hash(&mut hasher);
        }
        let pools = results.iter().map(|result| (result.driver.clone(), result.pool.clone()));
        Some(Self { pools: pools.collect(), hash: hasher.finish() })
    }
}

#[cfg(test)]
mod tests {
    use crate::view::{ClusterView, Index, NodeVersion, ObjectKey};
    use dra_allocator::{MinorVersion, Settings};
    use k8s_openapi::api::core::v1::Node;
    use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
    use serde_json::{Value, json};

    fn slice(node: Option<&str>, pool: &str, devices: &[&str]) -> ResourceSlice {
        let devices: Vec<_> = devices.iter().map(|name| json!({"name": name})).collect();
        from(&json!({"metadata": {"name": format!("{pool}-slice")}, "spec": {
            "driver": "d", "nodeName": node, "allNodes": node.is_none().then_some(true),
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}, "devices": devices,
        }}))
    }

    fn claim(name: &str, devices: &[(&str, &str)]) -> ResourceClaim {
        let results: Vec<_> = devices
            .iter()
            .map(|(pool, device)| {
                json!({"request": "r", "driver": "d", "pool": pool, "device": device})
            })
            .collect();
        from(&json!({"metadata": {"name": name, "namespace": "n"}, "spec": {},
            "status": {"allocation": {"devices": {"results": results}}}}))
    }

    fn from<T: serde::de::DeserializeOwned>(value: &Value) -> T {
        serde_json::from_value(value.clone()).unwrap()
    }

    /// How a change affects the versions of nodes `a` and `b`.
    fn changes(view: &mut ClusterView, change: impl FnOnce(&mut ClusterView)) -> [String; 2] {
        let nodes = ["a", "b"];
        let before = nodes.map(|node| view.node_version(node));
        change(view);
        let after = nodes.map(|node| view.node_version(node));
        let text = |before: NodeVersion, after: NodeVersion| {
            assert!(before <= after, "versions only grow");
            let devices = if before.devices == after.devices { "" } else { "devices" };
            let classes = if before.classes == after.classes { "" } else { "classes" };
            let claims = if before.claims == after.claims { "" } else { "claims" };
            format!("{devices}{classes}{claims}")
        };
        [text(before[0], after[0]), text(before[1], after[1])]
    }

    #[test]
    fn only_affected_nodes_get_a_new_version() {
        let mut view = ClusterView::default();
        let mut check = |expected: [&str; 2], change: &dyn Fn(&mut ClusterView)| {
            assert_eq!(changes(&mut view, change), expected);
        };
        let gone = ObjectKey { namespace: "n".to_owned(), name: "c".to_owned() };
        check(["devices", ""], &|view| view.apply(slice(Some("a"), "pa", &["x", "y"])).unwrap());
        check(["", "devices"], &|view| view.apply(slice(Some("b"), "pb", &["x"])).unwrap());
        check(["devices", "devices"], &|view| view.apply(slice(None, "net", &["x"])).unwrap());
        check(["claims", ""], &|view| view.apply(claim("c", &[("pa", "x")])).unwrap());
        // The claim again, as when the kubelet writes its part of the status.
        check(["", ""], &|view| view.apply(claim("c", &[("pa", "x")])).unwrap());
        check(["claims", ""], &|view| view.apply(claim("c", &[("pa", "y")])).unwrap());
        check(["claims", "claims"], &|view| view.apply(claim("c", &[("pb", "x")])).unwrap());
        check(["claims", "claims"], &|view| view.apply(claim("n", &[("net", "x")])).unwrap());
        check(["", "claims"], &|view| Index::<ResourceClaim>::delete(view, &gone));
        check(["", ""], &|view| Index::<ResourceClaim>::delete(view, &gone));
        let node = json!({"metadata": {"name": "b", "labels": {"zone": "1"}}});
        check(["", "devices"], &|view| view.apply(from::<Node>(&node)).unwrap());
        check(["", ""], &|view| view.apply(from::<Node>(&node)).unwrap());
        let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
        check(["classes", "classes"], &|view| view.apply(from::<DeviceClass>(&class)).unwrap());
        check(["classes", "classes"], &|view| {
            Index::<DeviceClass>::delete(view, &ObjectKey::cluster_wide("gpu"));
        });
        let older = Settings::defaults_of(MinorVersion::V1_35);
        check(["devices", "devices"], &|view| view.set_settings(older));
        check(["devices", ""], &|view| {
            Index::<ResourceSlice>::delete(view, &ObjectKey::cluster_wide("pa-slice"));
        });
    }

    #[test]
    fn a_node_that_is_gone_is_forgotten_and_none_gets_its_version() {
        let mut view = ClusterView::default();
        let node = |name: &str| from::<Node>(&json!({"metadata": {"name": name}}));
        let (mut before, mut seen) = (view.node_version("a"), Vec::new());
        for _ in 0..3 {
            view.apply(node("a")).unwrap();
            view.apply(slice(Some("a"), "pa", &["x"])).unwrap();
            view.apply(claim("c", &[("pa", "x")])).unwrap();
            view.apply(claim("c", &[("pa", "y")])).unwrap();
            seen.push(view.node_version("a"));
            Index::<Node>::delete(&mut view, &ObjectKey::cluster_wide("a"));
            assert_eq!(view.versions.nodes.len(), 1, "its slices are there");
            Index::<ResourceSlice>::delete(&mut view, &ObjectKey::cluster_wide("pa-slice"));
            assert_eq!(view.versions.nodes.len(), 0);
            seen.push(view.node_version("a"));
            let now = view.node_version("a");
            assert!(before < now, "{before:?} {now:?}");
            before = now;
        }
        assert!(
            seen.is_sorted_by(|a, b| a.devices < b.devices && a.claims <= b.claims),
            "{seen:?}"
        );
        // A slice that moves to another node, and one of a node that is unknown.
        view.apply(slice(Some("a"), "pa", &["x"])).unwrap();
        view.apply(slice(Some("b"), "pa", &["x"])).unwrap();
        assert_eq!(view.versions.nodes.len(), 1);
        Index::<ResourceSlice>::delete(&mut view, &ObjectKey::cluster_wide("pa-slice"));
        assert_eq!(view.versions.nodes.len(), 0);
    }
}
