//! The NICs of whole machines, as requests of a claim that names no GPU.
//!
//! If the pod takes every NIC too, a number of them is enough. Otherwise there is one request for each
//! cell of GPUs, with the bus IDs of the NICs in this cell. Machine types whose cells have different
//! sizes get one request for each GPU, or for each group of GPUs that shares a NIC.

use crate::claim::ClaimParts;
use crate::demand::Demand;
use crate::intent::{AlignmentPolicy, Intent};
use crate::join::form::{Apart, CellWay, Form, Order, Place, Source, Way};
use crate::join::{Classes, Question};
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use cluster_model::names::{alternative, attribute};
use k8s_openapi::api::resource::v1::{DeviceRequest, DeviceSubRequest, ExactDeviceRequest};
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{PciAddress, ShapeHash};

/// The name of the alternative of near NICs.
const NEAR: &str = "near";

/// The NICs of some of the blocks of a demand.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    blocks: u32,
    nics: Vec<PciAddress>,
}

/// The NICs that the pod gets on each machine of a question.
#[derive(Clone, Debug)]
pub(super) struct NicPlan {
    /// The nearness on each machine; `None` if the claim does not serve it, or with any NICs.
    pub(super) levels: Vec<Option<Nearness>>,
    /// Whether the claim serves each machine.
    pub(super) serves: Vec<bool>,
    /// The NICs of each part of the blocks, by shape.
    near: BTreeMap<ShapeHash, Vec<Part>>,
    /// The shapes of the machines that it serves.
    shapes: BTreeSet<ShapeHash>,
    /// True if the pod takes every NIC of each machine.
    takes_all: bool,
}

