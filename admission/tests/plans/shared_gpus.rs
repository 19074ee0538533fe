//! GPUs that claims can share (KEP-5075): a pod that asks for whole GPUs gets GPUs of its own, or a
//! warning says on which nodes it does not.

use crate::cluster::{Built, DGX_H100, GB300, H100, Machine, classes, pod};
use admission::admit::admit;
use admission::plan::{Plan, Policy};
use cluster_model::predict::hold;
use cluster_model::view::{ClusterView, Index};
use dra_allocator::{
    AllocatedState, Claim, ClaimAllocation, ClaimName, DeviceId, FeatureGates, Limits,
    MinorVersion, Outcome, Settings, allocate,
};
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use publication::sharing::SharingArgs;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// How NVIDIA's driver publishes the GPUs of a node (dra-driver-nvidia-gpu,
/// `cmd/gpu-kubelet-plugin/consumable_shares.go`: the flag `--consumable-shares`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Claims cannot share them.
    Nothing,
    /// A number of claims shares each.
    Shares(u32),
    /// Each claim takes a part of the memory, all of it by default.
    Memory,
    /// Any number of claims.
    Unlimited,
    /// The same, of GPUs that publish no capacity.
    Bare,
}

const MEMORY: &str = "81559Mi";

fn publish(by: By, gpu: &mut Value) {
    let range = |min: &str, max: &str, step: &str| json!({ "min": min, "max": max, "step": step });
    let memory = |default: &str, min: &str| {
        json!({ "value": MEMORY, "requestPolicy": {
            "default": default, "validRange": range(min, MEMORY, "1Mi"),
        } })
    };
    let nothing = |value: &str| {
        json!({ "value": value, "requestPolicy": {
            "default": "0", "validRange": { "min": "0", "max": value },
        } })
    };
    let capacity = match by {
        By::Nothing => json!({ "memory": { "value": MEMORY }, "copyEngines": { "value": "3" } }),
        By::Shares(number) => {
            let all = number.to_string();
            let shares = json!({ "value": all, "requestPolicy": {
                "default": "1", "validRange": range("1", &all, "1"),
            } });
            json!({ "memory": memory("0", "0"), "copyEngines": nothing("3"), "shares": shares })
        }
        By::Memory => json!({ "memory": memory(MEMORY, "1Mi"), "copyEngines": nothing("3") }),
        By::Unlimited => json!({ "memory": memory("0", "0"), "copyEngines": nothing("3") }),
        By::Bare => json!({}),
    };
    gpu["capacity"] = capacity;
    gpu["allowMultipleAllocations"] = json!(by != By::Nothing);
}

fn fleet(nodes: &[(Machine, By)]) -> ClusterView {
    let mut view = ClusterView::default();
    for class in classes() {
        view.apply(class).unwrap();
    }
    for (index, (machine, by)) in nodes.iter().enumerate() {
        let built = Built::new(*machine, &[], &SharingArgs::default());
        let built = built.with_gpus(|gpu| publish(*by, gpu));
        built.put(&mut view, &format!("node-{index}"), index);
    }
    view
}

fn planned(view: &ClusterView, gpus: u32, nics: &str) -> (Plan, Vec<String>) {
    let pod = pod("nvidia.com/gpu", gpus, &[("aligned-nics", nics)]);
    let verdict = admit(&pod, view, &Policy::default()).unwrap();
    (verdict.planned.unwrap().plan, verdict.warnings)
}

/// Allocates a claim as the scheduler would; `None` if it does not fit.
fn given(
    view: &ClusterView,
    node: &str,
    claim: &ResourceClaimSpec,
    state: &mut AllocatedState,
) -> Option<Vec<DeviceId>> {
    let claims = [Claim::from_spec(ClaimName::new("default", "a"), claim).unwrap()];
    let limits = Limits::steps(Policy::default().max_steps);
    let attempt = allocate(view.inventory(), node, &claims, state, view.settings(), limits);
    match attempt.outcome {
        Outcome::NoFit(_) => None,
        Outcome::Allocated(claims) => {
            hold(state, &claims);
            Some(gpus(&claims))
        }
        other => panic!("{other:?}"),
    }
}

fn gpus(claims: &[ClaimAllocation]) -> Vec<DeviceId> {
    let results = claims.iter().flat_map(|claim| &claim.results);
    let devices = results.map(|result| result.device.clone());
    devices.filter(|device| &*device.driver == "gpu.nvidia.com").collect()
}

/// The claim of another pod for one GPU that names no capacity, or this amount of one.
fn other(capacity: Option<(&str, &str)>) -> ResourceClaimSpec {
    let capacity = capacity.map(|(name, amount)| json!({ "requests": { name: amount } }));
    let ask = json!({ "deviceClassName": "gpu.nvidia.com", "capacity": capacity });
    let spec = json!({ "devices": { "requests": [{ "name": "gpu", "exactly": ask }] } });
    serde_json::from_value(spec).unwrap()
}

