//! A month of a machine whose NICs go into pods and come back, with other numbers each time.

use super::*;
use crate::health::PortErrors;
use std::time::Duration;

const HOURS: u64 = 30 * 24;

/// Knuth's multiplier for 64 bits; the upper bits are the good ones.
fn below(state: &mut u64, sides: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*state >> 33) % sides
}

/// The machine as the kernel shows it in this hour: interfaces have new indices.
fn numbered_again(facts: &mut Facts, hour: u64) {
    for interface in &mut facts.network.interfaces {
        interface.index += u32::try_from(hour).unwrap() * 1_000;
        for other in [&mut interface.master, &mut interface.lower].into_iter().flatten() {
            *other += u32::try_from(hour).unwrap() * 1_000;
        }
    }
}

#[test]
fn in_a_month_what_is_published_stays_and_nothing_grows() {
    let facts = live::facts(MACHINE);
    let (rules, begin, mut dice) = (Rules::default(), Instant::now(), 5);
    let names: Vec<String> = decide(&facts).devices.into_iter().map(|it| it.name).collect();
    let (mut history, mut published) = (History::default(), None);
    let (mut first, mut last) = (0, 0);
    for hour in 0..HOURS {
        let in_pods = names.iter().filter(|_| below(&mut dice, 2) == 0);
        let held: Held = in_pods.map(|name| (name.clone(), BOTH)).collect();
        // At first the host has all of them.
        let held = if hour == 0 { Held::new() } else { held };
        let mut now = without(&facts, &held);
        numbered_again(&mut now, hour);
        // Counters that only grow, slowly.
        let errors = PortErrors { broken: hour, link_downs: hour / 24 };
        let port_errors = now.snapshot.rdma.iter().map(|it| (it.name.clone(), errors)).collect();
        let link_errors = now.snapshot.pci.iter().map(|it| (it.address, hour)).collect();
        let usage = Usage { held, port_errors, link_errors, ..Usage::default() };
        let at = begin + Duration::from_hours(hour);
        let (machine, next) = history.look(&mut now, &usage, &rules, at);
        assert!(next.problems.is_empty(), "hour {hour}: {:?}", next.problems);
        let devices = machine.decide(&rules, &BTreeMap::new()).devices;
        let before = published.get_or_insert_with(|| devices.clone());
        let other: Vec<&str> =
            devices.iter().filter(|it| !before.contains(it)).map(|it| it.name.as_str()).collect();
        assert!(other.is_empty() && devices.len() == before.len(), "hour {hour}: {other:?}");
        history = next;
        let most = if hour < 10 * 24 { &mut first } else { &mut last };
        *most = format!("{history:?}").len().max(*most);
    }
    println!("{HOURS} looks; {first} characters at first, {last} later");
    assert!(last <= first + first / 20, "{first} characters in the first days, later {last}");
}
