//! Explanations as text, one line each.

use std::fmt;

use super::{Explanation, Failure, Relaxation, RequestReport, ValueCounts};
use crate::allocate::Outcome;

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.attempt.outcome {
            Outcome::Allocated(_) => f.write_str("fits")?,
            Outcome::NoFit(reason) => write!(f, "does not fit: {reason}")?,
            Outcome::Failed(error) => write!(f, "fails on all nodes: {}", error.in_full())?,
            Outcome::OverBudget => f.write_str("unknown: the search reached its limit")?,
        }
        let doubt =
            if self.attempt.is_exact { "" } else { ", for one of the possible pool orders" };
        writeln!(f, " ({} steps{doubt})", self.attempt.steps)?;
        self.requests.iter().try_for_each(|report| writeln!(f, "  {report}"))?;
        self.relaxations.iter().try_for_each(|relaxation| writeln!(f, "  would fit: {relaxation}"))
    }
}

impl fmt::Display for RequestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim {}, request {}: ", self.claim, self.request)?;
        match &self.failure {
            Some(failure) => write!(f, "{failure}"),
            None => write!(
                f,
                "needs {}, {} of {} devices are available",
                self.needed,
                self.available.len(),
                self.devices
            ),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClass(class) => write!(f, "there is no device class `{class}`"),
            Self::NoDevices => f.write_str("the node has too few devices"),
            Self::Class { class, expression, left } => {
                write!(f, "{left} devices match class `{class}`: `{expression}`")
            }
            Self::Selector { expression, part, missing, left } => {
                let of_part = if part == expression { "" } else { "part of the " };
                write!(f, "{left} devices pass the {of_part}selector `{part}`")?;
                if !missing.is_empty() {
                    write!(f, "; none of the others has {}", missing.join(", "))?;
                }
                Ok(())
            }
            Self::Compile { expression, error } => {
                write!(f, "the selector `{expression}` does not compile: {error}")
            }
            Self::Runtime { expression, device, error } => {
                write!(f, "the selector `{expression}` fails on {device}: {error}")
            }
            Self::Tainted(taints) => {
                f.write_str("tainted:")?;
                taints.iter().try_for_each(|(device, taint)| write!(f, " {device} {taint}"))
            }
            Self::Capacity { left } => write!(f, "{left} devices have the requested capacity"),
            Self::InUse(devices) => {
                f.write_str("in use:")?;
                devices.iter().try_for_each(|(device, holder)| match holder {
                    Some(claim) => write!(f, " {device} by {claim}"),
                    None => write!(f, " {device}"),
                })
            }
            Self::Constraint { attribute, values } => {
                write!(f, "constraint on `{attribute}` cannot be met:")?;
                for (request, values) in values {
                    write!(f, " {request} has {}", Counts(values))?;
                }
                Ok(())
            }
            Self::Together => {
                f.write_str("can be satisfied alone, but not together with the others")
            }
        }
    }
}

struct Counts<'a>(&'a ValueCounts);

impl fmt::Display for Counts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.0.iter().map(|(value, count)| match value {
            Some(value) => format!("{value} ×{count}"),
            None => format!("no such attribute ×{count}"),
        });
        write!(f, "[{}]", texts.collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Relaxation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tolerate { claim, request } => {
                write!(f, "claim {claim}, request {request}: tolerate the taints of devices")
            }
            Self::Free { device, holder: Some(holder) } => {
                write!(f, "when {holder} releases {device}")
            }
            Self::Free { device, holder: None } => write!(f, "when {device} is free"),
            Self::DropCapacity { claim, request } => {
                write!(f, "claim {claim}, request {request}: without capacity requests")
            }
            Self::DropSelector { claim, request, expression } => {
                write!(f, "claim {claim}, request {request}: without selector `{expression}`")
            }
            Self::DropConstraint { claim, index, attribute } => {
                write!(f, "claim {claim}: without constraint #{index} on `{attribute}`")
            }
            Self::Fewer { claim, request, count } => {
                write!(f, "claim {claim}, request {request}: with count {count}")
            }
            Self::FreeAll => f.write_str("when all devices of the node are free"),
        }
    }
}