/// What the first request for GPUs takes of each.
fn taken(plan: &Plan) -> String {
    let requests = plan.claim.devices.iter().flat_map(|devices| devices.requests.iter().flatten());
    let mut of_gpus = requests.filter(|it| !plan.nic_requests.contains(&it.name));
    let gpu = of_gpus.next().unwrap();
    let exactly = gpu.exactly.as_ref().map(|ask| &ask.capacity);
    let way = gpu.first_available.iter().flatten().next().map(|way| &way.capacity);
    let amounts = exactly.or(way).unwrap().as_ref().and_then(|it| it.requests.as_ref());
    let Some(amounts) = amounts else { return "nothing named".to_owned() };
    let each = amounts.iter().map(|(name, amount)| format!("{name} {}", amount.0));
    each.collect::<Vec<_>>().join(", ")
}

#[test]
fn what_is_asked_and_what_is_said() {
    let fleets: [(&str, &[(Machine, By)]); 9] = [
        ("not shared", &[(DGX_H100, By::Nothing)]),
        ("four shares", &[(DGX_H100, By::Shares(4))]),
        ("memory", &[(DGX_H100, By::Memory)]),
        ("no limit", &[(DGX_H100, By::Unlimited)]),
        ("no capacity", &[(DGX_H100, By::Bare)]),
        ("four shares, and not shared", &[(DGX_H100, By::Shares(4)), (DGX_H100, By::Nothing)]),
        ("four shares and eight", &[(DGX_H100, By::Shares(4)), (DGX_H100, By::Shares(8))]),
        ("four shares on two types", &[(GB300, By::Shares(4)), (H100, By::Shares(4))]),
        ("memory, and not shared", &[(GB300, By::Memory), (GB300, By::Nothing)]),
    ];
    let mut text = String::new();
    for (name, nodes) in fleets {
        let view = fleet(nodes);
        let (plan, warnings) = planned(&view, 2, "2");
        let note = plan.note("…");
        writeln!(text, "{name}\n    {}\n    takes {}", note, taken(&plan)).unwrap();
        for warning in warnings {
            writeln!(text, "    warning: {warning}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

/// The allocator gives the first GPU that fits. A claim without capacities would take one share of
/// GPU 0 for each of two pods, while GPU 1 is free.
#[test]
fn pods_get_gpus_of_their_own() {
    for by in [By::Nothing, By::Shares(4), By::Memory, By::Unlimited] {
        let view = fleet(&[(DGX_H100, by)]);
        for number in [1, 2, 4] {
            let (plan, _) = planned(&view, number, &number.to_string());
            let mut state = AllocatedState::new();
            let mut all = Vec::new();
            while let Some(gpus) = given(&view, "node-0", &plan.claim, &mut state) {
                assert_eq!(gpus.len(), number as usize, "{by:?}");
                all.extend(gpus);
            }
            let distinct: BTreeSet<_> = all.iter().collect();
            assert_eq!((all.len(), distinct.len()), (8, 8), "{by:?} {number}");
        }
    }
}

#[test]
fn other_pods_stay_away_where_nothing_is_said() {
    let small = [("memory", "1Mi"), ("copyEngines", "1"), ("shares", "1")];
    let mut exposed = 0;
    for by in [By::Nothing, By::Shares(4), By::Memory, By::Unlimited, By::Bare] {
        let view = fleet(&[(DGX_H100, by)]);
        let (plan, warnings) = planned(&view, 1, "1");
        let says = warnings.iter().any(|it| it.contains("other pods can get the GPUs"));
        let others = small.map(Some).into_iter().chain([None]);
        for capacity in others {
            let mut state = AllocatedState::new();
            let own = given(&view, "node-0", &plan.claim, &mut state).unwrap();
            let mut meets = false;
            for _ in 0..8 {
                let got = given(&view, "node-0", &other(capacity), &mut state);
                meets |= got.is_some_and(|got| got == own);
            }
            assert!(!meets || says, "{by:?} {capacity:?}");
            exposed += u32::from(meets);
            // The other way round.
            let mut state = AllocatedState::new();
            if let Some(others) = given(&view, "node-0", &other(capacity), &mut state) {
                let own = given(&view, "node-0", &plan.claim, &mut state).unwrap();
                assert!(own != others || says, "{by:?} {capacity:?}");
            }
        }
    }
    assert!(exposed > 0, "no case was exposed, so the warning was never checked");
}

#[test]
fn the_gpus_of_a_pod_are_distinct() {
    let view = fleet(&[(DGX_H100, By::Bare)]);
    for (gpus, nics) in [(2, "2"), (4, "4"), (8, "8")] {
        let (plan, warnings) = planned(&view, gpus, nics);
        let mut state = AllocatedState::new();
        let given = given(&view, "node-0", &plan.claim, &mut state).unwrap();
        let distinct: BTreeSet<_> = given.iter().collect();
        assert_eq!(distinct.len(), gpus as usize, "{given:?}");
        assert!(!warnings.iter().any(|it| it.contains("one GPU twice")), "{warnings:?}");
    }
}

/// Without the feature the API server drops the fields: each GPU is given once.
#[test]
fn without_the_feature_nothing_is_asked() {
    let mut view = fleet(&[(DGX_H100, By::Unlimited)]);
    let mut gates = FeatureGates::defaults_of(MinorVersion::V1_37);
    assert!(gates.set("DRAConsumableCapacity", false));
    view.set_settings(Settings::with_gates(MinorVersion::V1_37, gates));
    let (plan, warnings) = planned(&view, 2, "2");
    assert_eq!(taken(&plan), "nothing named");
    assert!(!warnings.iter().any(|it| it.contains("other pods")), "{warnings:?}");
}
