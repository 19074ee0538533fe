//! Whole runs: from a planted machine to objects on an in-process API server.

use super::*;
use crate::decide::look::tests::settings;
use crate::facts::node::get_node;
use crate::facts::ports::Ports;
use crate::fake_server::{FakeServer, SLICES, TOPOLOGIES};
use crate::kubelet::health::HealthState;
use crate::model::checkpoint::{Checkpoint, Phase, Record};
use cluster_model::names::attribute;
use k8s_openapi::api::resource::v1::Device;
use publication::judge::BindNics;
use publication::live;
use rustix::fs::{self as kernel_fs, CWD, FileType, mknodat};
use serde_json::json;
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

pub(super) const NODE: &str = "aks-gpu-45139532-vmss000081";

/// Where a planted machine has the plugin's checkpoint.
const CHECKPOINT: &str = "checkpoint.json";

/// A driver of a planted machine, before its first look.
pub(super) async fn driver(server: &FakeServer, root: &TempDir, cloud: CloudMetadata) -> Driver {
    let client = server.client();
    let node = get_node(&client, NODE).await.unwrap();
    let checkpoint = root.path().join(CHECKPOINT);
    let files = HistoryFiles::new(&HostRoot::at(root.path()), Some(root.path().join("rails.json")));
    Driver {
        host: HostRoot::at(root.path()),
        kernel: None,
        cloud,
        ports: KnownPorts::default(),
        device_health: Sender::default(),
        gpus: Sender::default(),
        history: files.load(),
        files,
        setup: None,
        claims: Claims::new(Some(checkpoint)),
        binding: NicBinding::default(),
        late: LateNics::default(),
        kubelet_config: KubeletConfig::default(),
        settings: settings(),
        mode: Mode::Full,
        run_dir: PathBuf::from("/nowhere"),
        publisher: Publisher::new(&client, node),
    }
}

