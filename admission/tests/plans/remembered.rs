//! Machines that are only remembered: they are served where that takes nothing from present nodes,
//! and decide nothing for these.

use crate::cluster::*;
use admission::admit::admit;
use admission::plan::{Plan, Policy};
use cluster_model::view::{ClusterView, Index as _};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use publication::sharing::SharingArgs;
use serde_json::{Value, json};

const NVIDIA: &str = "nvidia.com/gpu";

/// A cluster with one node of each of the first types, and the others remembered.
fn fleet(present: &[Machine], remembered: &[Machine]) -> ClusterView {
    let mut view = cluster(present);
    let entries = remembered.iter().enumerate().map(|(index, machine)| {
        let built = Built::new(*machine, &[], &SharingArgs::default());
        let entry = built.remembered(100 + index).encode().unwrap();
        (format!("m{index}"), ByteString(entry))
    });
    let map = ConfigMap { binary_data: Some(entries.collect()), ..ConfigMap::default() };
    view.apply(map).unwrap();
    view
}

fn plan(view: &ClusterView, pod: &Value) -> Result<Plan, String> {
    let verdict = admit(pod, view, &Policy::default()).map_err(|error| error.to_string())?;
    Ok(verdict.planned.unwrap().plan)
}

/// The remembered machines that a plan serves, and those of them with near devices.
fn served(plan: &Plan) -> (usize, usize) {
    let remembered = plan.machines.iter().filter(|machine| machine.present == 0);
    let served: Vec<_> = remembered.filter(|machine| machine.is_served).collect();
    let near = served.iter().filter(|machine| machine.nearness.is_some()).count();
    (served.len(), near)
}

#[test]
fn remembered_machines_are_served_beside_present_ones() {
    let h100 = H100.with(Gpus::Nvidia);
    for (present, remembered) in [(GB300, h100), (h100, GB300), (A3, GB300), (GB300, A3)] {
        let view = fleet(&[present], &[remembered]);
        for (gpus, nics) in [(1, "1"), (1, "2"), (2, "2")] {
            for policy in ["required", "preferred"] {
                let annotations = [("aligned-nics", nics), ("alignment-policy", policy)];
                let pod = pod(NVIDIA, gpus, &annotations);
                let alone = plan(&fleet(&[remembered], &[]), &pod);
                let could = alone.is_ok_and(|alone| alone.machines[0].nearness.is_some());
                let plan = plan(&view, &pod).unwrap();
                assert!(
                    !could || served(&plan) == (1, 1),
                    "{} {annotations:?}: {plan:?}",
                    present.fixture
                );
            }
        }
    }
}

#[test]
fn remembered_machines_serve_pods_that_no_present_node_serves() {
    let view = fleet(&[GB300], &[DGX_B200]);
    let pod = pod(NVIDIA, 8, &[("aligned-nics", "per-gpu")]);
    let plan = plan(&view, &pod).unwrap();
    assert_eq!((plan.nodes.0, served(&plan)), (0, (1, 1)), "{plan:?}");
}

/// Without a limit, the driver of the GPUs is that of the cluster. A pool of AMD GPUs that was
/// deleted weeks ago makes that no question.
#[test]
fn remembered_machines_do_not_make_the_driver_ambiguous() {
    let mut pod = pod(NVIDIA, 1, &[("aligned-nics", "1"), ("gpus", "1")]);
    pod["spec"]["containers"][0]["resources"] = json!({});
    let before = plan(&fleet(&[GB300], &[]), &pod).unwrap();
    let plan = plan(&fleet(&[GB300], &[MI300X]), &pod).unwrap();
    assert_eq!(plan.claim, before.claim);
}

/// A claim for storage NICs names their rates. Those of other machines would let it take slower
/// NICs.
#[test]
fn remembered_machines_do_not_change_the_rates_of_storage_nics() {
    for (gpus, policy) in [(0, "required"), (1, "required"), (1, "preferred")] {
        let annotations =
            [("aligned-nics", "1"), ("nic-role", "storage"), ("alignment-policy", policy)];
        let mut pod = pod(NVIDIA, gpus, &annotations);
        if gpus == 0 {
            pod["metadata"]["annotations"]["dranet.io/gpus"] = "0".into();
            pod["spec"]["containers"][0]["resources"] = json!({});
        }
        let before = plan(&fleet(&[DGX_H100], &[]), &pod).unwrap();
        let plan = plan(&fleet(&[DGX_H100], &[LENOVO]), &pod).unwrap();
        assert_eq!(plan.claim, before.claim, "{gpus} {policy}");
    }
}
