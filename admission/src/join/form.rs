//! How a claim expresses nearness: the ways of a block, written as requests and constraints.
//!
//! With one way, requests are plain. With several, the requests of a block are `firstAvailable`
//! over the ways. For each way *i*, one constraint names `nics/i` and `gpus/j` for all j ≠ i, on
//! an attribute that is equal within a kind of device and differs between kinds. The allocator can
//! therefore never choose these two together, so NICs and GPUs use the same way. The way
//! [`Way::Any`] has no constraint: NICs may use it if no nearer way is left, and then any GPU is
//! accepted. Counts keep the search short. A way that divides devices among NUMA nodes makes several
//! requests of one, and for all of them there is one constraint for each way, [`Way::Any`] included.
//!
//! For a GPU driver without such an attribute, the form is *anchored*: one NIC is the anchor, and
//! each GPU is a separate request. The bus ID, which is unique, keeps the anchor from GPUs of
//! another way. The other NICs follow the anchor by an attribute that only NICs have. This works
//! only for required alignment: the allocator would use [`Way::Any`] too early.

use super::pinned_cell::{MachineType, PinnedCell};
use crate::claim::{Ask, ClaimParts, exactly, first_available, match_attribute};
use crate::demand::{Block, Demand};
use crate::fleet::{Fleet, GpuSource};
use crate::selector::Selector;
use cluster_model::names::{alternative, attribute};
use k8s_openapi::api::resource::v1::{DeviceConstraint, DeviceRequest};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use topology_graph::{PciAddress, ShapeHash};

/// The maximum number of alternatives of a request (`FirstAvailableDeviceRequestMaxSize`).
pub(crate) const WAYS_MAX: usize = 8;

/// The name of the alternative of near NICs in a claim that names no GPU.
const NEAR: &str = "near";

/// One way in which the devices of a block may be near each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// They have the same value of an attribute.
    Attribute {
        /// The name of the join.
        join: &'static str,
        /// The attribute.
        name: &'static str,
        /// The node shapes on which the attribute implies nearness; `None` means all.
        only: Option<Vec<ShapeHash>>,
    },
    /// They are in this cell.
    Cell(CellWay),
    /// They are in this cell, which the claim is pinned to.
    Pinned(PinnedCell),
    /// The driver chooses NICs that are near when the pod starts. The places are any, or those of these
    /// numbers.
    Late(Option<Range<u32>>),
    /// They are divided among NUMA nodes.
    Across(Across),
    /// They need not be near each other.
    Any,
}

/// A cell of each of several machine types. On no machine that it lists does it select devices of
/// two cells, so the GPUs need no shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CellWay {
    /// The GPUs of all these cells.
    pub(crate) gpus: Vec<PciAddress>,
    /// The NICs, by machine type.
    pub(crate) places: Vec<Place>,
}

/// The NICs of a cell on nodes of these shapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) shapes: BTreeSet<ShapeHash>,
    pub(crate) nics: Vec<PciAddress>,
}

/// Devices of several NUMA nodes, each with its NUMA node, as a cell, and their number. All ways of a
/// form that divide devices have the same number of parts, and each part is a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Across {
    pub(crate) gpus: Vec<(CellWay, u32)>,
    pub(crate) nics: Vec<(CellWay, u32)>,
}

/// How the blocks of a claim are tied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// The ways of each block, best first. The last ones are also those of the blocks after it.
    ways: Vec<Vec<Way>>,
    /// The node shapes that the claim is limited to.
    pub(crate) only: Option<Vec<ShapeHash>>,
    /// How several ways are kept apart.
    pub(crate) apart: Apart,
}

/// How a NIC of one way and a GPU of another are kept apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Apart {
    /// By an attribute that distinguishes kinds of devices.
    Kind,
    /// By the bus ID, between an anchor and each GPU.
    Anchor {
        /// The attribute that the other NICs share with the anchor.
        nics_by: &'static str,
    },
    /// Not needed: each block has one way with GPUs of its own, or the claim names no GPU.
    Block,
}

/// The order of requests, in which the allocator searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Block by block, NICs first.
    NicThenGpu,
    /// Block by block, GPUs first.
    GpuThenNic,
    /// All NICs, then all GPUs.
    NicsThenGpus,
}

