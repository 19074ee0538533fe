//! Pods that get their GPUs from a device plugin: the claim is for NICs only, the limits stay.

use crate::brute_force::{Devices, Near};
use crate::cluster::*;
use admission::admit::{AdmitError, admit};
use admission::plan::{Plan, Policy};
use cluster_model::node_devices::NodeDevices;
use cluster_model::published_device::PublishedDevice as _;
use cluster_model::view::{ClusterView, Index};
use dra_allocator::{Claim, ClaimName, DeviceId, Limits, Outcome, allocate};
use k8s_openapi::api::core::v1::Node;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::slice;
use std::sync::LazyLock;
use topology_graph::{NicRole, PciAddress};

const NVIDIA: &str = "nvidia.com/gpu";
const AMD: &str = "amd.com/gpu";

const fn plugin(machine: Machine) -> Machine {
    machine.with(Gpus::Plugin)
}

fn report(view: &ClusterView, resource: &str, gpus: u32, annotations: &[(&str, &str)]) -> String {
    let words: Vec<_> = annotations.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let mut text = format!("{gpus} GPU {}\n", words.join(" "));
    match admit(&pod(resource, gpus, annotations), view, &Policy::default()) {
        Ok(verdict) => {
            let plan = verdict.planned.expect("the pod has the trigger").plan;
            let note = plan.note("…");
            writeln!(text, "    {}", note.split("; template").next().unwrap()).unwrap();
            text.push_str(&requests(&plan));
            let resources = &verdict.pod["spec"]["containers"][0]["resources"];
            writeln!(text, "    {resources}").unwrap();
            for warning in verdict.warnings {
                writeln!(text, "    warning: {warning}").unwrap();
            }
        }
        Err(AdmitError::Denied(denial)) => writeln!(text, "    denied: {denial}").unwrap(),
        Err(error) => writeln!(text, "    error: {error}").unwrap(),
    }
    text
}

fn requests(plan: &Plan) -> String {
    let devices = plan.claim.devices.as_ref().unwrap();
    let mut text = String::new();
    for request in devices.requests.iter().flatten() {
        let ways = request.first_available.iter().flatten();
        let ways: Vec<_> = ways.map(|way| format!("{} {}", way.name, way.count.unwrap())).collect();
        let exactly = request.exactly.as_ref().map(|ask| ask.count.unwrap().to_string());
        let what = exactly.unwrap_or_else(|| ways.join(" or "));
        writeln!(text, "    request {}: {what}", request.name).unwrap();
    }
    for constraint in devices.constraints.iter().flatten() {
        let attribute =
            constraint.match_attribute.as_ref().or(constraint.distinct_attribute.as_ref());
        writeln!(text, "    constraint {}", attribute.unwrap()).unwrap();
    }
    text
}

/// A name, the machines, and the resource, number and annotations of a pod.
type Case<'a> = (&'a str, &'a [Machine], &'a str, u32, &'a [(&'a str, &'a str)]);

const fn late(machine: Machine) -> Machine {
    machine.with(Gpus::PluginLate)
}

