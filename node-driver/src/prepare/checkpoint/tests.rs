//! Written, read, older, newer and damaged checkpoints.

use super::*;
use crate::prepare::claim::ClaimRef;
use crate::prepare::plan::Wiring;
use std::fs;

fn plan(uid: &str) -> Plan {
    let claim = ClaimRef { namespace: "team".into(), name: "nics".into(), uid: uid.into() };
    Plan {
        claim,
        pods: vec![],
        devices: vec![],
        rdma_cm: None,
        imex: None,
        others: vec![],
        pod_claim_name: None,
        wiring: Wiring::default(),
        boot_id: None,
    }
}

fn checkpoint() -> Checkpoint {
    let record = Record { phase: Phase::Preparing, plan: plan("u-1") };
    Checkpoint { claims: [("u-1".to_owned(), record)].into() }
}

fn stored() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("checkpoint.json");
    checkpoint().store(&path).expect("stored");
    (folder, path)
}

#[test]
fn what_was_written_is_read() {
    let (folder, path) = stored();
    assert_eq!(Checkpoint::load(&path).expect("read"), Loaded::Read(checkpoint()));
    let absent = Checkpoint::load(&folder.path().join("other")).expect("no file is no failure");
    assert_eq!(absent, Loaded::Absent);
}

#[test]
fn an_older_version_is_read() {
    let (_folder, path) = stored();
    let first = serde_json::json!({"version": 1, "claims": {"u-1": plan("u-1")}});
    fs::write(&path, first.to_string()).expect("written");
    let Loaded::Read(read) = Checkpoint::load(&path).expect("read") else { panic!("not read") };
    assert_eq!(read.claims["u-1"], Record { phase: Phase::Prepared, plan: plan("u-1") });
}

#[test]
fn a_newer_version_is_left_alone() {
    let (_folder, path) = stored();
    fs::write(&path, r#"{"version":3,"data":{}}"#).expect("written");
    let error = Checkpoint::load(&path).expect_err("refused").to_string();
    assert!(error.contains("has version 3, this driver reads up to 2"), "{error}");
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
