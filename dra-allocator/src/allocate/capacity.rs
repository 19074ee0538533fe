//! Consumable capacity: computes what a request takes from a device, and whether that
//! much is left.
//!
//! Follows `structured/internal/*/consumable_capacity.go`.

use std::iter;

use crate::device::{Device, DeviceCapacity, RequestPolicy, ValidRange};
use crate::name::QualifiedName;
use crate::quantity::{Format, Quantity};
use crate::settings::Settings;

/// The capacity that a request takes cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapacityError {
    /// The requested amount, or its rounded value, does not fit in a 64-bit integer.
    #[error(
        "capacity {name:?}: capacity request cannot be represented in the device's range \
         arithmetic: request {request}"
    )]
    NotRepresentable {
        /// The capacity.
        name: QualifiedName,
        /// The requested amount.
        request: Quantity,
    },
    /// The amount to take is negative.
    #[error("capacity {name:?}: capacity value is negative")]
    Negative {
        /// The capacity.
        name: QualifiedName,
    },
}

/// The capacity requested from each device: amounts by name; `None` if the request sets no
/// capacity.
pub(super) type Asked<'a> = Option<&'a [(QualifiedName, Quantity)]>;

fn amount<'a>(
    amounts: &'a [(QualifiedName, Quantity)],
    name: &QualifiedName,
) -> Option<&'a Quantity> {
    amounts.iter().find(|(known, _)| known == name).map(|(_, amount)| amount)
}

/// The amount that a request takes of each capacity of a device, and what is left of each.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    /// Amount taken and amount left, in the order of the device's capacities.
    pub(super) amounts: Vec<(Quantity, i128)>,
    is_allowed: bool,
}

impl Demand {
    /// Returns true if the device has what the request takes (`CmpRequestOverCapacity`): the
    /// policies allow the amounts, and they fit beside what is in use and what the search has
    /// taken.
    pub(super) fn fits(&self, taking: Option<&[i128]>) -> bool {
        let taking = taking.unwrap_or_default().iter().copied().chain(iter::repeat(0));
        let mut amounts = self.amounts.iter().zip(taking);
        self.is_allowed && amounts.all(|((amount, left), taken)| taken + amount.nanos() <= *left)
    }
}

/// Computes what a request takes from a device, given what is in use. Returns `None` if the device
/// lacks a requested capacity.
pub(super) fn demand(
    asked: Asked<'_>,
    device: &Device,
    in_use: &[(QualifiedName, Quantity)],
    settings: &Settings,
) -> Result<Option<Demand>, CapacityError> {
    let mut names = asked.unwrap_or_default().iter().map(|(name, _)| name);
    if !names.all(|name| device.capacity.iter().any(|(known, _)| known == name)) {
        return Ok(None);
    }
    let (mut amounts, mut is_allowed) = (Vec::with_capacity(device.capacity.len()), true);
    for (name, capacity) in device.capacity.iter() {
        let taken = consumed(asked, name, capacity, settings)?;
        let policy = capacity.policy.as_ref();
        is_allowed &= !policy.is_some_and(|policy| violates(&taken, policy, settings));
        let left = capacity.value.nanos() - amount(in_use, name).map_or(0, Quantity::nanos);
        amounts.push((taken, left));
    }
    Ok(Some(Demand { amounts, is_allowed }))
}

fn consumed(
    asked: Asked<'_>,
    name: &QualifiedName,
    capacity: &DeviceCapacity,
    settings: &Settings,
) -> Result<Quantity, CapacityError> {
    let request = asked.and_then(|asked| amount(asked, name));
    let taken = taken(request, capacity, settings).ok_or_else(|| {
        let request = request.copied().unwrap_or(capacity.value);
        CapacityError::NotRepresentable { name: name.clone(), request }
    })?;
    if taken.is_negative() && !settings.quirks.lenient_capacity {
        return Err(CapacityError::Negative { name: name.clone() });
    }
    Ok(taken)
}

