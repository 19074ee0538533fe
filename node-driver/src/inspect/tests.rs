//! The report on recorded machines.

use super::*;
use crate::live;
use clap::Parser;
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
    insta::assert_snapshot!(report(root.path(), &flags).await);
    let json = serde_json::to_value(report(root.path(), &flags).await).unwrap();
    assert_eq!(json["published"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["withheld"][1]["reason"], "--host-nic keeps it for the host");
    assert_eq!(json["problems"]["pci-0103-00-00-0"][0], "port-down");
}
