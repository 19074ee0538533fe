//! The law of devices in parts: on machines whose ports have several functions and whose GPUs are divided, and of
//! which some parts are in use, a pod gets devices exactly if enough near GPUs are free, and enough near
//! ports have a free function; and never two functions of one port.
//!
//! A GPU and its parts share counters (KEP-4815): a part in use takes the whole GPU away, and the other way
//! round. A port with virtual functions publishes only these.

use crate::brute_force::{Devices, Near};
use crate::cluster::{Built, DGX_H100_VFS, HGX_VFS, Machine, classes, mig_class, pod};
use crate::laws::usable;
use admission::admit::admit;
use admission::nearness::Nearness;
use admission::plan::{Plan, Policy};
use cluster_model::node_devices::NodeDevices;
use cluster_model::view::{ClusterView, Index as _};
use dra_allocator::{AllocatedState, Claim, ClaimName, DeviceId, Limits, Outcome, allocate};
use k8s_openapi::api::resource::v1::ResourceSlice;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use publication::sharing::SharingArgs;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use topology_graph::PciAddress;

/// Random states; `PROPTEST_CASES` sets another number.
const STATES: u32 = 400;

/// More than any of the machines has.
const FUNCTIONS: usize = 64;
const GPUS: usize = 16;

/// The resource of a pod, its number, and the annotations, of which the first is the number of NICs.
type Asked = (&'static str, u32, &'static [(&'static str, &'static str)]);

const PODS: &[Asked] = &[
    ("nvidia.com/gpu", 1, &[("aligned-nics", "1")]),
    ("nvidia.com/gpu", 1, &[("aligned-nics", "2"), ("alignment", "numa")]),
    ("nvidia.com/gpu", 2, &[("aligned-nics", "2")]),
    ("nvidia.com/gpu", 2, &[("aligned-nics", "2"), ("pairing", "group")]),
    ("nvidia.com/gpu", 2, &[("aligned-nics", "4"), ("alignment", "numa")]),
    ("nvidia.com/gpu", 4, &[("aligned-nics", "4")]),
    (PART, 1, &[("aligned-nics", "1")]),
    (PART, 1, &[("aligned-nics", "2"), ("alignment", "numa")]),
];

const PART: &str = "nvidia.com/mig-1g.10gb";

/// The slices of a GPU, and those of each of its parts: of the profiles `1g.10gb`, twice, and `4g.40gb`.
const SLICES: u32 = 7;
const PARTS: [(&str, u32); 3] = [("1g.10gb", 1), ("1g.10gb", 1), ("4g.40gb", 4)];

/// A node whose driver publishes GPUs and their parts.
fn divided(machine: Machine) -> ClusterView {
    let mut view = ClusterView::default();
    for class in classes() {
        view.apply(class).unwrap();
    }
    view.apply(mig_class()).unwrap();
    let gpus = RefCell::new(Vec::new());
    let built = Built::new(machine, &[], &SharingArgs::default());
    let built = built.with_gpus(|gpu| gpus.borrow_mut().push(gpu.clone()));
    built.put(&mut view, "node-0", 0);
    let gpus = gpus.into_inner();
    let sets = (0..gpus.len()).map(|index| {
        json!({ "name": set(index), "counters": { "slices": { "value": SLICES.to_string() } } })
    });
    let sets: Vec<Value> = sets.collect();
    let devices = gpus.iter().enumerate().flat_map(|(index, gpu)| parts(index, gpu));
    let devices: Vec<Value> = devices.collect();
    let contents = [json!({ "sharedCounters": sets }), json!({ "devices": devices })];
    let names = ["node-0-counters", "node-0-gpu.nvidia.com"];
    for (name, mut spec) in names.into_iter().zip(contents) {
        spec["driver"] = "gpu.nvidia.com".into();
        spec["nodeName"] = "node-0".into();
        spec["pool"] = json!({ "name": "node-0", "generation": 2, "resourceSliceCount": 2 });
        let slice = json!({ "metadata": { "name": name }, "spec": spec });
        view.apply(serde_json::from_value::<ResourceSlice>(slice).unwrap()).unwrap();
    }
    view
}

fn set(index: usize) -> String {
    format!("gpu-{index}-counters")
}

/// A GPU and its parts, as devices that consume the counters of one set.
fn parts(index: usize, gpu: &Value) -> Vec<Value> {
    let mut whole = gpu.clone();
    whole["consumesCounters"] = consumed(index, SLICES);
    let parts = PARTS.iter().enumerate().map(|(number, (profile, slices))| {
        let mut part = gpu.clone();
        part["name"] = part_name(gpu["name"].as_str().unwrap(), number).into();
        let attributes = &mut part["attributes"];
        attributes["type"] = json!({ "string": "mig" });
        attributes["profile"] = json!({ "string": profile });
        attributes["parentUUID"] = attributes["uuid"].take();
        attributes["uuid"] = json!({ "string": format!("MIG-{index}-{number}") });
        part["consumesCounters"] = consumed(index, *slices);
        part
    });
    std::iter::once(whole).chain(parts).collect()
}

fn part_name(gpu: &str, number: usize) -> String {
    format!("{gpu}-mig-{number}")
}

fn consumed(index: usize, slices: u32) -> Value {
    json!([{ "counterSet": set(index), "counters": { "slices": { "value": slices.to_string() } } }])
}

/// A machine with the plan of a pod on it.
struct Case {
    view: ClusterView,
    plan: Plan,
    nearness: Nearness,
    gpus: usize,
    nics: usize,
    is_each: bool,
    asks_part: bool,
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let cases = [DGX_H100_VFS, HGX_VFS].into_iter().flat_map(|machine| {
        PODS.iter().filter_map(move |(resource, gpus, annotations)| {
            Case::new(machine, (resource, *gpus), annotations)
        })
    });
    cases.collect()
});

