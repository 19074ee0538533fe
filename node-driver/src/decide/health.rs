//! Decides which problems a node's NICs have. A problem appears at once and disappears
//! only after its cause has been absent for a while. Pure; time is an argument.
//!
//! Only InfiniBand ports count. An Ethernet port is down until somebody sets its
//! interface up, which is the pod's task.

mod signal;
pub mod taint;

use signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

/// What can be wrong with a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Problem {
    /// No port is up, or none has been up for long enough.
    PortDown,
    /// A port goes down repeatedly.
    PortFlapping,
    /// The `PCIe` link is slower or narrower than the function supports.
    LinkDegraded,
    /// The RDMA device does not answer the kernel.
    Unresponsive,
    /// A pod has the device, but the machine no longer has it.
    Gone,
}

/// The problems of each NIC that has any, by device name.
pub type Problems = BTreeMap<String, BTreeSet<Problem>>;

/// What is observed of one NIC now. Unknown values are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Whether a port is up.
    pub port_up: Option<bool>,
    /// Whether the `PCIe` link runs below its capability.
    pub link_degraded: Option<bool>,
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
    link: Option<Signal>,
    unresponsive: bool,
    gone: bool,
}

impl Problem {
    /// All problems.
    pub const ALL: [Self; 5] =
        [Self::PortDown, Self::PortFlapping, Self::LinkDegraded, Self::Unresponsive, Self::Gone];

    /// The problem's name in metrics and, after `dranet.io/`, in taint keys.
    pub fn word(self) -> &'static str {
        match self {
            Self::PortDown => "port-down",
            Self::PortFlapping => "port-flapping",
            Self::LinkDegraded => "link-degraded",
            Self::Unresponsive => "unresponsive",
            Self::Gone => "gone",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl Health {
    /// Records what is observed now; forgets NICs that are not in `seen`.
    pub fn observe(&mut self, seen: &BTreeMap<String, Vitals>, now: Instant) {
        self.nics.retain(|device, _| seen.contains_key(device));
        for (device, vitals) in seen {
            let Vitals { port_up, link_degraded, unresponsive, gone } = *vitals;
            let nic = self.nics.entry(device.clone()).or_default();
            observe(&mut nic.port, port_up.map(|is_up| !is_up), now);
            observe(&mut nic.link, link_degraded, now);
            (nic.unresponsive, nic.gone) = (unresponsive, gone);
        }
    }

    /// The problems that NICs have now.
    pub fn problems(&self, now: Instant) -> Problems {
        let of = |(device, nic): (&String, &Nic)| (device.clone(), nic.problems(now));
        self.nics.iter().map(of).filter(|(_, problems)| !problems.is_empty()).collect()
    }

    /// When a problem will disappear without a further observation.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let signals = self.nics.values().flat_map(|nic| nic.port.iter().chain(&nic.link));
        signals.filter_map(|signal| signal.next_change(now)).min()
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
    fn problems(&self, now: Instant) -> BTreeSet<Problem> {
        let is = |signal: &Option<Signal>, judge: fn(&Signal, Instant) -> bool| {
            signal.as_ref().is_some_and(|signal| judge(signal, now))
        };
        let found = [
            (Problem::PortDown, is(&self.port, Signal::is_bad)),
            (Problem::PortFlapping, is(&self.port, Signal::is_flapping)),
            (Problem::LinkDegraded, is(&self.link, Signal::is_bad)),
            (Problem::Unresponsive, self.unresponsive),
            (Problem::Gone, self.gone),
        ];
        found.into_iter().filter_map(|(problem, is_so)| is_so.then_some(problem)).collect()
    }
}

#[cfg(test)]
mod tests;