/// The devices of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Gpus,
    Nics,
}

impl Order {
    /// The orders that differ for this demand. With several ways, NICs come first: the side that is
    /// tried first decides the way.
    pub(crate) fn all(demand: &Demand, form: &Form, gpu_source: GpuSource) -> Vec<Self> {
        let mut orders = vec![Self::NicThenGpu];
        if gpu_source != GpuSource::Claim {
            return orders;
        }
        if form.ways_of(0).len() == 1 {
            orders.push(Self::GpuThenNic);
        }
        if demand.blocks > 1 {
            orders.push(Self::NicsThenGpus);
        }
        orders
    }
}

impl Way {
    /// By an attribute on all node shapes.
    pub(crate) fn by(join: &'static str, name: &'static str) -> Self {
        Self::Attribute { join, name, only: None }
    }

    /// The parts of the devices, if the way divides them.
    fn parts(&self, side: Side) -> Option<&[(CellWay, u32)]> {
        match (self, side) {
            (Self::Across(across), Side::Gpus) => Some(&across.gpus),
            (Self::Across(across), Side::Nics) => Some(&across.nics),
            _ => None,
        }
    }

    /// How the devices of a part are chosen, and their number, where another way divides so many
    /// devices among this many parts.
    fn part(&self, side: Side, (part, of): (usize, usize), count: u32) -> (Cow<'_, Self>, u32) {
        match self.parts(side).and_then(|parts| parts.get(part)) {
            Some((cell, count)) => (Cow::Owned(Self::Cell(cell.clone())), *count),
            None if part == 0 => (Cow::Borrowed(self), count + 1 - u32::try_from(of).unwrap_or(1)),
            None => (Cow::Borrowed(self), 1),
        }
    }
}

impl Form {
    /// The same ways for all blocks.
    pub(crate) fn new(ways: Vec<Way>, apart: Apart) -> Self {
        Self { ways: vec![ways], only: None, apart }
    }

    /// Ways of its own for each block.
    pub(crate) fn by_block(ways: Vec<Vec<Way>>) -> Self {
        Self { ways, only: None, apart: Apart::Block }
    }

    /// The same with these ways before any devices, if it has any devices at last.
    pub(crate) fn with_across(&self, across: &[Across]) -> Option<Self> {
        let [ways] = self.ways.as_slice() else { return None };
        let (last, near) = ways.split_last()?;
        let across = across.iter().cloned().map(Way::Across);
        let ways = near.iter().cloned().chain(across).chain([last.clone()]).collect();
        (*last == Way::Any).then(|| Self { ways: vec![ways], ..self.clone() })
    }

    /// The same, limited to nodes of these shapes.
    pub(crate) fn only(self, shapes: BTreeSet<ShapeHash>) -> Self {
        Self { only: Some(shapes.into_iter().collect()), ..self }
    }

    /// All ways of all blocks.
    pub(crate) fn ways(&self) -> impl Iterator<Item = &Way> + Clone {
        self.ways.iter().flatten()
    }

    /// Writes the form as a claim.
    pub(crate) fn write(&self, demand: &Demand, fleet: Fleet<'_, '_>, order: Order) -> ClaimParts {
        let mut blocks = demand.requests();
        if fleet.terms.gpu_source != GpuSource::Claim {
            for block in &mut blocks {
                block.gpus.clear();
            }
        }
        let gpu_addresses = &*fleet.gpu_addresses();
        let writers = blocks.iter().enumerate().map(|(index, block)| {
            let ways = self.ways_of(index);
            Writer { form: self, block, ways, fleet, gpu_addresses }
        });
        let writers: Vec<Writer<'_>> = writers.collect();
        let all = writers.iter();
        let requests = match order {
            Order::NicThenGpu => all.flat_map(|it| [it.nics(), it.gpus()].concat()).collect(),
            Order::GpuThenNic => all.flat_map(|it| [it.gpus(), it.nics()].concat()).collect(),
            Order::NicsThenGpus => {
                all.clone().flat_map(Writer::nics).chain(all.flat_map(Writer::gpus)).collect()
            }
        };
        ClaimParts {
            requests,
            constraints: writers.iter().flat_map(Writer::constraints).collect(),
            nic_requests: writers.iter().flat_map(Writer::nic_names).collect(),
        }
    }

