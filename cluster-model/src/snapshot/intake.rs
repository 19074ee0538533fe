//! Adds objects of any kind to a view, one by one.

use super::SnapshotError;
use super::archive::{FORMAT, Head};
use super::document::{Item, Typed};
use super::served::Served;
use super::trim::trim;
use crate::compute_domain::ComputeDomain;
use crate::hyper_node::HyperNode;
use crate::kueue_topology::Topology;
use crate::names;
use crate::nic_pool::NicPool;
use crate::view::{ClusterView, Index};
use dra_allocator::{MinorVersion, Settings};
use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::{
    ConfigMap, LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, ResourceQuota,
    Service,
};
use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::api::scheduling::v1alpha3::CompositePodGroup;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use topology_graph::NodeTopology;

/// The versions of DRA's objects that are read.
const DRA: &str = "resource.k8s.io/v1";
const DRA_BETA: &str = "resource.k8s.io/v1beta2";

/// Counts of the objects that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The number of objects in the view, by kind.
    pub taken: BTreeMap<String, usize>,
    /// The number of objects of kinds that a view does not use, by kind.
    pub ignored: BTreeMap<String, usize>,
    /// The number of objects of DRA in versions that are not read, by version and kind.
    pub outdated: BTreeMap<(String, String), usize>,
}

/// A view while it is filled, with the objects kept besides it.
#[derive(Debug)]
pub struct Intake {
    /// The view; it keeps every `NodeTopology`.
    pub view: ClusterView,
    /// The counts of objects.
    pub found: Found,
    /// The head of the snapshot, if it is one.
    pub head: Option<Head>,
    /// The original objects of the requested kinds.
    pub kept: Vec<Value>,
    /// Malformed objects of a snapshot, which were skipped.
    pub broken: Vec<SnapshotError>,
    kinds: &'static [&'static str],
}

impl Intake {
    /// Creates an empty intake that also keeps the original objects of these kinds.
    pub fn keeping(kinds: &'static [&'static str]) -> Self {
        let mut view = ClusterView::default();
        view.keep_topologies();
        Self {
            view,
            found: Found::default(),
            head: None,
            kept: Vec::new(),
            broken: Vec::new(),
            kinds,
        }
    }

    /// Sets the version of the cluster, `v1.37.1`. An unknown version counts as 1.37.
    pub fn set_server_version(&mut self, version: &str) {
        let known = MinorVersion::parse(version).unwrap_or(MinorVersion::V1_37);
        self.view.set_settings(Settings::defaults_of(known));
    }

    /// Adds the optional kinds that the API server serves.
    pub fn serve(&mut self, served: Served) {
        served.apply(&mut self.view);
    }

    /// Adds an object of a file. A malformed object is an error; an object of an unused kind is
    /// only counted.
    pub(super) fn take(&mut self, path: &Path, item: Item<'_>) -> Result<(), SnapshotError> {
        let (typed, text) = match item {
            Item::Text(typed, text) => (typed, text),
            Item::Value(object) => {
                let typed = Typed::new(&object);
                if self.keeps(typed.kind.as_deref().unwrap_or_default()) {
                    self.kept.push(object.clone());
                }
                return self.apply(path, &typed, object);
            }
        };
        if self.keeps(typed.kind.as_deref().unwrap_or_default()) {
            self.kept.push(typed.value(text).map_err(|source| malformed(path, &typed, source))?);
        }
        self.apply(path, &typed, &mut serde_json::Deserializer::from_str(text))
    }

    /// Adds an object of a snapshot. A malformed object is skipped, as in a live cluster.
    pub(super) fn take_archived(
        &mut self,
        path: &Path,
        item: Item<'_>,
    ) -> Result<(), SnapshotError> {
        match self.take(path, item) {
            Err(error @ (SnapshotError::Object { .. } | SnapshotError::View { .. })) => {
                self.broken.push(error);
                Ok(())
            }
            taken => taken,
        }
    }

    /// Adds an object of a live cluster, whose lists omit version and kind.
    pub fn take_live(
        &mut self,
        path: &Path,
        (version, kind): (&str, &str),
        text: &str,
    ) -> Result<(), SnapshotError> {
        let mut typed: Typed = serde_json::from_str(text).unwrap_or_default();
        typed.api_version = Some(version.to_owned());
        typed.kind = Some(kind.to_owned());
        if self.keeps(kind) {
            let mut object = typed.value(text).map_err(|source| malformed(path, &typed, source))?;
            trim(&mut object);
            self.kept.push(object);
        }
        self.apply(path, &typed, &mut serde_json::Deserializer::from_str(text))
    }

    fn keeps(&self, kind: &str) -> bool {
        kind != "Snapshot" && self.kinds.contains(&kind)
    }

    fn apply<'de, D>(&mut self, path: &Path, typed: &Typed, object: D) -> Result<(), SnapshotError>
    where
        D: Deserializer<'de, Error = serde_json::Error>,
    {
        let version = typed.api_version.as_deref().unwrap_or_default();
        let kind = typed.kind.as_deref().unwrap_or_default();
        let name = typed.metadata.name.as_deref().unwrap_or_default();
        let one = One { view: &mut self.view, path, typed, object };
        match (version, kind) {
            ("v1", "Node") => one.put::<Node>(),
            ("v1", "ConfigMap") if name == names::object::MACHINES => one.put::<ConfigMap>(),
            ("scheduling.k8s.io/v1beta1", "PodGroup") => one.put::<PodGroup>(),
            ("scheduling.k8s.io/v1alpha3", "CompositePodGroup") => one.put::<CompositePodGroup>(),
            ("resource.nvidia.com/v1beta1", "ComputeDomain") => one.put::<ComputeDomain>(),
            ("kueue.x-k8s.io/v1beta2", "Topology") => one.put::<Topology>(),
            ("topology.volcano.sh/v1alpha1", "HyperNode") => one.put::<HyperNode>(),
            ("v1", "ResourceQuota") => one.put::<ResourceQuota>(),
            ("v1", "LimitRange") => one.put::<LimitRange>(),
            ("v1", "Namespace") => one.put::<Namespace>(),
            ("v1", "PersistentVolume") => one.put::<PersistentVolume>(),
            ("v1", "PersistentVolumeClaim") => one.put::<PersistentVolumeClaim>(),
            ("storage.k8s.io/v1", "StorageClass") => one.put::<StorageClass>(),
            ("storage.k8s.io/v1", "CSIDriver") => one.put::<CSIDriver>(),
            ("storage.k8s.io/v1", "CSINode") => one.put::<CSINode>(),
            ("storage.k8s.io/v1", "CSIStorageCapacity") => one.put::<CSIStorageCapacity>(),
            ("storage.k8s.io/v1", "VolumeAttachment") => one.put::<VolumeAttachment>(),
            ("v1", "Service") => one.put::<Service>(),
            (DRA, "ResourceSlice") => one.put::<ResourceSlice>(),
            (DRA, "DeviceClass") => one.put::<DeviceClass>(),
            (DRA, "DeviceTaintRule") => one.put::<DeviceTaintRule>(),
            (DRA, "ResourceClaim") => one.put::<ResourceClaim>(),
            (DRA, "ResourceClaimTemplate") => one.put::<ResourceClaimTemplate>(),
            (DRA_BETA, "ResourceSlice") => one.put_beta::<ResourceSlice>(),
            (DRA_BETA, "DeviceClass") => one.put_beta::<DeviceClass>(),
            (DRA_BETA, "DeviceTaintRule") => one.put_beta::<DeviceTaintRule>(),
            (DRA_BETA, "ResourceClaim") => one.put_beta::<ResourceClaim>(),
            (DRA_BETA, "ResourceClaimTemplate") => one.put_beta::<ResourceClaimTemplate>(),
            (version, kind) if version.starts_with("resource.k8s.io/") => {
                let place = (version.to_owned(), kind.to_owned());
                *self.found.outdated.entry(place).or_default() += 1;
                return Ok(());
            }
            ("topology.dranet.io/v1alpha1", "NicPool") => one.put::<NicPool>(),
            ("topology.dranet.io/v1alpha1", "NodeTopology") => one.put::<NodeTopology>(),
            (version, "Snapshot") if version.starts_with("snapshot.dranet.io/") => {
                let head = read_head(path, typed, one.object)?;
                self.begin(head);
                return Ok(());
            }
            _ => {
                *self.found.ignored.entry(kind.to_owned()).or_default() += 1;
                return Ok(());
            }
        }?;
        *self.found.taken.entry(kind.to_owned()).or_default() += 1;
        Ok(())
    }

    fn begin(&mut self, head: Head) {
        if let Some(version) = &head.server_version {
            self.set_server_version(version);
        }
        self.serve(head.served);
        self.head = Some(head);
    }
}

