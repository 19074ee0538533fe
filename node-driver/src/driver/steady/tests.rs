//! The main loop against an in-process API server: changes by others are undone, changes
//! of the machine are published, and nothing else is written.

use super::*;
use crate::driver::tests::{NODE, driver};
use crate::facts::node::get_node;
use crate::fake_server::{EVENTS, FakeServer, NODES, Objects, SLICES, TOPOLOGIES};
use publication::live;
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

/// A running driver on a machine made of files.
struct Running {
    server: FakeServer,
    root: TempDir,
    cloud: value::Sender<CloudMetadata>,
    wake: Arc<Notify>,
    /// Ends the driver when dropped.
    _tasks: JoinSet<()>,
}

async fn start() -> Running {
    start_with(Duration::from_hours(1)).await
}

async fn start_with(rescan: Duration) -> Running {
    let (server, root) = (FakeServer::with_node(NODE), live::plant("aks-gb300"));
    let (wake, mut tasks) = (Arc::new(Notify::new()), JoinSet::new());
    let client = server.client();
    let driver = driver(&server, &root, CloudMetadata::default()).await;
    let events = NodeEvents::new(&client, get_node(&client, NODE).await.unwrap());
    let (cloud, metadata) = value::channel(CloudMetadata::default());
    let ports = Ports::new(&driver.host, driver.ports.clone());
    watch::polled(&mut tasks, ports, driver.claims.clone(), None, &wake);
    let looked = CancellationToken::new();
    let known = watch::objects(&mut tasks, &client, NODE, &wake, &looked);
    let first = Some(Readiness::default().wait_for("the first publication"));
    let metrics = Metrics::default();
    let steady = Steady {
        driver,
        metadata,
        known,
        looked,
        events,
        first,
        failures: 0,
        retry: None,
        metrics,
        progress: Progress::default(),
        client: client.clone(),
        found: Findings::default(),
    };
    let waker = Arc::clone(&wake);
    tasks.spawn(async move {
        let never = CancellationToken::new();
        steady.run(&waker, interval(rescan), &never).await;
    });
    let running = Running { server, root, cloud, wake, _tasks: tasks };
    running.server.until(SLICES, |slices| slices.len() == 1).await;
    running.server.until(TOPOLOGIES, |topologies| topologies.len() == 1).await;
    running.server.take_writes();
    running
}

fn slice(objects: &mut Objects) -> &mut Value {
    let slice = objects.iter_mut().find(|(path, _)| path.starts_with(SLICES));
    slice.unwrap().1
}

fn devices(slices: &[Value]) -> usize {
    slices.iter().filter_map(|slice| slice["spec"]["devices"].as_array()).map(Vec::len).sum()
}

#[tokio::test]
async fn changes_by_others_are_undone() {
    let running = start().await;
    let before = running.server.objects(SLICES)[0]["spec"].clone();
    running.server.edit(|objects| slice(objects)["spec"]["devices"] = json!([]));
    running.server.until(SLICES, |slices| slices[0]["spec"] == before).await;
    assert_eq!(running.server.take_writes().len(), 1);

    running.server.edit(|objects| objects.retain(|path, _| !path.starts_with(SLICES)));
    running.server.until(SLICES, |slices| devices(slices) == 4).await;
    let generation = &running.server.objects(SLICES)[0]["spec"]["pool"]["generation"];
    assert_eq!(*generation, json!(before["pool"]["generation"].as_u64().unwrap() + 1));

    running.server.edit(|objects| objects.retain(|path, _| !path.starts_with(TOPOLOGIES)));
    running.server.until(TOPOLOGIES, |topologies| topologies.len() == 1).await;
}