    /// The ways of a block.
    fn ways_of(&self, block: usize) -> &[Way] {
        self.ways.get(block).or_else(|| self.ways.last()).map(Vec::as_slice).unwrap_or_default()
    }

    /// The cells that the claim is pinned to, for messages.
    pub(crate) fn place(&self) -> Option<String> {
        let pinned = self.ways().filter_map(|way| match way {
            Way::Pinned(cell) => Some(cell),
            Way::Attribute { .. } | Way::Cell(_) | Way::Late(_) | Way::Across(_) | Way::Any => None,
        });
        let mut keys: Vec<_> = pinned.clone().map(|cell| cell.key.as_str()).collect();
        keys.dedup();
        let machine = pinned.map(|cell| cell.machine.name()).next()?;
        Some(format!("{} of {machine}", keys.join(" and ")))
    }

    /// The label of the nodes that the claim is limited to, if its NICs do not name their machine.
    pub(crate) fn node_label(&self) -> Option<(&'static str, String)> {
        self.ways().find_map(|way| match way {
            Way::Pinned(PinnedCell { machine: MachineType::NodeLabel(name, value), .. }) => {
                Some((*name, value.clone()))
            }
            Way::Pinned(_)
            | Way::Attribute { .. }
            | Way::Cell(_)
            | Way::Late(_)
            | Way::Across(_)
            | Way::Any => None,
        })
    }
}

impl Place {
    /// Selects the NICs on nodes of these shapes.
    fn selector(&self) -> Selector {
        let shapes: Vec<_> = self.shapes.iter().map(ToString::to_string).collect();
        let selector = match shapes.as_slice() {
            [only] => Selector::anything().and_string(attribute::SHAPE, only),
            several => Selector::anything()
                .and_one_of(attribute::SHAPE, several.iter().map(String::as_str)),
        };
        selector.and_addresses(attribute::PCI_BUS_ID, &self.nics)
    }
}

/// Writes a block of a claim.
struct Writer<'a> {
    form: &'a Form,
    block: &'a Block,
    /// The ways of the block to write.
    ways: &'a [Way],
    fleet: Fleet<'a, 'a>,
    gpu_addresses: &'a [&'static str],
}

