//! NodeTopology conditions about the node's NICs: which have problems, and which are not published.
//! Pure.
//!
//! Each NIC has an entry with the time since when. A NIC that goes up and down all the time has one
//! entry that stays, so that the object is not written at each change.

use crate::decision::Decision;
use crate::health::{Problem, Problems};
use crate::network::Withheld;
use crate::withheld::WithheldReason;
use cluster_model::names::attribute::dranet;
use k8s_openapi::api::resource::v1::Device;
use std::collections::BTreeSet;
use topology_graph::HostCondition;

/// No NIC has a problem.
const HEALTHY: &str = "NICsHealthy";

/// Some NICs are not published. True on most nodes: one carries the node's own traffic.
const WITHHELD: &str = "NICsWithheld";

impl Decision {
    /// Adds the conditions of the NICs, as they are published now.
    #[must_use]
    pub fn with_nic_conditions(mut self, problems: &Problems) -> Self {
        let conditions = conditions(&self, problems);
        self.host.extend(conditions);
        self
    }
}

fn conditions(decision: &Decision, problems: &Problems) -> [HostCondition; 2] {
    [healthy(decision, problems), withheld(decision)]
}

fn healthy(decision: &Decision, problems: &Problems) -> HostCondition {
    let found: Vec<_> = decision
        .devices
        .iter()
        .flat_map(|device| {
            let problems = problems.get(&device.name).map(shown).unwrap_or_default();
            problems.into_iter().map(move |problem| (device, problem))
        })
        .collect();
    HostCondition {
        kind: HEALTHY,
        holds: found.is_empty(),
        reason: found.first().map_or("AllHealthy", |(_, problem)| word(*problem)),
        message: String::new(),
        entries: found.into_iter().map(|(device, problem)| entry(device, problem)).collect(),
    }
}

/// A port that goes up and down is that all the time, and down only now and then.
fn shown(problems: &BTreeSet<Problem>) -> Vec<Problem> {
    let is_flapping = problems.contains(&Problem::PortFlapping);
    let shown = problems.iter().filter(|it| !(is_flapping && **it == Problem::PortDown));
    shown.copied().collect()
}

/// `mlx5_3 (pci-0101-00-00-0): port-down, taint NoSchedule`.
fn entry(device: &Device, problem: Problem) -> String {
    let text = |name| {
        let value = device.attributes.as_ref()?.get(name)?;
        value.string.as_deref()
    };
    let kernel_name = text(dranet::RDMA_DEVICE).or_else(|| text(dranet::IF_NAME));
    let name = named(kernel_name, &device.name);
    let key = format!("dranet.io/{problem}");
    let taint = device.taints.iter().flatten().find(|taint| taint.key == key);
    let taint = taint.map(|taint| format!(", taint {}", taint.effect)).unwrap_or_default();
    format!("{name}: {problem}{taint}")
}

fn named(kernel_name: Option<&str>, device: &str) -> String {
    kernel_name.map_or_else(|| device.to_owned(), |name| format!("{name} ({device})"))
}

fn withheld(decision: &Decision) -> HostCondition {
    let is_expected = decision.withheld.iter().all(|nic| is_expected(&nic.reason));
    HostCondition {
        kind: WITHHELD,
        holds: !decision.withheld.is_empty(),
        reason: match (decision.withheld.is_empty(), is_expected) {
            (true, _) => "NoneWithheld",
            (false, true) => "Expected",
            (false, false) => "Unexpected",
        },
        message: String::new(),
        entries: decision
            .withheld
            .iter()
            .map(|nic| {
                format!("{}: {}", named(nic.interface.as_deref(), &nic.name), steady(&nic.reason))
            })
            .collect(),
    }
}

/// The reason's word; the same for an uplink whose route is absent for a moment.
fn steady(reason: &WithheldReason) -> &'static str {
    match reason {
        WithheldReason::Host(Withheld::EarlierUplink) => {
            WithheldReason::Host(Withheld::Uplink).word()
        }
        reason => reason.word(),
    }
}

/// Whether the host, the operator or another function needs it, so that nobody has to do anything.
fn is_expected(reason: &WithheldReason) -> bool {
    match reason {
        WithheldReason::Host(_)
        | WithheldReason::Reserved { .. }
        | WithheldReason::HasVirtualFunctions { .. }
        | WithheldReason::PhysicalFunctionInPod { .. }
        | WithheldReason::PortOfBond { .. }
        | WithheldReason::Filter => true,
        WithheldReason::Unbound { .. }
        | WithheldReason::NothingToGive
        | WithheldReason::NotReady
        | WithheldReason::VendorDriver => false,
    }
}

