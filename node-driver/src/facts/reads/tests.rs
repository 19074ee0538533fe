//! A FIFO without a writer simulates a file of a device that does not answer: opening it blocks.

use super::*;
use crate::facts::host;
use crate::facts::ports::KnownPorts;
use publication::live;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use topology_graph::{AnomalyKind, HostRoot};

const FUNCTION: &str = "sys/bus/pci/devices/0103:00:00.0";

/// Replaces a file by a FIFO; returns its path.
fn hang(root: &TempDir, file: &str) -> PathBuf {
    let file = root.path().join(file);
    let _ = fs::remove_file(&file);
    mknodat(CWD, &file, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    file
}

/// Lets the file answer pending reads, and later ones at once.
fn answer(file: &Path, text: &str) {
    let waiting = fs::OpenOptions::new().write(true).open(file).unwrap();
    fs::remove_file(file).unwrap();
    fs::write(file, text).unwrap();
    drop(waiting);
}

fn function(snapshot: &Snapshot) -> PciFunction {
    let address = "0103:00:00.0".parse().unwrap();
    snapshot.function(address).unwrap().clone()
}

#[test]
fn a_file_that_does_not_answer_blocks_no_other_device() {
    let root = live::plant("aks-gb300");
    let (host, ports) = (HostRoot::at(root.path()), KnownPorts::default());
    let reads = ports.reads();
    let directory = root.path().join(FUNCTION);
    fs::write(directory.join("sriov_totalvfs"), "8\n").unwrap();
    fs::write(directory.join("sriov_numvfs"), "2\n").unwrap();
    let before = host::snapshot(&host, &ports).unwrap();
    assert_eq!(function(&before).sriov_num_vfs, Some(2));

    let file = hang(&root, &format!("{FUNCTION}/sriov_numvfs"));
    let other = root.path().join("sys/bus/pci/devices/0101:00:00.0/subsystem_device");
    fs::write(other, "0x0241\n").unwrap();
    let began = Instant::now();
    let during = host::snapshot(&host, &ports).unwrap();
    assert!(began.elapsed() >= PATIENCE);
    assert_eq!(function(&during), function(&before), "as last read");
    let changed = during.function("0101:00:00.0".parse().unwrap()).unwrap();
    assert_eq!(changed.subsystem_device, Some(0x0241), "others are read");
    let unread = during.anomalies.iter().find(|it| it.kind == AnomalyKind::Unreadable).unwrap();
    assert!(unread.to_string().contains("the device does not answer"), "{unread}");

    for _ in 0..10 {
        let began = Instant::now();
        host::snapshot(&host, &ports).unwrap();
        assert!(began.elapsed() < PATIENCE, "it is not asked again");
    }
    assert_eq!(reads.lock().waiting.len(), 1, "one thread waits");

    assert!(!reads.resume());
    answer(&file, "4\n");
    let deadline = Instant::now() + Duration::from_secs(20);
    while !reads.resume() {
        assert!(Instant::now() < deadline, "the thread still waits");
        thread::yield_now();
    }
    assert_eq!(function(&host::snapshot(&host, &ports).unwrap()).sriov_num_vfs, Some(4));
}

/// On the first read nothing is known yet: the rest of the function is.
#[test]
fn a_function_is_known_without_the_file_that_never_answered() {
    let root = live::plant("aks-gb300");
    let file = hang(&root, &format!("{FUNCTION}/sriov_numvfs"));
    let snapshot = host::snapshot(&HostRoot::at(root.path()), &KnownPorts::default()).unwrap();
    assert_eq!(function(&snapshot).sriov_num_vfs, None);
    assert_eq!(function(&snapshot).driver.as_deref(), Some("mlx5_core"));
    answer(&file, "0\n");
}

/// While this driver makes virtual functions, nothing waits for the function's files.
#[test]
fn a_function_that_is_being_changed_is_not_read() {
    let root = live::plant("aks-gb300");
    let (host, ports) = (HostRoot::at(root.path()), KnownPorts::default());
    let reads = ports.reads();
    let before = host::snapshot(&host, &ports).unwrap();
    let changing = reads.change(&function(&before).path);
    let file = hang(&root, &format!("{FUNCTION}/sriov_numvfs"));
    let began = Instant::now();
    let during = host::snapshot(&host, &ports).unwrap();
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(function(&during), function(&before));
    assert!(reads.lock().waiting.is_empty());
    fs::remove_file(&file).unwrap();
    fs::write(&file, "3\n").unwrap();
    drop(changing);
    assert_eq!(function(&host::snapshot(&host, &ports).unwrap()).sriov_num_vfs, Some(3));
}
