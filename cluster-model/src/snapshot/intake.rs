//! Objects of any kind, taken in one by one.

use super::SnapshotError;
use super::archive::{FORMAT, Head};
use super::document::{Item, Typed};
use super::trim::trim;
use crate::names;
use crate::nic_pool::NicPool;
use crate::view::{ClusterView, Index};
use dra_allocator::{MinorVersion, Settings};
use k8s_openapi::api::core::v1::{ConfigMap, Node, ResourceQuota};
use k8s_openapi::api::resource::v1 as resource;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use topology_graph::NodeTopology;

/// What was found beside the view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Objects in the view, by kind.
    pub taken: BTreeMap<String, usize>,
    /// Objects of kinds that a view has no use for, by kind.
    pub ignored: BTreeMap<String, usize>,
}

/// A view that is being filled, and what is kept beside it.
#[derive(Debug)]
pub struct Intake {
    /// The view; it keeps every `NodeTopology`.
    pub view: ClusterView,
    /// What was found.
    pub found: Found,
    /// What the snapshot says of itself.
    pub head: Option<Head>,
    /// Objects of the kinds that were asked for, as they are.
    pub kept: Vec<Value>,
    /// Objects of a snapshot that are malformed and were left out.
    pub broken: Vec<SnapshotError>,
    kinds: &'static [&'static str],
}

impl Intake {
    /// An empty view; objects of these kinds are kept as they are, too.
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

    /// Says which version the cluster has, `v1.37.1`. One that is not known counts as 1.37.
    pub fn set_server_version(&mut self, version: &str) {
        let known = MinorVersion::parse(version).unwrap_or(MinorVersion::V1_37);
        self.view.set_settings(Settings::defaults_of(known));
    }

    /// Takes an object of a file in. One that is malformed is an error; one of a kind that
    /// nothing has a use for is counted.
    pub(super) fn take(&mut self, path: &Path, item: Item<'_>) -> Result<(), SnapshotError> {
        let (typed, text) = match item {
            Item::Text(typed, text) => (typed, text),
            Item::Value(object) => {
                let typed = Typed::of(&object);
                if self.keeps(typed.kind.as_deref().unwrap_or_default()) {
                    self.kept.push(object.clone());
                }
                return self.apply(path, &typed, object);
            }
        };
        if self.keeps(typed.kind.as_deref().unwrap_or_default()) {
            let wrap = |source| malformed(path, &typed, source);
            self.kept.push(typed.value(text).map_err(wrap)?);
        }
        self.apply(path, &typed, &mut serde_json::Deserializer::from_str(text))
    }

    /// Takes an object of a snapshot in. One that is malformed is left out, as it is of a live
    /// cluster.
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

    /// Takes an object of a live cluster in, whose version and kind lists leave out.
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
            let wrap = |source| malformed(path, &typed, source);
            let mut object = typed.value(text).map_err(wrap)?;
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
        let place = (path, typed);
        let version = typed.api_version.as_deref().unwrap_or_default();
        let kind = typed.kind.as_deref().unwrap_or_default();
        let name = typed.metadata.name.as_deref().unwrap_or_default();
        let view = &mut self.view;
        match (version, kind) {
            ("v1", "Node") => put::<Node, D>(view, place, object),
            ("v1", "ConfigMap") if name == names::object::MACHINES => {
                put::<ConfigMap, D>(view, place, object)
            }
            ("scheduling.k8s.io/v1beta1", "PodGroup") => {
                // A file has what a server has.
                view.set_pod_groups_served(true);
                put::<PodGroup, D>(view, place, object)
            }
            ("v1", "ResourceQuota") => put::<ResourceQuota, D>(view, place, object),
            ("resource.k8s.io/v1", "ResourceSlice") => {
                put::<resource::ResourceSlice, D>(view, place, object)
            }
            ("resource.k8s.io/v1", "DeviceClass") => {
                put::<resource::DeviceClass, D>(view, place, object)
            }
            ("resource.k8s.io/v1", "ResourceClaim") => {
                put::<resource::ResourceClaim, D>(view, place, object)
            }
            ("resource.k8s.io/v1", "ResourceClaimTemplate") => {
                put::<resource::ResourceClaimTemplate, D>(view, place, object)
            }
            ("topology.dranet.io/v1alpha1", "NicPool") => put::<NicPool, D>(view, place, object),
            ("topology.dranet.io/v1alpha1", "NodeTopology") => {
                put::<NodeTopology, D>(view, place, object)
            }
            (version, "Snapshot") if version.starts_with("snapshot.dranet.io/") => {
                let head = read_head(path, typed, object)?;
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
        if head.pod_groups {
            self.view.set_pod_groups_served(true);
        }
        self.head = Some(head);
    }
}

/// Reads what a snapshot says of itself. Another version of the format is an error.
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

fn put<'de, K, D>(
    view: &mut ClusterView,
    (path, typed): (&Path, &Typed),
    object: D,
) -> Result<(), SnapshotError>
where
    K: DeserializeOwned,
    ClusterView: Index<K>,
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let object = K::deserialize(object).map_err(|source| malformed(path, typed, source))?;
    view.apply(object)
        .map_err(|source| SnapshotError::View { path: path.to_owned(), source: Box::new(source) })
}

fn malformed(path: &Path, typed: &Typed, source: serde_json::Error) -> SnapshotError {
    SnapshotError::Object {
        path: path.to_owned(),
        kind: typed.kind.clone().unwrap_or_default(),
        name: typed.metadata.name.clone().unwrap_or_default(),
        source,
    }
}
