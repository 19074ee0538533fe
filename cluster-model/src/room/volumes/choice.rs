//! Claims whose volume is chosen or made for a pod on its node (`plugins/volumebinding/binder.go`).

use super::{LATE, ResolvedVolumes, SELECTED, annotation, is_selected, why_not_bound};
use crate::room::terms::requirements;
use crate::room::volume_ask::VolumeAsk;
use crate::room::volume_wish::{VolumeWish, bytes, is_of, size};
use crate::room::{Ask, Room, VolumeProblem, WhyNot};
use crate::view::{ObjectKey, Volumes};
use dra_allocator::node::Node;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
    TopologySelectorTerm,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::borrow::Cow;
use std::cmp::Reverse;

/// The provisioner of classes whose volumes exist already.
const NOBODY: &str = "kubernetes.io/no-provisioner";

/// A claim without a volume, of a class that waits for a pod.
pub(super) struct Open<'k> {
    asked: &'k VolumeAsk,
    key: ObjectKey,
    pub(super) wish: Cow<'k, VolumeWish>,
    class: &'k StorageClass,
    /// The node for which its volume is being made.
    selected: Option<&'k str>,
}

/// What becomes of an open claim on a node.
pub(in crate::room) struct Chosen<'o, 'k> {
    open: &'o Open<'k>,
    /// The volume that it gets; `None` if one is made.
    volume: Option<&'k PersistentVolume>,
    /// The bytes that are left where it is made, if that is known.
    left: Option<i64>,
}

impl<'k> Open<'k> {
    /// Looks up the class of a claim that has no volume; the claim need not exist if it is made for the
    /// pod.
    pub(super) fn new(
        (asked, key): (&'k VolumeAsk, ObjectKey),
        claim: Option<&'k PersistentVolumeClaim>,
        volumes: &'k Volumes,
    ) -> Result<Self, VolumeProblem> {
        let wish = match (claim, &asked.made) {
            (Some(claim), _) => {
                Cow::Owned(claim.spec.as_ref().map(VolumeWish::new).unwrap_or_default())
            }
            (None, Some(made)) => with_class(made, volumes),
            (None, None) => return Err(VolumeProblem::NoClaim),
        };
        let class = wish.class.as_deref().and_then(|name| volumes.class(name));
        // The volume of a claim that does not exist yet can still be made.
        let is_planned = claim.is_none_or(|claim| claim.metadata.uid.is_none());
        let class = class
            .filter(|it| is_planned || it.volume_binding_mode.as_deref() == Some(LATE))
            .ok_or(VolumeProblem::Unbound)?;
        let selected = claim.and_then(|claim| annotation(claim, SELECTED));
        Ok(Self { asked, key, wish, class, selected })
    }

    /// Whether the claim is not made for a single pod.
    pub(super) fn is_shared(&self) -> bool {
        self.asked.made.is_none()
    }

    /// Why the class makes no volume for a node; else the bytes that are left, if that is known
    /// (`checkVolumeProvisions`).
    fn made_on(&self, node: &Node, volumes: &Volumes) -> Result<Option<i64>, VolumeProblem> {
        if matches!(&*self.class.provisioner, "" | NOBODY) {
            return Err(VolumeProblem::NoneFree);
        }
        let terms = self.class.allowed_topologies.as_deref().unwrap_or_default();
        if !terms.is_empty() && !terms.iter().any(|term| is_in(term, node)) {
            return Err(VolumeProblem::NotMadeHere);
        }
        let driver = volumes.driver(&self.class.provisioner);
        let counts = driver.and_then(|driver| driver.spec.storage_capacity) == Some(true);
        let Some(size) = self.wish.size.filter(|_| counts) else { return Ok(None) };
        let name = self.class.metadata.name.as_deref();
        let found = volumes.capacities().find(|capacity| {
            let limit = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
            let reached = capacity.node_topology.as_ref().is_some_and(|selector| {
                requirements(selector).iter().all(|it| it.matches(node.label(&it.key)))
            });
            Some(&*capacity.storage_class_name) == name
                && bytes(limit).is_some_and(|limit| limit >= size)
                && reached
        });
        found.map(|it| bytes(it.capacity.as_ref())).ok_or(VolumeProblem::NoStorage)
    }
}

/// The wish with the class that the API server fills in.
fn with_class<'k>(made: &'k VolumeWish, volumes: &Volumes) -> Cow<'k, VolumeWish> {
    if made.class.is_some() {
        return Cow::Borrowed(made);
    }
    let class = volumes.default_class().and_then(|class| class.metadata.name.as_deref());
    Cow::Owned(made.of_class(class))
}

fn is_in(term: &TopologySelectorTerm, node: &Node) -> bool {
    term.match_label_expressions.iter().flatten().all(|expression| {
        let value = node.label(&expression.key);
        value.is_some_and(|value| expression.values.iter().any(|known| known == value))
    })
}

