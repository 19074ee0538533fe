//! The nodes on which a pod can have its volumes (`plugins/volumerestrictions`, `plugins/nodevolumelimits`,
//! `plugins/volumebinding`, `plugins/volumezone`). Volumes of plugins within Kubernetes have no limits
//! here.

mod attached;
mod choice;
mod shared;

use self::choice::Open;
use super::Room;
use super::ask::Ask;
use super::volume_ask::VolumeAsk;
use super::why_not::{VolumeProblem, WhyNot};
use crate::placement;
use crate::view::Volumes;
use dra_allocator::node::Node;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

/// Set by the volume controller when a claim has its volume.
const BOUND: &str = "pv.kubernetes.io/bind-completed";
/// Set by the scheduler on a claim whose volume is being created for a node.
const SELECTED: &str = "volume.kubernetes.io/selected-node";
/// Labels of volumes that nodes must have too; the value is a list.
const ZONES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
/// Between the zones of a volume.
const BETWEEN_ZONES: &str = "__";
/// The access mode of a volume that one pod may use at a time.
const OF_ONE_POD: &str = "ReadWriteOncePod";
/// The binding mode of classes whose volumes are chosen for a pod.
const LATE: &str = "WaitForFirstConsumer";
/// The phase of a claim whose volume is gone.
const LOST: &str = "Lost";

/// The volumes of a pod, looked up once for all nodes.
#[derive(Default)]
pub(super) struct ResolvedVolumes<'k> {
    /// Claims with a volume.
    bound: Vec<(&'k VolumeAsk, &'k str)>,
    /// Claims whose volume is chosen for the pod.
    open: Vec<Open<'k>>,
    /// Whether only one pod may use one of them.
    is_for_one: bool,
    /// The first that another pod uses alone.
    in_use: Option<&'k VolumeAsk>,
}

impl ResolvedVolumes<'_> {
    /// Whether the volumes of one pod limit where others of its kind can be.
    pub(super) fn are_shared(&self) -> bool {
        self.is_for_one || self.open.iter().any(Open::is_shared)
    }
}

impl<'r> Room<'r> {
    /// The volumes of a pod, or why it has them on no node, before anything else of nodes counts
    /// (`PreFilter` of the plugins).
    pub(super) fn volumes<'k>(&self, ask: &'k Ask) -> Result<ResolvedVolumes<'k>, WhyNot>
    where
        'r: 'k,
    {
        let volumes = self.view.volumes();
        let mut resolved = ResolvedVolumes::default();
        if !volumes.are_known() {
            return Ok(resolved);
        }
        for asked in &ask.volumes {
            let key = asked.key(&ask.namespace);
            let claim = volumes.claim(&key);
            let bound = claim.map(|claim| volume_of(claim, asked)).transpose();
            match (bound.map_err(|problem| asked.why_not(problem))?.flatten(), claim) {
                (Some(volume), _) => resolved.bound.push((asked, volume)),
                (None, claim) => {
                    let open = Open::new((asked, key), claim, volumes);
                    resolved.open.push(open.map_err(|problem| asked.why_not(problem))?);
                }
            }
            let modes = claim.and_then(|claim| claim.spec.as_ref()?.access_modes.as_ref());
            let is_of_one = modes.is_some_and(|modes| modes.iter().any(|it| it == OF_ONE_POD));
            if is_of_one && asked.made.is_none() {
                resolved.is_for_one = true;
                if self.is_in_use(asked, ask) {
                    resolved.in_use.get_or_insert(asked);
                }
            }
        }
        // The smallest chooses first.
        resolved.open.sort_by_key(|open| open.wish.size);
        Ok(resolved)
    }

    /// Whether another pod has the volume of a claim.
    fn is_in_use(&self, asked: &VolumeAsk, ask: &Ask) -> bool {
        let bound = self.nodes.pods().filter(|(_, key, pod)| !self.is_away(key, pod, ask));
        let bound = bound.map(|(_, key, pod)| (&*key.namespace, &*pod.volumes));
        let added = self.added.iter();
        let added = added.map(|added| (&*added.ask.namespace, &*added.ask.volumes));
        let others = bound.chain(added);
        let mut others = others.filter(|(namespace, _)| **namespace == *ask.namespace);
        others.any(|(_, volumes)| asked.shares_claim(volumes))
    }

    /// Why a node cannot have the volumes of a pod (`Filter` of the plugins).
    pub(super) fn why_no_volumes(
        &self,
        node: &str,
        (ask, volumes): (&Ask, &ResolvedVolumes<'_>),
    ) -> Option<WhyNot> {
        if ask.volumes.is_empty() {
            return None;
        }
        if let Some(asked) = volumes.in_use {
            return Some(asked.why_not(VolumeProblem::InUse));
        }
        let node = self.view.inventory().node(node)?;
        self.why_not_attached(node, ask).or_else(|| self.chosen(node, volumes).err())
    }
}

/// The name of the volume that a claim has; `None` if it has none yet.
fn volume_of<'v>(
    claim: &'v PersistentVolumeClaim,
    asked: &VolumeAsk,
) -> Result<Option<&'v str>, VolumeProblem> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase == Some(LOST) {
        return Err(VolumeProblem::Lost);
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(VolumeProblem::BeingDeleted);
    }
    if asked.made.is_some() && !asked.has_made(claim) {
        return Err(VolumeProblem::OfOthers);
    }
    let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
    let named = named.filter(|name| !name.is_empty());
    match (named, annotation(claim, BOUND)) {
        (Some(name), Some(_)) => Ok(Some(name)),
        // The controller does the rest.
        (Some(_), None) => Err(VolumeProblem::Unbound),
        (None, _) => Ok(None),
    }
}

fn annotation<'v>(claim: &'v PersistentVolumeClaim, name: &str) -> Option<&'v str> {
    claim.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Why a node cannot have the volume of a claim.
fn why_not_bound(name: &str, volumes: &Volumes, node: &Node) -> Option<VolumeProblem> {
    let Some(volume) = volumes.volume(name) else { return Some(VolumeProblem::NoVolume) };
    (!is_selected(volume, node) || !is_in_zone(volume, node)).then_some(VolumeProblem::Elsewhere)
}

/// Whether the node affinity of a volume allows a node.
fn is_selected(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| placement::selector(required).matches(node).unwrap_or(true))
}

/// Whether a node is in the zones of a volume.
fn is_in_zone(volume: &PersistentVolume, node: &Node) -> bool {
    // Nodes without any of these labels are in a cluster without zones.
    let has_zones = ZONES.iter().any(|zone| node.label(zone).is_some());
    let mut labels = volume.metadata.labels.iter().flatten();
    !has_zones
        || labels.all(|(key, zones)| {
            !ZONES.contains(&key.as_str())
                || node
                    .label(key)
                    .is_some_and(|own| zones.split(BETWEEN_ZONES).any(|zone| zone == own))
        })
}