#[tokio::test]
async fn a_port_that_goes_down_is_published() {
    let running = start().await;
    let state = running.root.path().join("sys/class/infiniband/mlx5_2/ports/1/state");
    fs::write(state, "1: DOWN\n").unwrap();
    let port = |slices: &[Value]| {
        slices[0]["spec"]["devices"][2]["attributes"]["dranet.io/portState"]["string"].clone()
    };
    running.server.until(SLICES, |slices| port(slices) == "Down").await;
    let taint = &running.server.objects(SLICES)[0]["spec"]["devices"][2]["taints"][0];
    assert_eq!(
        (&taint["key"], &taint["effect"]),
        (&json!("dranet.io/port-down"), &json!("NoSchedule"))
    );
    running.server.until(EVENTS, |events| events.len() == 1).await;
    let event = &running.server.objects(EVENTS)[0];
    assert_eq!((&event["reason"], &event["type"]), (&json!("NICPortDown"), &json!("Warning")));
    assert_eq!(event["regarding"]["name"], NODE);
    let writes = running.server.take_writes();
    let slices = writes.iter().filter(|write| write.contains(SLICES)).count();
    let count = (slices, writes.len());
    // The graph has the states of ports too, because roles follow from them; its status has the
    // condition of the NICs.
    assert_eq!(count, (1, 4), "one fact is one write of each object, and an event: {writes:?}");
}

#[tokio::test]
async fn changes_without_events_are_found_by_the_slow_tick() {
    let running = start_with(Duration::from_millis(50)).await;
    let function = running.root.path().join("sys/bus/pci/devices/0101:00:00.0");
    let subsystem = |slices: &[Value]| {
        slices[0]["spec"]["devices"][0]["attributes"]["dra.net/pciSubsystem"].clone()
    };
    let before = subsystem(&running.server.objects(SLICES));
    fs::write(function.join("subsystem_device"), "0x0241\n").unwrap();
    running.server.until(SLICES, |slices| subsystem(slices) != before).await;
}

#[tokio::test]
async fn a_cloud_that_answers_late_is_published() {
    let running = start().await;
    running.cloud.send_replace(live::cloud("aks-gb300"));
    running.wake.notify_one();
    let group = |slices: &[Value]| {
        slices[0]["spec"]["devices"][0]["attributes"]["azure.dra.net/placementGroupId"].clone()
    };
    running.server.until(SLICES, |slices| group(slices) != Value::Null).await;
}

#[tokio::test]
async fn simultaneous_changes_share_one_write() {
    let running = start().await;
    for _ in 0..100 {
        running.wake.notify_one();
    }
    for number in 0..4 {
        let state = format!("sys/class/infiniband/mlx5_{number}/ports/1/state");
        fs::write(running.root.path().join(state), "2: INIT\n").unwrap();
    }
    running.wake.notify_one();
    let initializing = |slices: &[Value]| {
        let devices = slices[0]["spec"]["devices"].as_array().unwrap().iter();
        devices
            .filter(|device| {
                device["attributes"]["dranet.io/portState"]["string"] == "Initializing"
            })
            .count()
    };
    running.server.until(SLICES, |slices| initializing(slices) == 4).await;
    let writes = running.server.take_writes();
    let slices = writes.iter().filter(|write| write.contains(SLICES)).count();
    assert!(slices <= 2, "at most two reads fall into the burst: {writes:?}");
}

#[test]
fn pauses_grow_to_half_a_minute() {
    let pauses: Vec<_> = (1..8).map(|failures| pause_after(failures).as_secs()).collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
}

/// The server collects objects of the former Node, and then those of its UID at any time.
#[tokio::test]
async fn a_node_that_was_made_anew_owns_what_is_published() {
    let running = start().await;
    running.server.edit(|objects| {
        let node = objects.get_mut(&format!("{NODES}/{NODE}")).unwrap();
        node["metadata"]["uid"] = json!("n-2");
        objects.retain(|path, _| !path.starts_with(SLICES) && !path.starts_with(TOPOLOGIES));
    });
    let owner = |objects: &[Value]| {
        objects.iter().all(|object| object["metadata"]["ownerReferences"][0]["uid"] == "n-2")
            && !objects.is_empty()
    };
    running.server.until(SLICES, owner).await;
    running.server.until(TOPOLOGIES, owner).await;
}
