//! Thousands of copies of a node: everything published for it, under another name.

use std::ops::Range;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::Installation;

/// The number of nodes created in parallel.
const TOGETHER: usize = 48;
/// The prefix of GPU UUIDs.
const UUID: &str = "\"GPU-";

/// A node with everything published for it.
struct Original {
    name: String,
    /// Each object with the path where it is created. The node's name is the only name in it that
    /// is specific to the node.
    objects: Vec<(&'static str, String)>,
}

const NODES: &str = "/api/v1/nodes";
const TOPOLOGIES: &str = "/apis/topology.dranet.io/v1alpha1/nodetopologies";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

impl Installation<'_> {
    /// Creates a node for each index as copies of `kinds` in turn, with everything published for
    /// them. They have room for pods, are not Ready, and stay when the scope ends.
    pub async fn copies(&self, kinds: &[String], indices: Range<usize>) -> anyhow::Result<()> {
        let client = self.plane.client();
        let originals = stream::iter(kinds).then(|kind| Original::read(&client, kind));
        let originals: Vec<_> = originals.try_collect().await?;
        let copies = indices.map(|index| originals[index % originals.len()].create(&client, index));
        stream::iter(copies).buffer_unordered(TOGETHER).try_collect().await
    }
}

impl Original {
    async fn read(client: &Client, name: &str) -> anyhow::Result<Self> {
        let node = get(client, &format!("{NODES}/{name}")).await?;
        let topology = get(client, &format!("{TOPOLOGIES}/{name}")).await?;
        let of_node = format!("{SLICES}?fieldSelector=spec.nodeName%3D{name}");
        let slices = get(client, &of_node).await?;
        let mut objects = vec![(NODES, bare(node, name)), (TOPOLOGIES, bare(topology, name))];
        for slice in slices["items"].as_array().context("a list has items")? {
            let driver = slice["spec"]["driver"].as_str().context("a slice has a driver")?;
            let slice_name = format!("{name}-{driver}");
            objects.push((SLICES, bare(slice.clone(), &slice_name)));
        }
        Ok(Self { name: name.to_owned(), objects })
    }

    /// Creates a copy with unique UUIDs.
    async fn create(&self, client: &Client, index: usize) -> anyhow::Result<()> {
        let name = format!("{}-{index}", self.name);
        for (path, object) in &self.objects {
            let own = format!("{UUID}{index}-");
            let copy = object.replace(&self.name, &name).replace(UUID, &own);
            let request = Request::post(*path)
                .header("content-type", "application/json")
                .body(copy.into_bytes())?;
            client.request_text(request).await.with_context(|| format!("node `{name}`"))?;
        }
        Ok(())
    }
}

async fn get(client: &Client, path: &str) -> anyhow::Result<Value> {
    let request = Request::get(path).body(Vec::new())?;
    client.request(request).await.with_context(|| format!("failed to get `{path}`"))
}

/// The object for creation. Of a node's status only the room for pods stays, as a kubelet sets it
/// when it creates its node.
fn bare(mut object: Value, name: &str) -> String {
    object["metadata"] = json!({"name": name, "labels": object["metadata"]["labels"]});
    let status = object.as_object_mut().and_then(|object| object.remove("status"));
    if let Some(allocatable) = status.as_ref().and_then(|status| status.get("allocatable")) {
        object["status"] = json!({"allocatable": allocatable, "capacity": allocatable});
    }
    object.to_string()
}