/// On a node that binds NICs late, a pod can take a part of the GPUs.
#[test]
fn a_part_of_a_machine_gets_nics_that_are_chosen_late() {
    let (required, preferred) =
        (("alignment-policy", "required"), ("alignment-policy", "preferred"));
    let late_and_named = [late(H100), plugin(GB300)];
    let cases: &[Case<'_>] = &[
        ("pairs", &[late(H100)], NVIDIA, 2, &[("aligned-nics", "per-gpu")]),
        ("a group", &[late(H100)], NVIDIA, 1, &[("aligned-nics", "2"), ("pairing", "group")]),
        ("shared by GPUs", &[late(H100)], NVIDIA, 4, &[("aligned-nics", "2")]),
        ("preferred", &[late(H100)], NVIDIA, 2, &[("aligned-nics", "2"), preferred]),
        (
            "by switch",
            &[late(DGX_H100)],
            NVIDIA,
            2,
            &[("aligned-nics", "2"), ("alignment", "switch")],
        ),
        ("all GPUs", &[late(H100)], NVIDIA, 8, &[("aligned-nics", "per-gpu"), required]),
        ("AMD", &[late(MI300X)], AMD, 3, &[("aligned-nics", "per-gpu")]),
        ("several sockets", &[late(LENOVO), late(GB300)], NVIDIA, 2, &[("aligned-nics", "2")]),
        ("beside named NICs, a part", &late_and_named, NVIDIA, 2, &[("aligned-nics", "2")]),
        ("beside named NICs, all", &late_and_named, NVIDIA, 4, &[("aligned-nics", "per-gpu")]),
        ("beside a DRA driver", &[late(H100), GB300], NVIDIA, 2, &[("aligned-nics", "2")]),
        ("too many NICs", &[late(H100)], NVIDIA, 2, &[("aligned-nics", "10")]),
        ("too many GPUs", &[late(GB300)], NVIDIA, 6, &[("aligned-nics", "per-gpu")]),
        (
            "shared NICs",
            &[late(H100)],
            NVIDIA,
            2,
            &[("aligned-nics", "2"), ("nic-sharing", "shared")],
        ),
        (
            "with MTU",
            &[late(DGX_H100_ROCE)],
            NVIDIA,
            1,
            &[("aligned-nics", "1"), ("nic-config", r#"{"interface": {"mtu": 4096}}"#)],
        ),
    ];
    let mut text = String::new();
    for (name, machines, resource, gpus, annotations) in cases {
        let view = cluster(machines);
        writeln!(text, "{name}: {}", report(&view, resource, *gpus, annotations)).unwrap();
        if let Ok(verdict) = admit(&pod(resource, *gpus, annotations), &view, &Policy::default()) {
            let devices = verdict.planned.unwrap().plan.claim.devices.unwrap();
            let config = devices.config.iter().flatten().filter_map(|it| it.opaque.as_ref());
            for opaque in config {
                writeln!(text, "    config: {}", opaque.parameters.0).unwrap();
            }
        }
    }
    insta::assert_snapshot!(text);
}

/// The containers of kubernetes/kubernetes 134880 and others: GPUs of an init container that ends are given
/// on to later containers, and the kubelet reports only those of containers that stay. So a claim that
/// waits for all of them waits for ever.
#[test]
fn the_driver_finds_the_gpus_of_containers_that_stay() {
    let container = |name: &str, gpus: u32| json!({ "name": name, "resources": { "limits": { NVIDIA: gpus.to_string() } } });
    let mut sidecar = container("sidecar", 1);
    sidecar["restartPolicy"] = "Always".into();
    let cases = [
        (vec![container("check", 2)], vec![container("main", 1)]),
        (vec![container("ic1", 1), sidecar, container("ic2", 2)], vec![container("c1", 1)]),
        (vec![container("check", 1)], vec![container("a", 1), container("b", 1)]),
        (vec![container("check", 4)], vec![container("main", 3)]),
        (vec![container("check", 2)], vec![json!({ "name": "main" })]),
    ];
    let mut text = String::new();
    for (init, main) in cases {
        let mut asked = pod(NVIDIA, 1, &[("aligned-nics", "per-gpu")]);
        asked["spec"]["initContainers"] = json!(init);
        asked["spec"]["containers"] = json!(main);
        match admit(&asked, &cluster(&[late(H100)]), &Policy::default()) {
            Ok(verdict) => {
                let plan = verdict.planned.unwrap().plan;
                let devices = plan.claim.devices.as_ref().unwrap();
                let config = devices.config.iter().flatten().find_map(|it| it.opaque.as_ref());
                let config = &config.unwrap().parameters.0;
                writeln!(text, "{}\n    config: {config}", plan.summary()).unwrap();
                for warning in verdict.warnings.iter().filter(|it| !it.contains("IPC_LOCK")) {
                    writeln!(text, "    warning: {warning}").unwrap();
                }
            }
            Err(error) => writeln!(text, "denied: {error}").unwrap(),
        }
    }
    insta::assert_snapshot!(text);
}

/// Of eight GPUs two are divided (NVIDIA/gpu-operator 1602, MIG strategy `mixed`): six units of whole GPUs.
/// With time slicing there are more units than GPUs.
#[test]
fn nodes_whose_units_are_not_all_gpus_bind_late() {
    let mut text = String::new();
    for (units, more) in [("6", json!({ "nvidia.com/mig-1g.10gb": "14" })), ("32", json!({}))] {
        let mut view = cluster(&[late(H100)]);
        let mut amounts = more;
        amounts[NVIDIA] = units.into();
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": "node-0" },
            "status": { "allocatable": amounts, "capacity": amounts },
        }))
        .unwrap();
        view.apply(node).unwrap();
        // All GPUs of the machine are more than the units.
        for gpus in [2, 8] {
            let annotations = [("aligned-nics", if gpus == 2 { "2" } else { "8" })];
            let answer = report(&view, NVIDIA, gpus, &annotations);
            writeln!(text, "{gpus} of {units} units: {answer}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

/// A claim by name cannot get a place: it has none of the attributes by which joins select NICs.
#[test]
fn pods_with_gpus_by_claim_are_the_same_beside_late_nodes() {
    let annotations = [("aligned-nics", "2")];
    let plan = |machines: &[Machine]| {
        let view = cluster(machines);
        let verdict = admit(&pod(NVIDIA, 2, &annotations), &view, &Policy::default()).unwrap();
        verdict.planned.unwrap().plan.claim
    };
    assert_eq!(plan(&[GB300, late(H100)]), plan(&[GB300]));
    let view = cluster(&[GB300, late(H100)]);
    let claim = Claim::from_spec(ClaimName::new("", "pod"), &plan(&[GB300])).unwrap();
    let on = |node: &str| {
        let state = dra_allocator::AllocatedState::new();
        allocate(
            view.inventory(),
            node,
            slice::from_ref(&claim),
            &state,
            view.settings(),
            Limits::steps(100_000),
        )
        .outcome
    };
    assert!(matches!(on("node-0"), Outcome::Allocated(_)));
    assert!(matches!(on("node-1"), Outcome::NoFit(_)));
}

#[test]
fn whole_machines_keep_their_limits() {
    let mixed = [plugin(H100), plugin(GB300), plugin(A100)];
    let cases: &[Case<'_>] = &[
        ("every NIC", &[plugin(H100)], NVIDIA, 8, &[("aligned-nics", "per-gpu")]),
        ("every NIC, AMD", &[plugin(MI300X)], AMD, 8, &[("aligned-nics", "8")]),
        ("four of eight", &[plugin(H100)], NVIDIA, 8, &[("aligned-nics", "4")]),
        ("two of eight", &[plugin(DGX_H100)], NVIDIA, 8, &[("aligned-nics", "2")]),
        (
            "as one group",
            &[plugin(H100)],
            NVIDIA,
            8,
            &[("aligned-nics", "8"), ("pairing", "group")],
        ),
        (
            "as one group, preferred",
            &[plugin(H100)],
            NVIDIA,
            8,
            &[("aligned-nics", "8"), ("pairing", "group"), ("alignment-policy", "preferred")],
        ),
        (
            "preferred",
            &[plugin(LENOVO)],
            NVIDIA,
            8,
            &[("aligned-nics", "per-gpu"), ("alignment-policy", "preferred")],
        ),
        ("spare NICs", &[plugin(LENOVO)], NVIDIA, 8, &[("aligned-nics", "per-gpu")]),
        ("GB300", &[plugin(GB300)], NVIDIA, 4, &[("aligned-nics", "per-gpu")]),
        ("GB300, half of the NICs", &[plugin(GB300)], NVIDIA, 4, &[("aligned-nics", "2")]),
        ("several machine types", &mixed, NVIDIA, 8, &[("aligned-nics", "per-gpu")]),
        ("several, four NICs", &mixed, NVIDIA, 8, &[("aligned-nics", "4")]),
        ("GPUs in part", &[plugin(H100)], NVIDIA, 2, &[("aligned-nics", "2")]),
        (
            "GPUs in part, preferred",
            &[plugin(H100)],
            NVIDIA,
            2,
            &[("aligned-nics", "2"), ("alignment-policy", "preferred")],
        ),
        (
            "whole or in part, preferred",
            &mixed,
            NVIDIA,
            4,
            &[("aligned-nics", "per-gpu"), ("alignment-policy", "preferred")],
        ),
        ("GPUs of no machine", &mixed, NVIDIA, 6, &[("aligned-nics", "per-gpu")]),
        ("too many NICs", &[plugin(H100)], NVIDIA, 8, &[("aligned-nics", "16")]),
        (
            "NICs of a role",
            &[plugin(H100)],
            NVIDIA,
            8,
            &[("aligned-nics", "1"), ("nic-role", "storage")],
        ),
        (
            "a class of GPUs",
            &[plugin(H100)],
            NVIDIA,
            8,
            &[("aligned-nics", "8"), ("gpu-class", "gpu.nvidia.com")],
        ),
        (
            "another node has a DRA driver",
            &[plugin(H100), H100],
            NVIDIA,
            8,
            &[("aligned-nics", "8")],
        ),
        (
            "shared NICs",
            &[plugin(H100)],
            NVIDIA,
            8,
            &[("aligned-nics", "8"), ("nic-sharing", "shared")],
        ),
    ];
    let mut text = String::new();
    for (name, machines, resource, gpus, annotations) in cases {
        writeln!(text, "{name}: {}", report(&cluster(machines), resource, *gpus, annotations))
            .unwrap();
    }
    insta::assert_snapshot!(text);
}

/// The device plugin shares each GPU among several pods, so that a unit is no GPU.
#[test]
fn units_that_are_no_gpus_are_refused() {
    let mut view = cluster(&[plugin(H100)]);
    let amounts = json!({ NVIDIA: "32" });
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "node-0" },
        "status": { "allocatable": amounts, "capacity": amounts },
    }))
    .unwrap();
    view.apply(node).unwrap();
    insta::assert_snapshot!(report(&view, NVIDIA, 8, &[("aligned-nics", "8")]));
}

