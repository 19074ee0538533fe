//! The cluster of `deploy/examples/aks-gb300` is what a cluster holds after our
//! driver has run on such a node.

use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::Node,
    resource::v1::{DeviceClass, ResourceSlice},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tests::{
    ControlPlane, Scope, gb300,
    generated::assert_current,
    imds::Imds,
    installation::{Installation, PLACEMENT_GROUP, VM_SIZE, gb300_machine},
    simulated_node,
    suite::Test,
    with_scope,
};
use topology_graph::NodeTopology;

/// UID of the live node, as the slices of upstream's example name it.
const NODE_UID: &str = "00c21858-73a7-402e-88bc-5e33b1d39bb7";

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![the_example_cluster_is_current].into_iter().map(Test::alone).collect()
}

async fn the_example_cluster_is_current(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        simulated_node::apply(&scope.client(), gb300::LIVE_NODE).await?;
        let published = publish(&installation, scope).await;
        let cluster = cluster(scope).await;
        let nodes: Api<Node> = Api::all(scope.client());
        nodes.delete(gb300::LIVE_NODE, &DeleteParams::default().grace_period(0)).await?;
        published?;
        let expected = serde_saphyr::to_string(&cluster?)?;
        assert_current("deploy/examples/aks-gb300/cluster.yaml", &expected)
    })
    .await
}

async fn publish(installation: &Installation<'_>, scope: &Scope) -> anyhow::Result<()> {
    scope.apply(gb300::gpu_slice(gb300::LIVE_NODE)?).await?;
    let imds = Imds::start(VM_SIZE, PLACEMENT_GROUP).await?;
    let machine = gb300_machine(gb300::LIVE_NODE)?;
    installation.publish(gb300::LIVE_NODE, machine.path(), &imds).await?;
    Ok(())
}

async fn cluster(scope: &Scope) -> anyhow::Result<Value> {
    let of_node = format!("spec.nodeName={}", gb300::LIVE_NODE);
    let named = format!("metadata.name={}", gb300::LIVE_NODE);
    let mut items = objects::<Node>(scope, &named).await?;
    items.extend(objects::<DeviceClass>(scope, "").await?);
    items.extend(objects::<ResourceSlice>(scope, &of_node).await?);
    items.extend(objects::<NodeTopology>(scope, &named).await?);
    Ok(json!({ "apiVersion": "v1", "kind": "List", "items": items }))
}

/// The objects of a kind, without what differs from one cluster to the next.
async fn objects<K>(scope: &Scope, fields: &str) -> anyhow::Result<Vec<Value>>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let list = Api::<K>::all(scope.client()).list(&ListParams::default().fields(fields)).await?;
    let mut objects = Vec::new();
    for object in list.items {
        let stable_name =
            object.meta().generate_name.as_ref().map(|prefix| format!("{prefix}00000"));
        let name = stable_name.unwrap_or_else(|| object.name_any());
        let mut value = serde_json::to_value(&object)?;
        value["apiVersion"] = K::api_version(&()).into();
        value["kind"] = K::kind(&()).into();
        let metadata = value["metadata"].as_object_mut().context("an object has metadata")?;
        metadata.retain(|key, value| {
            matches!(key.as_str(), "labels" | "ownerReferences") && !value.is_null()
        });
        metadata.insert("name".to_owned(), name.into());
        for owner in value["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            owner["uid"] = NODE_UID.into();
        }
        if let Some(object) = value.as_object_mut() {
            object.remove("status");
        }
        objects.push(value);
    }
    objects.sort_by_key(|object| object["metadata"]["name"].to_string());
    Ok(objects)
}