impl NicPlan {
    /// Chooses the NICs. `levels` returns the levels that a machine can have, best first.
    pub(super) fn new(
        intent: &Intent,
        question: Question<'_>,
        levels: impl Fn(&Machine<'_>) -> Vec<Nearness>,
    ) -> Self {
        let Question { demand, machines, .. } = question;
        let mut plan = Self {
            levels: Vec::new(),
            serves: Vec::new(),
            near: BTreeMap::new(),
            shapes: BTreeSet::new(),
            takes_all: true,
        };
        let mut known: BTreeMap<ShapeHash, Nearness> = BTreeMap::new();
        for machine in machines {
            let can = is_whole(machine, demand) && can_be_listed(machine);
            let can = if can { levels(machine) } else { Vec::new() };
            let nearest = can.into_iter().find(|level| demand.fits(&level.cells(machine)));
            let of_shape = machine.shapes.iter().find_map(|shape| known.get(shape)).copied();
            let level = match of_shape {
                // A claim cannot distinguish machines of one shape.
                Some(level) => Some(level).filter(|_| plan.has_near(machine, demand)),
                None => nearest,
            };
            if let (Some(level), None) = (level, of_shape) {
                for shape in &machine.shapes {
                    plan.near.insert(*shape, parts(demand, level, machine));
                    known.insert(*shape, level);
                }
            }
            let has_enough = machine.devices.nics.len() >= demand.all_nics() as usize;
            let is_served = match intent.policy {
                AlignmentPolicy::Required => level.is_some(),
                AlignmentPolicy::Preferred => has_enough && machine.nics_have(attribute::SHAPE),
            };
            if is_served {
                plan.shapes.extend(&machine.shapes);
            }
            plan.levels.push(level.filter(|_| is_served));
            plan.serves.push(is_served);
        }
        plan.keep_equal_parts();
        let all = machines.iter().zip(&plan.levels);
        let mut of_shapes = all.filter(|(it, _)| !it.shapes.is_disjoint(&plan.shapes));
        plan.takes_all = of_shapes.all(|(machine, level)| {
            level.is_some() && machine.devices.nics.len() == demand.all_nics() as usize
        });
        plan
    }

    /// The same without the machines that are not served after all, or not with near NICs.
    pub(super) fn only_where(&self, served: &[bool], near: &[bool]) -> Self {
        let levels = self.levels.iter().zip(near);
        let levels = levels.map(|(level, near)| level.filter(|_| *near)).collect();
        Self { levels, serves: served.to_vec(), ..self.clone() }
    }

    /// Returns true if the claim gives near NICs on any machine.
    pub(super) fn is_near(&self) -> bool {
        self.levels.iter().any(Option::is_some)
    }

    /// The nearness on most nodes.
    pub(super) fn nearness(&self, machines: &[Machine<'_>]) -> Option<Nearness> {
        let mut nodes: BTreeMap<Nearness, usize> = BTreeMap::new();
        for (machine, level) in machines.iter().zip(&self.levels) {
            if let Some(level) = level {
                *nodes.entry(*level).or_default() += machine.live_nodes();
            }
        }
        // Of equally many, the farthest.
        nodes.into_iter().max_by_key(|(level, nodes)| (*nodes, *level)).map(|(level, _)| level)
    }

    /// Writes the requests.
    pub(super) fn write(
        &self,
        intent: &Intent,
        question: Question<'_>,
        nic_class: &str,
    ) -> ClaimParts {
        let classes = Classes { gpu: String::new(), nic: nic_class.to_owned() };
        let source = Source {
            driver: question.driver,
            classes: &classes,
            gpu_profile: None,
            nic_class: question.nic_class,
            without_interface: intent.host_network,
            rails: question.rails,
            capacity: question.capacity,
            gpu_capacity: None,
            gpu_addresses: &[],
            last_resort: alternative::ANY,
        };
        let shapes: Vec<ShapeHash> = self.shapes.iter().copied().collect();
        let demand = self.demand(question.demand);
        let any = vec![Way::Any; demand.sizes().len()];
        let any = Form { ways: any, only: Some(shapes), apart: Apart::Pinned };
        let any = nics_of(any.write(&demand, source, Order::NicsThenGpus));
        if self.takes_all || !self.is_near() {
            return any;
        }
        let ways = (0..demand.sizes().len()).map(|index| Way::Cell(self.way(index)));
        let near = Form { ways: ways.collect(), only: None, apart: Apart::Pinned };
        let near = nics_of(near.write(&demand, source, Order::NicsThenGpus));
        match intent.policy {
            AlignmentPolicy::Required => near,
            AlignmentPolicy::Preferred => either(near, any),
        }
    }

    /// The demand in the parts of the claim.
    fn demand(&self, demand: &Demand) -> Demand {
        match self.near.values().next().filter(|_| !self.takes_all) {
            Some(parts) => {
                let sizes: Vec<u32> = parts.iter().map(|part| part.blocks).collect();
                demand.in_sizes(&sizes)
            }
            None => demand.as_counts(&[]).unwrap_or_else(|| demand.clone()),
        }
    }

    /// The NICs of a part on every machine type.
    fn way(&self, index: usize) -> CellWay {
        let mut places: BTreeMap<&[PciAddress], BTreeSet<ShapeHash>> = BTreeMap::new();
        for (shape, parts) in &self.near {
            if let Some(part) = parts.get(index) {
                places.entry(&part.nics).or_default().insert(*shape);
            }
        }
        CellWay {
            gpus: Vec::new(),
            places: places
                .into_iter()
                .map(|(nics, shapes)| Place { shapes, nics: nics.to_vec() })
                .collect(),
        }
    }

    /// Returns true if a machine of a known shape has enough NICs in each of its parts.
    fn has_near(&self, machine: &Machine<'_>, demand: &Demand) -> bool {
        let mut parts = machine.shapes.iter().filter_map(|shape| self.near.get(shape)).flatten();
        parts.all(|part| {
            part.nics.iter().filter(|nic| machine.devices.nics.contains_key(*nic)).count()
                >= (part.blocks * demand.nics) as usize
        })
    }

    /// Divides the parts of all machine types into single blocks, unless they have equal sizes.
    fn keep_equal_parts(&mut self) {
        let all: BTreeSet<Vec<u32>> = self
            .near
            .values()
            .map(|parts| parts.iter().map(|part| part.blocks).collect::<Vec<_>>())
            .collect();
        if all.len() < 2 {
            return;
        }
        for parts in self.near.values_mut() {
            *parts = parts
                .iter()
                .flat_map(|part| {
                    vec![Part { blocks: 1, nics: part.nics.clone() }; part.blocks as usize]
                })
                .collect();
        }
    }
}

/// Returns true if the pod takes all GPUs of the machine.
pub(super) fn is_whole(machine: &Machine<'_>, demand: &Demand) -> bool {
    machine.devices.gpus.len() == demand.all_gpus() as usize
}

/// Returns true if a claim can list the NICs of the machine.
fn can_be_listed(machine: &Machine<'_>) -> bool {
    machine.nics_have(attribute::SHAPE) && machine.nics_have(attribute::PCI_BUS_ID)
}

/// The NICs of each cell that serves some of the blocks, largest first. The pod takes every GPU, so
/// each cell serves as many blocks as it has GPUs for.
fn parts(demand: &Demand, level: Nearness, machine: &Machine<'_>) -> Vec<Part> {
    let mut parts: Vec<Part> = level
        .cells(machine)
        .into_iter()
        .filter_map(|cell| {
            let blocks = u32::try_from(demand.capacity(&cell)).ok()?;
            (blocks > 0).then_some(Part { blocks, nics: cell.nics })
        })
        .collect();
    parts.sort_by(|one, other| (other.blocks, &one.nics).cmp(&(one.blocks, &other.nics)));
    parts
}

/// The parts of a claim without its requests for GPUs.
fn nics_of(written: ClaimParts) -> ClaimParts {
    let ClaimParts { mut requests, nic_requests, .. } = written;
    requests.retain(|request| nic_requests.contains(&request.name));
    ClaimParts { requests, constraints: Vec::new(), nic_requests }
}

/// Near NICs, or else any: each request has both as alternatives.
fn either(near: ClaimParts, any: ClaimParts) -> ClaimParts {
    let both = near.requests.into_iter().zip(any.requests);
    let requests = both.map(|(near, any)| DeviceRequest {
        name: near.name,
        exactly: None,
        first_available: Some(
            [(NEAR, near.exactly), (alternative::ANY, any.exactly)]
                .into_iter()
                .filter_map(|(name, ask)| Some(subrequest(name, ask?)))
                .collect(),
        ),
    });
    let requests = requests.collect();
    ClaimParts { requests, constraints: Vec::new(), nic_requests: near.nic_requests }
}

fn subrequest(name: &str, ask: ExactDeviceRequest) -> DeviceSubRequest {
    DeviceSubRequest {
        name: name.to_owned(),
        device_class_name: ask.device_class_name,
        allocation_mode: ask.allocation_mode,
        count: ask.count,
        selectors: ask.selectors,
        capacity: ask.capacity,
        ..DeviceSubRequest::default()
    }
}
