//! Values of objects, found by the object and by a group: a node or a pool.

use super::ObjectKey;
use std::collections::{BTreeMap, HashMap};

/// Values by group and object.
#[derive(Clone, Debug)]
pub(super) struct Grouped<V> {
    groups: HashMap<String, BTreeMap<ObjectKey, V>>,
    group_of: HashMap<ObjectKey, String>,
}

impl<V> Default for Grouped<V> {
    fn default() -> Self {
        Self { groups: HashMap::new(), group_of: HashMap::new() }
    }
}

impl<V> Grouped<V> {
    pub(super) fn of(&self, group: &str) -> impl Iterator<Item = (&ObjectKey, &V)> {
        self.groups.get(group).into_iter().flatten()
    }

    /// The group and the value of an object.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<(&str, &V)> {
        let group = self.group_of.get(key)?;
        Some((group, self.groups.get(group)?.get(key)?))
    }

    /// Adds the value of an object that has none.
    pub(super) fn insert(&mut self, key: ObjectKey, group: String, value: V) {
        self.groups.entry(group.clone()).or_default().insert(key.clone(), value);
        self.group_of.insert(key, group);
    }

    /// Returns the group of the object.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> Option<String> {
        let group = self.group_of.remove(key)?;
        if let Some(values) = self.groups.get_mut(&group) {
            values.remove(key);
            if values.is_empty() {
                self.groups.remove(&group);
            }
        }
        Some(group)
    }
}