/// The amount that a request takes of a capacity; `None` if it cannot be computed.
fn taken(
    request: Option<&Quantity>,
    capacity: &DeviceCapacity,
    settings: &Settings,
) -> Option<Quantity> {
    let policy = capacity.policy.as_ref();
    let Some(request) = request else {
        return Some(policy.and_then(|policy| policy.default).unwrap_or(capacity.value));
    };
    match policy {
        Some(RequestPolicy { valid_range: Some(range), .. }) => round_up(request, range, settings),
        Some(RequestPolicy { valid_values, .. }) => {
            Some(*valid_values.iter().find(|value| request <= value).unwrap_or(request))
        }
        None => Some(*request),
    }
}

/// Rounds an amount up to the next one in the range (`roundUpRange`).
fn round_up(request: &Quantity, range: &ValidRange, settings: &Settings) -> Option<Quantity> {
    if *request < range.min {
        return Some(range.min);
    }
    let Some(step) = &range.step else { return Some(*request) };
    if settings.quirks.lenient_capacity {
        let (value, step, min) = (request.value(), step.value(), range.min.value());
        let rounded = next_multiple(value.wrapping_sub(min), step).wrapping_add(min);
        return Some(Quantity::new(rounded, Format::BinarySi));
    }
    if counts_in_milli(range, settings) {
        let (step_milli, min) = (step.milli_value(), range.min.milli_value());
        let rounded = round(request.exact_milli()?, min, step_milli)?;
        return Some(if rounded % 1000 == 0 {
            Quantity::new(rounded / 1000, step.format())
        } else {
            Quantity::from_milli(rounded, step.format())
        });
    }
    if request.nanos() > Quantity::new(i64::MAX, Format::DecimalSi).nanos() {
        return None;
    }
    let rounded = round(request.value(), range.min.value(), step.value())?;
    Some(Quantity::new(rounded, step.format()))
}

fn round(value: i64, min: i64, step: i64) -> Option<i64> {
    let above = i128::from(value) - i128::from(min);
    let step = i128::from(step);
    if step == 0 {
        return None;
    }
    let steps = above / step + i128::from(above % step != 0);
    i64::try_from(i128::from(min) + steps * step).ok()
}

/// Rounds as Go does, with 64-bit wrapping. Without a step the value stays as it is: Go would panic
/// there, so such a slice is never accepted.
fn next_multiple(value: i64, step: i64) -> i64 {
    if step == 0 {
        return value;
    }
    let steps = value.wrapping_div(step) + i64::from(value.wrapping_rem(step) != 0);
    steps.wrapping_mul(step)
}

/// Returns true if the range is computed in thousandths (`useMilli`).
fn counts_in_milli(range: &ValidRange, settings: &Settings) -> bool {
    let mut amounts = [Some(range.min), range.max, range.step].into_iter().flatten();
    settings.gates.fractional_capacity_range
        && amounts.all(|amount| amount.exact_milli().is_some())
        && range.step.and_then(|step| step.exact_milli()).is_none_or(|step| step >= 1)
}

/// Returns true if the policy forbids the amount (`violatesPolicy`).
fn violates(amount: &Quantity, policy: &RequestPolicy, settings: &Settings) -> bool {
    if policy.default.is_some_and(|default| default.is_same_form(amount)) {
        return false;
    }
    match &policy.valid_range {
        Some(range) => violates_range(amount, range, settings),
        None => !policy.valid_values.is_empty() && !policy.valid_values.contains(amount),
    }
}

fn violates_range(amount: &Quantity, range: &ValidRange, settings: &Settings) -> bool {
    if range.max.is_some_and(|max| *amount > max) {
        return true;
    }
    let Some(step) = &range.step else { return false };
    let (amount, min, step) = if counts_in_milli(range, settings) {
        let Some(amount) = amount.exact_milli() else { return true };
        (amount, range.min.milli_value(), step.milli_value())
    } else {
        (amount.value(), range.min.value(), step.value())
    };
    step != 0 && amount.wrapping_sub(min).wrapping_rem(step) != 0
}
