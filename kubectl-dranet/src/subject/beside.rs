//! The claims and claim templates that a file has beside the pods that use them.

use anyhow::Context;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use serde::de::DeserializeOwned;
use serde_json::Value;

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