/// Reads the head of a snapshot. Another format version is an error.
pub(super) fn read_head<'de, D>(
    path: &Path,
    typed: &Typed,
    object: D,
) -> Result<Head, SnapshotError>
where
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let found = typed.api_version.as_deref().unwrap_or_default();
    if found != FORMAT {
        return Err(SnapshotError::Format { path: path.to_owned(), found: found.to_owned() });
    }
    Head::deserialize(object).map_err(|source| malformed(path, typed, source))
}

/// An object on its way into a view.
struct One<'o, D> {
    view: &'o mut ClusterView,
    path: &'o Path,
    typed: &'o Typed,
    object: D,
}

impl<'de, D> One<'_, D>
where
    D: Deserializer<'de, Error = serde_json::Error>,
{
    fn put<K: DeserializeOwned>(self) -> Result<(), SnapshotError>
    where
        ClusterView: Index<K>,
    {
        let Self { view, path, typed, object } = self;
        let object = K::deserialize(object).map_err(|source| malformed(path, typed, source))?;
        // A file with objects of a kind comes from a server that serves it.
        view.served();
        let applied = view.apply(object);
        applied.map_err(|source| SnapshotError::View {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// Adds an object of the version before: their fields are the same, and types expect their own
    /// version.
    fn put_beta<K: DeserializeOwned + Resource>(self) -> Result<(), SnapshotError>
    where
        ClusterView: Index<K>,
    {
        let Self { view, path, typed, object } = self;
        let mut object =
            Value::deserialize(object).map_err(|source| malformed(path, typed, source))?;
        object["apiVersion"] = K::API_VERSION.into();
        One { view, path, typed, object }.put::<K>()
    }
}

fn malformed(path: &Path, typed: &Typed, source: serde_json::Error) -> SnapshotError {
    SnapshotError::Object {
        path: path.to_owned(),
        kind: typed.kind.clone().unwrap_or_default(),
        name: typed.metadata.name.clone().unwrap_or_default(),
        source,
    }
}
