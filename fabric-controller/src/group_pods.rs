//! The pods of groups. Decisions use a copy that shares the members with the original, so a change
//! in the meantime copies only the members of one group.

use super::group::{Group, GroupKey, Member};
use cluster_model::room::{Ask, Interner};
use cluster_model::view::ObjectKey;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// All members of groups.
#[derive(Clone, Debug, Default)]
pub struct GroupPods {
    groups: BTreeMap<GroupKey, Arc<BTreeMap<String, Member>>>,
    index: MemberIndex,
}

/// State that only changes need.
#[derive(Clone, Debug, Default)]
struct MemberIndex {
    group_of: HashMap<ObjectKey, GroupKey>,
    asks: Interner<Ask>,
}

impl GroupPods {
    /// Returns a cheap copy for reading, without the state that only changes need.
    #[must_use]
    pub fn to_read(&self) -> Self {
        Self { groups: self.groups.clone(), index: MemberIndex::default() }
    }

    /// Adds or replaces a pod. Returns true if it belongs, or belonged, to a group.
    pub fn apply(&mut self, pod: &Pod) -> bool {
        let key = ObjectKey::new(&pod.metadata);
        let was_member = self.delete(&key);
        let Some((group, mut member)) = Member::new(pod) else { return was_member };
        member.ask = self.index.asks.share(member.ask);
        let members = self.groups.entry(group.clone()).or_default();
        Arc::make_mut(members).insert(key.name.clone(), member);
        self.index.group_of.insert(key, group);
        true
    }

    /// Removes a pod. Returns true if it belonged to a group.
    pub fn delete(&mut self, key: &ObjectKey) -> bool {
        let Some(group) = self.index.group_of.remove(key) else { return false };
        if let Some(members) = self.groups.get_mut(&group) {
            let members = Arc::make_mut(members);
            members.remove(&key.name);
            if members.is_empty() {
                self.groups.remove(&group);
            }
        }
        true
    }

    /// The groups, without their sizes.
    pub fn groups(&self) -> Vec<Group> {
        let groups = self.groups.iter().map(|(key, members)| Group {
            key: key.clone(),
            members: members.values().cloned().collect(),
            size: None,
            is_expensive: false,
        });
        groups.collect()
    }
}
