//! Determines what the nodes have for each part of a claim: which devices pass its
//! selectors, and where a selector fails.

use cluster_model::view::ClusterView;
use dra_allocator::cel::{ErrorClass, RuntimeError, Selector};
use dra_allocator::claim::{Ask, Constraint};
use dra_allocator::{AttributeValue, Budget, Claim, Class, Device};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A request or subrequest.
#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    /// `request` or `request/subrequest`.
    pub(super) name: String,
    pub(super) request: &'a str,
    pub(super) subrequest: Option<&'a str>,
    pub(super) ask: &'a Ask,
    /// Its class, if that exists.
    pub(super) class: Option<Arc<Class>>,
}

/// Nodes that are equal for the claim, represented by the first of them.
#[derive(Debug)]
pub(super) struct NodeSupply<'a> {
    pub(super) node: &'a str,
    /// Number of nodes.
    pub(super) count: usize,
    pub(super) devices: Vec<&'a Device>,
    /// For each part and device, whether the device passes the part's selectors.
    pub(super) passing: Vec<Vec<bool>>,
}

/// A selector that fails on a published device.
#[derive(Debug)]
pub(super) struct Failing<'a> {
    pub(super) part: usize,
    /// The class that contains it; `None` if the claim does.
    pub(super) class: Option<Arc<str>>,
    pub(super) selector: Selector,
    pub(super) device: &'a Device,
    pub(super) node: &'a str,
    pub(super) error: RuntimeError,
}

/// The cluster as one claim sees it.
#[derive(Debug)]
pub(super) struct Supply<'a> {
    pub(super) claim: &'a Claim,
    pub(super) view: &'a ClusterView,
    pub(super) budget: &'a Budget<'a>,
    pub(super) parts: Vec<Part<'a>>,
    pub(super) nodes: Vec<NodeSupply<'a>>,
    /// Failing selectors, each once.
    pub(super) failing: Vec<Failing<'a>>,
}

/// Everything about a device that matters to the claim: driver, parts that can take it,
/// and the values that constraints compare.
type Likeness = (Arc<str>, Vec<bool>, Vec<Option<AttributeValue>>);

impl<'a> Supply<'a> {
    pub(super) fn new(claim: &'a Claim, view: &'a ClusterView, budget: &'a Budget<'a>) -> Self {
        let parts = parts(claim, view);
        let (nodes, failing) = Default::default();
        let mut supply = Self { claim, view, budget, parts, nodes, failing };
        let mut alike: BTreeMap<Vec<Likeness>, usize> = BTreeMap::new();
        for name in node_names(view) {
            if budget.is_spent() {
                break;
            }
            let devices = view.inventory().devices_on(name, view.settings()).unwrap_or_default();
            let passing = supply.passing(name, &devices);
            let likeness = supply.likeness(&devices, &passing);
            let index = *alike.entry(likeness).or_insert(supply.nodes.len());
            match supply.nodes.get_mut(index) {
                Some(known) => known.count += 1,
                None => supply.nodes.push(NodeSupply { node: name, count: 1, devices, passing }),
            }
        }
        supply
    }

    /// The parts that a constraint covers.
    pub(super) fn bound<'s>(
        &'s self,
        constraint: &'s Constraint,
    ) -> impl Iterator<Item = usize> + 's {
        let parts = self.parts.iter().enumerate();
        parts.filter(|(_, it)| constraint.binds(it.request, it.subrequest)).map(|(i, _)| i)
    }

    fn passing(&mut self, node: &'a str, devices: &[&'a Device]) -> Vec<Vec<bool>> {
        let parts = 0..self.parts.len();
        parts
            .map(|part| devices.iter().map(|device| self.passes(part, node, device)).collect())
            .collect()
    }

    /// Whether a device passes all selectors of a part. Stops at the first one that it
    /// does not pass.
    fn passes(&mut self, part: usize, node: &'a str, device: &'a Device) -> bool {
        let Some(class) = self.parts[part].class.clone() else { return false };
        let own = self.parts[part].ask.selectors.iter().flatten().map(|it| (None, it));
        let of_class = class.selectors.iter().map(|it| (Some(class.name.clone()), it));
        for (class, selector) in of_class.chain(own) {
            match matches(selector, device, self) {
                Some(Ok(true)) => {}
                Some(Ok(false)) | None => return false,
                Some(Err(error)) => {
                    let selector = selector.clone();
                    let failing = Failing { part, class, selector, device, node, error };
                    self.fails(failing);
                    return false;
                }
            }
        }
        true
    }

    fn fails(&mut self, failing: Failing<'a>) {
        let is_known = self.failing.iter().any(|known| {
            known.class == failing.class
                && known.selector.expression() == failing.selector.expression()
        });
        if !is_known {
            self.failing.push(failing);
        }
    }

    fn likeness(&self, devices: &[&Device], passing: &[Vec<bool>]) -> Vec<Likeness> {
        let compared: BTreeSet<&str> =
            self.claim.constraints.iter().filter_map(|it| it.kind.attribute()).collect();
        devices
            .iter()
            .enumerate()
            .map(|(index, device)| {
                let taken = passing.iter().map(|of_part| of_part[index]).collect();
                let values = compared.iter().map(|name| device.attribute(name).cloned()).collect();
                (device.id().driver.clone(), taken, values)
            })
            .collect()
    }
}

impl<'a> NodeSupply<'a> {
    /// The devices that pass a part's selectors.
    pub(super) fn of_part(&self, part: usize) -> impl Iterator<Item = &'a Device> {
        let passing = self.passing.get(part).into_iter().flatten();
        self.devices.iter().zip(passing).filter(|(_, passes)| **passes).map(|(device, _)| *device)
    }
}

/// Whether a device passes; `None` if this evaluator cannot decide.
pub(super) fn matches(
    selector: &Selector,
    device: &Device,
    supply: &Supply<'_>,
) -> Option<Result<bool, RuntimeError>> {
    let compiled = selector.compiled(supply.budget).ok()?;
    match compiled.matches_with(device, supply.view.settings(), supply.budget) {
        Err(error) if matches!(error.class, ErrorClass::Unsupported | ErrorClass::OutOfBudget) => {
            None
        }
        verdict => Some(verdict),
    }
}

/// The fully qualified name of an attribute. If it is published without a domain, its
/// domain is the driver's name.
pub(super) fn full_name(device: &Device, name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("{}/{name}", device.id().driver) }
}

fn parts<'a>(claim: &'a Claim, view: &ClusterView) -> Vec<Part<'a>> {
    let requests = claim.requests.iter();
    requests
        .flat_map(|request| {
            request.asks().iter().map(move |ask| {
                let subrequest = request.is_prioritized().then_some(&*ask.name);
                let name = match subrequest {
                    Some(subrequest) => format!("{}/{subrequest}", request.name),
                    None => request.name.to_string(),
                };
                let class = view.inventory().class(&ask.class).cloned();
                Part { name, request: &request.name, subrequest, ask, class }
            })
        })
        .collect()
}

/// All nodes that have a Node object or slices.
fn node_names(view: &ClusterView) -> BTreeSet<&str> {
    let inventory = view.inventory();
    let of_slices = inventory.slices().filter_map(|slice| slice.node_name()).map(|name| &**name);
    inventory.node_names().map(|name| &**name).chain(of_slices).collect()
}
