//! Finds changes to claims, or to what is in use, that would make claims fit.
//!
//! The allocator tries each change separately.

use std::sync::Arc;

use super::inputs::{AttemptInputs, full_name};
use crate::claim::{AllocationMode, Ask, Claim, RequestKind, Toleration};
use crate::name::{ClaimName, DeviceId};
use crate::state::AllocatedState;

/// The maximum number of devices in use that are tried one by one.
const MAX_FREED: usize = 64;

/// A change that would make claims fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Relaxation {
    /// Tolerate the taints of devices.
    Tolerate {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
    },
    /// Wait until one device is released.
    Free {
        /// The device.
        device: DeviceId,
        /// The claim that holds it, if known.
        holder: Option<ClaimName>,
    },
    /// Remove the capacity requests.
    DropCapacity {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
    },
    /// Remove a selector from a request.
    DropSelector {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
        /// The selector.
        expression: Arc<str>,
    },
    /// Remove a constraint.
    DropConstraint {
        /// The claim.
        claim: ClaimName,
        /// The index of the constraint.
        index: usize,
        /// The attribute that it compares.
        attribute: Arc<str>,
    },
    /// Request fewer devices.
    Fewer {
        /// The claim.
        claim: ClaimName,
        /// The request.
        request: Arc<str>,
        /// The number of devices to request instead.
        count: i64,
    },
    /// Wait until all devices of the node are released.
    FreeAll,
}

/// The changes that would make the claims fit, smallest first.
pub(super) fn relaxations(inputs: &AttemptInputs<'_>, claims: &[Claim]) -> Vec<Relaxation> {
    let mut found: Vec<Relaxation> = claim_changes(claims)
        .into_iter()
        .filter(|(_, changed)| inputs.fits(changed, inputs.state))
        .map(|(relaxation, _)| relaxation)
        .collect();
    found.extend(freed(inputs, claims));
    found.sort_by_key(Relaxation::size);
    // For each request, only the largest count that fits is reported.
    let mut seen: Vec<(ClaimName, Arc<str>)> = Vec::new();
    found.retain(|relaxation| match relaxation {
        Relaxation::Fewer { claim, request, .. } => {
            let key = (claim.clone(), request.clone());
            let new = !seen.contains(&key);
            seen.push(key);
            new
        }
        _ => true,
    });
    found
}

impl Relaxation {
    /// The size of the change, for sorting: smaller changes come first, in the order in which a
    /// person would consider them.
    pub fn size(&self) -> (u8, i64) {
        match self {
            Self::Tolerate { .. } => (0, 0),
            Self::Free { .. } => (1, 0),
            Self::DropCapacity { .. } => (2, 0),
            Self::DropSelector { .. } => (2, 1),
            Self::DropConstraint { .. } => (3, 0),
            Self::Fewer { count, .. } => (4, -count),
            Self::FreeAll => (5, 0),
        }
    }
}

/// The claims without one constraint.
pub(super) fn without_constraint(claims: &[Claim], claim: &ClaimName, index: usize) -> Vec<Claim> {
    let mut claims = claims.to_vec();
    for changed in claims.iter_mut().filter(|changed| changed.name == *claim) {
        if index < changed.constraints.len() {
            changed.constraints.remove(index);
        }
    }
    claims
}

fn ask_mut(claims: &mut [Claim], at: (usize, usize, usize)) -> Option<&mut Ask> {
    match &mut claims.get_mut(at.0)?.requests.get_mut(at.1)?.kind {
        RequestKind::Exactly(ask) => Some(ask),
        RequestKind::FirstAvailable(asks) => asks.get_mut(at.2),
        RequestKind::Unknown => None,
    }
}

/// The claims after each possible change to them.
fn claim_changes(claims: &[Claim]) -> Vec<(Relaxation, Vec<Claim>)> {
    let mut changes = Vec::new();
    for (number, claim) in claims.iter().enumerate() {
        let name = claim.name.clone();
        for (index, constraint) in claim.constraints.iter().enumerate() {
            let Some(attribute) = constraint.kind.attribute() else { continue };
            let attribute = attribute.into();
            let without = without_constraint(claims, &name, index);
            changes.push((
                Relaxation::DropConstraint { claim: name.clone(), index, attribute },
                without,
            ));
        }
        for (request_number, request) in claim.requests.iter().enumerate() {
            for (ask_number, ask) in request.asks().iter().enumerate() {
                let at = (number, request_number, ask_number);
                let request = full_name(request, ask);
                changes.extend(ask_changes(claims, &name, at, &request, ask));
            }
        }
    }
    changes
}

fn ask_changes(
    claims: &[Claim],
    claim: &ClaimName,
    at: (usize, usize, usize),
    request: &Arc<str>,
    ask: &Ask,
) -> Vec<(Relaxation, Vec<Claim>)> {
    let with = |change: &dyn Fn(&mut Ask)| {
        let mut claims = claims.to_vec();
        ask_mut(&mut claims, at).into_iter().for_each(change);
        claims
    };
    let (claim, request) = (|| claim.clone(), || request.clone());
    let everything = Toleration {
        key: "".into(),
        operator: "Exists".into(),
        value: "".into(),
        effect: "".into(),
        seconds: None,
    };
    let mut changes = vec![(
        Relaxation::Tolerate { claim: claim(), request: request() },
        with(&|ask| ask.tolerations.push(everything.clone())),
    )];
    if ask.capacity.is_some() {
        changes.push((
            Relaxation::DropCapacity { claim: claim(), request: request() },
            with(&|ask| ask.capacity = None),
        ));
    }
    for (index, selector) in ask.selectors.iter().enumerate() {
        let Some(selector) = selector else { continue };
        let expression = selector.expression().clone();
        changes.push((
            Relaxation::DropSelector { claim: claim(), request: request(), expression },
            with(&|ask| drop(ask.selectors.remove(index))),
        ));
    }
    if let AllocationMode::ExactCount(count) = ask.mode {
        for count in (1..count.min(32)).rev() {
            changes.push((
                Relaxation::Fewer { claim: claim(), request: request(), count },
                with(&|ask| ask.mode = AllocationMode::ExactCount(count)),
            ));
        }
    }
    changes
}

/// The devices in use that would each suffice if released; or whether releasing all would.
fn freed(inputs: &AttemptInputs<'_>, claims: &[Claim]) -> Vec<Relaxation> {
    let devices = inputs.inventory.devices_on(inputs.node, inputs.settings);
    let devices = devices.unwrap_or_default().into_iter().map(|device| &device.id);
    let used: Vec<_> = devices.filter(|device| inputs.state.is_taken(device)).collect();
    if used.is_empty() {
        return Vec::new();
    }
    let without = |freed: &[&DeviceId]| {
        let mut state: AllocatedState = inputs.state.clone();
        for device in freed {
            state.remove(device);
        }
        inputs.fits(claims, &state)
    };
    if !without(&used) {
        return Vec::new();
    }
    let one = used.iter().take(MAX_FREED).filter(|device| without(&[device]));
    let mut found: Vec<_> = one
        .map(|device| Relaxation::Free {
            device: (*device).clone(),
            holder: inputs.inventory.holder(device).cloned(),
        })
        .collect();
    if found.is_empty() {
        found.push(Relaxation::FreeAll);
    }
    found
}
