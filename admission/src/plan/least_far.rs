//! Preferred alignment where a machine cannot give near devices to all: among claims that give each
//! machine what the chosen one gives it, the one with the fewest paths between NUMA nodes.
//!
//! What a machine could give at best is computed from its graph; that a claim gives it is tried by the
//! allocator.

use super::choice::{Chooser, Chosen, Refusals};
use crate::join::{self, Candidate, Preferred};
use cluster_model::machines::Machine;

/// Why pods get devices that are not near from a claim that is not certain of near ones, but looks for them.
const LEAST_FAR: &str = "near ones cannot be promised; as many as possible are near";

impl<'m> Chooser<'_, 'm> {
    /// The claim that leaves the fewest paths between NUMA nodes that need not be, on empty nodes.
    pub(super) fn least_far(&self, best: Chosen<'m>) -> Chosen<'m> {
        let needless = self.needless(&best);
        if needless.is_empty() || self.fleet.terms.counts.is_none() {
            return best;
        }
        // A claim that divides devices gives others only by its last way: the machines where this must be
        // right are those without near devices for all.
        let paths = self.fleet.demand().paths();
        let present = self.fleet.machines.iter().filter(|machine| machine.live_nodes() > 0);
        let lacking =
            present.filter(|it| self.fleet.most_near_paths(it).is_some_and(|most| most < paths));
        let those = needless.iter().map(|(machine, _)| *machine).collect();
        let mut refusals = Refusals::default();
        let mut least = (sum(&needless), best.clone());
        let machines: [Vec<&Machine<'m>>; 2] = [lacking.collect(), those];
        let candidates = machines.iter().flat_map(|it| self.with_fewer(&best.candidate, it));
        for candidate in candidates {
            let Some(found) = self.cheapest(&candidate, &mut refusals) else { continue };
            let left = sum(&self.needless(&found));
            if left < least.0 && self.keeps(&best, &found) {
                let candidate = Candidate { far_because: LEAST_FAR, ..found.candidate };
                least = (left, Chosen { candidate, ..found });
            }
            if least.0 == 0 {
                break;
            }
        }
        least.1
    }

    /// The present machines on which a pod could have more near paths, and how many more.
    fn needless(&self, chosen: &Chosen<'m>) -> Vec<(&Machine<'m>, u32)> {
        let machines = self.fleet.machines.iter().filter(|machine| machine.live_nodes() > 0);
        let fewer = machines.filter_map(|machine| {
            let has = chosen.near_paths_on(machine)?;
            let more = self.fleet.most_near_paths(machine)?.saturating_sub(has);
            (more > 0).then_some((machine, more))
        });
        fewer.collect()
    }

    /// Claims that may have more near paths on these machines: with pairs as the pod asks for them, not
    /// merged, and with devices that are divided among NUMA nodes.
    fn with_fewer(&self, chosen: &Candidate<'m>, machines: &[&Machine<'m>]) -> Vec<Candidate<'m>> {
        let fleet = self.fleet;
        let mut found = Vec::new();
        if fleet.demand().blocks > 1 {
            let pairs = self.in_pairs(chosen);
            let divided = pairs
                .iter()
                .filter_map(|pairs| pairs.across(join::of_blocks(fleet, &pairs.form, machines)));
            found.extend(divided.collect::<Vec<_>>().into_iter().chain(pairs));
        }
        if chosen.demand.blocks == 1 {
            found.extend(chosen.across(join::of_all(fleet, &chosen.form, machines)));
        }
        found
    }

    /// Claims for pairs with the ways of the chosen one, or with near ways if that has none because no
    /// machine has near devices for all pairs.
    fn in_pairs(&self, chosen: &Candidate<'m>) -> Vec<Candidate<'m>> {
        let demand = self.fleet.demand();
        if chosen.form.ways().count() > 1 {
            let own = chosen.rungs.iter();
            return own.map(|_| Candidate { demand: demand.clone(), ..chosen.clone() }).collect();
        }
        let Preferred { complete, partial, .. } = join::preferred(self.fleet);
        let ladders = complete.into_iter().chain(partial).map(|ladder| Candidate {
            demand: demand.clone(),
            form: ladder.form,
            rungs: ladder.rungs,
            ..chosen.clone()
        });
        ladders.collect()
    }

    /// Returns true if each machine gets from a claim what it gets from another one at least.
    fn keeps(&self, chosen: &Chosen<'m>, other: &Chosen<'m>) -> bool {
        self.fleet.machines.iter().all(|machine| {
            let (had, has) = (&chosen.candidate.promises, &other.candidate.promises);
            has.on(machine) == had.on(machine)
                && other.near_paths_on(machine) >= chosen.near_paths_on(machine)
        })
    }
}

fn sum(needless: &[(&Machine<'_>, u32)]) -> u64 {
    let all = needless.iter();
    all.map(|(machine, paths)| machine.live_nodes() as u64 * u64::from(*paths)).sum()
}
