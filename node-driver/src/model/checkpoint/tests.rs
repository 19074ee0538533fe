//! Written, read, newer and damaged checkpoints.

use super::*;
use crate::model::claim::ClaimRef;
use crate::model::plan::Wiring;
use std::fs;

fn plan(uid: &str) -> Plan {
    let claim = ClaimRef { namespace: "team".into(), name: "nics".into(), uid: uid.into() };
    Plan {
        claim,
        pods: vec![],
        devices: vec![],
        rdma_cm: None,
        plugin_gpus: Vec::new(),
        others: vec![],
        pod_claim_name: None,
        wiring: Wiring::default(),
        boot_id: None,
    }
}

fn checkpoint() -> Checkpoint {
    let record = Record { phase: Phase::Preparing, plan: plan("u-1") };
    Checkpoint { claims: [("u-1".to_owned(), record)].into(), ..Checkpoint::default() }
}

fn stored() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint.json");
    checkpoint().store(&path).expect("stored");
    (folder, path)
}

#[test]
fn a_stored_checkpoint_is_read_back() {
    let (folder, path) = stored();
    assert_eq!(Checkpoint::load(&path).expect("read"), Loaded::Read(checkpoint()));
    let absent = Checkpoint::load(&folder.path().join("other")).expect("no file is no failure");
    assert_eq!(absent, Loaded::Absent);
}

/// A plan with a virtual function and a device that is none.
fn plan_with_function(uid: &str) -> Plan {
    let device = |function: serde_json::Value| {
        serde_json::from_value(serde_json::json!({
            "request": "nic", "pool": "node-1", "device": "pci-0000-86-10-0",
            "pciBusId": "0000:86:10.0", "rdma": null, "link": null, "function": function,
        }))
        .expect("a device")
    };
    let function = serde_json::json!({
        "physical": "0000:86:00.0", "link": "rail3", "index": 0,
        "asked": {"vlan": 7}, "former": {"vlan": 0, "vlanQos": 0},
    });
    let devices = vec![device(function), device(serde_json::Value::Null)];
    Plan { devices, boot_id: Some("boot-1".to_owned()), ..plan(uid) }
}

#[test]
fn unrestored_functions_survive_restarts() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint.json");
    let mut checkpoint = Checkpoint::default();
    checkpoint.add_unrestored(&plan("u-1"));
    assert!(checkpoint.unrestored.is_empty());
    // Unpreparing is repeated if the driver dies meanwhile.
    checkpoint.add_unrestored(&plan_with_function("u-2"));
    checkpoint.add_unrestored(&plan_with_function("u-2"));
    checkpoint.store(&path).expect("stored");
    let Loaded::Read(read) = Checkpoint::load(&path).expect("read") else { panic!("not read") };
    assert_eq!(read, checkpoint);
    let [unrestored] = &read.unrestored[..] else { panic!("{:?}", read.unrestored) };
    assert_eq!(unrestored.claim.uid, "u-2");
    assert_eq!(unrestored.device, "pci-0000-86-10-0");
    assert_eq!(unrestored.boot_id.as_deref(), Some("boot-1"));
}

#[test]
fn a_newer_version_is_left_alone() {
    let (_folder, path) = stored();
    fs::write(&path, r#"{"version":3,"data":{}}"#).expect("written");
    let error = Checkpoint::load(&path).expect_err("refused").to_string();
    assert!(error.contains("has version 3, this driver reads 2"), "{error}");
    assert!(path.exists());
}

#[test]
fn any_damage_is_seen_and_set_aside() {
    let (_folder, path) = stored();
    let whole = fs::read(&path).expect("read");
    let cut = whole[..whole.len() / 2].to_vec();
    let mut changed = String::from_utf8(whole.clone()).expect("text");
    changed = changed.replace("team", "maet");
    for (number, text) in [cut, changed.into_bytes(), vec![0xff, 0xfe], vec![]].iter().enumerate() {
        fs::write(&path, text).expect("written");
        let loaded = Checkpoint::load(&path).expect("no failure");
        let Loaded::Damaged { set_aside, problem } = loaded else { panic!("{number}: taken") };
        assert_eq!(fs::read(&set_aside).expect("kept"), *text);
        assert!(!path.exists() && !problem.is_empty());
    }
    // The number of kept files is limited.
    for _ in 0..20 {
        fs::write(&path, "x").expect("written");
        assert!(matches!(Checkpoint::load(&path), Ok(Loaded::Damaged { .. })));
    }
    let kept = fs::read_dir(path.parent().expect("a folder")).expect("read").count();
    assert!(kept <= SET_ASIDE_MAX as usize, "{kept}");
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>, cut in 0usize..400) {
        let (_folder, path) = stored();
        fs::write(&path, &bytes).expect("written");
        let _ = Checkpoint::load(&path);
        checkpoint().store(&path).expect("stored");
        let mut text = fs::read(&path).expect("read");
        text.truncate(cut);
        fs::write(&path, &text).expect("written");
        let _ = Checkpoint::load(&path);
    }
}
