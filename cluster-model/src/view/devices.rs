//! Indexes slices, classes and nodes.

use super::{ClusterView, ExtendedResource, Index, ObjectKey, ViewError, inventory_error, name};
use crate::gpu_drivers::GPU_DRIVERS;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};

impl Index<ResourceSlice> for ClusterView {
    fn apply(&mut self, object: ResourceSlice) -> Result<(), ViewError> {
        self.revision.epoch += 1;
        self.stand_ins.apply(&object);
        self.versions.apply_slice(&object);
        let result = self.inventory.apply_slice(&object);
        result.map_err(|source| inventory_error("ResourceSlice", &object.metadata, source))
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.revision.epoch += 1;
        self.stand_ins.delete(&key.name);
        self.versions.delete_slice(&key.name);
        self.inventory.delete_slice(&key.name);
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
        self.inventory.delete_node(&key.name);
    }
}

/// The extended resources of GPUs that device plugins offer on a node.
fn plugins(node: &Node) -> Vec<String> {
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let known = GPU_DRIVERS.iter().flat_map(|driver| driver.extended_resources);
    let offered = |resource: &&&str| {
        allocatable
            .and_then(|allocatable| allocatable.get(**resource))
            .is_some_and(|quantity| quantity.0 != "0")
    };
    known.filter(offered).map(|resource| (*resource).to_owned()).collect()
}