/// Preparation is told the NICs whose places are published.
#[tokio::test]
async fn a_node_that_binds_nics_late_publishes_places() {
    let root = live::plant("aks-gb300");
    let server = FakeServer::with_node(NODE);
    let mut driver = driver(&server, &root, live::cloud("aks-gb300")).await;
    driver.binding.by_default = BindNics::Late;
    let decision = driver.look().await.unwrap();
    driver.publish(&decision).await.unwrap();
    let slices = server.objects(SLICES);
    let devices = slices[0]["spec"]["devices"].as_array().unwrap();
    let names: Vec<_> = devices.iter().map(|device| device["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["late-0", "late-1", "late-2", "late-3"]);
    let nics = driver.late.get().unwrap();
    assert_eq!(nics.len(), 4);
    assert!(nics.iter().all(|nic| nic.is_usable && nic.device.name.starts_with("pci-")));
}

/// A pod that another program gave a NIC has its interface. Drivers that publish NICs by their interfaces
/// still do.
#[tokio::test]
async fn an_interface_that_left_the_host_keeps_its_name() {
    let (server, root) = (FakeServer::with_node(NODE), live::plant("aks-gb300"));
    let net = root.path().join("sys/bus/pci/devices/0101:00:00.0/net");
    fs::create_dir_all(net.join("rail0")).unwrap();
    let class = root.path().join("sys/class/net");
    fs::create_dir_all(&class).unwrap();
    symlink("../../bus/pci/devices/0101:00:00.0/net/rail0", class.join("rail0")).unwrap();
    let mut driver = driver(&server, &root, live::cloud("aks-gb300")).await;
    for _ in 0..2 {
        let decision = driver.look().await.unwrap();
        let mut identities = decision.topology.identities.iter();
        let nic = identities.find(|device| device.at == "0101:00:00.0").unwrap();
        assert_eq!(nic.netdevs, ["rail0"]);
        _ = fs::remove_file(class.join("rail0"));
        _ = fs::remove_dir_all(&net);
    }
}

#[tokio::test]
async fn the_policy_of_the_kubelets_topology_manager_is_published() {
    let root = live::plant("aks-gb300");
    let server = FakeServer::with_node(NODE);
    let mut driver = driver(&server, &root, live::cloud("aks-gb300")).await;
    let config = root.path().join("config.yaml");
    fs::write(&config, "kind: KubeletConfiguration\ntopologyManagerPolicy: restricted\n").unwrap();
    let mut published = Vec::new();
    for path in [None, Some(config)] {
        driver.kubelet_config = KubeletConfig::at(path);
        let decision = driver.look().await.unwrap();
        driver.publish(&decision).await.unwrap();
        let policy = server.objects(TOPOLOGIES)[0]["spec"]["topologyManagerPolicy"].clone();
        published.push(policy.as_str().map(str::to_owned));
    }
    assert_eq!(published, [None, Some("restricted".to_owned())]);
}

/// One look and one publication.
async fn publish(server: &FakeServer, root: &TempDir) -> anyhow::Result<Published> {
    let mut driver = driver(server, root, live::cloud("aks-gb300")).await;
    let decision = driver.look().await?;
    driver.publish(&decision).await
}

#[tokio::test]
async fn only_changes_are_written() {
    let (server, root) = (FakeServer::with_node(NODE), live::plant("aks-gb300"));
    publish(&server, &root).await.unwrap();
    let status = format!("PUT {TOPOLOGIES}/{NODE}/status");
    let writes = [format!("POST {SLICES}"), format!("POST {TOPOLOGIES}"), status];
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
async fn nics_are_published_if_the_topology_cannot_be() {
    let server = FakeServer::with_node(NODE).without_topologies();
    let error = publish(&server, &live::plant("aks-gb300")).await.unwrap_err();
    assert!(format!("{error:#}").contains("CustomResourceDefinition"), "{error:#}");
    assert_eq!(server.take_writes(), [format!("POST {SLICES}")]);
}

/// Gives a NIC with its RDMA device to a pod; with `None`, no pod has a NIC.
fn hold(root: &TempDir, device: Option<(&str, &str)>) {
    hold_for(root, None, device);
}

/// The same, for a place.
pub(super) fn hold_for(root: &TempDir, place: Option<&str>, device: Option<(&str, &str)>) {
    let record = device.map(|(device, rdma)| {
        let rdma = json!({"name": rdma, "ports": [1], "chars": [], "moves": true});
        let planned = json!({
            "request": "nic", "pool": NODE, "device": device, "pciBusId": "", "rdma": rdma,
            "link": null, "place": place,
        });
        let claim = json!({"namespace": "default", "name": "claim", "uid": "c-1"});
        let plan =
            json!({"claim": claim, "pods": [], "devices": [planned], "rdmaCm": null, "others": []});
        let record = Record { phase: Phase::Prepared, plan: serde_json::from_value(plan).unwrap() };
        ("c-1".to_owned(), record)
    });
    let checkpoint = Checkpoint { claims: record.into_iter().collect(), ..Checkpoint::default() };
    checkpoint.store(&root.path().join(CHECKPOINT)).unwrap();
}

#[tokio::test]
async fn a_nic_in_a_pod_stays_published_after_a_restart() {
    let (server, root) = (FakeServer::with_node(NODE), live::plant("aks-gb300"));
    let boot = root.path().join("proc/sys/kernel/random");
    fs::create_dir_all(&boot).unwrap();
    fs::write(boot.join("boot_id"), "1b1c2d3e-0000-4000-8000-000000000001\n").unwrap();
    publish(&server, &root).await.unwrap();
    server.take_writes();

    hold(&root, Some(("pci-0103-00-00-0", "mlx5_2")));
    let infiniband = root.path().join("sys/class/infiniband");
    fs::rename(infiniband.join("mlx5_2"), root.path().join("mlx5_2")).unwrap();
    publish(&server, &root).await.unwrap();
    assert_eq!(server.take_writes(), [""; 0], "it stays published while the pod has it");

    hold(&root, None);
    fs::rename(root.path().join("mlx5_2"), infiniband.join("mlx5_2")).unwrap();
    publish(&server, &root).await.unwrap();
    assert_eq!(server.take_writes(), [""; 0], "it came back as it was");

    fs::rename(infiniband.join("mlx5_2"), root.path().join("mlx5_2")).unwrap();
    publish(&server, &root).await.unwrap();
    assert!(!server.take_writes().is_empty(), "without a pod, its absence is published");
}

#[tokio::test]
async fn a_nic_that_is_gone_is_tainted_while_a_pod_has_it() {
    let (server, root) = (FakeServer::with_node(NODE), live::plant("aks-gb300"));
    let mut driver = driver(&server, &root, CloudMetadata::default()).await;
    let names = |decision: &Decision| {
        let tainted = decision.devices.iter().filter(|device| device.taints.is_some());
        (decision.devices.len(), tainted.map(|device| device.name.clone()).collect::<Vec<_>>())
    };
    assert_eq!(names(&driver.look().await.unwrap()), (4, vec![]));
    hold(&root, Some(("pci-0103-00-00-0", "mlx5_2")));
    driver.look().await.unwrap();
    fs::remove_file(root.path().join("sys/bus/pci/devices/0103:00:00.0")).unwrap();
    let gone = vec!["pci-0103-00-00-0".to_owned()];
    let decision = driver.look().await.unwrap();
    assert_eq!(names(&decision), (4, gone));
    let taints = decision.devices.iter().find_map(|device| device.taints.clone()).unwrap();
    assert_eq!(taints[0].key, "dranet.io/gone");
    hold(&root, None);
    assert_eq!(names(&driver.look().await.unwrap()), (3, vec![]));
}

/// A FIFO that nobody writes to simulates a file of a device that does not answer.
#[tokio::test]
async fn a_nic_that_does_not_answer_is_tainted_others_are_published() {
    let (server, root) = (FakeServer::with_node(NODE), live::plant("aks-gb300"));
    let mut driver = driver(&server, &root, CloudMetadata::default()).await;
    let before = driver.look().await.unwrap();
    let health = driver.device_health.subscribe();
    let state = root.path().join("sys/class/infiniband/mlx5_2/ports/1/state");
    fs::remove_file(&state).unwrap();
    mknodat(CWD, &state, FileType::Fifo, kernel_fs::Mode::RUSR | kernel_fs::Mode::WUSR, 0).unwrap();
    let mut ports = Ports::new(&driver.host, driver.ports.clone());
    assert!(ports.changed().await);

    let decision = driver.look().await.unwrap();
    let tainted: Vec<_> =
        decision.devices.iter().filter_map(|it| Some((&it.name, it.taints.as_ref()?))).collect();
    let [(name, taints)] = &tainted[..] else { panic!("{tainted:?}") };
    assert_eq!(
        (name.as_str(), taints[0].key.as_str()),
        ("pci-0103-00-00-0", "dranet.io/unresponsive")
    );
    let untainted = |decision: &Decision| {
        let devices = decision.devices.iter().cloned();
        devices.map(|device| Device { taints: None, ..device }).collect::<Vec<_>>()
    };
    assert_eq!(untainted(&decision), untainted(&before), "everything else is unchanged");
    let unhealthy = |list: &[DeviceHealth]| {
        let bad = list.iter().filter(|it| it.state == HealthState::Unhealthy);
        bad.map(|it| it.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(unhealthy(&health.borrow()), ["mlx5_2 does not answer"]);
    // Releases the thread that waits for it.
    drop(fs::OpenOptions::new().write(true).open(&state).unwrap());
}
