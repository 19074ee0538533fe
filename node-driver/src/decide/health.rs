//! What is wrong with the NICs of a node: a problem comes at once and goes only
//! when its cause has stayed away. Pure; time is an argument.
//!
//! Of ports only those of InfiniBand count. An Ethernet port is down as long as
//! nobody sets its interface up, which is the pod's business.

mod signal;
pub mod taint;

use signal::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

/// What can be wrong with a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Problem {
    /// No port carries data, or none has for long enough.
    PortDown,
    /// Its port goes down again and again.
    PortFlapping,
    /// Its `PCIe` link is slower or narrower than the function could.
    LinkDegraded,
    /// Its RDMA device does not answer the kernel.
    Unresponsive,
    /// A pod has it, and the machine has it no more.
    Gone,
}

/// The problems of each NIC that has any, by device name.
pub type Problems = BTreeMap<String, BTreeSet<Problem>>;

/// What is seen of one NIC now; nothing where the machine does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Whether a port is up.
    pub port_up: Option<bool>,
    /// Whether the link runs below what it could.
    pub link_degraded: Option<bool>,
    /// Whether its RDMA device does not answer.
    pub unresponsive: bool,
    /// Whether the device is gone although a pod has it.
    pub gone: bool,
}

/// What was seen of the NICs of a node by device name.
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
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::PortDown, Self::PortFlapping, Self::LinkDegraded, Self::Unresponsive, Self::Gone];

    /// The word for it, in metrics and after `dranet.io/` in taints.
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
    /// Takes in what is seen now; forgets NICs that nothing is seen of.
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

    /// What is wrong now.
    pub fn problems(&self, now: Instant) -> Problems {
        let of = |(device, nic): (&String, &Nic)| (device.clone(), nic.problems(now));
        self.nics.iter().map(of).filter(|(_, problems)| !problems.is_empty()).collect()
    }

    /// When a problem will go without anything being heard.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let signals = self.nics.values().flat_map(|nic| nic.port.iter().chain(&nic.link));
        signals.filter_map(|signal| signal.next_change(now)).min()
    }
}

/// What is not told any more is not held against anybody.
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
