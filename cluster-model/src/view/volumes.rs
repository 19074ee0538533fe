//! Volumes of pods: the claims, the volumes, the classes that make them, and what their drivers say of
//! nodes and of storage that is left. Only programs that place pods of people know any.

use super::{ClusterView, Index, ObjectKey, ViewError};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The class of claims that name none (`pkg/volume/util/storageclass.go`).
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";

/// Objects of a kind by their keys.
type Known<K> = BTreeMap<ObjectKey, Arc<K>>;

/// The volumes of all namespaces.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    claims: Known<PersistentVolumeClaim>,
    made: Known<PersistentVolume>,
    classes: Known<StorageClass>,
    drivers: Known<CSIDriver>,
    nodes: Known<CSINode>,
    capacities: Known<CSIStorageCapacity>,
    attachments: Known<VolumeAttachment>,
    /// Whether all claims are here, also if there is none.
    are_listed: bool,
}

fn named<'v, K>(known: &'v Known<K>, name: &str) -> Option<&'v K> {
    known.get(&ObjectKey::cluster_wide(name)).map(|object| &**object)
}

impl Volumes {
    /// Whether anything is known of volumes.
    pub fn are_known(&self) -> bool {
        let is_empty = self.claims.is_empty() && self.made.is_empty() && self.classes.is_empty();
        self.are_listed || !is_empty
    }

    /// The claim with this key.
    pub fn claim(&self, key: &ObjectKey) -> Option<&PersistentVolumeClaim> {
        self.claims.get(key).map(|claim| &**claim)
    }

    /// The volume with this name.
    pub fn volume(&self, name: &str) -> Option<&PersistentVolume> {
        named(&self.made, name)
    }

    /// All volumes.
    pub fn all(&self) -> impl Iterator<Item = &PersistentVolume> {
        self.made.values().map(|volume| &**volume)
    }

    /// The class with this name.
    pub fn class(&self, name: &str) -> Option<&StorageClass> {
        named(&self.classes, name)
    }

    /// The class of claims that name none: the newest of several.
    pub fn default_class(&self) -> Option<&StorageClass> {
        let marked = self.classes.values().filter(|class| {
            let annotations = class.metadata.annotations.as_ref();
            annotations.and_then(|all| all.get(DEFAULT_CLASS)).is_some_and(|value| value == "true")
        });
        let newest = marked.max_by_key(|class| class.metadata.creation_timestamp.as_ref());
        newest.map(|class| &**class)
    }

    /// The CSI driver with this name.
    pub fn driver(&self, name: &str) -> Option<&CSIDriver> {
        named(&self.drivers, name)
    }

    /// Whether it is known which CSI drivers nodes have.
    pub fn knows_nodes(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// The CSI drivers of a node.
    pub fn on_node(&self, node: &str) -> Option<&CSINode> {
        named(&self.nodes, node)
    }

    /// What is left for volumes of classes, each on some nodes.
    pub fn capacities(&self) -> impl Iterator<Item = &CSIStorageCapacity> {
        self.capacities.values().map(|capacity| &**capacity)
    }

    /// The volumes that are attached to a node or that are to be.
    pub fn attached_to(&self, node: &str) -> impl Iterator<Item = &VolumeAttachment> {
        let all = self.attachments.values().map(|attachment| &**attachment);
        all.filter(move |attachment| attachment.spec.node_name == node)
    }
}

macro_rules! index {
    ($($kind:ty: $field:ident),* $(,)?) => {$(
        impl Index<$kind> for ClusterView {
            fn apply(&mut self, mut object: $kind) -> Result<(), ViewError> {
                object.metadata.managed_fields = None;
                self.revision.placement += 1;
                self.volumes.$field.insert(ObjectKey::new(&object.metadata), Arc::new(object));
                Ok(())
            }

            fn delete(&mut self, key: &ObjectKey) {
                self.revision.placement += 1;
                self.volumes.$field.remove(key);
            }

            fn listed(&mut self) {
                self.volumes.are_listed = true;
            }
        }
    )*};
}

index!(
    PersistentVolumeClaim: claims,
    PersistentVolume: made,
    StorageClass: classes,
    CSIDriver: drivers,
    CSINode: nodes,
    CSIStorageCapacity: capacities,
    VolumeAttachment: attachments,
);