/// A GPU that is unhealthy stays one of the machine's.
#[test]
fn an_unhealthy_gpu_changes_no_plan() {
    let healthy = cluster(&[plugin(H100)]);
    let mut view = healthy.clone();
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "node-0" },
        "status": { "allocatable": { NVIDIA: "7" }, "capacity": { NVIDIA: "8" } },
    }))
    .unwrap();
    view.apply(node).unwrap();
    let annotations = [("aligned-nics", "8")];
    let before = report(&healthy, NVIDIA, 8, &annotations);
    assert_eq!(report(&view, NVIDIA, 8, &annotations), before);
}

#[test]
fn a_pod_with_limits_that_stay_is_not_rewritten_again() {
    let mut view = cluster(&[plugin(H100)]);
    let asked = pod(NVIDIA, 8, &[("aligned-nics", "8")]);
    let first = admit(&asked, &view, &Policy::default()).unwrap();
    let limits = |pod: &Value| pod["spec"]["containers"][0]["resources"]["limits"].clone();
    assert_eq!(limits(&first.pod), limits(&asked));
    let mut template = first.planned.unwrap().template;
    template.metadata.namespace = Some("default".to_owned());
    view.apply(template).unwrap();
    let again = admit(&first.pod, &view, &Policy::default()).unwrap();
    assert!(again.planned.is_none());
    assert_eq!(again.pod, first.pod);

    // A copy of the pod in a cluster with a DRA driver gets its GPUs by claim.
    let copied = admit(&first.pod, &cluster(&[H100]), &Policy::default()).unwrap();
    let direct = admit(&asked, &cluster(&[H100]), &Policy::default()).unwrap();
    assert_eq!(copied.pod, direct.pod);
}

