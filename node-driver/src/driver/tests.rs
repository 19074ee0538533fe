//! A whole run: a planted machine in, objects on an API server in process out.

use super::*;
use crate::fake_server::{FakeServer, SLICES, TOPOLOGIES};
use crate::filter;
use crate::live;
use cluster_model::names::attribute;
use std::fs;
use tempfile::TempDir;

const NODE: &str = "aks-gpu-45139532-vmss000081";

pub(super) fn settings() -> Settings {
    Settings {
        mode: Mode::Full,
        filter: filter::DEFAULT.parse().unwrap(),
        port_down_taint: TaintEffect::NoSchedule,
    }
}

async fn driver(server: &FakeServer, root: &TempDir) -> Driver {
    let client = server.client();
    let node = NodeIdentity::get(&client, NODE).await.unwrap();
    Driver {
        host: HostRoot::at(root.path()),
        kernel: None,
        cloud: live::cloud("aks-gb300"),
        health: Health::default(),
        settings: settings(),
        publisher: Publisher::new(&client, node),
    }
}

/// One look and one publication.
async fn publish(server: &FakeServer, root: &TempDir) -> anyhow::Result<Published> {
    let mut driver = driver(server, root).await;
    let decision = driver.look().await?;
    driver.publish(&decision).await
}

#[tokio::test]
async fn two_runs_and_a_change() {
    let (server, root) = (FakeServer::with_node(NODE), live::plant("aks-gb300"));
    publish(&server, &root).await.unwrap();
    let status = format!("PUT {TOPOLOGIES}/{NODE}/status");
    let writes = [format!("POST {TOPOLOGIES}"), status, format!("POST {SLICES}")];
    assert_eq!(server.take_writes(), writes);
    let slice = server.objects(SLICES).remove(0);
    let topology = server.objects(TOPOLOGIES).remove(0);
    let shape = &topology["spec"]["shape"]["hash"];
    for device in slice["spec"]["devices"].as_array().unwrap() {
        assert_eq!(&device["attributes"][attribute::SHAPE]["string"], shape);
    }

    publish(&server, &root).await.unwrap();
    assert_eq!(server.take_writes(), [""; 0], "nothing changed");

    let function = "sys/bus/pci/devices/0101:00:00.0";
    fs::write(root.path().join(function).join("subsystem_device"), "0x0241\n").unwrap();
    publish(&server, &root).await.unwrap();
    let name = slice["metadata"]["name"].as_str().unwrap();
    assert_eq!(server.take_writes(), [format!("PUT {SLICES}/{name}")], "one fact is one write");
}

#[tokio::test]
async fn nics_are_published_where_the_topology_cannot_be() {
    let server = FakeServer::with_node(NODE).without_topologies();
    let error = publish(&server, &live::plant("aks-gb300")).await.unwrap_err();
    assert!(format!("{error:#}").contains("CustomResourceDefinition"), "{error:#}");
    assert_eq!(server.take_writes(), [format!("POST {SLICES}")]);
}
