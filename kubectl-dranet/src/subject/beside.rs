//! What a file has beside the pods that use it: claims, claim templates, volumes and their claims.

use super::{Subject, admin_access};
use crate::kinds::{NAMESPACES, Query};
use anyhow::Context;
use cluster_model::view::{ClusterView, Index, ObjectKey, ViewError};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeStatus};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;

/// The objects that pods of a file use, besides other pods.
const KINDS: [&str; 5] = [
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "StorageClass",
];

/// Such objects of a file.
#[derive(Debug, Default)]
pub(crate) struct Beside(Vec<Value>);

impl Beside {
    /// Those among the objects of a file.
    pub(super) fn new(objects: Vec<Value>) -> Self {
        let used = objects
            .into_iter()
            .filter(|object| object["kind"].as_str().is_some_and(|kind| KINDS.contains(&kind)));
        Self(used.collect())
    }

    /// Whether namespaces are labelled for what the claims ask for, if they ask for `adminAccess`.
    pub(crate) fn namespaces(&self, names: &BTreeSet<String>) -> Vec<Query> {
        let without = "it is not known whether namespaces allow adminAccess";
        let names = names.iter().filter(|_| self.0.iter().any(admin_access::asks));
        names.map(|name| NAMESPACES.one("", name, without)).collect()
    }

    /// Marks pods whose claims the API server refuses; `objects` has the namespaces that are known.
    pub(crate) fn refuse(&self, subjects: &mut [Subject], objects: &[Value]) {
        admin_access::refuse(subjects, objects, |kind, name, of| self.find(kind, name, of));
    }

    /// A claim or template of the files.
    pub(super) fn find(&self, kind: &str, name: &str, namespace: &str) -> Option<&Value> {
        self.0.iter().find(|object| {
            let own = object["metadata"]["namespace"].as_str();
            object["kind"] == kind
                && object["metadata"]["name"] == name
                && own.is_none_or(|own| own == namespace)
        })
    }

    /// Adds those of another file.
    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Puts them into the cluster, as applying the file would: a claim that is there stays as it is,
    /// because its spec cannot be changed. `namespace` is for objects without one.
    pub(crate) fn put_into(self, view: &mut ClusterView, namespace: &str) -> anyhow::Result<()> {
        // Classes first: claims may have the default one.
        let (classes, others): (Vec<_>, Vec<_>) =
            self.0.into_iter().partition(|object| object["kind"] == "StorageClass");
        for mut object in classes.into_iter().chain(others) {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            let is_namespaced = !matches!(&*kind, "PersistentVolume" | "StorageClass");
            if is_namespaced && object["metadata"].get("namespace").is_none_or(Value::is_null) {
                object["metadata"]["namespace"] = namespace.into();
            }
            match &*kind {
                "ResourceClaimTemplate" => view.apply(parsed::<ResourceClaimTemplate>(object)?)?,
                "StorageClass" => view.apply(parsed::<StorageClass>(object)?)?,
                "PersistentVolume" => put_volume(parsed(object)?, view)?,
                "PersistentVolumeClaim" => put_volume_claim(parsed(object)?, view)?,
                _ => put_claim(parsed(object)?, view)?,
            }
        }
        Ok(())
    }
}

fn put_claim(claim: ResourceClaim, view: &mut ClusterView) -> Result<(), ViewError> {
    let claim = ResourceClaim { status: None, ..claim };
    let is_there = view.claim(&ObjectKey::new(&claim.metadata)).is_some();
    if is_there { Ok(()) } else { view.apply(claim) }
}

fn put_volume_claim(
    mut claim: PersistentVolumeClaim,
    view: &mut ClusterView,
) -> Result<(), ViewError> {
    if view.volumes().claim(&ObjectKey::new(&claim.metadata)).is_some() {
        return Ok(());
    }
    let default = view.volumes().default_class().and_then(|class| class.metadata.name.clone());
    let spec = claim.spec.get_or_insert_default();
    spec.storage_class_name = spec.storage_class_name.take().or(default);
    claim.status = None;
    view.apply(claim)
}

fn put_volume(mut volume: PersistentVolume, view: &mut ClusterView) -> Result<(), ViewError> {
    let name = volume.metadata.name.as_deref().unwrap_or_default();
    if view.volumes().volume(name).is_some() {
        return Ok(());
    }
    let phase = Some("Available".to_owned());
    volume.status = Some(PersistentVolumeStatus { phase, ..PersistentVolumeStatus::default() });
    view.apply(volume)
}

fn parsed<T: DeserializeOwned>(object: Value) -> anyhow::Result<T> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let what = format!("{} `{name}` is malformed", object["kind"].as_str().unwrap_or_default());
    serde_json::from_value(object).context(what)
}
