//! The nodes on which a pod can have its volumes (`plugins/volumebinding`, `plugins/volumezone`).
//!
//! Not checked: how much storage is left on a node or in a zone, how many volumes a node can attach, and
//! volumes that one pod may use at a time.

use super::Room;
use super::terms::requirements;
use super::why_not::{VolumeProblem, WhyNot};
use crate::placement;
use crate::view::{ObjectKey, Volumes};
use dra_allocator::Quantity as Parsed;
use dra_allocator::node::Node;
use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, Pod, TopologySelectorTerm,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Set by the volume controller when a claim has its volume.
const BOUND: &str = "pv.kubernetes.io/bind-completed";
/// Set by the scheduler on a claim whose volume is being created for a node.
const SELECTED: &str = "volume.kubernetes.io/selected-node";
/// The provisioner of classes whose volumes exist already.
const NOBODY: &str = "kubernetes.io/no-provisioner";
/// Labels of volumes that nodes must have too; the value is a list.
const ZONES: [&str; 4] = [
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
];
/// How a volume is used that does not say it.
const FILESYSTEM: &str = "Filesystem";
/// The phase of a volume that no claim has.
const AVAILABLE: &str = "Available";
/// Between the zones of a volume.
const BETWEEN_ZONES: &str = "__";

/// A volume that a pod asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct VolumeAsk {
    /// The name of its claim.
    claim: String,
    /// The class of a claim that is created for the pod.
    class: Option<String>,
    is_made: bool,
}

impl VolumeAsk {
    /// The volumes of a pod that are bound to claims.
    pub(super) fn of(pod: &Pod) -> Vec<Self> {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let asked = volumes.filter_map(|volume| {
            if let Some(source) = &volume.persistent_volume_claim {
                let claim = source.claim_name.clone();
                return Some(Self { claim, class: None, is_made: false });
            }
            let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
            let pod = pod.metadata.name.as_deref().unwrap_or_default();
            let class = template.spec.storage_class_name.clone();
            Some(Self { claim: format!("{pod}-{}", volume.name), class, is_made: true })
        });
        asked.collect()
    }
}

impl Room<'_> {
    /// Why a node cannot have these volumes of a pod in a namespace, as far as volumes are known.
    pub(super) fn why_no_volumes(
        &self,
        node: &str,
        namespace: &str,
        asked: &[VolumeAsk],
    ) -> Option<WhyNot> {
        let volumes = self.view.volumes();
        if asked.is_empty() || !volumes.are_known() {
            return None;
        }
        let node = self.view.inventory().node(node)?;
        asked.iter().find_map(|asked| {
            let key = ObjectKey { namespace: namespace.to_owned(), name: asked.claim.clone() };
            let problem = match volumes.claim(&key) {
                Some(claim) => problem(claim, volumes, node),
                None if asked.is_made => {
                    let class = asked.class.as_deref().and_then(|name| volumes.class(name));
                    class.and_then(|class| cannot_make(class, node))
                }
                None => Some(VolumeProblem::NoClaim),
            };
            Some(WhyNot::Volume { claim: asked.claim.as_str().into(), problem: problem? })
        })
    }
}

/// Why a node cannot have the volume of a claim.
fn problem(claim: &PersistentVolumeClaim, volumes: &Volumes, node: &Node) -> Option<VolumeProblem> {
    let spec = claim.spec.as_ref()?;
    let annotations = claim.metadata.annotations.as_ref();
    let annotation = |name: &str| annotations.and_then(|all| all.get(name));
    let named = spec.volume_name.as_deref().filter(|name| !name.is_empty());
    if let (Some(name), Some(_)) = (named, annotation(BOUND)) {
        let Some(volume) = volumes.volume(name) else { return Some(VolumeProblem::NoVolume) };
        return (!is_reached(volume, node)).then_some(VolumeProblem::Elsewhere);
    }
    let class = spec.storage_class_name.as_deref().and_then(|name| volumes.class(name));
    let waits = |class: &&StorageClass| {
        class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    };
    let Some(class) = class.filter(waits).filter(|_| named.is_none()) else {
        return Some(VolumeProblem::Unbound);
    };
    if let Some(selected) = annotation(SELECTED) {
        return (**selected != *node.name).then_some(VolumeProblem::Elsewhere);
    }
    let mut free = volumes.all().filter(|volume| serves(volume, claim, spec));
    if free.any(|volume| is_reached(volume, node)) {
        return None;
    }
    cannot_make(class, node)
}

/// Why a class makes no volume for a node.
fn cannot_make(class: &StorageClass, node: &Node) -> Option<VolumeProblem> {
    if class.provisioner == NOBODY {
        return Some(VolumeProblem::NoneFree);
    }
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    let is_allowed = terms.is_empty() || terms.iter().any(|term| is_in(term, node));
    (!is_allowed).then_some(VolumeProblem::NotMadeHere)
}

fn is_in(term: &TopologySelectorTerm, node: &Node) -> bool {
    term.match_label_expressions.iter().flatten().all(|expression| {
        let value = node.label(&expression.key);
        value.is_some_and(|value| expression.values.iter().any(|known| known == value))
    })
}

/// Whether a node can have a volume: its node affinity and its zones.
fn is_reached(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    let is_selected =
        required.is_none_or(|required| placement::selector(required).matches(node).unwrap_or(true));
    // Nodes without any of these labels are in a cluster without zones.
    let has_zones = ZONES.iter().any(|zone| node.label(zone).is_some());
    let mut labels = volume.metadata.labels.iter().flatten();
    is_selected
        && (!has_zones
            || labels.all(|(key, zones)| {
                !ZONES.contains(&key.as_str())
                    || node
                        .label(key)
                        .is_some_and(|own| zones.split(BETWEEN_ZONES).any(|zone| zone == own))
            }))
}

/// Whether a volume that exists is free and large enough for a claim (`FindMatchingVolume` in
/// `k8s.io/component-helpers/storage/volume`).
fn serves(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    asked: &PersistentVolumeClaimSpec,
) -> bool {
    let Some(spec) = &volume.spec else { return false };
    let is_own = spec.claim_ref.as_ref().is_none_or(|of| {
        of.name == claim.metadata.name && of.namespace == claim.metadata.namespace
    });
    let amount = |list: Option<&Quantity>| list.and_then(|it| it.0.parse::<Parsed>().ok());
    let requests = asked.resources.as_ref().and_then(|it| it.requests.as_ref());
    let size = amount(spec.capacity.as_ref().and_then(|all| all.get("storage")));
    let modes = spec.access_modes.iter().flatten().collect::<Vec<_>>();
    let labels = volume.metadata.labels.as_ref();
    let mut selected = asked.selector.iter().flat_map(requirements);
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    is_own
        && (spec.claim_ref.is_some() || phase == Some(AVAILABLE))
        && spec.volume_attributes_class_name.as_deref().unwrap_or_default()
            == asked.volume_attributes_class_name.as_deref().unwrap_or_default()
        && volume.metadata.deletion_timestamp.is_none()
        && spec.volume_mode.as_deref().unwrap_or(FILESYSTEM)
            == asked.volume_mode.as_deref().unwrap_or(FILESYSTEM)
        && selected
            .all(|it| it.matches(labels.and_then(|all| all.get(&it.key)).map(String::as_str)))
        && spec.storage_class_name.as_deref().unwrap_or_default()
            == asked.storage_class_name.as_deref().unwrap_or_default()
        && size >= amount(requests.and_then(|all| all.get("storage")))
        && asked.access_modes.iter().flatten().all(|mode| modes.contains(&mode))
}