impl<'r> Room<'r> {
    /// What becomes of the open claims of a pod on a node, or why it cannot have its volumes there
    /// (`FindPodVolumes`).
    pub(in crate::room) fn chosen<'o, 'k>(
        &self,
        node: &Node,
        resolved: &'o ResolvedVolumes<'k>,
    ) -> Result<Vec<Chosen<'o, 'k>>, WhyNot>
    where
        'r: 'k,
    {
        let volumes = self.view.volumes();
        for (asked, volume) in &resolved.bound {
            if let Some(problem) = why_not_bound(volume, volumes, node) {
                return Err(asked.why_not(problem));
            }
        }
        for open in &resolved.open {
            if open.selected.is_some_and(|it| it != &*node.name) {
                return Err(open.asked.why_not(VolumeProblem::Elsewhere));
            }
        }
        let mut all: Vec<Chosen<'o, 'k>> = Vec::new();
        for open in &resolved.open {
            let volume = free_for(open, volumes, (node, &all));
            let left = if volume.is_some() {
                None
            } else {
                let made = open.made_on(node, volumes);
                made.map_err(|problem| open.asked.why_not(problem))?
            };
            all.push(Chosen { open, volume, left });
        }
        Ok(all)
    }

    /// The claims and volumes of a pod as they are when it is on a node: claims that are created for it,
    /// and volumes that it takes.
    pub fn taken_volumes(
        &self,
        node: &str,
        ask: &Ask,
    ) -> (Vec<PersistentVolumeClaim>, Vec<PersistentVolume>) {
        let Some(node) = self.view.inventory().node(node) else { return Default::default() };
        let Ok(resolved) = self.volumes(ask) else { return Default::default() };
        let chosen = self.chosen(node, &resolved).unwrap_or_default();
        let claims = chosen.iter().filter_map(|it| it.claim(self.view.volumes())).collect();
        (claims, chosen.iter().filter_map(Chosen::kept_volume).collect())
    }
}

/// The volume that an open claim gets on a node: one that is kept for it, or else the smallest free one
/// (`FindMatchingVolume`).
fn free_for<'k>(
    open: &Open<'_>,
    volumes: &'k Volumes,
    (node, taken): (&Node, &[Chosen<'_, '_>]),
) -> Option<&'k PersistentVolume> {
    if open.selected.is_some() {
        return None;
    }
    let serving = volumes.all().filter(|volume| open.wish.is_served_by(volume, &open.key));
    let serving = serving.filter(|volume| is_selected(volume, node) && !is_taken(volume, taken));
    serving.min_by_key(|volume| {
        let spec = volume.spec.as_ref();
        let of = spec.and_then(|spec| spec.claim_ref.as_ref());
        (Reverse(of.is_some_and(|of| is_of(of, &open.key))), spec.and_then(size))
    })
}

fn is_taken(volume: &PersistentVolume, taken: &[Chosen<'_, '_>]) -> bool {
    let mut names = taken.iter().filter_map(|it| it.volume?.metadata.name.as_deref());
    names.any(|name| volume.metadata.name.as_deref() == Some(name))
}

impl Chosen<'_, '_> {
    /// The name of the class, the bytes that the claim asks for, and those of its volume, or those that
    /// are left where one is made.
    pub(in crate::room) fn storage(&self) -> (&str, i64, Option<i64>) {
        let class = self.open.class.metadata.name.as_deref().unwrap_or_default();
        let of_volume = self.volume.and_then(|volume| volume.spec.as_ref()).and_then(size);
        (class, self.open.wish.size.unwrap_or_default(), of_volume.or(self.left))
    }

    /// Whether other pods may use the volume.
    pub(super) fn is_shared(&self) -> bool {
        self.open.is_shared()
    }

    /// The volume that exists, if it gets one.
    pub(super) fn volume(&self) -> Option<&PersistentVolume> {
        self.volume
    }

    /// Who makes one otherwise.
    pub(super) fn provisioner(&self) -> &str {
        &self.open.class.provisioner
    }

    /// Whether a volume is made.
    pub(in crate::room) fn is_made(&self) -> bool {
        self.volume.is_none()
    }

    /// The claim, if it gets a volume that exists, or did not exist.
    fn claim(&self, volumes: &Volumes) -> Option<PersistentVolumeClaim> {
        let known = volumes.claim(&self.open.key);
        if known.is_some() && self.volume.is_none() {
            return None;
        }
        let mut claim = known.cloned().unwrap_or_else(|| self.made_claim());
        if let Some(volume) = self.volume {
            let annotations = claim.metadata.annotations.get_or_insert_default();
            annotations.insert(super::BOUND.to_owned(), "yes".to_owned());
            claim.spec.get_or_insert_default().volume_name.clone_from(&volume.metadata.name);
        }
        Some(claim)
    }

    /// A claim that is created for the pod.
    fn made_claim(&self) -> PersistentVolumeClaim {
        let Open { key, wish, .. } = self.open;
        PersistentVolumeClaim {
            metadata: ObjectMeta {
                namespace: Some(key.namespace.clone()),
                name: Some(key.name.clone()),
                ..ObjectMeta::default()
            },
            spec: Some(PersistentVolumeClaimSpec {
                storage_class_name: wish.class.as_deref().map(str::to_owned),
                ..PersistentVolumeClaimSpec::default()
            }),
            status: None,
        }
    }

    /// The volume that exists, kept for the claim.
    fn kept_volume(&self) -> Option<PersistentVolume> {
        let mut volume = self.volume?.clone();
        let ObjectKey { namespace, name } = self.open.key.clone();
        volume.spec.get_or_insert_default().claim_ref = Some(ObjectReference {
            namespace: Some(namespace),
            name: Some(name),
            ..ObjectReference::default()
        });
        Some(volume)
    }
}
