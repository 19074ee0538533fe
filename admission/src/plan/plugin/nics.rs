//! The NICs of whole machines, as requests of a claim that names no GPU.
//!
//! If the pod takes every NIC too, a number of them is enough, unless the search for so many would be too
//! long. Otherwise there is one request for each cell of GPUs, with the bus IDs of the NICs in this cell. Machine types whose cells have different
//! sizes get one request for each GPU, or for each group of GPUs that shares a NIC.

use crate::demand::Demand;
use crate::fleet::Fleet;
use crate::intent::AlignmentPolicy;
use crate::join::form::{CellWay, Form, Place, Way};
use crate::nearness::Nearness;
use crate::promise::{Promise, Promises};
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::{PciAddress, ShapeHash};

/// The NICs of some of the blocks of a demand.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    blocks: u32,
    nics: Vec<PciAddress>,
}

/// The NICs of each part of the blocks, by shape.
type PartsOfShapes = BTreeMap<ShapeHash, Vec<Part>>;

/// The NICs that the pod gets on each machine of a fleet.
pub(super) struct NicPlan<'m> {
    pub(super) promises: Promises<'m>,
    pub(super) form: Form,
    /// The demand in the parts of the claim.
    pub(super) demand: Demand,
}

impl<'m> NicPlan<'m> {
    /// Chooses the NICs, with a list of them even if the pod takes all.
    pub(super) fn new(fleet: Fleet<'_, 'm>, is_listed: bool) -> Self {
        let (promises, parts) = promises(fleet);
        let served = fleet.machines.iter().filter(|it| promises.serve(it));
        let shapes: BTreeSet<ShapeHash> = served.flat_map(|it| it.shapes.clone()).collect();
        let mut of_shapes = fleet.machines.iter().filter(|it| !it.shapes.is_disjoint(&shapes));
        let takes_all = of_shapes.all(|machine| {
            promises.on(machine).nearness().is_some()
                && machine.devices.nics.len() == fleet.demand().all_nics() as usize
        });
        let is_listed = promises.are_near() && (is_listed || !takes_all);
        let parts = if is_listed { equal_parts(parts) } else { PartsOfShapes::new() };
        let demand = match parts.values().next() {
            Some(parts) => {
                let sizes: Vec<u32> = parts.iter().map(|part| part.blocks).collect();
                fleet.demand().in_sizes(&sizes)
            }
            None => fleet.demand().as_counts(&[]).unwrap_or_else(|| fleet.demand().clone()),
        };
        let is_required = fleet.intent.policy == AlignmentPolicy::Required;
        let ways = (0..demand.sizes().len()).map(|index| {
            let near = is_listed.then(|| Way::Cell(way(&parts, index)));
            let any = (!is_listed || !is_required).then_some(Way::Any);
            near.into_iter().chain(any).collect()
        });
        let form = Form::by_block(ways.collect()).only(shapes);
        Self { promises, form, demand }
    }
}

/// What each machine gets, and the NICs of each part of the blocks.
fn promises<'m>(fleet: Fleet<'_, 'm>) -> (Promises<'m>, PartsOfShapes) {
    let demand = fleet.demand();
    let mut promises = Promises::default();
    let mut near = PartsOfShapes::new();
    let mut known: BTreeMap<ShapeHash, Nearness> = BTreeMap::new();
    for machine in fleet.machines {
        let of_shape = machine.shapes.iter().find_map(|shape| known.get(shape)).copied();
        let level = match of_shape {
            // A claim cannot distinguish machines of one shape.
            Some(level) => Some(level).filter(|_| has_parts(machine, demand, &near)),
            None => nearest(fleet, machine),
        };
        if let (Some(level), None) = (level, of_shape) {
            for shape in &machine.shapes {
                near.insert(*shape, parts(demand, level, machine));
                known.insert(*shape, level);
            }
        }
        let has_enough = machine.devices.nics.len() >= demand.all_nics() as usize;
        let can_serve = match fleet.intent.policy {
            AlignmentPolicy::Required => level.is_some(),
            AlignmentPolicy::Preferred => has_enough && machine.nics_have(attribute::SHAPE),
        };
        promises.set(machine, Promise::best(level.filter(|_| can_serve), can_serve));
    }
    (promises, near)
}

/// The nearest level of a machine all of whose GPUs the pod takes, if a claim can list its NICs.
fn nearest(fleet: Fleet<'_, '_>, machine: &Machine<'_>) -> Option<Nearness> {
    let is_listable =
        machine.nics_have(attribute::SHAPE) && machine.nics_have(attribute::PCI_BUS_ID);
    if !is_whole(machine, fleet) || !is_listable {
        return None;
    }
    let mut levels = fleet.levels(machine).into_iter();
    levels.find(|level| fleet.demand().fits(&level.cells(machine)))
}

/// The NICs of a part on every machine type.
fn way(parts: &PartsOfShapes, index: usize) -> CellWay {
    let mut places: BTreeMap<&[PciAddress], BTreeSet<ShapeHash>> = BTreeMap::new();
    for (shape, parts) in parts {
        if let Some(part) = parts.get(index) {
            places.entry(&part.nics).or_default().insert(*shape);
        }
    }
    let places = places.into_iter().map(|(nics, shapes)| Place { shapes, nics: nics.to_vec() });
    CellWay { gpus: Vec::new(), places: places.collect() }
}

/// Returns true if a machine of a known shape has enough NICs in each of its parts.
fn has_parts(machine: &Machine<'_>, demand: &Demand, near: &PartsOfShapes) -> bool {
    let mut parts = machine.shapes.iter().filter_map(|shape| near.get(shape)).flatten();
    parts.all(|part| {
        part.nics.iter().filter(|nic| machine.devices.nics.contains_key(*nic)).count()
            >= (part.blocks * demand.nics) as usize
    })
}

/// Divides the parts of all machine types into single blocks, unless they have equal sizes.
fn equal_parts(mut near: PartsOfShapes) -> PartsOfShapes {
    let sizes = near.values().map(|parts| parts.iter().map(|part| part.blocks).collect());
    if sizes.collect::<BTreeSet<Vec<u32>>>().len() < 2 {
        return near;
    }
    for parts in near.values_mut() {
        let blocks = parts.iter().flat_map(|Part { blocks, nics }| {
            vec![Part { blocks: 1, nics: nics.clone() }; *blocks as usize]
        });
        *parts = blocks.collect();
    }
    near
}

/// Returns true if the pod takes all GPUs of the machine.
pub(super) fn is_whole(machine: &Machine<'_>, fleet: Fleet<'_, '_>) -> bool {
    machine.devices.gpus.len() == fleet.demand().all_gpus() as usize
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
