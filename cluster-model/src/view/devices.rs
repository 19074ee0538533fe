//! Indexes slices, taint rules, classes and nodes.

use super::{
    ClusterView, ExtendedResource, Index, ObjectKey, PluginResource, ViewError, inventory_error,
    name,
};
use crate::closed::Closed;
use crate::gpu_drivers;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, DeviceTaintRule, ResourceSlice};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Index<ResourceSlice> for ClusterView {
    fn apply(&mut self, object: ResourceSlice) -> Result<(), ViewError> {
        self.revision.epoch += 1;
        self.stand_ins.apply(&object);
        let former = self.versions.apply_slice(&object);
        let result = self.inventory.apply_slice(&object);
        if let Some(node) = former.filter(|node| object.spec.node_name.as_deref() != Some(&**node))
        {
            self.forget_if_gone(&node);
        }
        result.map_err(|source| inventory_error("ResourceSlice", &object.metadata, source))
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.revision.epoch += 1;
        self.stand_ins.delete(&key.name);
        let node = self.versions.delete_slice(&key.name);
        self.inventory.delete_slice(&key.name);
        if let Some(node) = node {
            self.forget_if_gone(&node);
        }
    }
}

/// The taints of rules are added to the slices, as kube-scheduler's slice tracker does.
impl Index<DeviceTaintRule> for ClusterView {
    fn apply(&mut self, object: DeviceTaintRule) -> Result<(), ViewError> {
        let changed = self.inventory.apply_taint_rule(&object);
        self.taints_changed(&changed);
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        let changed = self.inventory.delete_taint_rule(&key.name);
        self.taints_changed(&changed);
    }
}

impl ClusterView {
    /// Forgets the versions of a node of which nothing is left. Its objects go one after the other.
    pub(super) fn forget_if_gone(&mut self, node: &str) {
        let is_there = self.inventory.node(node).is_some()
            || self.graphs.of(node).is_some()
            || self.plugin_pods.of(node).next().is_some();
        if !is_there {
            self.versions.forget(node);
        }
    }

    fn taints_changed(&mut self, slices: &[Arc<str>]) {
        self.revision.epoch += u64::from(!slices.is_empty());
        for slice in slices {
            self.versions.slice_taints_changed(slice);
        }
    }
}

impl Index<DeviceClass> for ClusterView {
    fn apply(&mut self, object: DeviceClass) -> Result<(), ViewError> {
        self.revision.epoch += 1;
        self.versions.classes_changed();
        let result = self.inventory.apply_class(&object);
        result.map_err(|source| inventory_error("DeviceClass", &object.metadata, source))?;
        let class = name(&object.metadata).to_owned();
        let created = object.metadata.creation_timestamp.map(|time| time.0);
        match object.spec.and_then(|spec| spec.extended_resource_name) {
            Some(name) => self.extended.insert(class, ExtendedResource { name, created }),
            None => self.extended.remove(&class),
        };
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.revision.epoch += 1;
        self.versions.classes_changed();
        self.extended.remove(&key.name);
        self.inventory.delete_class(&key.name);
    }
}

impl Index<Node> for ClusterView {
    fn apply(&mut self, object: Node) -> Result<(), ViewError> {
        let before = self.inventory.node(name(&object.metadata)).cloned();
        let result = self.inventory.apply_node(&object);
        result.map_err(|source| inventory_error("Node", &object.metadata, source))?;
        // A node's status changes often, but rarely in a way that affects plans.
        let plugins = plugins(&object);
        let node = name(&object.metadata);
        let same = self.inventory.node(node) == before.as_ref()
            && self.plugins.get(node).map(Vec::as_slice).unwrap_or_default() == plugins;
        if !same {
            self.revision.epoch += 1;
            self.versions.devices_changed(node);
        }
        if Closed::of(&object).is_some() {
            self.closed.insert(node.to_owned());
        } else {
            self.closed.remove(node);
        }
        if plugins.is_empty() {
            self.plugins.remove(node);
        } else {
            self.plugins.insert(node.to_owned(), plugins);
        }
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.revision.epoch += 1;
        self.versions.devices_changed(&key.name);
        self.plugins.remove(&key.name);
        self.closed.remove(&key.name);
        self.inventory.delete_node(&key.name);
        self.forget_if_gone(&key.name);
    }
}

