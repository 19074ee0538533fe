//! Nodes without a machine: the objects that a kubelet would have written.

use k8s_openapi::{
    api::{
        core::v1::Node,
        resource::v1::{DeviceTaint, ResourceSlice},
    },
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::manifest::FIELD_MANAGER;

/// Creates a node that is Ready and has room for pods, or restores it to that state.
///
/// It stays Ready, since the control plane here runs no node-lifecycle-controller.
pub async fn apply(client: &Client, name: &str) -> anyhow::Result<Node> {
    let nodes: Api<Node> = Api::all(client.clone());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let node = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
        }},
    });
    nodes.patch(name, &params, &Patch::Apply(&node)).await?;
    Ok(nodes.patch_status(name, &params, &Patch::Apply(&status(name))).await?)
}

/// Makes an existing node Ready, as its kubelet would; what it has room for stays.
pub async fn make_ready(client: &Client, name: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let status = json!({"status": {"conditions": [ready()]}});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(&status)).await?;
    Ok(())
}

/// The port of a node's first NIC goes down, or comes up again: as the driver does, taints it and publishes its
/// pool again.
pub async fn toggle_port(client: &Client, node: &str) -> kube::Result<()> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let own = ListParams::default().fields(&format!("spec.nodeName={node},spec.driver=dra.net"));
    let Some(mut slice) = slices.list(&own).await?.items.into_iter().next() else { return Ok(()) };
    let Some(nic) = slice.spec.devices.iter_mut().flatten().next() else { return Ok(()) };
    let down = DeviceTaint {
        key: "dranet.io/port-down".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..DeviceTaint::default()
    };
    nic.taints = if nic.taints.is_some() { None } else { Some(vec![down]) };
    slice.spec.pool.generation += 1;
    slices.replace(&slice.name_any(), &PostParams::default(), &slice).await?;
    Ok(())
}

fn status(name: &str) -> Value {
    let resources = json!({"cpu": "128", "memory": "1Ti", "pods": "256"});
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [ready()]},
    })
}

fn ready() -> Value {
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    json!({
        "type": "Ready",
        "status": "True",
        "reason": "Simulated",
        "message": "this node has no kubelet",
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    })
}