/// A cluster of one machine with a device plugin.
struct Whole {
    view: ClusterView,
    resource: &'static str,
    gpus: Vec<PciAddress>,
}

static WHOLE: LazyLock<Vec<Whole>> = LazyLock::new(|| {
    let machines = [
        (H100, NVIDIA),
        (A100, NVIDIA),
        (GB300, NVIDIA),
        (DGX_H100, NVIDIA),
        (LENOVO, NVIDIA),
        (A3, NVIDIA),
        (MI300X, AMD),
        (NVL72, NVIDIA),
    ];
    let whole = |(machine, resource)| {
        let view = cluster(&[plugin(machine)]);
        let graph = view.topology("node-0").unwrap();
        let gpus = graph.gpus().iter().map(|gpu| gpu.address).collect();
        Whole { view, resource, gpus }
    };
    machines.map(whole).into()
});

proptest! {
    /// Whatever NICs are in use, the pod gets NICs as near as its plan says, and waits only if there
    /// are none.
    #[test]
    fn whole_machines_get_near_nics(
        machine in 0..WHOLE.len(),
        nics in 1usize..9,
        busy in any::<u32>(),
    ) {
        check_whole(&WHOLE[machine], nics, busy & busy >> 16);
    }
}

/// `busy` has a bit for each NIC that is in use.
fn check_whole(machine: &Whole, nics: usize, busy: u32) {
    let Whole { view, resource, gpus } = machine;
    let count = u32::try_from(gpus.len()).unwrap();
    let asked = pod(resource, count, &[("aligned-nics", &nics.to_string())]);
    let Ok(verdict) = admit(&asked, view, &Policy::default()) else { return };
    let plan = verdict.planned.unwrap().plan;
    let devices = NodeDevices::new(view, "node-0").unwrap();
    let mut state = view.inventory().state().clone();
    let mut free = Vec::new();
    for (index, (address, nic)) in devices.nics.iter().enumerate() {
        if busy >> index & 1 == 1 {
            state.insert(nic.id().clone());
        } else if nic.nic_role() == NicRole::Compute {
            free.push(*address);
        }
    }
    let claim = Claim::from_spec(ClaimName::new("default", "a"), &plan.claim).unwrap();
    let limits = Limits::steps(10_000);
    let attempt = allocate(view.inventory(), "node-0", &[claim], &state, view.settings(), limits);
    let near = Near::new(devices.topology, plan.nearness);
    let is_near = |nics_there: Vec<PciAddress>| {
        let from = Devices { gpus: gpus.clone(), nics: nics_there };
        if nics >= gpus.len() {
            near.each(&from, gpus.len(), nics / gpus.len())
        } else {
            from.nics.len() >= nics && shared(&near, &from, gpus.len() / nics)
        }
    };
    match attempt.outcome {
        Outcome::Allocated(allocations) => {
            let address = |id: &DeviceId| {
                let found = devices.nics.iter().find(|(_, nic)| nic.id() == id);
                *found.expect("a NIC of the node").0
            };
            let given = allocations[0].results.iter().map(|result| address(&result.device));
            let given: Vec<_> = given.collect();
            assert_eq!(given.len(), nics);
            assert!(is_near(given.clone()), "{:?} for {}", given, plan.note("x"));
        }
        Outcome::NoFit(_) => assert!(!is_near(free), "waits: {}", plan.note("x")),
        other => panic!("{other:?}"),
    }
}

/// Whether each GPU can have a near NIC so that no NIC has more than `share` of them.
fn shared(near: &Near<'_>, from: &Devices, share: usize) -> bool {
    let seats = from.nics.iter().flat_map(|nic| vec![*nic; share]).collect::<Vec<_>>();
    let mut taken: Vec<Option<usize>> = vec![None; seats.len()];
    (0..from.gpus.len()).all(|gpu| {
        let mut seen = vec![false; seats.len()];
        augment(near, from, gpu, &seats, &mut taken, &mut seen)
    })
}

fn augment(
    near: &Near<'_>,
    from: &Devices,
    gpu: usize,
    seats: &[PciAddress],
    taken: &mut [Option<usize>],
    seen: &mut [bool],
) -> bool {
    for seat in 0..seats.len() {
        if seen[seat] || !near.is_near(from.gpus[gpu], seats[seat]) {
            continue;
        }
        seen[seat] = true;
        let is_free = match taken[seat] {
            None => true,
            Some(other) => augment(near, from, other, seats, taken, seen),
        };
        if is_free {
            taken[seat] = Some(gpu);
            return true;
        }
    }
    false
}
