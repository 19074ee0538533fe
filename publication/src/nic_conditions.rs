//! NodeTopology conditions about the node's NICs: which have problems, and which are not published.
//! Pure.
//!
//! Each NIC has an entry with the time since when. A NIC that goes up and down all the time has one
//! entry that stays, so that the object is not written at each change.

use crate::health::Problem;
use crate::judge::{Given, WithheldNic, WithheldReason};
use crate::network::Withheld;
use crate::nic::NicState;
use std::collections::BTreeSet;
use topology_graph::HostCondition;

/// No NIC has a problem.
const HEALTHY: &str = "NICsHealthy";

/// Some NICs are not published. True on most nodes: one carries the node's own traffic.
const WITHHELD: &str = "NICsWithheld";

/// The conditions of these NICs.
pub(crate) fn conditions(
    given: &[(NicState, Given)],
    withheld: &[WithheldNic],
) -> [HostCondition; 2] {
    [healthy(given), of_withheld(withheld)]
}

fn healthy(given: &[(NicState, Given)]) -> HostCondition {
    let found: Vec<_> = given
        .iter()
        .flat_map(|given| {
            let shown = shown(&given.0.now.problems).into_iter();
            shown.map(move |problem| (given, problem))
        })
        .collect();
    HostCondition {
        kind: HEALTHY,
        holds: found.is_empty(),
        reason: found.first().map_or("AllHealthy", |(_, problem)| problem.words().condition),
        message: String::new(),
        entries: found.into_iter().map(|(nic, problem)| entry(nic, problem)).collect(),
    }
}

/// A port that goes up and down is that all the time, and down only now and then.
fn shown(problems: &BTreeSet<Problem>) -> Vec<Problem> {
    let is_flapping = problems.contains(&Problem::PortFlapping);
    let shown = problems.iter().filter(|it| !(is_flapping && **it == Problem::PortDown));
    shown.copied().collect()
}

/// `mlx5_3 (pci-0101-00-00-0): port-down, taint NoSchedule`.
fn entry((nic, given): &(NicState, Given), problem: Problem) -> String {
    let rdma = nic.rdma.as_ref().map(|rdma| rdma.name.as_str());
    let interface = nic.own_interface().map(|interface| interface.name.as_str());
    let name = named(rdma.or(interface), &nic.name);
    let key = format!("dranet.io/{problem}");
    let taint = given.taints.iter().find(|taint| taint.key == key);
    let taint = taint.map(|taint| format!(", taint {}", taint.effect)).unwrap_or_default();
    format!("{name}: {problem}{taint}")
}

fn named(kernel_name: Option<&str>, device: &str) -> String {
    kernel_name.map_or_else(|| device.to_owned(), |name| format!("{name} ({device})"))
}

fn of_withheld(withheld: &[WithheldNic]) -> HostCondition {
    let is_expected = withheld.iter().all(|nic| nic.reason.is_expected());
    let entries = withheld.iter().map(|nic| {
        format!("{}: {}", named(nic.interface.as_deref(), &nic.name), steady(&nic.reason))
    });
    HostCondition {
        kind: WITHHELD,
        holds: !withheld.is_empty(),
        reason: match (withheld.is_empty(), is_expected) {
            (true, _) => "NoneWithheld",
            (false, true) => "Expected",
            (false, false) => "Unexpected",
        },
        message: String::new(),
        entries: entries.collect(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::{decide, decide_with};
    use crate::filter::DEFAULT;
    use crate::health::taint::TaintArgs;
    use crate::history::History;
    use crate::judge::Rules;
    use crate::live::facts;
    use crate::machine::Usage;
    use crate::network::Interface;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
    use k8s_openapi::jiff::Timestamp;
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};
    use topology_graph::PortState;

    /// What is published of the machine at these times, in seconds, at which the port of one NIC has
    /// these states. Returns how often the conditions differ from those before, and the last ones.
    fn published(states: &[(u64, bool)]) -> (usize, Vec<Condition>) {
        let mut facts = facts("aks-gb300");
        let address = "0101:00:00.0".parse().unwrap();
        let (start, mut history) = (Instant::now(), History::default());
        let rules = Rules { taints: Some(TaintArgs::default()), ..Rules::default() };
        let (mut writes, mut before) = (0, Vec::new());
        for (seconds, is_up) in states {
            for rdma in facts.snapshot.rdma.iter_mut().filter(|it| it.pci == Some(address)) {
                let state = if *is_up { PortState::Active } else { PortState::Down };
                rdma.ports.iter_mut().for_each(|port| port.state = Some(state));
            }
            let now = start + Duration::from_secs(*seconds);
            let (machine, next) = history.look(&mut facts.clone(), &Usage::default(), &rules, now);
            history = next;
            let decision = machine.decide(&rules, &BTreeMap::new());
            let at = i64::try_from(*seconds).unwrap();
            let time = Time(Timestamp::from_second(1_780_000_000 + at).unwrap());
            let now =
                topology_graph::conditions(&decision.topology, &decision.host, &before, &time);
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
        let veths = decide(&facts).nics.iter().filter(|nic| nic.is_veth()).count();
        assert_eq!(veths, 1, "one is a member");
        let rules = Rules { filter: DEFAULT.parse().unwrap(), ..Rules::default() };
        let decision = decide_with(&facts, &rules);
        assert!(decision.nics.iter().all(|nic| !nic.is_veth()));
        assert_eq!(of_withheld(&decision.withheld).entries, Vec::<String>::new());
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
