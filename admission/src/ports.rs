//! NICs that are virtual functions of one port share its link, so they count as one NIC: a pod that
//! asks for several gets functions of different ports.
//!
//! The constraint needs `distinctAttribute` of Kubernetes 1.36 and later, and an attribute that
//! names the port.

use crate::claim::{ClaimParts, distinct_attribute};
use crate::demand::Demand;
use cluster_model::machines::Machine;
use cluster_model::names::alternative;
use cluster_model::nic_drivers::NicDriver;
use dra_allocator::Settings;

/// How a claim keeps the functions of a port apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortsApart {
    /// It need not: no port has several functions, or the pod gets one NIC.
    Unneeded,
    /// By this attribute, on which NICs of different ports differ.
    By(&'static str),
    /// By this attribute, except among any devices, since some machine has too few ports.
    NearBy(&'static str),
    /// It cannot.
    Impossible,
}

impl PortsApart {
    /// What a claim that serves these machines can do.
    pub(crate) fn new(
        driver: &NicDriver,
        demand: &Demand,
        served: &[&Machine<'_>],
        settings: &Settings,
    ) -> Self {
        let all = demand.all_nics() as usize;
        if all < 2 || served.iter().all(|machine| machine.ports() == machine.devices.nics.len()) {
            return Self::Unneeded;
        }
        let mut names = driver.port_attributes.iter();
        match names.find(|name| served.iter().all(|machine| machine.nics_have(name))) {
            Some(name) if settings.gates.consumable_capacity => {
                let is_enough = served.iter().all(|machine| machine.ports() >= all);
                if is_enough { Self::By(name) } else { Self::NearBy(name) }
            }
            _ => Self::Impossible,
        }
    }

    /// Adds the constraint.
    pub(crate) fn constrain(self, parts: &mut ClaimParts) {
        let (name, requests) = match self {
            Self::Unneeded | Self::Impossible => return,
            Self::By(name) => (name, parts.nic_requests.clone()),
            Self::NearBy(name) => (name, near(parts)),
        };
        if !requests.is_empty() {
            parts.constraints.push(distinct_attribute(requests, name));
        }
    }

    /// Why the scheduler can give two functions of a port nevertheless, if it can.
    pub(crate) fn why_not(
        self,
        driver: &NicDriver,
        parts: &ClaimParts,
        settings: &Settings,
    ) -> Option<&'static str> {
        match self {
            Self::NearBy(_) => Some("some nodes have fewer ports than the pod asks for NICs"),
            Self::Impossible if driver.port_attributes.is_empty() => {
                Some("the driver of the NICs does not publish their port")
            }
            Self::Impossible if settings.gates.consumable_capacity => {
                Some("not all of these NICs publish their port")
            }
            Self::Impossible => Some(
                "the scheduler cannot keep ports apart (feature gate DRAConsumableCapacity is off)",
            ),
            Self::By(_) if parts.outgrows_distinct(settings) => {
                Some("schedulers before Kubernetes 1.37 keep only two NICs of a request apart")
            }
            Self::Unneeded | Self::By(_) => None,
        }
    }
}

/// The alternatives of near NICs. A request without alternatives is one for any NICs if no machine
/// has near ones.
fn near(parts: &ClaimParts) -> Vec<String> {
    let alternatives = parts.nics().flat_map(|request| {
        let ways = request.first_available.iter().flatten();
        ways.filter(|way| !alternative::is_last_resort(&way.name))
            .map(|way| format!("{}/{}", request.name, way.name))
    });
    alternatives.collect()
}
