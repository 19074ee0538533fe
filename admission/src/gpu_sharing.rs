//! GPUs that claims can share (KEP-5075), and how a claim takes them as a whole.
//!
//! A request that does not name a capacity takes the part that the driver sets as its default, so
//! two pods that ask for one GPU each would get the same GPU. NVIDIA's driver publishes such GPUs
//! with its feature gate `ConsumableShares` (dra-driver-nvidia-gpu,
//! `cmd/gpu-kubelet-plugin/consumable_shares.go`): by a number of shares, of which a claim takes
//! one; by memory, of which a claim takes all; or without a limit, where a claim takes nothing.
//!
//! The claim names all of each capacity of which it would take only a part. Where a claim of
//! another pod can take nothing, no amount keeps it away, and a warning says so.

use crate::claim::{ClaimParts, distinct_attribute};
use crate::demand::Demand;
use crate::plan::planned::{PlannedMachine, named};
use cluster_model::gpu_drivers::GpuDriver;
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::node_devices::capacity_of;
use dra_allocator::device::DeviceCapacity;
use dra_allocator::{Device, Quantity, Settings};
use k8s_openapi::api::resource::v1::CapacityRequirements;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::{BTreeMap, BTreeSet};

/// What a claim requests of GPUs that claims can share, and where that is not enough.
#[derive(Clone, Debug)]
pub(crate) struct SharedGpus {
    /// All of each capacity of which a claim would take only a part.
    capacity: Option<CapacityRequirements>,
    /// How the GPUs of a pod are kept distinct.
    distinct: Distinct,
    /// Why other pods can get the GPUs of a machine too, by its first node.
    exposed: BTreeMap<String, Exposed>,
}

/// Why other pods can get a GPU too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Exposed {
    /// A claim can take nothing of each of its capacities.
    Unlimited,
    /// Its capacities are not those of the GPUs of other machines.
    Otherwise,
}

/// How the GPUs of a pod are kept distinct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distinct {
    /// Their capacities are not enough for two requests.
    ByCapacity,
    /// By this attribute.
    By(&'static str),
    /// They are not.
    Not,
}

/// The requested amounts, by capacity.
type Amounts = BTreeMap<String, Quantity>;

