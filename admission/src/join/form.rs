//! How a claim says "near": ways to meet a block, written as requests and
//! constraints.
//!
//! With one way, requests are plain. With several, the requests of a block are
//! `firstAvailable` over the ways, and for each way *i* one constraint names
//! `nics/i` and `gpus/j` for all j ≠ i, on an attribute that is equal within a
//! kind of device and never between kinds; so those two can never be chosen
//! together, and what is left is "both by the same way". The way of any device
//! is given no constraint of its own: the NICs may take it when nothing nearer
//! is left, and then any GPU will do. Counts keep the search short.

use super::Classes;
use crate::claim::{Ask, exactly, first_available, match_attribute};
use crate::demand::{Block, Demand};
use crate::selector::Selector;
use cluster_model::gpu_drivers::GpuDriver;
use cluster_model::names::{self, attribute};
use k8s_openapi::api::resource::v1::{DeviceConstraint, DeviceRequest};
use topology_graph::{PciAddress, ShapeHash};

/// Alternatives of one request (`FirstAvailableDeviceRequestMaxSize`).
pub(crate) const WAYS_MAX: usize = 8;

/// Requests and constraints of one claim, of each (`DeviceRequestsMaxSize`,
/// `DeviceConstraintsMaxSize`).
pub(crate) const CLAIM_PARTS_MAX: usize = 32;

/// One way in which the devices of a block may be near each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// They have one value of an attribute.
    Attribute {
        /// Name of the join.
        join: &'static str,
        /// The attribute.
        name: &'static str,
    },
    /// They are of this cell.
    Cell(CellWay),
    /// They need not be.
    Any,
}

/// A cell of the nodes of one shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CellWay {
    pub(crate) shape: ShapeHash,
    pub(crate) gpus: Vec<PciAddress>,
    pub(crate) nics: Vec<PciAddress>,
}

/// The ways of every block, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) ways: Vec<Way>,
    /// Shapes of nodes that the claim is kept to.
    pub(crate) only: Option<Vec<ShapeHash>>,
}

/// In which order requests stand, which is the order of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Block by block, NICs first.
    NicThenGpu,
    /// Block by block, GPUs first.
    GpuThenNic,
    /// All NICs, then all GPUs.
    NicsThenGpus,
}

/// The parts of a claim.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) requests: Vec<DeviceRequest>,
    pub(crate) constraints: Vec<DeviceConstraint>,
    /// Those of the requests that are for NICs.
    pub(crate) nic_requests: Vec<String>,
}

/// What devices are asked of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) driver: &'static GpuDriver,
    pub(crate) classes: &'a Classes,
    /// Whether NICs with a network interface are left out.
    pub(crate) without_interface: bool,
}

impl Order {
    /// The orders that differ for this demand. NICs come first where there are
    /// several ways: the side that is tried first decides the way.
    pub(crate) fn all(demand: &Demand, form: &Form) -> Vec<Self> {
        let mut orders = vec![Self::NicThenGpu];
        if form.ways.len() == 1 {
            orders.push(Self::GpuThenNic);
        }
        if demand.blocks > 1 {
            orders.push(Self::NicsThenGpus);
        }
        orders
    }
}

impl Form {
    /// Writes the form as a claim.
    pub(crate) fn write(&self, demand: &Demand, source: Source<'_>, order: Order) -> Written {
        let writer = Writer { form: self, demand, source };
        let blocks = demand.requests();
        let nics = || blocks.iter().map(|block| writer.nics(block));
        let gpus = |block: &Block| writer.gpus(block);
        let requests = match order {
            Order::NicThenGpu => {
                blocks.iter().flat_map(|b| [vec![writer.nics(b)], gpus(b)].concat()).collect()
            }
            Order::GpuThenNic => {
                blocks.iter().flat_map(|b| [gpus(b), vec![writer.nics(b)]].concat()).collect()
            }
            Order::NicsThenGpus => nics().chain(blocks.iter().flat_map(gpus)).collect(),
        };
        Written {
            requests,
            constraints: blocks.iter().flat_map(|block| writer.constraints(block)).collect(),
            nic_requests: blocks.into_iter().map(|block| block.nics).collect(),
        }
    }
}

struct Writer<'a> {
    form: &'a Form,
    demand: &'a Demand,
    source: Source<'a>,
}

