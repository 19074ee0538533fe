//! The claims and claim templates that a file has beside the pods that use them.

use super::{Subject, admin_access};
use crate::kinds::{NAMESPACES, Query};
use anyhow::Context;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeSet;

/// Claims and claim templates of a file.
#[derive(Debug, Default)]
pub(crate) struct Beside(Vec<Value>);

impl Beside {
    /// Those among the objects of a file.
    pub(super) fn new(objects: Vec<Value>) -> Self {
        let used = objects.into_iter().filter(|object| {
            matches!(object["kind"].as_str(), Some("ResourceClaim" | "ResourceClaimTemplate"))
        });
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
        for mut object in self.0 {
            if object["metadata"].get("namespace").is_none_or(Value::is_null) {
                object["metadata"]["namespace"] = namespace.into();
            }
            if object["kind"] == "ResourceClaimTemplate" {
                view.apply(parsed::<ResourceClaimTemplate>(object)?)?;
                continue;
            }
            let claim = ResourceClaim { status: None, ..parsed(object)? };
            if view.claim(&ObjectKey::new(&claim.metadata)).is_none() {
                view.apply(claim)?;
            }
        }
        Ok(())
    }
}

fn parsed<T: DeserializeOwned>(object: Value) -> anyhow::Result<T> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let what = format!("{} `{name}` is malformed", object["kind"].as_str().unwrap_or_default());
    serde_json::from_value(object).context(what)
}
