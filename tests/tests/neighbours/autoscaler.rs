//! Cluster Autoscaler with its provider `kwok`.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::{Event, Node};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope,
    autoscaler::{Autoscaler, NodeGroup},
    binaries, eventually, simulated_node,
    suite::{Test, report},
    with_last_scope,
};

use super::grown::{KINDS, Player, empty, from_no_node_and_back, labels, node_of, whole};

const SOON: Duration = Duration::from_mins(1);

pub(crate) fn tests() -> Vec<Test> {
    if binaries::neighbour("cluster-autoscaler").is_err() {
        report("skipped: Cluster Autoscaler is built where $DRANET_AUTOSCALER_REPOSITORY is set");
        return Vec::new();
    }
    tests::tests![
        cluster_autoscaler_adds_the_nodes_that_aligned_pods_need,
        cluster_autoscaler_copies_a_node_with_its_sick_nic,
    ]
}

async fn cluster_autoscaler_adds_the_nodes_that_aligned_pods_need(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let plane = &*plane;
    with_last_scope(plane.client(), async |scope| {
        let installation = empty(plane, scope).await?;
        let groups = KINDS.map(|kind| NodeGroup::of(kind.name, &labels()));
        let groups = groups.into_iter().collect::<Result<Vec<_>, _>>()?;
        let _autoscaler = Autoscaler::start(plane, scope, &groups, true).await?;
        let player = Player { scope, installation: &installation };
        let stays = ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false");
        from_no_node_and_back(plane, &player, stays).await
    })
    .await
}

/// Of a group with nodes, Cluster Autoscaler takes one for the picture of a new one, as it is. A sick NIC there
/// hides the group; a node that is cordoned is no picture.
async fn cluster_autoscaler_copies_a_node_with_its_sick_nic(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let plane = &*plane;
    with_last_scope(plane.client(), async |scope| {
        let installation = empty(plane, scope).await?;
        let kind = &KINDS[0];
        let groups = [NodeGroup::of(kind.name, &labels())?];
        let _autoscaler = Autoscaler::start(plane, scope, &groups, true).await?;
        let player = Player { scope, installation: &installation };
        for index in 0..2 {
            scope.apply(serde_json::from_value(whole(kind, index))?).await?;
        }
        let pods = player.until_bound("app=single", 2).await?;
        let nodes: Vec<&str> = pods.iter().filter_map(node_of).collect();
        let client = scope.client();
        for node in &nodes {
            ready_for_long(&client, node).await?;
            simulated_node::toggle_port(&client, node).await?;
        }

        scope.apply(serde_json::from_value(whole(kind, 2))?).await?;
        let third = format!("{}-2", kind.name);
        not_scaled_up(scope, &third).await?;

        let api: Api<Node> = Api::all(client.clone());
        api.cordon(nodes[0]).await?;
        simulated_node::toggle_port(&client, nodes[1]).await?;
        let pods = player.until_bound("app=single", 3).await?;
        let added = pods.iter().find(|pod| pod.name_any() == third).and_then(node_of);
        assert!(added.is_some_and(|node| !nodes.contains(&node)), "{added:?}, {nodes:?}");
        Ok(())
    })
    .await
}

/// The node's Ready condition is older than Cluster Autoscaler's `stabilizationDelay`, a minute.
async fn ready_for_long(client: &Client, node: &str) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let ready =
        json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = Patch::Strategic(json!({"status": {"conditions": [ready]}}));
    nodes.patch_status(node, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until Cluster Autoscaler has said that no new node would help the pod.
async fn not_scaled_up(scope: &Scope, pod: &str) -> anyhow::Result<()> {
    let events: Api<Event> = scope.api();
    let of_pod = ListParams::default()
        .fields(&format!("involvedObject.name={pod},reason=NotTriggerScaleUp"));
    eventually(SOON, async || {
        let found = events.list(&of_pod).await?.items;
        Ok(Check::that(!found.is_empty(), || format!("nothing is said of `{pod}`")))
    })
    .await
}