/// The extended resources of GPUs that device plugins offer on a node.
fn plugins(node: &Node) -> Vec<PluginResource> {
    let status = node.status.as_ref();
    let allocatable = status.and_then(|status| status.allocatable.as_ref());
    let capacity = status.and_then(|status| status.capacity.as_ref());
    gpu_drivers::all()
        .iter()
        .flat_map(|driver| driver.extended_resources)
        .filter_map(|name| {
            let healthy = units_in(allocatable, name);
            let units = units_in(capacity, name).max(healthy);
            (healthy > 0).then_some(PluginResource { name, units })
        })
        .collect()
}

fn units_in(amounts: Option<&BTreeMap<String, Quantity>>, resource: &str) -> u64 {
    let amount = amounts.and_then(|amounts| amounts.get(resource));
    amount.and_then(|amount| amount.0.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dra_allocator::device::DeviceTaint;
    use serde_json::{Value, json};

    fn slice(node: &str, generation: u32) -> ResourceSlice {
        let own = json!([{ "key": "own", "effect": "NoSchedule" }]);
        let object = json!({
            "metadata": { "name": format!("slice-{node}") },
            "spec": {
                "driver": "gpu.nvidia.com", "nodeName": node,
                "pool": { "name": node, "generation": generation, "resourceSliceCount": 1 },
                "devices": [{ "name": "gpu-0", "taints": own }, { "name": "gpu-1" }],
            },
        });
        serde_json::from_value(object).unwrap()
    }

    fn rule(name: &str, selector: &Value) -> DeviceTaintRule {
        let taint = json!({ "key": name, "effect": "NoExecute" });
        let object = json!({
            "metadata": { "name": name },
            "spec": { "deviceSelector": selector, "taint": taint },
        });
        serde_json::from_value(object).unwrap()
    }

    /// The keys of the taints of a node's devices.
    fn taints(view: &ClusterView, node: &str) -> Vec<Vec<String>> {
        let devices = view.inventory().devices_on(node, view.settings()).unwrap();
        let keys =
            |taints: &[DeviceTaint]| taints.iter().map(|taint| taint.key.to_string()).collect();
        devices.iter().map(|device| keys(device.taints())).collect()
    }

    fn delete<K>(view: &mut ClusterView, name: &str)
    where
        ClusterView: Index<K>,
    {
        Index::<K>::delete(view, &ObjectKey::cluster_wide(name));
    }

    /// Whichever of a slice and a rule comes, changes or goes, and in whatever order.
    #[test]
    fn taints_follow_rules_and_slices_in_any_order() {
        let mut view = ClusterView::default();
        view.apply(rule("all", &json!({}))).unwrap();
        view.apply(slice("a", 1)).unwrap();
        view.apply(slice("b", 1)).unwrap();
        view.apply(rule("one", &json!({ "pool": "a", "device": "gpu-1" }))).unwrap();
        view.apply(rule("none", &Value::Null)).unwrap();
        view.apply(rule("other", &json!({ "driver": "gpu.amd.com" }))).unwrap();
        let before = view.node_version("b");
        assert_eq!(taints(&view, "a"), [vec!["own", "all"], vec!["all", "one"]]);
        assert_eq!(taints(&view, "b"), [vec!["own", "all"], vec!["all"]]);

        // A new version of a slice keeps the taints of rules.
        view.apply(slice("a", 2)).unwrap();
        assert_eq!(taints(&view, "a"), [vec!["own", "all"], vec!["all", "one"]]);
        view.apply(rule("one", &json!({ "pool": "a", "device": "gpu-0" }))).unwrap();
        assert_eq!(taints(&view, "a"), [vec!["own", "all", "one"], vec!["all"]]);
        assert_eq!(view.node_version("b"), before, "nothing changed there");

        let epoch = view.epoch();
        delete::<DeviceTaintRule>(&mut view, "all");
        assert!(view.epoch() > epoch && view.node_version("b") != before);
        assert_eq!(taints(&view, "b"), [vec!["own"], vec![]]);
        delete::<DeviceTaintRule>(&mut view, "one");
        assert_eq!(taints(&view, "a"), [vec!["own"], vec![]]);
        delete::<ResourceSlice>(&mut view, "slice-a");
        assert!(taints(&view, "a").is_empty());
    }
}
