//! Which NICs must not be given away because their port is down: a taint that
//! comes at once and goes only when the port has stayed up. Pure; time is an
//! argument.
//!
//! Only InfiniBand ports count. An Ethernet port is down as long as nobody sets
//! its interface up, which is the pod's business.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The taint's key.
pub const PORT_DOWN: &str = "dranet.io/port-down";

/// How long a port must stay up until its NIC is given away again.
const STEADY: Duration = Duration::from_secs(10);
/// The same for a port that flaps.
const STEADY_AFTER_FLAPPING: Duration = Duration::from_mins(2);
/// Falls within [`WINDOW`] that make a port one that flaps.
const FLAPS: usize = 3;
/// How long a fall is remembered.
const WINDOW: Duration = Duration::from_mins(10);

/// The ports of a node by device name.
#[derive(Clone, Debug, Default)]
pub struct Health {
    ports: BTreeMap<String, Port>,
}

#[derive(Clone, Debug)]
struct Port {
    is_up: bool,
    /// When it last came up or went down.
    since: Instant,
    /// Its latest falls, oldest first.
    falls: Vec<Instant>,
}

impl Health {
    /// Takes in what is seen now, a device and whether its port is up; forgets
    /// devices that are gone.
    pub fn observe(&mut self, seen: &BTreeMap<String, bool>, now: Instant) {
        self.ports.retain(|device, _| seen.contains_key(device));
        for (device, &is_up) in seen {
            match self.ports.get_mut(device) {
                Some(port) => port.observe(is_up, now),
                None => {
                    self.ports.insert(device.clone(), Port::new(is_up, now));
                }
            }
        }
    }

    /// Whether a device must not be given away now.
    pub fn is_tainted(&self, device: &str, now: Instant) -> bool {
        self.ports.get(device).is_some_and(|port| !port.is_up || port.steady_at(now) > now)
    }

    /// When a taint will go without anything being heard.
    pub fn next_change(&self, now: Instant) -> Option<Instant> {
        let up = self.ports.values().filter(|port| port.is_up);
        up.map(|port| port.steady_at(now)).filter(|at| *at > now).min()
    }
}

impl Port {
    /// A port seen for the first time: what it did before is not known, and held
    /// against nobody.
    fn new(is_up: bool, now: Instant) -> Self {
        Self { is_up, since: now, falls: if is_up { Vec::new() } else { vec![now] } }
    }

    fn observe(&mut self, is_up: bool, now: Instant) {
        if is_up == self.is_up {
            return;
        }
        (self.is_up, self.since) = (is_up, now);
        self.falls.retain(|fall| now.duration_since(*fall) < WINDOW);
        if !is_up {
            self.falls.push(now);
        }
    }

    /// When a port that is up counts as staying up.
    fn steady_at(&self, now: Instant) -> Instant {
        let recent = self.falls.iter().filter(|fall| now.duration_since(**fall) < WINDOW).count();
        match recent {
            0 => self.since,
            1.. if recent < FLAPS => self.since + STEADY,
            _ => self.since + STEADY_AFTER_FLAPPING,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks through `SECONDS up|down|gone|look` and tells at each step whether
    /// the NIC is tainted.
    fn walk(steps: &[(u64, &str)]) -> Vec<bool> {
        let start = Instant::now();
        let mut health = Health::default();
        let step = |(seconds, what): &(u64, &str)| {
            let now = start + Duration::from_secs(*seconds);
            match *what {
                "look" => {}
                "gone" => health.observe(&BTreeMap::new(), now),
                state => health.observe(&BTreeMap::from([("nic".to_owned(), state == "up")]), now),
            }
            health.is_tainted("nic", now)
        };
        steps.iter().map(step).collect()
    }

    #[test]
    fn a_taint_comes_at_once_and_goes_slowly() {
        for (what, steps, expected) in [
            ("never down", &[(0, "up"), (5, "up")][..], &[false, false][..]),
            (
                "down from the start",
                &[(0, "down"), (5, "up"), (14, "look"), (15, "look")],
                &[true, true, true, false],
            ),
            (
                "down later",
                &[(0, "up"), (5, "down"), (6, "up"), (15, "up"), (16, "look")],
                &[false, true, true, true, false],
            ),
            (
                "flapping",
                &[
                    (0, "up"),
                    (1, "down"),
                    (2, "up"),
                    (3, "down"),
                    (4, "up"),
                    (5, "down"),
                    (6, "up"),
                    (17, "look"),
                    (125, "look"),
                    (126, "look"),
                ],
                &[false, true, true, true, true, true, true, true, true, false],
            ),
            (
                "three falls in an hour are no flapping",
                &[
                    (0, "down"),
                    (1000, "up"),
                    (2000, "down"),
                    (3000, "up"),
                    (3600, "down"),
                    (3601, "up"),
                    (3611, "look"),
                ],
                &[true, false, true, false, true, true, false],
            ),
            ("gone and back", &[(0, "down"), (1, "gone"), (2, "up")], &[true, false, false]),
        ] {
            assert_eq!(walk(steps), expected, "{what}");
        }
    }

    #[test]
    fn it_says_when_to_look_again() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut health = Health::default();
        let mut observe = |state, now| {
            health.observe(&BTreeMap::from([("nic".to_owned(), state)]), now);
            health.next_change(now)
        };
        assert_eq!(observe(true, at(0)), None);
        assert_eq!(observe(false, at(1)), None, "a port that is down is heard of when it comes up");
        assert_eq!(observe(true, at(2)), Some(at(12)));
        assert_eq!(observe(true, at(12)), None);
    }
}
