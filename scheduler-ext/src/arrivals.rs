//! The shapes of the pods that got devices most recently, and the mix that follows from them.
//!
//! An allocation takes devices away from pods that are still to come. Running pods are not a good
//! sample of those, since long jobs are more common among them.

use crate::score::{Demand, Mix};
use std::collections::VecDeque;

/// The most pods that are counted.
const RECENT: usize = 200;

/// The weight of the configured mix, in pods.
const PRIOR: u32 = 100;

/// Difference in a share, in millionths, from which costs are computed again.
const DIFFERENCE: u32 = 20_000;

/// The shapes of the last 200 pods that got GPUs or NICs, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    recent: VecDeque<Demand>,
}

impl Arrivals {
    /// Counts a pod that has got these devices.
    pub fn add(&mut self, demand: Demand) {
        if demand.worth() == 0 {
            return;
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(demand);
    }

    /// Whether no pod is counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.recent.is_empty()
    }

    /// How many of these pods have each shape.
    #[cfg(any(test, feature = "server"))]
    pub(crate) fn counts(&self) -> std::collections::BTreeMap<Demand, u32> {
        let mut counts = std::collections::BTreeMap::new();
        for demand in &self.recent {
            *counts.entry(*demand).or_default() += 1;
        }
        counts
    }

    /// The mix of these pods, combined with the configured one. `None` if it is almost the same as
    /// before.
    pub fn mix(&self, prior: &Mix, before: &Mix) -> Option<Mix> {
        // Devices do not show which pods form a gang, so the share of gangs stays as configured.
        let pods = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        // Shares are millionths, counts thousandths of a pod.
        let prior = prior.shares().iter().map(|(demand, share)| {
            let weight = if demand.nodes > 1 { pods + PRIOR } else { PRIOR };
            let count = u64::from(*share) * u64::from(weight) / 1_000;
            (*demand, u32::try_from(count).unwrap_or(u32::MAX))
        });
        let mix = Mix::new(prior.chain(self.recent.iter().map(|demand| (*demand, 1_000))));
        before.differs(&mix, DIFFERENCE).then_some(mix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(mix: &Mix, demand: Demand) -> u32 {
        mix.shares().iter().find(|(known, _)| *known == demand).map_or(0, |(_, share)| *share)
    }

    fn with(pods: &[(u32, usize)]) -> Arrivals {
        let mut arrivals = Arrivals::default();
        for (gpus, count) in pods {
            for _ in 0..*count {
                arrivals.add(Demand::gpus(*gpus));
            }
        }
        arrivals
    }

    /// The configured mix counts as 100 pods, so 50 pods have a third of the shares.
    #[test]
    fn pods_are_combined_with_the_configured_mix() {
        let prior: Mix = "1x1=1".parse().unwrap();
        let mix = with(&[(2, 50)]).mix(&prior, &prior).unwrap();
        assert_eq!(share(&mix, Demand::gpus(2)), 333_333);
    }

    #[test]
    fn older_pods_are_forgotten() {
        let prior: Mix = "1x1=1".parse().unwrap();
        let arrivals = with(&[(8, 1_000), (4, RECENT - 1)]);
        let mix = arrivals.mix(&prior, &prior).unwrap();
        assert_eq!(share(&mix, Demand::gpus(8)), 1_000_000 / 300);
        let mix = with(&[(8, 1_000), (4, RECENT)]).mix(&prior, &prior).unwrap();
        assert_eq!(share(&mix, Demand::gpus(8)), 0);
    }

    #[test]
    fn the_share_of_gangs_stays_as_configured() {
        let prior: Mix = "1x1=3,4*8x8=1".parse().unwrap();
        let mix = with(&[(2, RECENT)]).mix(&prior, &prior).unwrap();
        let gangs = share(&mix, Demand::gpus(8).on(4));
        // 25 % of the 300 pods, beside the 200 that came and 75 of the configured mix.
        assert_eq!(gangs, 75_000_000 / 350);
    }

    #[test]
    fn small_differences_do_not_change_the_mix() {
        let prior: Mix = "1x1=1,2x2=1".parse().unwrap();
        assert_eq!(with(&[(1, 2)]).mix(&prior, &prior), None);
        assert_eq!(with(&[]).mix(&prior, &prior), None);
        assert!(with(&[(1, 20)]).mix(&prior, &prior).is_some());
        // Pods without GPUs and NICs are not counted.
        assert_eq!(with(&[(0, 100)]).mix(&prior, &prior), None);
    }
}
