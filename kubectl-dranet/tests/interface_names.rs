//! NICs of a driver that publishes nothing but the name of the interface: the graph of the node has the
//! address.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const DRIVER: &str = "nic.example.com";

const FILE: &str = r"
nics:
- {driver: nic.example.com, classes: [nic.example.com],
   address: {interfaceAttribute: nic.example.com/netdev}}
";

/// The example with other names of NICs.
struct Cluster(TempDir);

impl Cluster {
    /// The graph knows interface `rail0` and so on. The driver publishes the names that `of` returns.
    fn of(of: impl Fn(usize) -> String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut objects = cluster_model::snapshot::objects(EXAMPLE.as_ref()).unwrap();
        for object in &mut objects {
            if object["kind"] == "Node" {
                object["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "a-type".into();
            }
            if object["kind"] == "NodeTopology" {
                let identities = object["spec"]["identities"].as_array_mut().unwrap();
                let nics = identities.iter_mut().filter(|it| it.get("rdmaDevice").is_some());
                for (index, nic) in nics.enumerate() {
                    nic["netdevs"] = json!([format!("rail{index}")]);
                }
            }
            if object["kind"] == "DeviceClass" && object["metadata"]["name"] == "dranet.net" {
                object["metadata"]["name"] = DRIVER.into();
                object["spec"]["selectors"][0]["cel"]["expression"] =
                    format!("device.driver == \"{DRIVER}\"").into();
            }
            if object["kind"] == "ResourceSlice" && object["spec"]["driver"] == "dra.net" {
                object["spec"]["driver"] = DRIVER.into();
                let nics = 0..object["spec"]["devices"].as_array().unwrap().len();
                object["spec"]["devices"] = nics
                    .map(|index| {
                        json!({ "name": format!("nic-{index}"), "attributes": {
                            "netdev": { "string": of(index) },
                        } })
                    })
                    .collect();
            }
        }
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "a", "annotations": { "dranet.io/aligned-nics": "per-gpu" } },
            "spec": { "containers": [{ "name": "main", "image": "main", "resources": {
                "limits": { "nvidia.com/gpu": 4 },
            } }] },
        });
        fs::write(folder.path().join("cluster.json"), list.to_string()).unwrap();
        fs::write(folder.path().join("pod.json"), pod.to_string()).unwrap();
        fs::write(folder.path().join("drivers.yaml"), FILE).unwrap();
        Self(folder)
    }

    fn run(&self, args: &[&str]) -> String {
        let path = |name: &str| self.0.path().join(name).display().to_string();
        let (cluster, drivers) = (path("cluster.json"), path("drivers.yaml"));
        let args = ["kubectl-dranet"].iter().chain(args).copied();
        let args = args.chain(["--snapshot", &cluster, "--drivers", &drivers]);
        match kubectl_dranet::run(&Args::try_parse_from(args).unwrap()) {
            Ok(output) => output.text,
            Err(error) => format!("error: {}\n", process::exit::one_line(&error)),
        }
    }

    fn pod(&self) -> String {
        self.0.path().join("pod.json").display().to_string()
    }

    fn findings(&self) -> Vec<String> {
        let found: Value = serde_json::from_str(&self.run(&["doctor", "-o", "json"])).unwrap();
        let found = found["findings"].as_array().unwrap().iter();
        let found = found.filter(|it| it["place"].as_str().unwrap().contains(DRIVER));
        found.map(|it| it["message"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn an_interface_of_the_graph_says_where_a_nic_is() {
    let cluster = Cluster::of(|index| format!("rail{index}"));
    assert_eq!(cluster.findings(), [""; 0]);
    let mut text = cluster.run(&["top"]);
    text.push_str(&cluster.run(&["plan", "-f", &cluster.pod()]));
    text.push_str(&cluster.run(&["simulate", "-f", &cluster.pod()]));
    insta::assert_snapshot!(text);
}

/// A name that the graph does not know is said, and no place is guessed.
#[test]
fn an_interface_that_no_graph_knows_is_named() {
    let cluster = Cluster::of(|index| format!("eth{index}"));
    let found = cluster.findings();
    assert_eq!(found.len(), 1, "{found:#?}");
    for part in ["4 of 4 devices", "device nic-0", "has no interface `eth0`"] {
        assert!(found[0].contains(part), "{part}: {found:#?}");
    }
    let plan = cluster.run(&["plan", "-f", &cluster.pod()]);
    assert!(plan.starts_with("denied: "), "{plan}");
    let some = Cluster::of(|index| format!("{}{index}", if index == 3 { "eth" } else { "rail" }));
    let found = some.findings();
    assert!(found.len() == 1 && found[0].contains("1 of 4 devices"), "{found:#?}");
}
