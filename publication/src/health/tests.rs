use super::*;
use std::time::Duration;

/// Observations in a step of a walk: `up`, `down`, `fast`, `slow`, `silent`, `gone`;
/// `absent` means that the NIC is not observed.
fn vitals(what: &str) -> BTreeMap<String, Vitals> {
    let vitals = match what {
        "absent" => return BTreeMap::new(),
        "up" | "down" => Vitals { port_up: Some(what == "up"), ..Vitals::default() },
        "link" | "no-link" => {
            Vitals { port_up: Some(what == "link"), is_ethernet: true, ..Vitals::default() }
        }
        "fast" | "slow" => Vitals { link_degraded: Some(what == "slow"), ..Vitals::default() },
        "silent" => Vitals { unresponsive: true, ..Vitals::default() },
        "gone" => Vitals { gone: true, ..Vitals::default() },
        _ => Vitals::default(),
    };
    BTreeMap::from([("nic".to_owned(), vitals)])
}

/// Runs steps `SECONDS WHAT` and prints the problems after each. `look` is a step without
/// an observation.
fn walk(steps: &[(u64, &str)]) -> String {
    let start = Instant::now();
    let mut health = Health::default();
    let step = |(seconds, what): &(u64, &str)| {
        let now = start + Duration::from_secs(*seconds);
        if *what != "look" {
            health.observe(&vitals(what), now);
        }
        let problems = health.problems(now);
        let words: Vec<_> =
            problems.get("nic").into_iter().flatten().map(|problem| problem.word()).collect();
        let words = if words.is_empty() { "well".to_owned() } else { words.join(" ") };
        format!("{seconds} {what}: {words}\n")
    };
    steps.iter().map(step).collect()
}

#[test]
fn a_problem_comes_at_once_and_goes_slowly() {
    insta::assert_snapshot!(walk(&[(0, "up"), (5, "up")]), @"
    0 up: well
    5 up: well
    ");
    insta::assert_snapshot!(walk(&[(0, "down"), (5, "up"), (14, "look"), (15, "look")]), @"
    0 down: port-down
    5 up: port-down
    14 look: port-down
    15 look: well
    ");
    insta::assert_snapshot!(walk(&[(0, "fast"), (5, "slow"), (6, "fast"), (15, "look"), (16, "look")]), @"
    0 fast: well
    5 slow: link-degraded
    6 fast: link-degraded
    15 look: link-degraded
    16 look: well
    ");
    insta::assert_snapshot!(walk(&[(0, "down"), (1, "absent"), (2, "up")]), @"
    0 down: port-down
    1 absent: well
    2 up: well
    ");
    insta::assert_snapshot!(walk(&[(0, "up"), (1, "silent"), (2, "up")]), @"
    0 up: well
    1 silent: unresponsive
    2 up: well
    ");
    insta::assert_snapshot!(walk(&[(0, "up"), (1, "gone"), (2, "up")]), @"
    0 up: well
    1 gone: gone
    2 up: well
    ");
}

#[test]
fn repeated_falls_count_as_flapping() {
    let flaps = [(0, "up"), (1, "down"), (2, "up"), (3, "down"), (4, "up"), (5, "down"), (6, "up")];
    let after = [(15, "look"), (16, "look"), (125, "look"), (126, "look")];
    insta::assert_snapshot!(walk(&[&flaps[..], &after].concat()), @"
    0 up: well
    1 down: port-down
    2 up: port-down
    3 down: port-down
    4 up: port-down
    5 down: port-down port-flapping
    6 up: port-down port-flapping
    15 look: port-down port-flapping
    16 look: port-flapping
    125 look: port-flapping
    126 look: well
    ");
    let rare = [(0, "down"), (1000, "up"), (2000, "down"), (3000, "up"), (3600, "down")];
    insta::assert_snapshot!(walk(&[&rare[..], &[(3601, "up"), (3611, "look")]].concat()), @"
    0 down: port-down
    1000 up: port-down
    2000 down: port-down
    3000 up: port-down
    3600 down: port-down
    3601 up: port-down
    3611 look: well
    ");
}

#[test]
fn next_change_is_the_end_of_a_problem() {
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut health = Health::default();
    let mut observe = |what, seconds| {
        health.observe(&vitals(what), at(seconds));
        health.next_change(at(seconds))
    };
    assert_eq!(observe("up", 0), None);
    assert_eq!(observe("down", 1), None, "a down port changes only with an observation");
    assert_eq!(observe("up", 2), Some(at(12)));
    assert_eq!(observe("up", 12), None);
    for second in [13, 14] {
        observe(["up", "down"][second % 2], u64::try_from(second).unwrap());
    }
    observe("up", 15);
    observe("down", 16);
    observe("up", 17);
    assert_eq!(observe("up", 18), Some(at(27)), "the port counts as up");
    assert_eq!(observe("up", 27), Some(at(137)), "the port no longer counts as flapping");
    assert_eq!(observe("up", 137), None);
}

/// An interface that enters a pod takes the port down for seconds; that is no problem.
#[test]
fn an_ethernet_port_is_down_after_a_while() {
    insta::assert_snapshot!(
        walk(&[(0, "link"), (5, "no-link"), (12, "link"), (20, "no-link"), (34, "no-link"),
               (35, "no-link"), (40, "link"), (50, "look")]),
        @"
    0 link: well
    5 no-link: well
    12 link: well
    20 no-link: well
    34 no-link: well
    35 no-link: port-down
    40 link: port-down
    50 look: well
    "
    );
    let start = Instant::now();
    let mut health = Health::default();
    health.observe(&vitals("no-link"), start);
    assert_eq!(health.next_change(start), Some(start + ETHERNET_PATIENCE), "it is looked at then");
}