impl Writer<'_> {
    fn nics(&self) -> Vec<DeviceRequest> {
        let (name, count) = &self.block.nics;
        match self.rest() {
            None => self.divided(Side::Nics, (name, *count), |way, count| self.nic_ask(way, count)),
            Some((rest, others)) => {
                let anchor = self.request(name, |way| self.nic_ask(way, 1));
                vec![anchor, exactly(&rest, self.nic_ask(&Way::Any, others))]
            }
        }
    }

    fn nic_ask(&self, way: &Way, count: u32) -> Ask<'_> {
        let terms = self.fleet.terms;
        let capacity = terms.granted.capacity.as_ref();
        Ask { class: &terms.classes.nic, count, selector: self.nic(way), capacity }
    }

    fn gpus(&self) -> Vec<DeviceRequest> {
        let class = &self.fleet.terms.classes.gpu;
        let capacity = self.fleet.gpu_capacity();
        self.gpu_requests()
            .iter()
            .flat_map(|(name, count)| {
                self.divided(Side::Gpus, (name, *count), |way, count| Ask {
                    class,
                    count,
                    selector: self.gpu(way),
                    capacity,
                })
            })
            .collect()
    }

    /// A request for so many devices, or several if a way divides them.
    fn divided<'a>(
        &'a self,
        side: Side,
        (name, count): (&str, u32),
        ask: impl Fn(&Way, u32) -> Ask<'a>,
    ) -> Vec<DeviceRequest> {
        let names = self.names_of_parts(side, name);
        let parts = names.iter().enumerate();
        parts
            .map(|(part, own)| {
                self.request(own, |way| {
                    let (way, count) = way.part(side, (part, names.len()), count);
                    ask(&way, count)
                })
            })
            .collect()
    }

    /// The names of the requests for the parts of devices that some way divides.
    fn names_of_parts(&self, side: Side, name: &str) -> Vec<String> {
        match self.ways.iter().find_map(|way| way.parts(side)) {
            Some(parts) if parts.len() > 1 => {
                (0..parts.len()).map(|part| format!("{name}-{part}")).collect()
            }
            _ => vec![name.to_owned()],
        }
    }

    /// Names and counts of the requests for GPUs; with an anchor, one request per GPU.
    fn gpu_requests(&self) -> Vec<(String, u32)> {
        if !self.is_anchored() {
            return self.block.gpus.clone();
        }
        let all = self.block.gpus.iter();
        all.flat_map(|(name, count)| (0..*count).map(move |i| (format!("{name}-{i}"), 1))).collect()
    }

    /// Name and count of the request for the NICs besides the anchor.
    fn rest(&self) -> Option<(String, u32)> {
        let (name, count) = &self.block.nics;
        (self.is_anchored() && *count > 1).then(|| (format!("{name}-rest"), count - 1))
    }

    fn nic_names(&self) -> Vec<String> {
        let rest = self.rest().map(|(name, _)| name);
        self.names_of_parts(Side::Nics, &self.block.nics.0).into_iter().chain(rest).collect()
    }

    fn is_anchored(&self) -> bool {
        matches!(self.form.apart, Apart::Anchor { .. }) && self.ways.len() > 1
    }

    fn request<'a>(&'a self, name: &str, ask: impl Fn(&Way) -> Ask<'a>) -> DeviceRequest {
        match self.ways {
            [only] => exactly(name, ask(only)),
            ways => {
                let asks = ways.iter().enumerate();
                first_available(name, asks.map(|(i, way)| (self.way_name(i, way), ask(way))))
            }
        }
    }

    fn nic(&self, way: &Way) -> Selector {
        let terms = self.fleet.terms;
        let mut selector = terms.nic_class.selector(self.fleet.intent.host_network);
        selector = match terms.granted.rails.as_slice() {
            [] => selector,
            [rail] => selector.and_int(attribute::RAIL, *rail),
            rails => selector.and_one_int_of(attribute::RAIL, rails),
        };
        let only = match way {
            Way::Attribute { only: Some(only), .. } => Some(only),
            Way::Attribute { only: None, .. } | Way::Any => self.form.only.as_ref(),
            Way::Cell(_) | Way::Pinned(_) | Way::Late(_) | Way::Across(_) => None,
        };
        if let Some(only) = only {
            let shapes: Vec<_> = only.iter().map(ToString::to_string).collect();
            selector = selector.and_one_of(attribute::SHAPE, shapes.iter().map(String::as_str));
        }
        match way {
            Way::Cell(cell) => {
                selector.and_either(cell.places.iter().map(Place::selector).collect())
            }
            Way::Pinned(cell) => {
                let selector = match &cell.machine {
                    MachineType::Attribute(name, value) => selector.and_string(name, value),
                    MachineType::NodeLabel(..) => selector,
                };
                match cell.address_attribute {
                    Some(name) => selector.and_addresses(name, &cell.nics),
                    None => selector,
                }
            }
            Way::Late(numbers) => {
                let selector = selector.and_true(attribute::LATE_BINDING);
                match numbers.clone() {
                    None => selector,
                    Some(numbers) => {
                        let numbers: Vec<i64> = numbers.map(i64::from).collect();
                        selector.and_one_int_of(attribute::PLACE, &numbers)
                    }
                }
            }
            Way::Attribute { .. } | Way::Across(_) | Way::Any => selector,
        }
    }

    fn gpu(&self, way: &Way) -> Selector {
        let driver = self.fleet.driver();
        let selector = Selector::driver(driver.driver);
        let selector = driver
            .kind_attribute
            .into_iter()
            .fold(selector, |selector: Selector, kind| selector.and_string(kind, driver.gpu_kind));
        let selector = match (driver.part, self.fleet.intent.gpu_profile()) {
            (Some(part), Some(profile)) => selector.and_string(part.profile_attribute, profile),
            _ => selector,
        };
        match way {
            Way::Cell(CellWay { gpus, .. }) | Way::Pinned(PinnedCell { gpus, .. }) => {
                let names = self.gpu_addresses.iter();
                let listed = names.map(|name| Selector::anything().and_addresses(name, gpus));
                selector.and_either(listed.collect())
            }
            Way::Attribute { .. } | Way::Late(_) | Way::Across(_) | Way::Any => selector,
        }
    }

    fn constraints(&self) -> Vec<DeviceConstraint> {
        let ways = self.ways;
        if let [only] = ways {
            let gpus = self.block.gpus.iter().map(|(name, _)| name.clone());
            let requests = [self.block.nics.0.clone()].into_iter().chain(gpus).collect();
            return match only {
                Way::Attribute { name, .. } => vec![match_attribute(requests, name)],
                Way::Cell(_) | Way::Pinned(_) | Way::Late(_) | Way::Across(_) | Way::Any => {
                    Vec::new()
                }
            };
        }
        // Parts of the devices by another way than the rest would be worse than any devices.
        let divides = ways.iter().any(|way| matches!(way, Way::Across(_)));
        let near = ways.iter().enumerate().filter(|(_, way)| divides || **way != Way::Any);
        match self.form.apart {
            Apart::Kind => near.flat_map(|(i, way)| self.way_constraints(i, way)).collect(),
            Apart::Anchor { nics_by } => {
                let apart = near.flat_map(|(i, _)| self.anchor_constraints(i));
                let rest = self.rest().map(|_| match_attribute(self.nic_names(), nics_by));
                apart.chain(rest).collect()
            }
            Apart::Block => Vec::new(),
        }
    }

    /// Constraints that exclude choosing the anchor by this way and a GPU by another.
    fn anchor_constraints(&self, i: usize) -> Vec<DeviceConstraint> {
        self.gpu_requests()
            .iter()
            .map(|(gpu, _)| {
                let others = (0..self.ways.len()).filter(|j| *j != i);
                let gpus = others.map(|j| self.subrequest(gpu, j));
                let anchor = self.subrequest(&self.block.nics.0, i);
                let requests = [anchor].into_iter().chain(gpus).collect();
                match_attribute(requests, attribute::PCI_BUS_ID)
            })
            .collect()
    }

    fn subrequest(&self, request: &str, i: usize) -> String {
        format!("{request}/{}", self.way_name(i, &self.ways[i]))
    }

    /// The name of the subrequest for a way.
    fn way_name(&self, index: usize, way: &Way) -> String {
        match way {
            Way::Attribute { join, .. } => (*join).to_owned(),
            Way::Cell(_) if self.fleet.terms.gpu_source.is_plugin() => NEAR.to_owned(),
            Way::Cell(_) | Way::Pinned(_) | Way::Late(_) => format!("c{index}"),
            Way::Across(_) => format!("{}{index}", alternative::ACROSS),
            Way::Any if self.fleet.intent.are_pairs_grouped() => alternative::ANY_PAIRS.to_owned(),
            Way::Any => alternative::ANY.to_owned(),
        }
    }

    /// Constraints that GPUs use the same way as NICs, and the same attribute value if the way is
    /// an attribute.
    fn way_constraints(&self, i: usize, way: &Way) -> Vec<DeviceConstraint> {
        let nics = self.names_of_parts(Side::Nics, &self.block.nics.0).into_iter();
        let nics: Vec<String> = nics.map(|name| self.subrequest(&name, i)).collect();
        let kind = self.fleet.driver().kind_attribute;
        let kind = kind.filter(|_| !self.block.gpus.is_empty());
        let apart = kind.map(|kind| {
            let others = (0..self.ways.len()).filter(|j| *j != i);
            let gpus: Vec<String> = others.flat_map(|j| self.gpus_by(j)).collect();
            match_attribute([&nics, &*gpus].concat(), kind)
        });
        let together = match way {
            Way::Attribute { name, .. } if kind.is_some() || self.block.gpus.is_empty() => {
                Some(match_attribute([&nics, &*self.gpus_by(i)].concat(), name))
            }
            Way::Attribute { .. }
            | Way::Cell(_)
            | Way::Pinned(_)
            | Way::Late(_)
            | Way::Across(_)
            | Way::Any => None,
        };
        apart.into_iter().chain(together).collect()
    }

    /// The subrequests for GPUs by a way.
    fn gpus_by(&self, way: usize) -> Vec<String> {
        let requests = self.block.gpus.iter();
        let names = requests.flat_map(|(name, _)| self.names_of_parts(Side::Gpus, name));
        names.map(|name| self.subrequest(&name, way)).collect()
    }
}
