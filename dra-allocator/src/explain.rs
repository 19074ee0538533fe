//! Explains why claims do not fit on a node, and what would make them fit.
//!
//! For each request, the node's devices are filtered in the allocator's order: class, selectors,
//! taints, capacity, use. The first filter that leaves too few devices is the reason. If each
//! request alone can be satisfied, the reason is a constraint, or requests that compete for the
//! same devices. This module makes no allocation decision; [`crate::allocate()`] does.

mod inputs;
mod relax;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::inputs::{AttemptInputs, full_name};
use crate::allocate::{Limits, leaves_room};
use crate::budget::Budget;
use crate::cel::{CompileError, RuntimeError, Selector, conjuncts};
use crate::claim::{AllocationMode, Ask, Claim, Constraint, Request};
use crate::device::{AttributeValue, Device, DeviceTaint};
use crate::inventory::{GatherError, Inventory};
use crate::name::{ClaimName, DeviceId};
use crate::settings::Settings;
use crate::state::AllocatedState;

pub use relax::Relaxation;
pub(crate) use relax::short;

/// Why claims do not fit.
#[derive(Debug)]
pub struct Explanation {
    /// One report per request or subrequest, in order.
    pub requests: Vec<RequestReport>,
    /// Changes that would each make the claims fit, smallest first.
    pub relaxations: Vec<Relaxation>,
}

/// The result for one request on the node.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestReport {
    /// The claim.
    pub claim: ClaimName,
    /// `request` or `request/subrequest`.
    pub request: Arc<str>,
    /// The minimum number of devices that it needs.
    pub needed: usize,
    /// The number of the node's devices that the allocator considers.
    pub devices: usize,
    /// The devices that are available now, ignoring constraints.
    pub available: Vec<DeviceId>,
    /// The first check that fails, if any.
    pub failure: Option<Failure>,
}

/// The number of devices per value of an attribute; the key `None` counts devices without it.
pub type ValueCounts = BTreeMap<Option<AttributeValue>, usize>;

/// The first check that fails for a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The class does not exist.
    NoClass(Arc<str>),
    /// The node has fewer devices than the request needs.
    NoDevices,
    /// Too few devices match the class.
    Class {
        /// The class.
        class: Arc<str>,
        /// The selector that leaves too few devices.
        expression: Arc<str>,
        /// The number of devices that pass.
        left: usize,
    },
    /// Too few devices pass a selector of the request.
    Selector {
        /// The selector.
        expression: Arc<str>,
        /// The first part of a conjunction after which too few devices are left; otherwise the
        /// whole selector.
        part: Arc<str>,
        /// The attributes that the part reads and that no device has that it rejects.
        missing: Vec<String>,
        /// The number of devices that pass the selector up to this part.
        left: usize,
    },
    /// A selector does not compile.
    Compile {
        /// The selector.
        expression: Arc<str>,
        /// The error.
        error: CompileError,
    },
    /// A selector fails on a device, which ends the attempt for the pod on all nodes.
    Runtime {
        /// The selector.
        expression: Arc<str>,
        /// The device.
        device: DeviceId,
        /// The error.
        error: RuntimeError,
    },
    /// Too many devices have taints that the request does not tolerate.
    Tainted(Vec<(DeviceId, DeviceTaint)>),
    /// Too few devices have the requested capacity.
    Capacity {
        /// The number of devices that have it.
        left: usize,
    },
    /// Too many devices are in use; with the claim that holds each, if known.
    InUse(Vec<(DeviceId, Option<ClaimName>)>),
    /// The available devices cannot satisfy a constraint.
    Constraint {
        /// The attribute that it compares.
        attribute: Arc<str>,
        /// For each request that the constraint binds: the values of its available devices, and the
        /// number of devices with each.
        values: Vec<(Arc<str>, ValueCounts)>,
    },
    /// The request can be satisfied alone, but not together with the others.
    Together,
}

/// Explains why claims do not fit on a node.
///
/// `limits` apply to each single search; an explanation takes several searches. Their budget is that
/// of all searches together: once it is spent, the rest of the explanation is missing.
pub fn explain(
    inventory: &Inventory,
    node: &str,
    claims: &[Claim],
    state: &AllocatedState,
    settings: &Settings,
    limits: Limits<'_>,
) -> Result<Explanation, GatherError> {
    let unlimited = Budget::unlimited();
    let budget = limits.budget.unwrap_or(&unlimited);
    let inputs = AttemptInputs { inventory, node, state, settings, limits, budget };
    let requests = inputs.reports(claims)?;
    Ok(Explanation { requests, relaxations: relax::relaxations(&inputs, claims) })
}

