//! Publication against an in-process API server.

use super::*;
use crate::facts::node::{NodeError, get_node};
use crate::fake_server::{FakeServer, SLICES, TOPOLOGIES};
use serde_json::json;
use topology_graph::{Anomaly, AnomalyKind};

const NODE: &str = "gb300-0";

fn devices(count: usize) -> Vec<Device> {
    (0..count).map(|number| Device { name: format!("nic-{number}"), ..Device::default() }).collect()
}

async fn publisher(server: &FakeServer) -> Publisher {
    let client = server.client();
    let node = get_node(&client, NODE).await.unwrap();
    Publisher::new(&client, node)
}

#[tokio::test]
async fn a_second_run_writes_nothing() {
    let server = FakeServer::with_node(NODE);
    let mut first = publisher(&server).await;
    assert_eq!(first.slices(&devices(65)).await.unwrap().writes, 2);
    assert_eq!(server.take_writes(), [format!("POST {SLICES}"), format!("POST {SLICES}")]);
    let before = server.objects(SLICES);
    assert_eq!(first.slices(&devices(65)).await.unwrap().writes, 0);
    let mut second = publisher(&server).await;
    assert_eq!(second.slices(&devices(65)).await.unwrap().writes, 0);
    assert!(server.take_writes().is_empty());
    assert_eq!(server.objects(SLICES), before);
    assert_eq!(second.slices(&devices(66)).await.unwrap().writes, 1);
}

#[tokio::test]
async fn a_driver_that_only_read_a_pool_keeps_its_generation() {
    let server = FakeServer::with_node(NODE);
    publisher(&server).await.slices(&devices(65)).await.unwrap();
    publisher(&server).await.slices(&devices(130)).await.unwrap();
    let mut restarted = publisher(&server).await;
    assert_eq!(restarted.slices(&devices(130)).await.unwrap().writes, 0);
    server.edit(|objects| objects.retain(|path, _| !path.starts_with(SLICES)));
    restarted.slices(&devices(130)).await.unwrap();
    assert_eq!(server.objects(SLICES)[0]["spec"]["pool"]["generation"], 3);
}

#[tokio::test]
async fn slices_of_others_are_left_alone() {
    let server = FakeServer::with_node(NODE);
    server.edit(|objects| {
        for (name, driver, node) in
            [("gpus", "gpu.nvidia.com", NODE), ("neighbour", "dra.net", "gb300-1")]
        {
            let slice = json!({
                "metadata": {"name": name, "resourceVersion": "1"},
                "spec": {"driver": driver, "nodeName": node,
                         "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}},
            });
            objects.insert(format!("{SLICES}/{name}"), slice);
        }
    });
    assert_eq!(publisher(&server).await.slices(&devices(1)).await.unwrap().writes, 1);
    assert_eq!(server.objects(SLICES).len(), 3);
}

#[tokio::test]
async fn a_conflicting_write_is_retried() {
    let server = FakeServer::with_node(NODE);
    let mut publisher = publisher(&server).await;
    publisher.slices(&devices(1)).await.unwrap();
    server.take_writes();
    server.interfere(|objects| {
        for (path, slice) in objects.iter_mut().filter(|(path, _)| path.starts_with(SLICES)) {
            assert!(path.len() > SLICES.len());
            slice["metadata"]["resourceVersion"] = json!("77");
        }
    });
    assert_eq!(publisher.slices(&devices(2)).await.unwrap().writes, 1);
    assert_eq!(server.take_writes().len(), 2, "one refused, one done");

    server.interfere(|objects| objects.retain(|path, _| !path.starts_with(SLICES)));
    assert_eq!(publisher.slices(&devices(3)).await.unwrap().writes, 1);
    let slice = &server.objects(SLICES)[0];
    assert_eq!(slice["spec"]["devices"].as_array().map(Vec::len), Some(3));
    assert_eq!(slice["spec"]["pool"]["generation"], 2, "a deleted pool keeps its generation");
}

#[tokio::test]
async fn a_topology_is_written_once() {
    let server = FakeServer::with_node(NODE);
    let publisher = publisher(&server).await;
    let spec = NodeTopologySpec::default();
    assert_eq!(
        publisher.topology(&spec, &[]).await.unwrap().writes,
        2,
        "the object and its status"
    );
    assert_eq!(publisher.topology(&spec, &[]).await.unwrap().writes, 0);
    let topology = &server.objects(TOPOLOGIES)[0];
    assert_eq!(topology["status"]["conditions"][0]["type"], "Complete");
    assert_eq!(topology["status"]["conditions"][0]["status"], "True");
    assert_eq!(topology["metadata"]["name"], NODE);
    assert_eq!(topology["metadata"]["ownerReferences"][0]["uid"], "n-1");
    server.edit(|objects| {
        objects.retain(|path, _| !path.starts_with(TOPOLOGIES));
    });
    assert_eq!(publisher.topology(&spec, &[]).await.unwrap().writes, 2);
}

#[tokio::test]
async fn conditions_follow_the_anomalies() {
    let server = FakeServer::with_node(NODE);
    let publisher = publisher(&server).await;
    publisher.topology(&NodeTopologySpec::default(), &[]).await.unwrap();
    let before = server.objects(TOPOLOGIES)[0]["status"]["conditions"].clone();
    let anomaly = Anomaly::new(AnomalyKind::NumaUnknown, "0000:01:00.0", "nobody tells");
    let spec = NodeTopologySpec { anomalies: vec![anomaly], ..NodeTopologySpec::default() };
    assert_eq!(publisher.topology(&spec, &[]).await.unwrap().writes, 2);
    let after = &server.objects(TOPOLOGIES)[0]["status"]["conditions"];
    assert_eq!(after[0]["reason"], "NumaUnknown");
    assert_eq!(after[0]["message"], "0000:01:00.0: nobody tells");
    assert_eq!(after[1], before[1], "the other condition is unchanged, its time included");
}

#[tokio::test]
async fn a_missing_custom_resource_is_reported() {
    let server = FakeServer::with_node(NODE).without_topologies();
    let publisher = publisher(&server).await;
    let error = publisher.topology(&NodeTopologySpec::default(), &[]).await.unwrap_err();
    assert!(matches!(error, PublishError::NoTopologyResource), "{error}");
    assert!(server.take_writes().is_empty());
}

#[tokio::test]
async fn an_unknown_node_is_reported() {
    let server = FakeServer::with_node(NODE);
    let error = get_node(&server.client(), "gb300-9").await.unwrap_err();
    assert!(matches!(error, NodeError::Absent { .. }));
    insta::assert_snapshot!(error, @"the cluster has no node `gb300-9`; name this machine's node by --node-name");
}
