//! Claims on a node whose disk is full. The kubelet ends pods to free it, and pods end only if their
//! claims do.

use crate::node::node;
use crate::stage::{RAIL, Stage, claim};
use nix::sched::{CloneFlags, unshare};
use node_driver::kernel::attach::AttachMode;
use node_driver::model::checkpoint::Checkpoint;
use node_driver::prepare::published::SliceDevices;
use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use topology_graph::fixture;

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    vec![("claims_end_on_a_full_disk", claims_end_on_a_full_disk)]
}

fn claims_end_on_a_full_disk() {
    let stage = Stage::with(&["link set rail0 up"]);
    let tried = stage.host.run(async |_| {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        end_on_a_full_disk();
        Ok(())
    });
    tried.unwrap();
}

fn end_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("kubelet");
    fs::create_dir(&disk).unwrap();
    let _ = Command::new("mount").args(["--make-rprivate", "/"]).status();
    let mount = ["-t", "tmpfs", "-o", "size=4m", "tmpfs"];
    assert!(Command::new("mount").args(mount).arg(&disk).status().unwrap().success());
    let root = folder.path().join("root");
    fixture::plant(fixture::machine("azure-gb300").unwrap(), &root).unwrap();
    let node = node(folder.path(), AttachMode::Hook);
    let claim = claim(vec![RAIL.to_owned()], &json!({}), None);
    for has_room in [true, false] {
        let machine = node.read().unwrap();
        node.prepare(&claim, &SliceDevices::default(), &machine).unwrap();
        let paths = &node.effects.paths;
        assert!(paths.reserve().exists());
        if !has_room {
            fs::remove_file(paths.reserve()).unwrap();
        }
        let other = fill(&disk);
        node.unprepare(&claim.claim.uid).unwrap();
        node.reconcile().unwrap();
        fs::remove_file(other).unwrap();
        assert!(Checkpoint::peek(&paths.checkpoint()).unwrap().claims.is_empty(), "{has_room}");
    }
    // Lazily: a child that another test starts has the files open until its `exec`.
    assert!(Command::new("umount").arg("--lazy").arg(&disk).status().unwrap().success());
}

/// Fills the disk; returns the file.
fn fill(disk: &Path) -> PathBuf {
    let path = disk.join("other");
    let mut file = File::create(&path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    path
}
