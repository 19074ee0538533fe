//! The results that Kubernetes may give where its order is random.
//!
//! The stable allocator, and every one before 1.36, iterates over pools in a Go map. Slices of one
//! pool stay in order of arrival.

use std::collections::HashSet;

use dra_allocator::Limits;
use k8s_openapi::api::resource::v1::ResourceSlice;

use super::{Answer, Case, ReplayError};

/// With more pools only the order of the case is tried, because there are too many permutations.
const MAX_POOLS: usize = 6;

/// Cases of Kubernetes' table whose JSON does not represent the input: version, variant, name,
/// reason. For the JSON in the file, Kubernetes gives another result than the recorded one.
const UNFAITHFUL: &[(&str, &str, &str, &str)] = &[
    ("1.36.3", "experimental", EMPTY_LIST, "an empty list, which JSON leaves out"),
    ("1.37.1", "incubating", HUGE, "10²¹, which Kubernetes prints as `1`"),
    ("1.37.1", "experimental", HUGE, "10²¹, which Kubernetes prints as `1`"),
];
const EMPTY_LIST: &str = "list-attributes-distinct-constaint-with-empty-or-unknown-type";
const HUGE: &str = "consumable-capacity-requests-are-not-modified";

impl Case {
    /// What the JSON of this case fails to represent, for the few cases of Kubernetes' test table
    /// where that is known. Their recorded results belong to another input.
    pub(crate) fn unfaithful(&self) -> Option<&'static str> {
        UNFAITHFUL
            .iter()
            .find(|case| {
                case.0 == self.kubernetes
                    && case.1 == self.channel
                    && self.name.as_deref() == Some(case.2)
            })
            .map(|case| case.3)
    }

    /// Checks whether Kubernetes may give the recorded result. It may if it equals our result or,
    /// where the order is random, our result for one of the orders. Returns our first result.
    pub(crate) fn check(&self, limits: Limits<'_>) -> Result<(Answer, bool), ReplayError> {
        let ours = self.replay()?.run(limits);
        let is_it = |answer: &Answer| {
            answer.same_results(&self.expected) && answer.same_steps(&self.expected)
        };
        if is_it(&ours) || self.settings()?.is_deterministic() {
            let same = is_it(&ours);
            return Ok((ours, same));
        }
        for slices in orders(self.slices.as_deref().unwrap_or_default()) {
            let case = Self { slices: Some(slices), ..self.clone() };
            if is_it(&case.replay()?.run(limits)) {
                return Ok((ours, true));
            }
        }
        Ok((ours, false))
    }
}

/// The slices with their pools in every order.
fn orders(slices: &[ResourceSlice]) -> Vec<Vec<ResourceSlice>> {
    let pool = |slice: &ResourceSlice| (slice.spec.driver.clone(), slice.spec.pool.name.clone());
    let mut known = HashSet::new();
    let pools = slices.iter().map(pool).filter(|pool| known.insert(pool.clone()));
    let pools: Vec<_> = pools.collect();
    if pools.len() > MAX_POOLS {
        return Vec::new();
    }
    permutations(pools.len())
        .into_iter()
        .map(|order| {
            order
                .iter()
                .flat_map(|number| {
                    let pool_wanted = &pools[*number];
                    slices.iter().filter(move |slice| pool(slice) == *pool_wanted).cloned()
                })
                .collect()
        })
        .collect()
}

/// All permutations of the numbers below a limit.
fn permutations(limit: usize) -> Vec<Vec<usize>> {
    (0..limit).fold(vec![Vec::new()], |shorter, number| {
        let grown = shorter.into_iter().flat_map(|order| {
            (0..=order.len()).map(move |at| {
                let mut order = order.clone();
                order.insert(at, number);
                order
            })
        });
        grown.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_once() {
        let orders: HashSet<_> = permutations(4).into_iter().collect();
        assert_eq!(orders.len(), 24);
        assert!(orders.contains(&vec![3, 1, 0, 2]));
    }
}
