//! The claims to the adapter, by number.

use super::files::{Entry, Tree};
use super::node::DEVICE;
use crate::model::checkpoint::Checkpoint;
use crate::model::claim::{ClaimRef, PodRef};
use crate::prepare::claim::{AllocatedClaim, AllocatedDevice};
use serde_json::json;
use std::path::Path;

/// Its UID.
pub(super) fn uid(claim: usize) -> String {
    format!("u-{claim}")
}

/// A claim as the API server has it, made from a template or with a name for several pods. Each second one
/// wants another configuration.
pub(super) fn allocated(claim: usize, is_shared: bool) -> AllocatedClaim {
    let asked = json!({"interface": {"name": "net1", "mtu": 1400}});
    let other = json!({"interface": {"addresses": ["10.9.0.2/24"]}});
    let device = AllocatedDevice {
        request: "nic".to_owned(),
        pool: "n1".to_owned(),
        device: DEVICE.to_owned(),
        place: None,
        share_id: None,
        consumed: std::iter::empty().collect(),
        is_whole: false,
        admin_access: false,
        parameters: Some(if claim.is_multiple_of(2) { asked } else { other }),
        claimed: None,
        address: None,
    };
    AllocatedClaim {
        claim: claim_ref(claim),
        pods: vec![PodRef { name: format!("pod-{claim}"), uid: format!("p-{claim}") }],
        pod_claim_name: (!is_shared).then(|| "nic".to_owned()),
        devices: vec![device],
        others: vec![],
    }
}

/// As the kubelet names it.
pub(super) fn claim_ref(claim: usize) -> ClaimRef {
    ClaimRef { namespace: "team".to_owned(), name: format!("claim-{claim}"), uid: uid(claim) }
}

/// All that a disk has of claims.
pub(super) fn files_of_claims(tree: &Tree) -> Vec<&Path> {
    let of_claims = tree.iter().filter(|(path, entry)| {
        let name = path.file_name().unwrap().to_string_lossy();
        let is_of_claim = name.contains("u-") && **entry != Entry::Folder;
        let is_folder = path.parent().is_some_and(|it| it.ends_with("claims"));
        let has_claims = matches!(entry, Entry::File(text) if name == "checkpoint.json"
            && Checkpoint::from_text(&String::from_utf8_lossy(text)) != Some(Checkpoint::default()));
        is_of_claim || is_folder || has_claims
    });
    of_claims.map(|(path, _)| &**path).collect()
}
