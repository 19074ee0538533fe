//! The report on recorded machines.

use super::*;
use clap::Parser;
use publication::live;
use std::fs;
use std::path::Path;

async fn report(root: &Path, flags: &[&str]) -> Report {
    let root = root.to_str().unwrap();
    let args = ["node-driver inspect", "--root", root, "--kubelet-dir", root];
    inspect(&InspectArgs::parse_from(args.iter().chain(flags))).await.unwrap()
}

#[tokio::test]
async fn published_and_withheld_nics_have_their_reasons() {
    let root = live::plant("aks-gb300");
    let directory = |address: &str| root.path().join("sys/bus/pci/devices").join(address);
    fs::remove_file(directory("0101:00:00.0").join("driver")).unwrap();
    let state = "sys/class/infiniband/mlx5_2/ports/1/state";
    fs::write(root.path().join(state), "1: DOWN\n").unwrap();
    let flags = ["--host-nic", "0102:00:00.0"];
    let text = report(root.path(), &flags).await.to_string();
    for line in [
        "Published: 2",
        "Withheld: 2",
        "  pci-0101-00-00-0: no kernel driver is bound to it; bind one, or load its module",
        "  pci-0102-00-00-0: --host-nic keeps it for the host",
    ] {
        assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
    }
    let down = text.lines().find(|line| line.starts_with("  pci-0103-00-00-0, mlx5_2, "));
    assert!(down.is_some_and(|line| line.ends_with(", port-down")), "{text}");
    let json = serde_json::to_value(report(root.path(), &flags).await).unwrap();
    assert_eq!(json["published"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["withheld"][1]["reason"], "--host-nic keeps it for the host");
    assert_eq!(json["problems"]["pci-0103-00-00-0"][0], "port-down");
}

/// Places as the driver would publish them, the NICs that they stand for, and the kubelet's policy.
#[tokio::test]
async fn places_and_the_kubelets_policy() {
    let root = live::plant("aks-gb300");
    let state = "sys/class/infiniband/mlx5_2/ports/1/state";
    fs::write(root.path().join(state), "1: DOWN\n").unwrap();
    let config = root.path().join("config.yaml");
    fs::write(&config, "topologyManagerPolicy: restricted\n").unwrap();
    let flags = ["--bind-nics", "late", "--kubelet-config", config.to_str().unwrap()];
    let text = report(root.path(), &flags).await.to_string();
    for line in [
        "Published: 3",
        "  late-0",
        "  late-2",
        "NICs behind the places late-…: 4",
        "Topology manager policy of the kubelet: restricted",
    ] {
        assert!(text.lines().any(|found| found == line), "no `{line}` in\n{text}");
    }
    let json = serde_json::to_value(report(root.path(), &flags).await).unwrap();
    assert_eq!(json["behindPlaces"].as_array().map(Vec::len), Some(4));
    assert_eq!(json["topologyManagerPolicy"], "restricted");
    let named = serde_json::to_value(report(root.path(), &[]).await).unwrap();
    assert!(named.get("behindPlaces").is_none() && named.get("topologyManagerPolicy").is_none());
}
