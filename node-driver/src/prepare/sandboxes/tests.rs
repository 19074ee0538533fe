use super::*;
use crate::model::checkpoint::Record;
use crate::model::claim::{ClaimRef, PodRef};
use crate::model::plan::{PlannedRdma, Wiring};
use cluster_model::network_config::RdmaConfig;

/// A claim of one pod, with an RDMA device that moves or does not.
fn plan(uid: &str, pod: &str, moves: bool) -> Plan {
    let rdma = PlannedRdma {
        name: "mlx5_0".into(),
        part: None,
        ports: vec![1],
        chars: vec![],
        moves,
        parameters: RdmaConfig::default(),
    };
    let device = PlannedDevice {
        function: None,
        request: "nics".into(),
        pool: "node-1".into(),
        device: "ib-0".into(),
        place: None,
        share_id: None,
        is_whole: false,
        admin_access: false,
        pci_bus_id: "0101:00:00.0".into(),
        rdma: Some(rdma),
        link: None,
    };
    Plan {
        claim: ClaimRef { namespace: "team".into(), name: uid.into(), uid: uid.into() },
        pods: vec![PodRef { name: pod.into(), uid: pod.into() }],
        devices: vec![device],
        rdma_cm: None,
        plugin_gpus: Vec::new(),
        others: vec![],
        pod_claim_name: None,
        wiring: Wiring::default(),
        boot_id: None,
    }
}

fn checkpoint(claims: &[(Phase, Plan)]) -> Checkpoint {
    let record = |(phase, plan): &(Phase, Plan)| {
        (plan.claim.uid.clone(), Record { phase: *phase, plan: plan.clone() })
    };
    Checkpoint { claims: claims.iter().map(record).collect(), ..Checkpoint::default() }
}

fn sandbox(id: &str, pod: &str, is_running: bool) -> Sandbox {
    let network = Some(format!("/run/netns/{id}").into());
    Sandbox { id: id.into(), pod_uid: pod.into(), pod: pod.into(), network, is_running }
}

fn records(sandboxes: &[(&str, Option<&str>)]) -> BTreeMap<String, AttachRecord> {
    let namespace = NetNs::current().unwrap().id().unwrap();
    let record = |(uid, sandbox): &(&str, Option<&str>)| {
        let (sandbox, leases) = (sandbox.map(str::to_owned), BTreeMap::new());
        (
            (*uid).to_owned(),
            AttachRecord {
                namespace,
                sandbox,
                leases,
                links: BTreeMap::new(),
                is_attached: true,
                is_left: false,
            },
        )
    };
    sandboxes.iter().map(record).collect()
}

fn uids(uids: &[&str]) -> BTreeSet<String> {
    uids.iter().map(|uid| (*uid).to_owned()).collect()
}

#[test]
fn running_sandboxes_get_interfaces_and_stopped_ones_lose_them() {
    let checkpoint = checkpoint(&[
        (Phase::Prepared, plan("waits", "p-1", true)),
        (Phase::Prepared, plan("stays", "p-2", false)),
        (Phase::Prepared, plan("stopped", "p-3", true)),
        (Phase::Unpreparing, plan("leaves", "p-4", true)),
    ]);
    let records = records(&[("stopped", Some("s-3"))]);
    let sandboxes = [
        sandbox("s-0", "p-1", false),
        sandbox("s-1", "p-1", true),
        sandbox("s-2", "p-2", true),
        sandbox("s-4", "p-4", true),
    ];
    assert_eq!(
        due(&checkpoint, &records, &uids(&["stopped"]), &sandboxes),
        [Due::Leave("stopped".into()), Due::Enter("waits".into(), 1)]
    );
}

/// A runtime that has just started may not know a sandbox yet, and a sandbox that a hook
/// has served is not in its list.
#[test]
fn nothing_is_taken_from_a_sandbox_that_may_run() {
    let checkpoint = checkpoint(&[
        (Phase::Prepared, plan("named", "p-1", true)),
        (Phase::Prepared, plan("hooked", "p-2", true)),
    ]);
    let records = records(&[("named", Some("s-1")), ("hooked", None)]);
    assert_eq!(due(&checkpoint, &records, &uids(&["hooked"]), &[]), []);
    let gone = uids(&["named", "hooked"]);
    assert_eq!(due(&checkpoint, &records, &gone, &[]), [Due::Leave("named".into())]);
}

/// A pod's sandbox was replaced while the driver was down.
#[test]
fn a_new_sandbox_of_the_pod_takes_over() {
    let checkpoint = checkpoint(&[(Phase::Prepared, plan("claim", "p-1", true))]);
    let records = records(&[("claim", Some("s-1"))]);
    let sandboxes = [sandbox("s-2", "p-1", true)];
    assert_eq!(
        due(&checkpoint, &records, &uids(&["claim"]), &sandboxes),
        [Due::Leave("claim".into()), Due::Enter("claim".into(), 0)]
    );
}
