//! Objects of any kind, taken in one by one.

use super::SnapshotError;
use super::archive::{FORMAT, Head};
use super::trim::trim;
use crate::names;
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

/// Instead of kinds: every kind.
pub const ALL: &str = "*";

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
    kinds: &'static [&'static str],
}

/// The two fields that say what an object is.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Typed {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    metadata: Named,
}

#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: Option<String>,
}

impl Intake {
    /// An empty view; objects of these kinds are kept as they are, too.
    pub fn keeping(kinds: &'static [&'static str]) -> Self {
        let mut view = ClusterView::default();
        view.keep_topologies();
        Self { view, found: Found::default(), head: None, kept: Vec::new(), kinds }
    }

    /// Says which version the cluster has, `v1.37.1`. One that is not known counts as 1.37.
    pub fn set_server_version(&mut self, version: &str) {
        let known = MinorVersion::parse(version).unwrap_or(MinorVersion::V1_37);
        self.view.set_settings(Settings::defaults_of(known));
    }

    /// Takes an object of a file in. One that is malformed is an error; one of a kind that
    /// nothing has a use for is counted.
    pub fn take(&mut self, path: &Path, object: Value) -> Result<(), SnapshotError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let name = text(&object["metadata"]["name"]);
        if self.keeps(&kind) {
            self.kept.push(object.clone());
        }
        self.apply(path, (&version, &kind, &name), object)
    }

    /// Takes an object in that is one JSON text.
    pub fn take_json(&mut self, path: &Path, text: &[u8]) -> Result<(), SnapshotError> {
        let wrap = |source| SnapshotError::Json { path: path.to_owned(), source };
        let Typed { api_version, kind, metadata } = serde_json::from_slice(text).map_err(wrap)?;
        self.take_json_of(path, (&api_version, &kind, metadata.name.as_deref()), text)
    }

    /// The same of an object whose version, kind and name are known, as lists of the API
    /// server leave them out.
    pub fn take_json_of(
        &mut self,
        path: &Path,
        (version, kind, name): (&str, &str, Option<&str>),
        text: &[u8],
    ) -> Result<(), SnapshotError> {
        let name = name.unwrap_or_default();
        if self.keeps(kind) {
            let wrap = |source| malformed(path, kind, name, source);
            let mut object: Value = serde_json::from_slice(text).map_err(wrap)?;
            object["apiVersion"] = version.into();
            object["kind"] = kind.into();
            trim(&mut object);
            self.kept.push(object);
        }
        self.apply(path, (version, kind, name), &mut serde_json::Deserializer::from_slice(text))
    }

    fn keeps(&self, kind: &str) -> bool {
        kind != "Snapshot" && self.kinds.iter().any(|kept| *kept == kind || *kept == ALL)
    }

    fn apply<'de, D>(
        &mut self,
        path: &Path,
        (version, kind, name): (&str, &str, &str),
        object: D,
    ) -> Result<(), SnapshotError>
    where
        D: Deserializer<'de, Error = serde_json::Error>,
    {
        let place = (path, kind, name);
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
            ("topology.dranet.io/v1alpha1", "NodeTopology") => {
                put::<NodeTopology, D>(view, place, object)
            }
            (FORMAT, "Snapshot") => return self.begin(path, object),
            (other, "Snapshot") if other.starts_with("snapshot.dranet.io/") => {
                return Err(SnapshotError::Format {
                    path: path.to_owned(),
                    found: other.to_owned(),
                });
            }
            _ => {
                *self.found.ignored.entry(kind.to_owned()).or_default() += 1;
                return Ok(());
            }
        }?;
        *self.found.taken.entry(kind.to_owned()).or_default() += 1;
        Ok(())
    }

    fn begin<'de, D>(&mut self, path: &Path, object: D) -> Result<(), SnapshotError>
    where
        D: Deserializer<'de, Error = serde_json::Error>,
    {
        let head = Head::deserialize(object);
        let head = head.map_err(|source| malformed(path, "Snapshot", "", source))?;
        if let Some(version) = &head.server_version {
            self.set_server_version(version);
        }
        if head.pod_groups {
            self.view.set_pod_groups_served(true);
        }
        self.head = Some(head);
        Ok(())
    }
}

fn put<'de, K, D>(
    view: &mut ClusterView,
    (path, kind, name): (&Path, &str, &str),
    object: D,
) -> Result<(), SnapshotError>
where
    K: DeserializeOwned,
    ClusterView: Index<K>,
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let object = K::deserialize(object).map_err(|source| malformed(path, kind, name, source))?;
    view.apply(object)
        .map_err(|source| SnapshotError::View { path: path.to_owned(), source: Box::new(source) })
}

fn malformed(path: &Path, kind: &str, name: &str, source: serde_json::Error) -> SnapshotError {
    SnapshotError::Object {
        path: path.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        source,
    }
}