impl Case {
    /// `None` if the machine cannot serve the pod with nothing in use.
    fn new(
        machine: Machine,
        (resource, gpus): (&str, u32),
        annotations: &[(&str, &str)],
    ) -> Option<Self> {
        let view = divided(machine);
        let asked = pod(resource, gpus, annotations);
        let plan = admit(&asked, &view, &Policy::default()).ok()?.planned?.plan;
        let nearness = plan.machines.first()?.nearness?;
        let nics = annotations[0].1.parse().unwrap();
        let is_each = gpus > 1 && !annotations.contains(&("pairing", "group"));
        let asks_part = resource == PART;
        Some(Self { view, plan, nearness, gpus: gpus as usize, nics, is_each, asks_part })
    }

    fn check(&self, busy_gpus: &[u8], busy_nics: &[bool]) -> Result<(), TestCaseError> {
        let devices = usable(&self.view, "node-0");
        let mut state = AllocatedState::new();
        let gpus = self.occupy_gpus(&devices, busy_gpus, &mut state);
        let free = Devices { gpus, nics: occupy_nics(&devices, busy_nics, &mut state) };
        let near = Near::new(devices.topology, self.nearness);
        let fits = if self.is_each {
            near.each(&free, self.gpus, self.nics / self.gpus)
        } else {
            near.group(&free, self.gpus, self.nics)
        };
        let got = self.given(&devices, &state)?;
        let what = || format!("{} of {free:?}: {got:?}", self.plan.summary());
        prop_assert_eq!(got.is_some(), fits, "{}", what());
        if let Some(got) = &got {
            let ports: BTreeSet<_> = got.iter().map(|nic| devices.topology.port_of(*nic)).collect();
            prop_assert_eq!(ports.len(), self.nics, "two functions of one port: {}", what());
        }
        Ok(())
    }

    /// Marks GPUs and parts as in use: of each GPU the whole, or the parts whose bits are set. Returns the GPUs
    /// that a pod like this one can still get, or get a part of.
    fn occupy_gpus(
        &self,
        devices: &NodeDevices<'_>,
        busy: &[u8],
        state: &mut AllocatedState,
    ) -> Vec<PciAddress> {
        let mut free = Vec::new();
        for ((address, gpu), busy) in devices.gpus.iter().zip(busy) {
            let is_whole_busy = busy & 0b1000 != 0;
            if is_whole_busy {
                state.insert(gpu.id().clone());
                continue;
            }
            let is_used = |number: &usize| busy >> number & 1 == 1;
            for number in (0..PARTS.len()).filter(is_used) {
                let id = gpu.id();
                let part = part_name(&id.device, number);
                state.insert(DeviceId::new(&*id.driver, &*id.pool, part.as_str()));
            }
            let mut parts = 0..PARTS.len();
            let is_free = if self.asks_part {
                !(0..2).all(|it| is_used(&it))
            } else {
                !parts.any(|it| is_used(&it))
            };
            free.extend(is_free.then_some(*address));
        }
        free
    }

    /// The NICs that the allocator gives; `None` if the pod waits.
    fn given(
        &self,
        devices: &NodeDevices<'_>,
        state: &AllocatedState,
    ) -> Result<Option<Vec<PciAddress>>, TestCaseError> {
        let claim = Claim::from_spec(ClaimName::new("default", "a"), &self.plan.claim);
        let claims = [claim.map_err(|error| TestCaseError::fail(error.to_string()))?];
        let steps = Limits::steps(Policy::default().max_steps);
        let (inventory, settings) = (self.view.inventory(), self.view.settings());
        match allocate(inventory, "node-0", &claims, state, settings, steps).outcome {
            Outcome::NoFit(_) => Ok(None),
            Outcome::Allocated(claims) => {
                let results = claims.iter().flat_map(|claim| &claim.results);
                let chosen: BTreeSet<_> = results.map(|result| &result.device).collect();
                let nics = devices.nics.iter().filter(|(_, nic)| chosen.contains(nic.id()));
                Ok(Some(nics.map(|(address, _)| *address).collect()))
            }
            other => Err(TestCaseError::fail(format!("{other:?}"))),
        }
    }
}

/// Marks functions as in use. Returns one function of each port that has a free one.
fn occupy_nics(
    devices: &NodeDevices<'_>,
    busy: &[bool],
    state: &mut AllocatedState,
) -> Vec<PciAddress> {
    let mut free = BTreeMap::new();
    for ((address, nic), is_busy) in devices.nics.iter().zip(busy) {
        if *is_busy {
            state.insert(nic.id().clone());
        } else {
            free.insert(devices.topology.port_of(*address), *address);
        }
    }
    free.into_values().collect()
}

#[test]
fn devices_are_given_while_parts_of_others_are_in_use() {
    assert!(CASES.len() > 10, "{} cases", CASES.len());
    let config = Config::with_cases(Config::default().cases.max(STATES));
    let nics = prop::collection::vec(any::<bool>(), FUNCTIONS);
    // Half of the GPUs are free in most states.
    let gpus = prop::collection::vec(prop_oneof![Just(0), 0..16_u8], GPUS);
    let result = TestRunner::new(config)
        .run(&(0..CASES.len(), gpus, nics), |(case, gpus, nics)| CASES[case].check(&gpus, &nics));
    if let Err(error) = result {
        panic!("{error}");
    }
}
