//! What a run records in the folder that `DRANET_GPU_RECORD` names, if it is set.

use std::{env, fs, fs::File, path::PathBuf};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{Api, api::ListParams};
use serde_json::{Value, json};
use tests::Scope;
use topology_graph::{HostRoot, Identities, NodeTopology, capture};

/// Writes a file.
pub(crate) fn file(name: &str, text: &str) -> anyhow::Result<()> {
    folder()?.map_or(Ok(()), |folder| Ok(fs::write(folder.join(name), text)?))
}

/// Writes the pod with its claim and output, and what the node has published.
pub(crate) async fn pod(scope: &Scope, log: &str) -> anyhow::Result<()> {
    file("pod.log", log)?;
    let (all, client) = (ListParams::default(), scope.client());
    let objects = json!({
        "pods": scope.api::<Pod>().list(&all).await?.items,
        "claims": scope.api::<ResourceClaim>().list(&all).await?.items,
        "slices": Api::<ResourceSlice>::all(client.clone()).list(&all).await?.items,
        "topologies": Api::<NodeTopology>::all(client).list(&all).await?.items,
    });
    file("objects.yaml", &serde_saphyr::to_string(&without_managed_fields(objects))?)
}

fn without_managed_fields(mut objects: Value) -> Value {
    let lists = objects.as_object_mut().into_iter().flat_map(|lists| lists.values_mut());
    for object in lists.filter_map(Value::as_array_mut).flatten() {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
    }
    objects
}

/// Writes this machine's `/sys` and `/proc` as an archive, without GUIDs and UUIDs.
pub(crate) fn machine() -> anyhow::Result<()> {
    let Some(folder) = folder()? else { return Ok(()) };
    let out = File::create(folder.join("machine.tar.gz"))?;
    Ok(capture(&HostRoot::at("/"), Identities::Masked, out)?)
}

fn folder() -> anyhow::Result<Option<PathBuf>> {
    let Some(folder) = env::var_os("DRANET_GPU_RECORD").map(PathBuf::from) else { return Ok(None) };
    fs::create_dir_all(&folder).with_context(|| format!("`{}`", folder.display()))?;
    Ok(Some(folder))
}
