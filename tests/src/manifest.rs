//! Kubernetes objects in YAML files, and applying them as `kubectl apply
//! --server-side` does.

use std::{fs, path::Path, time::Duration};

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, TypeMeta},
    core::GroupVersionKind,
    discovery::{self, Scope},
};
use serde_json::Value;

use crate::eventually::{Check, eventually};

/// The field manager of everything that tests apply.
pub const FIELD_MANAGER: &str = "dranet-tests";

/// The objects of a file with one or several documents; lists are flattened.
pub fn read(path: &Path) -> anyhow::Result<Vec<DynamicObject>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("failed to read `{}`", path.display()))?;
    parse(&text).with_context(|| format!("failed to understand `{}`", path.display()))
}

/// The objects of a text.
pub fn parse(yaml: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml)?;
    let mut objects = Vec::new();
    for document in documents {
        collect(document, &mut objects)?;
    }
    Ok(objects)
}

fn collect(document: Value, objects: &mut Vec<DynamicObject>) -> anyhow::Result<()> {
    if document.is_null() {
        return Ok(());
    }
    let is_list = document["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match document {
        Value::Object(mut list) if is_list => {
            let Some(Value::Array(items)) = list.remove("items") else {
                anyhow::bail!("a list without `items`");
            };
            items.into_iter().try_for_each(|item| collect(item, objects))
        }
        document => {
            let object: DynamicObject = serde_json::from_value(document)?;
            anyhow::ensure!(object.types.is_some(), "an object without `apiVersion` and `kind`");
            objects.push(object);
            Ok(())
        }
    }
}

/// The API endpoint of an object, and its namespace if it has one.
pub(crate) struct Place {
    resource: ApiResource,
    namespace: Option<String>,
}

impl Place {
    /// Discovers the endpoint. A namespaced object without a namespace goes to `default`.
    async fn new(client: &Client, object: &DynamicObject, default: &str) -> anyhow::Result<Self> {
        let types: &TypeMeta = object.types.as_ref().context("an object without a kind")?;
        let kind = GroupVersionKind::try_from(types)?;
        let (resource, capabilities) =
            discovery::pinned_kind(client, &kind).await.with_context(|| {
                format!("the API server has no {} {}", types.api_version, types.kind)
            })?;
        let namespace = match capabilities.scope {
            Scope::Namespaced => Some(object.namespace().unwrap_or_else(|| default.to_owned())),
            Scope::Cluster => None,
        };
        Ok(Self { resource, namespace })
    }

    pub(crate) fn is_cluster_scoped(&self) -> bool {
        self.namespace.is_none()
    }

    pub(crate) fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }
}

/// Applies an object; objects without a namespace go to `namespace`. For a custom resource
/// definition, returns when it is served.
///
/// Fields that the API server sets itself (UIDs, owners in another cluster) are removed.
pub(crate) async fn apply(
    client: &Client,
    mut object: DynamicObject,
    namespace: &str,
) -> anyhow::Result<(Place, DynamicObject)> {
    object.metadata.uid = None;
    object.metadata.resource_version = None;
    object.metadata.creation_timestamp = None;
    object.metadata.generation = None;
    object.metadata.managed_fields = None;
    object.metadata.owner_references = None;
    let place = Place::new(client, &object, namespace).await?;
    let (kind, name) = (place.resource.kind.clone(), object.name_any());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let applied = place
        .api(client)
        .patch(&name, &params, &Patch::Apply(&object))
        .await
        .with_context(|| format!("failed to apply {kind} `{name}`"))?;
    if kind == "CustomResourceDefinition" {
        wait_until_served(client, &name).await?;
    }
    Ok((place, applied))
}

/// Lets the API server validate an object with every field, without storing it.
pub async fn check(client: &Client, object: &DynamicObject, namespace: &str) -> anyhow::Result<()> {
    let place = Place::new(client, object, namespace).await?;
    let params = PatchParams::apply(FIELD_MANAGER).force().dry_run().validation_strict();
    let (kind, name) = (&place.resource.kind, object.name_any());
    place
        .api(client)
        .patch(&name, &params, &Patch::Apply(object))
        .await
        .with_context(|| format!("{kind} `{name}` is refused"))?;
    Ok(())
}

/// Deletes an object, which may be gone already.
pub async fn delete(
    client: &Client,
    object: &DynamicObject,
    namespace: &str,
    params: &DeleteParams,
) -> anyhow::Result<()> {
    let place = Place::new(client, object, namespace).await?;
    match place.api(client).delete(&object.name_any(), params).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}

async fn wait_until_served(client: &Client, name: &str) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    eventually(Duration::from_secs(30), async || {
        let status = definitions.get_status(name).await?.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let established = conditions.iter().any(|c| c.type_ == "Established" && c.status == "True");
        Ok(Check::that(established, || {
            format!("CustomResourceDefinition `{name}`: {conditions:?}")
        }))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(yaml: &str) -> Vec<String> {
        parse(yaml).unwrap().iter().map(ResourceExt::name_any).collect()
    }

    #[test]
    fn documents_and_lists_are_read_alike() {
        let object = |name| format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n");
        let documents = format!("---\n{}---\n{}---\n", object("a"), object("b"));
        assert_eq!(names(&documents), ["a", "b"]);
        let list = "apiVersion: v1\nkind: List\nitems:\n\
                    - {apiVersion: v1, kind: Node, metadata: {name: c}}\n\
                    - {apiVersion: v1, kind: Node, metadata: {name: d}}\n";
        assert_eq!(names(list), ["c", "d"]);
        assert_eq!(names(&format!("{documents}{list}")), ["a", "b", "c", "d"]);
    }

    #[test]
    fn invalid_objects_are_refused() {
        for yaml in ["a: [", "just words", "metadata: {name: a}", "kind: List\napiVersion: v1"] {
            assert!(parse(yaml).is_err(), "{yaml}");
        }
    }

    #[test]
    fn quoted_numbers_stay_text() {
        let yaml = "apiVersion: v1\nkind: X\nmetadata: {name: a}\nspec: {id: \"0240\", n: 1}\n";
        let spec = &parse(yaml).unwrap()[0].data["spec"];
        assert_eq!(*spec, serde_json::json!({"id": "0240", "n": 1}));
    }
}