impl SharedGpus {
    /// What a claim for GPUs of these machines requests; `None` if claims can share none of them.
    pub(crate) fn new(
        driver: &GpuDriver,
        settings: &Settings,
        machines: &[Machine<'_>],
    ) -> Option<Self> {
        let is_on = settings.gates.consumable_capacity;
        let mut gpus = machines.iter().flat_map(gpus);
        if !is_on || !gpus.any(Device::allows_multiple_allocations) {
            return None;
        }
        // Remembered machines may have been shared otherwise; they matter only while there are no others.
        let present = machines.iter().filter(|machine| machine.live_nodes() > 0);
        let mut counted: Vec<&Machine<'_>> = present.collect();
        if counted.is_empty() {
            counted = machines.iter().collect();
        }
        let amounts = amounts(&counted);
        let exposed = machines.iter().filter_map(|machine| {
            Some((machine.devices.node.to_owned(), exposed(machine, &amounts)?))
        });
        let requests = amounts.iter().map(|(name, it)| (name.clone(), Text(it.to_string())));
        let requests: BTreeMap<_, _> = requests.collect();
        Some(Self {
            capacity: (!requests.is_empty())
                .then_some(CapacityRequirements { requests: Some(requests) }),
            distinct: distinct(driver, &counted, &amounts),
            exposed: exposed.collect(),
        })
    }

    /// The capacity to request of each GPU.
    pub(crate) fn capacity(&self) -> Option<&CapacityRequirements> {
        self.capacity.as_ref()
    }

    /// Returns true if a claim says the same about GPUs by both.
    pub(crate) fn is_same(one: Option<&Self>, other: Option<&Self>) -> bool {
        one.map(Self::said).unwrap_or_default() == other.map(Self::said).unwrap_or_default()
    }

    /// What a claim says about GPUs: the capacity, and the attribute by which they are distinct.
    fn said(&self) -> (Option<&CapacityRequirements>, Option<&'static str>) {
        let attribute = match self.distinct {
            Distinct::By(name) => Some(name),
            Distinct::ByCapacity | Distinct::Not => None,
        };
        (self.capacity.as_ref(), attribute)
    }

    /// Adds a constraint that the GPUs of the pod are distinct, if capacities do not keep them so.
    /// `parts` has no other requests than for GPUs and NICs.
    pub(crate) fn keep_apart(&self, demand: &Demand, parts: &mut ClaimParts) {
        let Distinct::By(name) = self.distinct else { return };
        if demand.all_gpus() < 2 {
            return;
        }
        let requests = parts.requests.iter().map(|request| request.name.clone());
        let gpus = requests.filter(|name| !parts.nic_requests.contains(name)).collect();
        parts.constraints.push(distinct_attribute(gpus, name));
    }

    /// Says which present machines of the plan can give the pod a GPU that other pods use too, or
    /// one GPU twice.
    pub(crate) fn warning(
        &self,
        demand: &Demand,
        planned: &[PlannedMachine],
        settings: &Settings,
    ) -> Option<String> {
        let mut found: BTreeMap<Exposed, Vec<&PlannedMachine>> = BTreeMap::new();
        for machine in planned.iter().filter(|it| it.is_served && it.present > 0) {
            if let Some(exposed) = machine.nodes.first().and_then(|node| self.exposed.get(node)) {
                found.entry(*exposed).or_default().push(machine);
            }
        }
        if found.is_empty() {
            return None;
        }
        let why = found.iter().map(|(exposed, machines)| exposed.why(machines));
        let why: Vec<_> = why.collect();
        let twice = self.can_repeat(demand, settings);
        let twice = if twice { ", and the pod itself can get one GPU twice" } else { "" };
        Some(format!("{}{twice}", why.join(", and ")))
    }

    /// Returns true if the scheduler can give the pod one GPU twice.
    fn can_repeat(&self, demand: &Demand, settings: &Settings) -> bool {
        let all = demand.all_gpus();
        match self.distinct {
            Distinct::ByCapacity => false,
            // Before 1.37 it remembers one device of each request.
            Distinct::By(_) => settings.quirks.distinct_by_request && all > 2,
            Distinct::Not => all > 1,
        }
    }
}

impl Exposed {
    fn why(self, machines: &[&PlannedMachine]) -> String {
        let on = named(machines);
        match self {
            Self::Unlimited => format!(
                "{on} other pods can get the GPUs of the pod too, since the driver there lets claims \
                 share a GPU without taking a part of it; a number of shares in its configuration \
                 would keep GPUs whole"
            ),
            Self::Otherwise => format!(
                "{on} other pods can get the GPUs of the pod too, since GPUs are shared there in \
                 another way than on other nodes; a node selector for nodes of one kind would keep \
                 GPUs whole"
            ),
        }
    }
}

fn gpus<'m>(machine: &'m Machine<'_>) -> impl Iterator<Item = &'m Device> {
    machine.devices.gpus.values().copied()
}

fn all<'m>(machines: &'m [&Machine<'_>]) -> impl Iterator<Item = &'m Device> {
    machines.iter().flat_map(|machine| gpus(machine))
}

/// All that each GPU can give, of each capacity that every GPU has and of which some GPU gives only
/// a part by default.
fn amounts(machines: &[&Machine<'_>]) -> Amounts {
    let shared = all(machines).filter(|gpu| gpu.allows_multiple_allocations());
    let of_parts = shared.flat_map(|gpu| {
        let capacity = gpu.capacity().iter();
        capacity.filter(|(_, it)| it.by_default() < it.most()).map(|(name, _)| name.as_str())
    });
    let names: BTreeSet<&str> = of_parts.collect();
    names.into_iter().filter_map(|name| Some((name.to_owned(), least(machines, name)?))).collect()
}

/// The least of the most that any GPU has of a capacity, if all have it.
fn least(machines: &[&Machine<'_>], name: &str) -> Option<Quantity> {
    let each = all(machines).map(|gpu| capacity_of(gpu, name).map(DeviceCapacity::most));
    each.collect::<Option<Vec<_>>>()?.into_iter().min()
}

/// Why other pods can get GPUs of the machine beside a claim for these amounts, if they can.
fn exposed(machine: &Machine<'_>, requested: &Amounts) -> Option<Exposed> {
    if are_taken_whole(machine, requested) {
        return None;
    }
    let alone = amounts(&[machine]);
    let is_otherwise = are_taken_whole(machine, &alone);
    Some(if is_otherwise { Exposed::Otherwise } else { Exposed::Unlimited })
}

/// Whether a claim for these amounts leaves nothing of any GPU of the machine to others.
fn are_taken_whole(machine: &Machine<'_>, requested: &Amounts) -> bool {
    gpus(machine).all(|gpu| {
        !gpu.allows_multiple_allocations()
            || taken(gpu, requested).any(|(capacity, amount)| capacity.is_used_up_by(&amount))
    })
}

/// What a claim takes of each capacity of a GPU.
fn taken<'g>(
    gpu: &'g Device,
    requested: &'g Amounts,
) -> impl Iterator<Item = (&'g DeviceCapacity, Quantity)> {
    gpu.capacity().iter().map(move |(name, capacity)| {
        let amount = requested.get(name.as_str()).copied();
        (capacity, amount.unwrap_or_else(|| capacity.by_default()))
    })
}

/// Whether a GPU has no room for two claims that take these amounts.
fn has_room_for_one_only(gpu: &Device, requested: &Amounts) -> bool {
    !gpu.allows_multiple_allocations()
        || taken(gpu, requested).any(|(capacity, it)| !capacity.is_enough_for_two(&it))
}

fn distinct(driver: &GpuDriver, machines: &[&Machine<'_>], requested: &Amounts) -> Distinct {
    if all(machines).all(|gpu| has_room_for_one_only(gpu, requested)) {
        return Distinct::ByCapacity;
    }
    let names = [attribute::PCI_BUS_ID].into_iter().chain(driver.uuid_attribute);
    names
        .into_iter()
        .find(|name| all(machines).all(|gpu| gpu.attribute(name).is_some()))
        .map_or(Distinct::Not, Distinct::By)
}
