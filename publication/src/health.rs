//! Decides which problems a node's NICs have. A problem appears at once and disappears
//! only after its cause has been absent for a while. Pure; time is an argument.
//!
//! An Ethernet port counts only while its interface is set up, and only after it has been
//! down for a while: it goes down whenever its interface enters or leaves a pod.

pub mod problem;
mod rate;
mod signal;
pub mod taint;

pub use problem::{PortErrors, Problem};
use rate::Rate;
use signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How many errors within ten minutes are a problem. A link at the error rate that InfiniBand allows
/// (one bit in 10^12) has some ten broken symbols a minute at the most.
const MANY_ERRORS: u64 = 200;
/// How often a port may lose its link within ten minutes. Each pod that takes the port's interface
/// costs one.
const MANY_LINK_DOWNS: u64 = 10;

/// How long an Ethernet port must be down to count. Links need seconds to train after their
/// interface has moved.
const ETHERNET_PATIENCE: Duration = Duration::from_secs(15);

/// The problems of each NIC that has any, by device name.
pub type Problems = BTreeMap<String, BTreeSet<Problem>>;

/// What is observed of one NIC now. Unknown values are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Whether a port is up.
    pub port_up: Option<bool>,
    /// Whether this is an Ethernet port.
    pub is_ethernet: bool,
    /// Whether the `PCIe` link runs below its capability.
    pub link_degraded: Option<bool>,
    /// Errors of its ports.
    pub port_errors: Option<PortErrors>,
    /// Corrected errors of its `PCIe` link.
    pub pcie_errors: Option<u64>,
    /// Whether the RDMA device does not answer.
    pub unresponsive: bool,
    /// Whether the device is gone although a pod has it.
    pub gone: bool,
}

/// Health history of a node's NICs, by device name.
#[derive(Clone, Debug, Default)]
pub struct Health {
    nics: BTreeMap<String, Nic>,
}

#[derive(Clone, Debug, Default)]
struct Nic {
    port: Option<Signal>,
    /// Since when an Ethernet port has been down.
    down_since: Option<Instant>,
    link: Option<Signal>,
    port_errors: Rate,
    link_downs: Rate,
    pcie_errors: Rate,
    unresponsive: bool,
    gone: bool,
}

impl Health {
    /// Records what is observed now; forgets NICs that are not in `seen`.
    pub fn observe(&mut self, seen: &BTreeMap<String, Vitals>, now: Instant) {
        self.nics.retain(|device, _| seen.contains_key(device));
        for (device, vitals) in seen {
            let Vitals { port_up, is_ethernet, link_degraded, unresponsive, gone, .. } = *vitals;
            let nic = self.nics.entry(device.clone()).or_default();
            let is_down = port_up.map(|is_up| !is_up);
            let is_down = if is_ethernet { nic.down_for_long(is_down, now) } else { is_down };
            observe(&mut nic.port, is_down, now);
            observe(&mut nic.link, link_degraded, now);
            let of_port = vitals.port_errors;
            for (rate, value, many) in [
                (&mut nic.port_errors, of_port.map(|it| it.broken), MANY_ERRORS),
                (&mut nic.link_downs, of_port.map(|it| it.link_downs), MANY_LINK_DOWNS),
                (&mut nic.pcie_errors, vitals.pcie_errors, MANY_ERRORS),
            ] {
                if let Some(value) = value {
                    rate.observe(value, many, now);
                }
            }
            (nic.unresponsive, nic.gone) = (unresponsive, gone);
        }
    }

    /// The problems that NICs have now.
    pub fn problems(&self, now: Instant) -> Problems {
        self.nics
            .iter()
            .map(|(device, nic)| (device.clone(), nic.problems(now)))
            .filter(|(_, problems)| !problems.is_empty())
            .collect()
    }

    /// When a problem will disappear without a further observation.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let signals = self.nics.values().flat_map(|nic| nic.port.iter().chain(&nic.link));
        let down = self.nics.values().filter_map(|nic| Some(nic.down_since? + ETHERNET_PATIENCE));
        let down = down.filter(|at| *at > now);
        signals.filter_map(|signal| signal.next_change(now)).chain(down).min()
    }
}

/// An unknown value ends the signal, so that its history does not count against the NIC.
fn observe(signal: &mut Option<Signal>, is_bad: Option<bool>, now: Instant) {
    match (signal.as_mut(), is_bad) {
        (Some(signal), Some(is_bad)) => signal.observe(is_bad, now),
        (None, Some(is_bad)) => *signal = Some(Signal::new(is_bad, now)),
        (_, None) => *signal = None,
    }
}

impl Nic {
    /// Whether a port is down, and has been for long enough.
    fn down_for_long(&mut self, is_down: Option<bool>, now: Instant) -> Option<bool> {
        if is_down != Some(true) {
            self.down_since = None;
            return is_down;
        }
        let since = *self.down_since.get_or_insert(now);
        Some(now >= since + ETHERNET_PATIENCE)
    }

    fn problems(&self, now: Instant) -> BTreeSet<Problem> {
        let (port, link) = (self.port.as_ref(), self.link.as_ref());
        let found = [
            (Problem::PortDown, port.is_some_and(|port| port.is_bad(now))),
            (Problem::PortFlapping, port.is_some_and(|port| port.is_flapping(now))),
            (Problem::PortErrors, self.port_errors.is_bad() || self.link_downs.is_bad()),
            (Problem::LinkDegraded, link.is_some_and(|link| link.is_bad(now))),
            (Problem::PcieErrors, self.pcie_errors.is_bad()),
            (Problem::Unresponsive, self.unresponsive),
            (Problem::Gone, self.gone),
        ];
        found.into_iter().filter_map(|(problem, is_so)| is_so.then_some(problem)).collect()
    }
}

#[cfg(test)]
mod tests;
