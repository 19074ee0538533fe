//! A FIFO without a writer simulates a port whose device does not answer: reading it blocks
//! in the kernel.

use super::*;
use crate::facts::host;
use publication::live;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;
use topology_graph::PortState;

const STATE: &str = "sys/class/infiniband/mlx5_3/ports/1/state";

/// Replaces the file of a port's state by a FIFO.
fn hang(root: &TempDir) -> PathBuf {
    let state = root.path().join(STATE);
    fs::remove_file(&state).unwrap();
    mknodat(CWD, &state, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    state
}

/// Lets the device answer pending reads, and later ones at once.
fn answer(state: &Path) {
    let waiting = fs::OpenOptions::new().write(true).open(state).unwrap();
    fs::remove_file(state).unwrap();
    fs::write(state, "4: ACTIVE\n").unwrap();
    drop(waiting);
}

#[tokio::test]
async fn a_port_that_goes_down_is_seen_once() {
    let root = live::plant("aks-mi300x");
    let mut ports = Ports::new(&HostRoot::at(root.path()), KnownPorts::default());
    assert!(!ports.changed().await);
    let lines = ports.seen.iter().flat_map(|seen| seen.values().flatten());
    assert_eq!(lines.count(), 16, "two files of each of eight ports");
    fs::write(root.path().join(STATE), "1: DOWN\n").unwrap();
    assert!(ports.changed().await);
    assert!(!ports.changed().await);
}

#[tokio::test]
async fn a_device_that_does_not_answer_delays_no_other() {
    let root = live::plant("aks-mi300x");
    let host = HostRoot::at(root.path());
    let known = KnownPorts::default();
    let mut ports = Ports::new(&host, known.clone());
    ports.patience = Duration::from_millis(200);
    let before = host::snapshot(&host, &known).unwrap();
    ports.changed().await;

    let state = hang(&root);
    assert!(ports.changed().await);
    assert_eq!(known.unresponsive(), BTreeSet::from(["mlx5_3".to_owned()]));
    assert!(!ports.changed().await, "it is not asked again");
    assert_eq!(ports.seen.as_ref().map(BTreeMap::len), Some(7));
    fs::write(root.path().join("sys/class/infiniband/mlx5_4/ports/1/state"), "1: DOWN\n").unwrap();
    assert!(ports.changed().await, "changes of another device are seen");
    let meanwhile = host::snapshot(&host, &known).unwrap();
    let device = |snapshot: &Snapshot, name: &str| {
        snapshot.rdma.iter().find(|device| device.name == name).unwrap().clone()
    };
    assert_eq!(device(&meanwhile, "mlx5_3"), device(&before, "mlx5_3"), "as last read");
    assert_eq!(device(&meanwhile, "mlx5_4").ports[0].state, Some(PortState::Down));

    answer(&state);
    let answers = async {
        while !known.unresponsive().is_empty() {
            ports.changed().await;
        }
    };
    timeout(Duration::from_secs(20), answers).await.unwrap();
    ports.changed().await;
    assert_eq!(ports.seen.as_ref().map(BTreeMap::len), Some(8));
}