impl Writer<'_> {
    fn nics(&self, block: &Block) -> DeviceRequest {
        let class = &self.source.classes.nic;
        let ask = |way: &Way| Ask { class, count: self.demand.nics, selector: self.nic(way) };
        self.request(&block.nics, ask)
    }

    fn gpus(&self, block: &Block) -> Vec<DeviceRequest> {
        let class = &self.source.classes.gpu;
        let request = |(name, count): &(String, u32)| {
            self.request(name, |way| Ask { class, count: *count, selector: self.gpu(way) })
        };
        block.gpus.iter().map(request).collect()
    }

    fn request<'a>(&'a self, name: &str, ask: impl Fn(&Way) -> Ask<'a>) -> DeviceRequest {
        match self.form.ways.as_slice() {
            [only] => exactly(name, ask(only)),
            ways => {
                let asks = ways.iter().enumerate().map(|(i, way)| (way_name(i, way), ask(way)));
                first_available(name, asks)
            }
        }
    }

    fn nic(&self, way: &Way) -> Selector {
        let mut selector = Selector::driver(names::DRIVER).and_true(attribute::dranet::RDMA);
        // A NIC that is down or slow now is left out; it still counts as one
        // that the machine has.
        selector = selector
            .and_not_true(attribute::DEGRADED)
            .and_string_if_any(attribute::PORT_STATE, names::PORT_ACTIVE);
        if self.source.without_interface {
            selector = selector.and_string(attribute::dranet::IF_NAME, "");
        }
        if let (Some(only), Way::Any | Way::Attribute { .. }) = (&self.form.only, way) {
            let shapes: Vec<_> = only.iter().map(ToString::to_string).collect();
            selector = selector.and_one_of(attribute::SHAPE, shapes.iter().map(String::as_str));
        }
        match way {
            Way::Cell(cell) => selector
                .and_string(attribute::SHAPE, &cell.shape.to_string())
                .and_addresses(&cell.nics),
            Way::Attribute { .. } | Way::Any => selector,
        }
    }

    fn gpu(&self, way: &Way) -> Selector {
        let driver = self.source.driver;
        let selector =
            Selector::driver(driver.driver).and_string(driver.kind_attribute, driver.gpu_kind);
        match way {
            Way::Cell(cell) => selector.and_addresses(&cell.gpus),
            Way::Attribute { .. } | Way::Any => selector,
        }
    }

    fn constraints(&self, block: &Block) -> Vec<DeviceConstraint> {
        let ways = &self.form.ways;
        if let [only] = ways.as_slice() {
            let gpus = block.gpus.iter().map(|(name, _)| name.clone());
            let requests = [block.nics.clone()].into_iter().chain(gpus).collect();
            return match only {
                Way::Attribute { name, .. } => vec![match_attribute(requests, name)],
                Way::Cell(_) | Way::Any => Vec::new(),
            };
        }
        let near = ways.iter().enumerate().filter(|(_, way)| **way != Way::Any);
        near.flat_map(|(i, way)| self.way_constraints(block, i, way)).collect()
    }

    /// The way of the NICs is the way of the GPUs; where an attribute says what
    /// is near, they have one value of it.
    fn way_constraints(&self, block: &Block, i: usize, way: &Way) -> Vec<DeviceConstraint> {
        let named =
            |request: &str, i: usize| format!("{request}/{}", way_name(i, &self.form.ways[i]));
        let gpus = |wanted: &dyn Fn(usize) -> bool| -> Vec<String> {
            let ways = (0..self.form.ways.len()).filter(|j| wanted(*j));
            ways.flat_map(|j| block.gpus.iter().map(move |(gpus, _)| (gpus, j)))
                .map(|(gpus, j)| named(gpus, j))
                .collect()
        };
        let nics = || vec![named(&block.nics, i)];
        let apart = [nics(), gpus(&|j| j != i)].concat();
        let apart = match_attribute(apart, self.source.driver.kind_attribute);
        let Way::Attribute { name, .. } = way else { return vec![apart] };
        let together = [nics(), gpus(&|j| j == i)].concat();
        vec![apart, match_attribute(together, name)]
    }
}

/// Name of the subrequest for a way.
fn way_name(index: usize, way: &Way) -> String {
    match way {
        Way::Attribute { join, .. } => (*join).to_owned(),
        Way::Cell(_) => format!("c{index}"),
        Way::Any => "any".to_owned(),
    }
}