/// The same without what would make them fit.
pub fn failures(
    inventory: &Inventory,
    node: &str,
    claims: &[Claim],
    state: &AllocatedState,
    settings: &Settings,
    limits: Limits<'_>,
) -> Result<Vec<RequestReport>, GatherError> {
    let unlimited = Budget::unlimited();
    let budget = limits.budget.unwrap_or(&unlimited);
    AttemptInputs { inventory, node, state, settings, limits, budget }.reports(claims)
}

impl AttemptInputs<'_> {
    /// One report per request or subrequest of claims that do not fit.
    fn reports(&self, claims: &[Claim]) -> Result<Vec<RequestReport>, GatherError> {
        let devices = self.inventory.devices_on(self.node, self.settings)?;
        let mut requests = Vec::new();
        for claim in claims {
            for request in &claim.requests {
                let asks = request.asks().iter();
                requests.extend(asks.map(|ask| self.report(claim, request, ask, &devices)));
            }
        }
        if requests.iter().all(|report| report.failure.is_none()) {
            blame_together(self, claims, &mut requests, &devices);
        }
        Ok(requests)
    }

    fn report(
        &self,
        claim: &Claim,
        request: &Request,
        ask: &Ask,
        devices: &[&Device],
    ) -> RequestReport {
        let needed = match &ask.mode {
            AllocationMode::ExactCount(count) => usize::try_from(*count).unwrap_or_default(),
            AllocationMode::All | AllocationMode::Unknown(_) => 1,
        };
        let (available, failure) = match self.sieve(ask, needed, devices) {
            Ok(available) => (available, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        RequestReport {
            claim: claim.name.clone(),
            request: full_name(request, ask),
            needed,
            devices: devices.len(),
            available: available.iter().map(|device| device.id.clone()).collect(),
            failure,
        }
    }

    /// Returns the devices that the request can take, ignoring constraints, or the check that
    /// leaves too few.
    fn sieve<'d>(
        &self,
        ask: &Ask,
        needed: usize,
        devices: &[&'d Device],
    ) -> Result<Vec<&'d Device>, Failure> {
        let class = self.inventory.class(&ask.class);
        let class = class.ok_or_else(|| Failure::NoClass(ask.class.clone()))?;
        if devices.len() < needed {
            return Err(Failure::NoDevices);
        }
        let mut left = devices.to_vec();
        for selector in &class.selectors {
            left = self.select(selector, &left)?.0;
            if left.len() < needed {
                let expression = selector.expression().clone();
                return Err(Failure::Class {
                    class: class.name.clone(),
                    expression,
                    left: left.len(),
                });
            }
        }
        for selector in ask.selectors.iter().flatten() {
            let (passed, refused) = self.select(selector, &left)?;
            if passed.len() < needed {
                return Err(self.selector_failure(selector, needed, &left, &passed, &refused));
            }
            left = passed;
        }
        let left = self.untainted(ask, needed, left)?;
        self.unused(ask, needed, left)
    }

    /// Splits devices into those that pass a selector and those that do not. If the selector fails
    /// on a device in use, the device is skipped, as in the allocator.
    fn select<'d>(
        &self,
        selector: &Selector,
        devices: &[&'d Device],
    ) -> Result<(Vec<&'d Device>, Vec<&'d Device>), Failure> {
        let expression = selector.expression();
        let compiled = selector
            .compiled(self.budget)
            .map_err(|error| Failure::Compile { expression: expression.clone(), error })?;
        let (mut passed, mut refused) = (Vec::new(), Vec::new());
        for device in devices {
            match compiled.matches_with(device, self.settings, self.budget) {
                Ok(true) => passed.push(*device),
                Ok(false) => refused.push(*device),
                Err(_) if self.state.contains(&device.id) => refused.push(*device),
                Err(error) => {
                    let (expression, device) = (expression.clone(), device.id.clone());
                    return Err(Failure::Runtime { expression, device, error });
                }
            }
        }
        Ok((passed, refused))
    }

    /// Finds the part of a selector that leaves too few devices.
    fn selector_failure(
        &self,
        selector: &Selector,
        needed: usize,
        devices: &[&Device],
        passed: &[&Device],
        refused: &[&Device],
    ) -> Failure {
        let expression = selector.expression().clone();
        let mut left = devices.to_vec();
        for part in conjuncts(&expression) {
            // A part that does not compile or that fails is no explanation; the whole is.
            let Ok((passed, refused)) = self.select(&Selector::new(part), &left) else { break };
            if passed.len() < needed {
                let (missing, left) = (missing(part, &refused), passed.len());
                return Failure::Selector { part: part.into(), expression, missing, left };
            }
            left = passed;
        }
        let missing = missing(&expression, refused);
        Failure::Selector { part: expression.clone(), expression, missing, left: passed.len() }
    }

    fn untainted<'d>(
        &self,
        ask: &Ask,
        needed: usize,
        devices: Vec<&'d Device>,
    ) -> Result<Vec<&'d Device>, Failure> {
        if !self.settings.gates.device_taints {
            return Ok(devices);
        }
        let (tainted, left): (Vec<_>, Vec<_>) =
            devices.into_iter().partition(|device| ask.untolerated(device).is_some());
        if left.len() < needed {
            let taints = tainted
                .iter()
                .filter_map(|device| Some((device.id.clone(), ask.untolerated(device)?.clone())));
            return Err(Failure::Tainted(taints.collect()));
        }
        Ok(left)
    }

    fn unused<'d>(
        &self,
        ask: &Ask,
        needed: usize,
        devices: Vec<&'d Device>,
    ) -> Result<Vec<&'d Device>, Failure> {
        let left: Vec<_> = devices
            .into_iter()
            .filter(|device| {
                let asked = ask.capacity.iter().flatten();
                asked.into_iter().all(|(name, amount)| {
                    let mut known = device.capacity().iter();
                    known.any(|(known, capacity)| known == name && *amount <= capacity.value)
                })
            })
            .collect();
        if left.len() < needed {
            return Err(Failure::Capacity { left: left.len() });
        }
        if ask.is_admin() {
            return Ok(left);
        }
        // Claims that share a device can hold too much of it.
        let (used, left): (Vec<_>, Vec<_>) = left.into_iter().partition(|device| {
            let is_shared_out = self.settings.gates.consumable_capacity
                && device.allows_multiple_allocations()
                && self.state.is_shared(&device.id)
                && !leaves_room(ask, device, self.state, self.settings);
            self.state.contains(&device.id) || is_shared_out
        });
        if left.len() < needed {
            let used = used.iter();
            let used =
                used.map(|device| (device.id.clone(), self.inventory.holder(&device.id).cloned()));
            return Err(Failure::InUse(used.collect()));
        }
        Ok(left)
    }
}

