//! The NICs that a claim may take: those of one role, and of one link type and rate class.
//!
//! The compute NICs of a machine are of one class; so the role is enough. Of the storage NICs of a
//! machine, those of the fastest class are taken. Drivers that publish no role (older ones, and
//! upstream's) have NICs that count as compute NICs, as before there were roles.

use crate::claim::{ClaimParts, match_attribute};
use crate::selector::Selector;
use cluster_model::machines::Machine;
use cluster_model::names::{self, attribute};
use cluster_model::nic_drivers::{NicDriver, Rdma};
use cluster_model::node_devices::{int, text};
use dra_allocator::Device;
use std::collections::BTreeSet;
use topology_graph::{NicRole, PciAddress};

/// The class of the NICs of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NicClass {
    driver: &'static NicDriver,
    role: NicRole,
    /// NICs that only the graph tells from those of the class, by bus ID.
    others: BTreeSet<PciAddress>,
    /// The link types and rates of the machines' NICs; empty if the role is enough.
    link_types: BTreeSet<String>,
    rates: BTreeSet<i64>,
}

impl NicClass {
    /// The class of the NICs of these machines.
    pub(crate) fn new(driver: &'static NicDriver, role: NicRole, machines: &[Machine<'_>]) -> Self {
        let mut class = Self::unseen(driver, role);
        class.others = machines.iter().flat_map(|it| it.other_nics.keys().copied()).collect();
        let nics = machines.iter().flat_map(|machine| machine.devices.nics.values().copied());
        let nics: Vec<&Device> = nics.collect();
        let rates: Option<BTreeSet<i64>> =
            nics.iter().map(|nic| int(nic, attribute::RATE_GBPS)).collect();
        if role != NicRole::Compute
            && let Some(rates) = rates
        {
            class.rates = rates;
            let link_types = nics.iter().filter_map(|nic| text(nic, attribute::LINK_TYPE));
            class.link_types = link_types.map(str::to_owned).collect();
        }
        class
    }

    /// The class while no NIC is known.
    pub(crate) fn unseen(driver: &'static NicDriver, role: NicRole) -> Self {
        let (others, link_types) = (BTreeSet::new(), BTreeSet::new());
        Self { driver, role, others, link_types, rates: BTreeSet::new() }
    }

    /// The driver of the NICs.
    pub(crate) fn driver(&self) -> &'static NicDriver {
        self.driver
    }

    /// Selects the NICs of the class that can be allocated.
    pub(crate) fn selector(&self, without_interface: bool) -> Selector {
        let driver = self.driver;
        let selector = Selector::driver(driver.driver);
        let selector = match driver.rdma {
            Rdma::True(name) => selector.and_true(name),
            Rdma::OneOf(name, values) => selector.and_one_of(name, values.iter().copied()),
            Rdma::ByClass => selector,
        };
        let mut selector = self.limit(selector);
        if driver.has_roles {
            // NICs that are down or slow are not allocated; plans still count them.
            selector = selector
                .and_not_true(attribute::DEGRADED)
                .and_string_if_any(attribute::PORT_STATE, names::PORT_ACTIVE);
        }
        match driver.interface_attribute {
            Some(name) if without_interface => selector.and_string(name, ""),
            _ => selector,
        }
    }

    /// Limits a selector to the class.
    fn limit(&self, selector: Selector) -> Selector {
        if !self.driver.has_roles {
            let others: Vec<_> = self.others.iter().copied().collect();
            return match others.as_slice() {
                [] => selector,
                others => selector.and_no_addresses(attribute::PCI_BUS_ID, others),
            };
        }
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
