//! `pools`: which addresses of a NicPool are taken, and by which claims.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "topology.dranet.io/v1alpha1", "kind": kind,
        "metadata": {"name": name}, "spec": spec})
}

fn address(pool: &str, address: &str, claim: &str, node: &str) -> Value {
    let name = format!("{pool}.{}", address.replace(['.', '/', ':'], "-"));
    object(
        "NicAddress",
        &name,
        &json!({"pool": pool, "address": address, "node": node,
        "device": "pci-0103-00-00-0",
        "claim": {"namespace": "training", "name": claim, "uid": format!("u-{claim}")}}),
    )
}

fn run(objects: &[Value], args: &[&str]) -> anyhow::Result<String> {
    let file = tempfile::NamedTempFile::with_suffix(".json")?;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}});
    let items: Vec<&Value> = objects.iter().chain([&node]).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    fs::write(file.path(), list.to_string())?;
    let path = file.path().display().to_string();
    let args = [&["kubectl-dranet", "pools"], args, &["--snapshot", &path]].concat();
    Ok(kubectl_dranet::run(&Args::parse_from(args))?.text)
}

fn cluster() -> Vec<Value> {
    let rdma = json!({
        "ranges": [
            {"cidr": "192.168.2.0/24", "gateway": "192.168.2.1", "first": "192.168.2.10"},
            {"cidr": "fd00:2::/64"},
        ],
        "exclude": ["192.168.2.240/28"],
        "interface": {"type": "macvlan"},
    });
    vec![
        object("NicPool", "rdma", &rdma),
        object(
            "NicPool",
            "team",
            &json!({"ranges": [{"cidr": "10.9.0.0/29"}],
            "namespaces": ["a", "b"]}),
        ),
        address("rdma", "192.168.2.14/24", "worker-1-nic", "node-b"),
        address("rdma", "192.168.2.11/24", "worker-0-nic", "node-a"),
        address("rdma", "fd00:2::11/64", "worker-0-nic", "node-a"),
    ]
}

#[test]
fn pools_with_their_addresses_and_claims() {
    insta::assert_snapshot!(run(&cluster(), &["-o", "wide"]).unwrap());
}

#[test]
fn one_pool_is_shown_with_its_addresses() {
    let text = run(&cluster(), &["team"]).unwrap();
    assert!(!text.contains("rdma") && text.contains("team: 0 addresses taken"), "{text}");
    let error = run(&cluster(), &["none"]).unwrap_err().to_string();
    assert_eq!(error, "found no NicPool `none`");
    assert_eq!(run(&[], &[]).unwrap(), "the cluster has no NicPool\n");
    let names = "nicpool.topology.dranet.io/rdma\nnicpool.topology.dranet.io/team\n";
    assert_eq!(run(&cluster(), &["-o", "name"]).unwrap(), names);
}
