//! What a claim asks of a volume.

use super::terms::{Requirement, requirements};
use crate::view::ObjectKey;
use dra_allocator::Quantity as Parsed;
use k8s_openapi::api::core::v1::{
    ObjectReference, PersistentVolume, PersistentVolumeClaimSpec, PersistentVolumeSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// How a volume is used that does not say it.
const FILESYSTEM: &str = "Filesystem";
/// The phase of a volume that no claim has.
const AVAILABLE: &str = "Available";

/// What a claim asks of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct VolumeWish {
    /// The name of its class.
    pub(super) class: Option<Box<str>>,
    /// How many bytes.
    pub(super) size: Option<i64>,
    access: Vec<String>,
    mode: Box<str>,
    attributes: Option<Box<str>>,
    selector: Vec<Requirement>,
}

impl VolumeWish {
    /// Reads a claim.
    pub(super) fn new(spec: &PersistentVolumeClaimSpec) -> Self {
        let requests = spec.resources.as_ref().and_then(|it| it.requests.as_ref());
        let attributes = spec.volume_attributes_class_name.as_deref();
        Self {
            class: spec.storage_class_name.as_deref().map(Into::into),
            size: bytes(requests.and_then(|all| all.get("storage"))),
            access: spec.access_modes.clone().unwrap_or_default(),
            mode: spec.volume_mode.as_deref().unwrap_or(FILESYSTEM).into(),
            attributes: attributes.filter(|name| !name.is_empty()).map(Into::into),
            selector: spec.selector.as_ref().map(requirements).unwrap_or_default(),
        }
    }

    /// The same of a class.
    pub(super) fn of_class(&self, class: Option<&str>) -> Self {
        Self { class: class.map(Into::into), ..self.clone() }
    }

    /// Whether a volume is free and large enough for the claim with this key (`FindMatchingVolume` in
    /// `k8s.io/component-helpers/storage/volume`).
    pub(super) fn is_served_by(&self, volume: &PersistentVolume, claim: &ObjectKey) -> bool {
        let Some(spec) = &volume.spec else { return false };
        let modes = spec.access_modes.as_deref().unwrap_or_default();
        let labels = volume.metadata.labels.as_ref();
        is_free(volume, spec, claim)
            && spec.volume_attributes_class_name.as_deref().unwrap_or_default()
                == self.attributes.as_deref().unwrap_or_default()
            && spec.volume_mode.as_deref().unwrap_or(FILESYSTEM) == &*self.mode
            && self
                .selector
                .iter()
                .all(|it| it.matches(labels.and_then(|all| all.get(&it.key)).map(String::as_str)))
            && spec.storage_class_name.as_deref().unwrap_or_default()
                == self.class.as_deref().unwrap_or_default()
            && size(spec) >= self.size
            && self.access.iter().all(|mode| modes.contains(mode))
    }
}

/// Whether no other claim has a volume, and it is not being deleted.
fn is_free(volume: &PersistentVolume, spec: &PersistentVolumeSpec, claim: &ObjectKey) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_own = match &spec.claim_ref {
        Some(of) => is_of(of, claim),
        None => phase == Some(AVAILABLE),
    };
    is_own && volume.metadata.deletion_timestamp.is_none()
}

/// Whether a volume is kept for the claim with this key.
pub(super) fn is_of(reference: &ObjectReference, claim: &ObjectKey) -> bool {
    reference.name.as_deref() == Some(&*claim.name)
        && reference.namespace.as_deref() == Some(&*claim.namespace)
}

/// The bytes of a volume.
pub(super) fn size(spec: &PersistentVolumeSpec) -> Option<i64> {
    bytes(spec.capacity.as_ref().and_then(|all| all.get("storage")))
}

/// The value of a quantity in bytes.
pub(super) fn bytes(quantity: Option<&Quantity>) -> Option<i64> {
    quantity.and_then(|it| it.0.parse::<Parsed>().ok()).map(|it| it.value())
}
