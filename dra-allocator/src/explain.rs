//! Why claims do not fit on a node, and what would make them fit.
//!
//! For each request the devices of the node are sieved in the order in which the allocator asks:
//! class, selectors, taints, capacity, use. The first sieve that leaves too few is the answer.
//! Where every request by itself could be served, it is the constraints, or that requests want
//! the same devices. Nothing here decides an allocation: that is [`crate::allocate()`].

mod question;
mod relax;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::question::{Question, full_name};
use crate::allocate::{Attempt, Limits, Outcome, allocate};
use crate::cel::{CompileError, RuntimeError, Selector};
use crate::claim::{AllocationMode, Ask, Claim, Constraint, Request};
use crate::device::{AttributeValue, Device, DeviceTaint};
use crate::inventory::{GatherError, Inventory};
use crate::name::{ClaimName, DeviceId};
use crate::settings::Settings;
use crate::state::AllocatedState;

pub use relax::Relaxation;

/// The answer of the allocator and the reasons for it.
#[derive(Debug)]
pub struct Explanation {
    /// What the allocator says.
    pub attempt: Attempt,
    /// For each request and subrequest, in order.
    pub requests: Vec<RequestReport>,
    /// Changes each of which alone would make the claims fit, the smallest first; empty where
    /// they fit.
    pub relaxations: Vec<Relaxation>,
}

/// What a request finds on the node.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestReport {
    /// The claim.
    pub claim: ClaimName,
    /// `request` or `request/subrequest`.
    pub request: Arc<str>,
    /// How many devices it needs at least.
    pub needed: usize,
    /// The devices of the node that the allocator looks at.
    pub devices: usize,
    /// Those that could be taken now, constraints aside.
    pub available: Vec<DeviceId>,
    /// The first thing that fails, where something does.
    pub failure: Option<Failure>,
}

/// How many devices have each value of an attribute; none for those without it.
pub type ValueCounts = BTreeMap<Option<AttributeValue>, usize>;

/// The first thing that fails for a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The class does not exist.
    NoClass(Arc<str>),
    /// The node has no devices at all that the allocator looks at.
    NoDevices,
    /// Too few devices are of the class.
    Class {
        /// The class.
        class: Arc<str>,
        /// The selector that leaves too few.
        expression: Arc<str>,
        /// How many devices pass.
        left: usize,
    },
    /// Too few devices pass a selector of the request.
    Selector {
        /// The selector.
        expression: Arc<str>,
        /// The attributes that the selector names and that no device it refuses has.
        missing: Vec<String>,
        /// How many devices pass.
        left: usize,
    },
    /// A selector does not compile.
    Compile {
        /// The selector.
        expression: Arc<str>,
        /// Why.
        error: CompileError,
    },
    /// A selector fails on a device, which ends the attempt for the pod on all nodes.
    Runtime {
        /// The selector.
        expression: Arc<str>,
        /// The device.
        device: DeviceId,
        /// Why.
        error: RuntimeError,
    },
    /// Too many devices have taints that the request does not tolerate.
    Tainted(Vec<(DeviceId, DeviceTaint)>),
    /// Too few devices have the capacity that is asked for.
    Capacity {
        /// How many have it.
        left: usize,
    },
    /// Too many devices are in use, by these claims where that is known.
    InUse(Vec<(DeviceId, Option<ClaimName>)>),
    /// A constraint cannot be met by the devices that are available.
    Constraint {
        /// The attribute that it compares.
        attribute: Arc<str>,
        /// For each request that it binds the values of its available devices, and how many
        /// have each; none for devices without the attribute.
        values: Vec<(Arc<str>, ValueCounts)>,
    },
    /// The request could be served by itself, and not together with the others.
    Together,
}

