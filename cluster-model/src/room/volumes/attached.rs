//! How many volumes of CSI drivers a node can attach (`plugins/nodevolumelimits`).

use crate::room::nodes::NodeInfo;
use crate::room::volume_ask::VolumeAsk;
use crate::room::{Ask, Room, VolumeProblem, WhyNot};
use crate::view::Volumes;
use dra_allocator::node::Node;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::CSINode;
use std::collections::{BTreeMap, BTreeSet};

/// A volume: its driver, and the name of the volume, or of the claim for which one will be made.
type Attached<'v> = (&'v str, String);

impl Room<'_> {
    /// Why a node cannot attach the volumes of a pod besides those that it has.
    pub(super) fn why_not_attached(&self, node: &Node, ask: &Ask) -> Option<WhyNot> {
        let volumes = self.view.volumes();
        let mut new: BTreeMap<Attached<'_>, &VolumeAsk> = BTreeMap::new();
        for asked in &ask.volumes {
            new.extend(attached(asked, &ask.namespace, volumes).map(|volume| (volume, asked)));
        }
        let on_node = volumes.on_node(&node.name);
        for ((driver, _), asked) in &new {
            if volumes.knows_nodes() && lacks(on_node, driver, volumes) {
                return Some(asked.why_not(VolumeProblem::NoDriver));
            }
        }
        let limits = limits(on_node);
        if limits.is_empty() {
            return None;
        }
        let mut there = self.volumes_of_pods(&node.name, ask);
        new.retain(|volume, _| !there.contains(volume));
        there.extend(volumes.attached_to(&node.name).filter_map(|attachment| {
            let name = attachment.spec.source.persistent_volume_name.as_deref()?;
            driver_of(volumes.volume(name)?)?;
            Some((&*attachment.spec.attacher, name.to_owned()))
        }));
        let over = new.iter().find(|((driver, _), _)| {
            let Some(limit) = limits.get(driver) else { return false };
            let of_driver = there.iter().chain(new.keys()).filter(|it| it.0 == *driver);
            of_driver.count() > *limit
        });
        over.map(|(_, asked)| asked.why_not(VolumeProblem::TooMany))
    }

    /// The volumes of the pods on a node.
    fn volumes_of_pods(&self, node: &str, ask: &Ask) -> BTreeSet<Attached<'_>> {
        let bound = self.nodes.get(node).into_iter().flat_map(NodeInfo::pods);
        let bound = bound.filter(|(key, pod)| !self.is_away(key, pod, ask));
        let bound = bound.map(|(key, pod)| (&*key.namespace, &*pod.volumes));
        let added = self.added.iter().filter(|added| *added.node == *node);
        let added = added.map(|added| (&*added.ask.namespace, &*added.ask.volumes));
        let all = bound.chain(added).flat_map(|(namespace, asked)| {
            asked.iter().filter_map(|it| attached(it, namespace, self.view.volumes()))
        });
        all.collect()
    }
}

/// The volume of a claim that a CSI driver attaches (`getCSIDriverInfo`).
fn attached<'v>(
    asked: &'v VolumeAsk,
    namespace: &str,
    volumes: &'v Volumes,
) -> Option<Attached<'v>> {
    let key = asked.key(namespace);
    let spec = volumes.claim(&key).and_then(|claim| claim.spec.as_ref());
    let name = spec.and_then(|spec| spec.volume_name.as_deref());
    if let Some(volume) = name.and_then(|name| volumes.volume(name)) {
        return Some((driver_of(volume)?, volume.metadata.name.clone()?));
    }
    let made = asked.made.as_deref().filter(|_| spec.is_none());
    let class = spec.and_then(|spec| spec.storage_class_name.as_deref());
    let class = class.or_else(|| made?.class.as_deref()).map(|name| volumes.class(name));
    let class = class.unwrap_or_else(|| made.and_then(|_| volumes.default_class()))?;
    Some((&*class.provisioner, key.to_string()))
}

/// The CSI driver of a volume.
fn driver_of(volume: &PersistentVolume) -> Option<&str> {
    Some(&*volume.spec.as_ref()?.csi.as_ref()?.driver)
}

/// How many volumes of each driver a node can attach (`getVolumeLimits`).
fn limits(node: Option<&CSINode>) -> BTreeMap<&str, usize> {
    let drivers = node.into_iter().flat_map(|node| &node.spec.drivers);
    let limits = drivers.filter_map(|driver| {
        let count = driver.allocatable.as_ref()?.count?;
        Some((&*driver.name, usize::try_from(count).unwrap_or(0)))
    });
    limits.collect()
}

/// Whether a node lacks a driver without which its pods must not be there (`checkCSIDriverOnNode`).
fn lacks(node: Option<&CSINode>, name: &str, volumes: &Volumes) -> bool {
    let driver = volumes.driver(name);
    let is_needed =
        driver.and_then(|driver| driver.spec.prevent_pod_scheduling_if_missing) == Some(true);
    let mut drivers = node.into_iter().flat_map(|node| &node.spec.drivers);
    is_needed && !drivers.any(|driver| driver.name == name)
}
