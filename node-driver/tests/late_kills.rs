//! Late binding while the driver is killed: the real program prepares and unprepares claims for places,
//! and is killed at each fault point and at any moment. No NIC is given twice, what a claim got stays,
//! and nothing is lost.
//!
//! API server, kubelet and scheduler are played by the test. `$DRANET_CRASHES` sets the least number of
//! kills (40), `$DRANET_SEED` the seed.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "late/characters.rs"]
mod characters;
#[path = "late/dice.rs"]
mod dice;
#[path = "../src/fake_server.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod fake_server;
#[path = "late_kills/host.rs"]
mod host;
#[path = "late/kubelet.rs"]
#[allow(dead_code, reason = "each test uses a part of it")]
mod kubelet;

use host::{Host, Pod};
use std::collections::BTreeSet;

/// All fault points of a claim without interfaces.
const ON_THE_WAY_IN: [&str; 9] = [
    "prepare:interfaces:after",
    "prepare:checkpoint:before",
    "prepare:checkpoint:after",
    "prepare:files:before",
    "prepare:files:copied",
    "prepare:files:between",
    "prepare:files:after",
    "prepare:cdi:after",
    "prepare:done",
];
const ON_THE_WAY_OUT: [&str; 10] = [
    "unprepare:checkpoint:before",
    "unprepare:checkpoint:after",
    "unprepare:cdi:before",
    "unprepare:cdi:after",
    "unprepare:links:after",
    "unprepare:attached:after",
    "unprepare:files:between",
    "unprepare:files:after",
    "unprepare:functions:after",
    "unprepare:done",
];

/// Kills beyond the wanted ones by which every point must have been reached.
const MORE: usize = 100;

#[expect(clippy::disallowed_methods, reason = "a test has no arguments")]
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_driver_gives_no_nic_twice_and_loses_none() {
    let (wanted, seed) = (setting("DRANET_CRASHES", 40), setting("DRANET_SEED", 7));
    let mut host = Host::start(seed, &[&ON_THE_WAY_IN, &ON_THE_WAY_OUT]).await;
    let mut living: Vec<Pod> = Vec::new();
    let mut number = 0;
    while host.kills < wanted || !host.left.is_empty() {
        let context = format!("seed {seed}, pod {number}, {} kills", host.kills);
        assert!(host.kills < wanted + MORE, "{context}: never reached: {:?}", host.left);
        match host.admit(number, &living) {
            Some(mut pod) if living.is_empty() || host.dice.below(2) == 0 => {
                pod.nics = host.prepare(&pod, &ON_THE_WAY_IN).await;
                assert_eq!(pod.nics.len(), pod.places.len(), "{context}: {pod:?}");
                living.push(pod);
            }
            _ => {
                let ended = living.swap_remove(host.dice.below(living.len()));
                host.unprepare(&ended, &ON_THE_WAY_OUT).await;
                assert!(!host.has_spec(&ended), "{context}: {ended:?}");
            }
        }
        number += 1;
        check(&host, &living, &context);
        if host.dice.below(4) == 0 {
            // As a kubelet that starts again does.
            for pod in &living {
                assert_eq!(host.prepare(pod, &ON_THE_WAY_IN).await, pod.nics, "{context}");
            }
        }
    }
    for pod in std::mem::take(&mut living) {
        host.unprepare(&pod, &[]).await;
    }
    check(&host, &living, "at the end");
    host.offers_all().await;
    println!("{number} pods came or went, {} kills", host.kills);
    host.stop().await;
}

/// The checkpoint has the living pods with what they got, no NIC twice, and nothing else.
fn check(host: &Host, living: &[Pod], context: &str) {
    let recorded = host.recorded();
    let expected = living.iter().map(|pod| (pod.uid(), pod.nics.clone())).collect();
    assert_eq!(recorded, expected, "{context}");
    let all: Vec<&String> = recorded.values().flatten().collect();
    let distinct: BTreeSet<&String> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "{context}: {recorded:?}");
    assert!(living.iter().all(|pod| host.has_spec(pod)), "{context}");
}