/// The reason of the condition.
fn word(problem: Problem) -> &'static str {
    match problem {
        Problem::PortDown => "PortDown",
        Problem::PortFlapping => "PortFlapping",
        Problem::PortErrors => "PortErrors",
        Problem::LinkDegraded => "LinkDegraded",
        Problem::PcieErrors => "PCIeErrors",
        Problem::Unresponsive => "Unresponsive",
        Problem::Gone => "Gone",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::decide;
    use crate::filter::{DEFAULT, Filter};
    use crate::health::Health;
    use crate::health::taint::TaintArgs;
    use crate::live::facts;
    use crate::network::Interface;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use k8s_openapi::jiff::Timestamp;
    use std::time::{Duration, Instant};
    use topology_graph::PortState;

    /// What is published of the machine at these times, in seconds, at which the port of one NIC has
    /// these states. Returns how often the conditions differ from those before, and the last ones.
    fn published(states: &[(u64, bool)]) -> (usize, Vec<Condition>) {
        let mut facts = facts("aks-gb300");
        let address = "0101:00:00.0".parse().unwrap();
        let (start, mut health) = (Instant::now(), Health::default());
        let (mut writes, mut before) = (0, Vec::new());
        for (seconds, is_up) in states {
            for rdma in facts.snapshot.rdma.iter_mut().filter(|it| it.pci == Some(address)) {
                let state = if *is_up { PortState::Active } else { PortState::Down };
                rdma.ports.iter_mut().for_each(|port| port.state = Some(state));
            }
            let now = start + Duration::from_secs(*seconds);
            let decision = decide(&facts);
            health.observe(&decision.vitals, now);
            let problems = health.problems(now);
            let decision = decision.tainted(&problems, TaintArgs::default());
            let host = conditions(&decision, &problems);
            let at = i64::try_from(*seconds).unwrap();
            let time = Time(Timestamp::from_second(1_780_000_000 + at).unwrap());
            let now = topology_graph::conditions(&decision.topology, &host, &before, &time);
            writes += usize::from(now != before);
            before = now;
        }
        (writes, before)
    }

    fn line(conditions: &[Condition], kind: &str) -> String {
        let found = conditions.iter().find(|it| it.type_ == kind).unwrap();
        format!("{} {}: {}", found.status, found.reason, found.message)
    }

    #[test]
    fn a_nic_that_is_down_is_named_with_the_time() {
        let (_, conditions) = published(&[(0, true)]);
        assert_eq!(line(&conditions, HEALTHY), "True AllHealthy: ");
        assert_eq!(line(&conditions, WITHHELD), "False NoneWithheld: ");
        let (writes, conditions) = published(&[(0, true), (60, false), (90, false), (120, false)]);
        assert_eq!(
            line(&conditions, HEALTHY),
            "False PortDown: mlx5_0 (pci-0101-00-00-0): port-down, taint NoSchedule since \
             2026-05-28T20:27:40Z"
        );
        assert_eq!(writes, 2, "the first, and when it went down");
    }

    #[test]
    fn interfaces_of_pods_are_not_named() {
        let mut facts = facts("aks-gb300");
        let of_pod = |index: u32, master| Interface {
            index,
            name: format!("veth{index:08x}"),
            kind: Some("veth".to_owned()),
            master,
            ..Interface::default()
        };
        facts.network.interfaces.extend([of_pod(901, Some(900)), of_pod(902, None)]);
        let decision = decide(&facts).filtered(&DEFAULT.parse::<Filter>().unwrap());
        assert_eq!(withheld(&decision).entries, Vec::<String>::new());
    }

    #[test]
    fn a_port_that_goes_up_and_down_all_the_time_is_written_a_few_times() {
        let states: Vec<_> = (0..200).map(|turn| (15 * turn, turn % 2 == 0)).collect();
        let (writes, conditions) = published(&states);
        let said = line(&conditions, HEALTHY);
        assert!(said.starts_with("False PortFlapping: mlx5_0"), "{said}");
        assert!(writes < 10, "{writes} of {} looks", states.len());
    }
}
