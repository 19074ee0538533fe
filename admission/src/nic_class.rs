//! The NICs that a claim may take: those of one role, and of one link type and rate class.
//!
//! The compute NICs of a machine are of one class; so the role is enough. Of the storage NICs of a
//! machine, those of the fastest class are taken. Drivers that publish no role (older ones, and
//! upstream's) have NICs that count as compute NICs, as before there were roles.

use crate::claim::match_attribute;
use crate::join::form::ClaimParts;
use crate::selector::Selector;
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use cluster_model::node_devices::text;
use dra_allocator::{AttributeValue, Device};
use std::collections::BTreeSet;
use topology_graph::NicRole;

/// The class of the NICs of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NicClass {
    role: NicRole,
    /// The link types and rates of the machines' NICs; empty if the role is enough.
    link_types: BTreeSet<String>,
    rates: BTreeSet<i64>,
}

impl NicClass {
    /// The class of the NICs of these machines.
    pub(crate) fn of(role: NicRole, machines: &[Machine<'_>]) -> Self {
        let mut class = Self::unseen(role);
        let all = || machines.iter().flat_map(|machine| machine.devices.nics.values());
        if role != NicRole::Compute && all().all(|nic| rate(nic).is_some()) {
            class.rates = all().filter_map(|nic| rate(nic)).collect();
            let link_types = all().filter_map(|nic| text(nic, attribute::LINK_TYPE));
            class.link_types = link_types.map(str::to_owned).collect();
        }
        class
    }

    /// The class while no NIC is known.
    pub(crate) fn unseen(role: NicRole) -> Self {
        Self { role, link_types: BTreeSet::new(), rates: BTreeSet::new() }
    }

    /// Limits a selector to the class.
    pub(crate) fn limit(&self, selector: Selector) -> Selector {
        let role = self.role.to_string();
        if self.role == NicRole::Compute {
            return selector.and_string_if_any(attribute::ROLE, &role);
        }
        let mut selector = selector.and_string(attribute::ROLE, &role);
        if !self.link_types.is_empty() {
            let link_types = self.link_types.iter().map(String::as_str);
            selector = selector.and_one_of(attribute::LINK_TYPE, link_types);
        }
        if !self.rates.is_empty() {
            selector = selector.and_one_int_of(attribute::RATE_GBPS, &self.rates);
        }
        selector
    }

    /// Adds a constraint that the NICs have one rate, if machines differ in it.
    pub(crate) fn keep_equal(&self, parts: &mut ClaimParts, nics: u32) {
        if self.rates.len() > 1 && nics > 1 {
            let requests = parts.nic_requests.clone();
            parts.constraints.push(match_attribute(requests, attribute::RATE_GBPS));
        }
    }
}

fn rate(nic: &Device) -> Option<i64> {
    match nic.attribute(attribute::RATE_GBPS)? {
        AttributeValue::Int(rate) => Some(*rate),
        _ => None,
    }
}