/// Explains what the allocator says to claims on a node.
///
/// `limits` are those of each single search; explaining takes several.
pub fn explain(
    inventory: &Inventory,
    node: &str,
    claims: &[Claim],
    state: &AllocatedState,
    settings: &Settings,
    limits: Limits<'_>,
) -> Result<Explanation, GatherError> {
    let attempt = allocate(inventory, node, claims, state, settings, limits);
    let question = Question { inventory, node, state, settings, limits };
    let devices = inventory.devices_on(node, settings)?;
    let fits = matches!(attempt.outcome, Outcome::Allocated(_));
    let mut requests = Vec::new();
    for claim in claims {
        for request in &claim.requests {
            let asks = request.asks().iter();
            requests.extend(asks.map(|ask| question.report(claim, request, ask, &devices)));
        }
    }
    if !fits && requests.iter().all(|report| report.failure.is_none()) {
        blame_together(&question, claims, &mut requests, &devices);
    }
    let relaxations = if fits { Vec::new() } else { relax::relaxations(&question, claims) };
    Ok(Explanation { attempt, requests, relaxations })
}

impl Question<'_> {
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

    /// The devices that the ask can take, constraints aside; or what leaves too few.
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
            left = passed;
            if left.len() < needed {
                let expression = selector.expression().clone();
                let missing = missing(&expression, &refused);
                return Err(Failure::Selector { expression, missing, left: left.len() });
            }
        }
        let left = self.untainted(ask, needed, left)?;
        self.unused(ask, needed, left)
    }

    /// The devices that pass a selector, and those that do not. A device in use that the
    /// selector fails on is passed over, as the allocator does.
    fn select<'d>(
        &self,
        selector: &Selector,
        devices: &[&'d Device],
    ) -> Result<(Vec<&'d Device>, Vec<&'d Device>), Failure> {
        let expression = || selector.expression().clone();
        let compiled = selector
            .compiled()
            .map_err(|error| Failure::Compile { expression: expression(), error: error.clone() })?;
        let (mut passed, mut refused) = (Vec::new(), Vec::new());
        for device in devices {
            match compiled.matches_with(device, self.settings) {
                Ok(true) => passed.push(*device),
                Ok(false) => refused.push(*device),
                Err(_) if self.state.contains(&device.id) => refused.push(*device),
                Err(error) => {
                    let (expression, device) = (expression(), device.id.clone());
                    return Err(Failure::Runtime { expression, device, error });
                }
            }
        }
        Ok((passed, refused))
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
        let untolerated = |device: &&Device| {
            let mut taints = device.taints().iter().filter(|taint| taint.prevents_allocation());
            let tolerated =
                |taint: &DeviceTaint| ask.tolerations.iter().any(|t| t.tolerates(taint));
            taints.find(|taint| !tolerated(taint)).cloned()
        };
        let (tainted, left): (Vec<_>, Vec<_>) =
            devices.into_iter().partition(|device| untolerated(device).is_some());
        if left.len() < needed {
            let tainted = tainted.iter();
            let taints =
                tainted.filter_map(|device| Some((device.id.clone(), untolerated(device)?)));
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
        let able = |device: &&Device| {
            let asked = ask.capacity.iter().flatten();
            asked.into_iter().all(|(name, amount)| {
                let mut known = device.capacity().iter();
                known.any(|(known, capacity)| known == name && *amount <= capacity.value)
            })
        };
        let left: Vec<_> = devices.into_iter().filter(able).collect();
        if left.len() < needed {
            return Err(Failure::Capacity { left: left.len() });
        }
        if ask.is_admin() {
            return Ok(left);
        }
        let (used, left): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|device| self.state.contains(&device.id));
        if left.len() < needed {
            let used = used.iter();
            let used =
                used.map(|device| (device.id.clone(), self.inventory.holder(&device.id).cloned()));
            return Err(Failure::InUse(used.collect()));
        }
        Ok(left)
    }
}

/// The attributes that an expression names in the usual form and that none of the devices has.
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

/// Every request could be served by itself: finds the constraint without which all could, or
/// says that it is the requests together.
fn blame_together(
    question: &Question<'_>,
    claims: &[Claim],
    requests: &mut [RequestReport],
    devices: &[&Device],
) {
    for claim in claims {
        for (index, constraint) in claim.constraints.iter().enumerate() {
            let without = relax::without_constraint(claims, &claim.name, index);
            let Some(attribute) = constraint.kind.attribute() else { continue };
            if !question.fits(&without, question.state) {
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
