use super::*;
use crate::kernel::attach::AttachMode;
use crate::model::checkpoint::Record;
use crate::model::claim::{ClaimRef, PodRef};
use crate::model::plan::{PlannedDevice, PlannedRdma};
use crate::prepare::cdi;
use crate::prepare::effects::devices_file;
use cluster_model::network_config::RdmaConfig;
use node_files::paths::Paths;
use serde_json::Value;

fn plan(uid: &str, pods: &[&str], number: u32) -> Plan {
    let rdma = PlannedRdma {
        name: format!("mlx5_{number}"),
        part: None,
        ports: vec![1],
        chars: vec![],
        moves: false,
        parameters: RdmaConfig::default(),
    };
    let device = PlannedDevice {
        function: None,
        request: "nics".into(),
        pool: "node-1".into(),
        device: format!("pci-010{number}-00-00-0"),
        place: None,
        share_id: None,
        is_whole: false,
        admin_access: false,
        pci_bus_id: format!("010{number}:00:00.0"),
        rdma: Some(rdma),
        link: None,
    };
    let pod = |pod: &&str| PodRef { name: (*pod).into(), uid: (*pod).into() };
    Plan {
        claim: ClaimRef { namespace: "team".into(), name: uid.into(), uid: uid.into() },
        pods: pods.iter().map(pod).collect(),
        devices: vec![device],
        rdma_cm: None,
        plugin_gpus: Vec::new(),
        others: vec![],
        pod_claim_name: None,
        wiring: Wiring::default(),
        boot_id: None,
    }
}

fn checkpoint(plans: &[Plan]) -> Checkpoint {
    let record = |plan: &Plan| Record { phase: Phase::Prepared, plan: plan.clone() };
    let claims = plans.iter().map(|plan| (plan.claim.uid.clone(), record(plan))).collect();
    Checkpoint { claims, ..Checkpoint::default() }
}

/// A stand-in for the topology: the number of devices.
fn wire(whole: &Plan) -> Wiring {
    Wiring { nccl: Some(format!("{} devices", whole.devices.len())), ..Wiring::default() }
}

/// The claim's environment variables, and the NICs in its file.
fn told(plan: &Plan) -> (Value, Value) {
    let paths = Paths {
        kubelet: "/k".into(),
        driver: "dra.net".into(),
        cdi: "/c".into(),
        run: "/r".into(),
        netns: "/n".into(),
        sysctl: "/proc/sys/net".into(),
    };
    let settings = cdi::SpecSettings {
        runtime_root: "/".into(),
        attach: AttachMode::Hook,
        environment: cdi::Environment::default(),
        locked_memory: true,
    };
    let spec = serde_json::to_value(cdi::spec(plan, &paths, &settings)).unwrap();
    let file = serde_json::to_value(devices_file(plan)).unwrap();
    (spec["containerEdits"]["env"].clone(), file["nics"].clone())
}

#[test]
fn claims_of_a_pod_have_the_same_description() {
    let before = checkpoint(&[plan("u-2", &["p-1"], 1), plan("u-3", &["p-2"], 3)]);
    let (new, changed) = joined(&plan("u-1", &["p-1"], 2), &before, wire);
    assert_eq!(changed.len(), 1);
    let (variables, nics) = told(&new);
    assert_eq!(told(&changed[0]), (variables.clone(), nics.clone()));
    assert_eq!(
        variables,
        serde_json::json!([
            "NCCL_IB_HCA==mlx5_1,mlx5_2",
            "UCX_NET_DEVICES=mlx5_1:1,mlx5_2:1",
            "NCCL_TOPO_FILE=/etc/dranet/nccl-topology.xml"
        ])
    );
    let claims: Vec<_> = nics.as_array().unwrap().iter().map(|nic| nic["claim"].clone()).collect();
    assert_eq!(claims, ["u-2", "u-1"]);
    assert_eq!(new.wiring.nccl.as_deref(), Some("2 devices"));
}

#[test]
fn a_claim_of_several_pods_describes_only_itself() {
    let before = checkpoint(&[plan("u-2", &["p-1", "p-2"], 1)]);
    let (new, changed) = joined(&plan("u-1", &["p-1", "p-2"], 2), &before, wire);
    assert_eq!((new.wiring.beside, changed), (vec![], vec![]));
    let (alone, _) = joined(&plan("u-1", &[], 2), &checkpoint(&[plan("u-2", &[], 1)]), wire);
    assert_eq!(alone.wiring.beside, vec![]);
    assert_eq!(
        told(&alone).1[0]["claim"],
        Value::Null,
        "the file names the claim once, at the top"
    );
}
