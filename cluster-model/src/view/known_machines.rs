//! Remembered machines in the view. They appear as nodes with names that no real node can have, so
//! that plans include pools that are scaled to zero.

use super::{ClusterView, Index, ObjectKey, ViewError};
use crate::remembered::{Remembered, name};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use k8s_openapi::api::resource::v1::ResourceSlice;
use std::collections::BTreeMap;
use std::sync::Arc;
use topology_graph::NodeTopology;

impl ClusterView {
    /// The remembered machine behind a node of the view; `None` for a real node.
    pub fn remembered_node(&self, node: &str) -> Option<&Remembered> {
        let machine = self.remembered.iter().find(|(key, _)| name(key) == node);
        machine.map(|(_, machine)| &**machine)
    }

    fn remember(&mut self, key: &str, machine: &Remembered) -> Result<(), ViewError> {
        let Remembered { node, slices, topology } = machine.as_node(&name(key));
        self.apply(node)?;
        self.apply(topology)?;
        slices.into_iter().try_for_each(|slice| self.apply(slice))
    }

    fn forget(&mut self, key: &str, machine: &Remembered) {
        let node = name(key);
        for slice in machine.as_node(&node).slices {
            Index::<ResourceSlice>::delete(self, &ObjectKey::new(&slice.metadata));
        }
        let node = ObjectKey::cluster_wide(&node);
        Index::<NodeTopology>::delete(self, &node);
        Index::<Node>::delete(self, &node);
    }
}

impl Index<ConfigMap> for ClusterView {
    fn apply(&mut self, object: ConfigMap) -> Result<(), ViewError> {
        let entries = object.binary_data.unwrap_or_default();
        let mut first_error = None;
        let mut read = BTreeMap::new();
        for (key, bytes) in entries {
            match Remembered::decode(&bytes.0) {
                Ok(machine) => _ = read.insert(key, machine),
                Err(source) => {
                    first_error.get_or_insert(ViewError::Remembered { key, source });
                }
            }
        }
        for (key, machine) in std::mem::take(&mut self.remembered) {
            if read.get(&key) == Some(&*machine) {
                self.remembered.insert(key, machine);
            } else {
                self.forget(&key, &machine);
            }
        }
        for (key, machine) in read {
            if self.remembered.contains_key(&key) {
                continue;
            }
            match self.remember(&key, &machine) {
                Ok(()) => _ = self.remembered.insert(key, Arc::new(machine)),
                Err(error) => {
                    self.forget(&key, &machine);
                    first_error.get_or_insert(error);
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    fn delete(&mut self, _: &ObjectKey) {
        for (key, machine) in std::mem::take(&mut self.remembered) {
            self.forget(&key, &machine);
        }
    }
}