/// The attributes that an expression reads in the usual form and that none of the devices has.
fn missing(expression: &str, devices: &[&Device]) -> Vec<String> {
    let mut missing = Vec::new();
    for part in expression.split("device.attributes[\"").skip(1) {
        let Some((domain, rest)) = part.split_once("\"]") else { continue };
        let rest = rest.trim_start_matches(['.', '?', '[', '"']);
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let id = &rest[..end.unwrap_or(rest.len())];
        let name = format!("{domain}/{id}");
        let absent = devices.iter().all(|device| device.attribute(&name).is_none());
        if !id.is_empty() && absent && !devices.is_empty() && !missing.contains(&name) {
            missing.push(name);
        }
    }
    missing
}

/// Explains a failure where each request alone can be satisfied: reports the first constraint
/// without which the claims fit, or else that the requests do not fit together.
fn blame_together(
    inputs: &AttemptInputs<'_>,
    claims: &[Claim],
    requests: &mut [RequestReport],
    devices: &[&Device],
) {
    for claim in claims {
        for (index, constraint) in claim.constraints.iter().enumerate() {
            let without = relax::without_constraint(claims, &claim.name, index);
            let Some(attribute) = constraint.kind.attribute() else { continue };
            if !inputs.fits(&without) {
                continue;
            }
            let of_claim = requests.iter().filter(|report| report.claim == claim.name);
            let bound = of_claim.filter(|report| binds(constraint, &report.request));
            let values = bound.map(|report| {
                (report.request.clone(), values(attribute, &report.available, devices))
            });
            let values: Vec<_> = values.collect();
            let failure = Failure::Constraint { attribute: attribute.into(), values };
            let bound = requests.iter_mut().filter(|report| report.claim == claim.name);
            bound
                .filter(|report| binds(constraint, &report.request))
                .for_each(|report| report.failure = Some(failure.clone()));
            return;
        }
    }
    for report in requests {
        report.failure = Some(Failure::Together);
    }
}

fn binds(constraint: &Constraint, full_name: &str) -> bool {
    match full_name.split_once('/') {
        Some((request, subrequest)) => constraint.binds(request, Some(subrequest)),
        None => constraint.binds(full_name, None),
    }
}

fn values(attribute: &str, available: &[DeviceId], devices: &[&Device]) -> ValueCounts {
    let mut values = ValueCounts::new();
    for device in devices.iter().filter(|device| available.contains(&device.id)) {
        *values.entry(device.attribute(attribute).cloned()).or_default() += 1;
    }
    values
}
