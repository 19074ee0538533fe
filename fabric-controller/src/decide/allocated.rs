//! Groups whose pods have their devices before their gates are removed: preemptor has chosen their
//! nodes, and kept the devices there.

use super::super::group::{Group, Member};
use super::{Action, Placer, names};
use cluster_model::fabric_level::LevelDomain;
use cluster_model::names::label;
use cluster_model::view::ObjectKey;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Placer<'_, '_> {
    /// Places the gated pods of a group on the fabric, and in the domains, of the nodes on which all of
    /// them have their devices.
    pub(super) fn where_devices_are(&self, group: &Group) -> Option<Action> {
        let view = self.cluster.view();
        let mut fabric = None;
        let mut domains = BTreeMap::new();
        for member in group.gated() {
            let node = self.node_of_devices(group, member)?;
            let own = view.node_label(&node, label::NODE_FABRIC)?;
            if *fabric.get_or_insert(own) != own {
                return None;
            }
            let levels = group.levels().as_slice().iter().filter_map(|request| {
                let name = view.node_label(&node, request.level.label())?.to_owned();
                Some(LevelDomain { level: request.level, name })
            });
            let levels: Vec<_> = levels.collect();
            if !levels.is_empty() {
                domains.insert(member.name.clone(), levels);
            }
        }
        let (fabric, pods) = (fabric?.to_owned(), names(group.gated().collect()));
        Some(Action::Place { fabric, pods, domains, rest: None })
    }

    fn node_of_devices(&self, group: &Group, member: &Member) -> Option<Arc<str>> {
        let (view, namespace) = (self.cluster.view(), &group.key.namespace);
        if !member.has_devices(namespace, view) {
            return None;
        }
        member.claims.iter().find_map(|name| {
            let claim = ObjectKey { namespace: namespace.clone(), name: name.clone() };
            view.node_of(view.held_by(&claim).next()?)
        })
    }
}
