//! The setting of a node changes, with pods and without.

use super::super::Driver;
use super::super::tests::{NODE, driver, hold_for};
use super::*;
use crate::decide::binding::AS_SET;
use crate::facts::node::get_node;
use crate::fake_server::{FakeServer, NODES};
use crate::prepare::late::LateError;
use clap::Parser;
use publication::live;
use serde_json::json;
use tempfile::TempDir;

const NIC: (&str, &str) = ("pci-0103-00-00-0", "mlx5_2");

/// The names of the published devices, and what the condition says.
async fn looks(driver: &mut Driver) -> String {
    let decision = driver.look().await.unwrap();
    let names: Vec<_> = decision.devices.iter().map(|device| &*device.name).collect();
    let mut conditions = decision.host.iter().filter(|it| it.kind == AS_SET);
    let said = conditions.next().map_or("-", |it| if it.holds { "as set" } else { it.reason });
    format!("{}: {said}", names.join(" "))
}

async fn start(server: &FakeServer, root: &TempDir, by_default: BindNics) -> Driver {
    let mut driver = driver(server, root, live::cloud("aks-gb300")).await;
    driver.binding.by_default = by_default;
    driver
}

#[tokio::test]
async fn a_node_changes_when_its_pods_have_ended() {
    let (server, root) = (FakeServer::with_node(NODE), live::plant("aks-gb300"));
    let named = "pci-0101-00-00-0 pci-0102-00-00-0 pci-0103-00-00-0 pci-0104-00-00-0";
    let late = "late-0 late-1 late-2 late-3";
    hold_for(&root, None, Some(NIC));
    let mut driver = start(&server, &root, BindNics::Named).await;
    assert_eq!(looks(&mut driver).await, format!("{named}: -"));
    assert!(matches!(driver.late.get(), Err(LateError::Named)));

    driver.binding.by_default = BindNics::Late;
    assert_eq!(looks(&mut driver).await, format!("{named}: PodsHaveNICs"));
    let mut driver = start(&server, &root, BindNics::Late).await;
    assert_eq!(looks(&mut driver).await, format!("{named}: PodsHaveNICs"), "after a restart");
    hold_for(&root, None, None);
    assert_eq!(looks(&mut driver).await, format!("{late}: as set"));
    assert_eq!(driver.late.get().unwrap().len(), 4);

    hold_for(&root, Some("late-1"), Some(NIC));
    driver.binding.by_default = BindNics::Named;
    assert_eq!(looks(&mut driver).await, format!("{late}: PodsHaveNICs"));
    let mut driver = start(&server, &root, BindNics::Named).await;
    assert_eq!(looks(&mut driver).await, format!("{late}: PodsHaveNICs"), "after a restart");
    assert_eq!(driver.late.get().unwrap().len(), 4);
    hold_for(&root, None, None);
    assert_eq!(looks(&mut driver).await, format!("{named}: -"));
    assert!(matches!(driver.late.get(), Err(LateError::Named)));
}

fn label(server: &FakeServer, pool: &str) {
    server.edit(|objects| {
        let node = objects.get_mut(&format!("{NODES}/{NODE}")).unwrap();
        node["metadata"]["labels"] = json!({"pool": pool, "zone": "1"});
    });
}

/// The labels at the start count, and then those that are read again.
#[tokio::test]
async fn a_nodes_labels_say_whether_it_binds_late() {
    let server = FakeServer::with_node(NODE);
    let args = ["node-driver", "--node-name", NODE, "--late-nodes=pool=b,zone=1"];
    let args = Args::parse_from(args.into_iter().chain(["--late-nodes=pool=c"]));
    for (pool, expected) in [("a", BindNics::Named), ("b", BindNics::Late), ("c", BindNics::Late)] {
        label(&server, pool);
        let node = get_node(&server.client(), NODE).await.unwrap();
        assert_eq!(NicBinding::new(&args, &node).wanted(), expected, "{pool}");
    }
    let node = get_node(&server.client(), NODE).await.unwrap();
    let (binding, wake) = (NicBinding::new(&args, &node), Arc::new(Notify::new()));
    let asked = (server.client(), NODE.to_owned());
    let often = Duration::from_millis(5);
    let following = tokio::spawn(binding.clone().follow(asked, Arc::clone(&wake), often));
    for (pool, expected) in [("a", BindNics::Named), ("b", BindNics::Late)] {
        label(&server, pool);
        wake.notified().await;
        assert_eq!(binding.wanted(), expected, "{pool}");
    }
    following.abort();
}
