//! Quantities of CPU, memory and other resources, counted as the scheduler does.

use crate::pod_containers::in_order;
use dra_allocator::Quantity as Parsed;
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Quantities by resource name, in thousandths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Amounts(BTreeMap<Box<str>, i64>);

impl Amounts {
    /// Parses a resource list of an API object. Skips malformed quantities, because the
    /// API server has validated them.
    pub fn new(list: Option<&BTreeMap<String, Quantity>>) -> Self {
        let all = list.into_iter().flatten().filter_map(|(name, quantity)| {
            let amount = quantity.0.parse::<Parsed>().ok()?.milli_value();
            Some((name.as_str().into(), amount))
        });
        Self(all.collect())
    }

    /// Adds other quantities.
    pub fn add(&mut self, other: &Self) {
        self.add_times(other, 1);
    }

    /// Adds other quantities this many times; subtracts them if that is negative.
    pub fn add_times(&mut self, other: &Self, times: i64) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_default();
            *sum = sum.saturating_add(amount.saturating_mul(times));
        }
    }

    /// How many times these quantities fit into the amounts that are free of each resource, at most
    /// `max`.
    pub fn times_in(&self, free: impl Fn(&str) -> i64, max: usize) -> usize {
        let wanted = self.0.iter().filter(|(_, amount)| **amount > 0);
        let times = wanted.map(|(name, amount)| usize::try_from(free(name) / amount).unwrap_or(0));
        times.min().unwrap_or(max).min(max)
    }

    /// The first resource of which too little is free.
    pub fn first_short(&self, free: impl Fn(&str) -> i64) -> Option<&str> {
        let mut short =
            self.0.iter().filter(|(name, amount)| **amount > 0 && **amount > free(name));
        short.next().map(|(name, _)| &**name)
    }

    /// The amount of a resource, in thousandths.
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    /// The names of the resources of which there is any.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, amount)| **amount > 0).map(|(name, _)| &**name)
    }

    /// The amount of a resource in whole units, rounded up.
    pub fn units(&self, name: &str) -> i64 {
        self.get(name).saturating_add(999) / 1000
    }

    /// The same without these resources.
    #[must_use]
    pub fn without(&self, names: &[&str]) -> Self {
        let kept = self.0.iter().filter(|(name, _)| !names.contains(&&***name));
        Self(kept.map(|(name, amount)| (name.clone(), *amount)).collect())
    }

    /// Whether there is no resource.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let known = self.0.entry(name.clone()).or_default();
            *known = (*known).max(*amount);
        }
    }
}

/// A pod's requests: those of its containers together or, if larger, those of an init
/// container with the sidecars before it (`PodRequests` in
/// `k8s.io/component-helpers/resource/helpers.go`).
pub fn requests(spec: &PodSpec) -> Amounts {
    // The running containers, and the most at any time.
    let (mut running, mut sum) = (Amounts::default(), Amounts::default());
    for (kind, container) in in_order(spec) {
        let mut now = running.clone();
        now.add(&of_container(container));
        sum.raise_to(&now);
        if kind.stays() {
            running = now;
        }
    }
    if let Some(whole) = &spec.resources {
        sum.0.extend(of_resources(whole).0);
    }
    sum.add(&Amounts::new(spec.overhead.as_ref()));
    sum
}

fn of_container(container: &Container) -> Amounts {
    container.resources.as_ref().map(of_resources).unwrap_or_default()
}

/// The requests; a resource with a limit alone requests that much, as the API server fills in
/// (`SetDefaults_Pod` in `pkg/apis/core/v1/defaults.go`). Pods in files are not filled in.
fn of_resources(resources: &ResourceRequirements) -> Amounts {
    let mut amounts = Amounts::new(resources.limits.as_ref());
    amounts.0.extend(Amounts::new(resources.requests.as_ref()).0);
    amounts
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn amounts(value: Value) -> Amounts {
        Amounts::new(Some(&serde_json::from_value(value).unwrap()))
    }

    #[test]
    fn containers_add_up_and_init_containers_do_not() {
        let cpu = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let init = |name: &str, policy: Value, amount: &str| json!({"name": name, "restartPolicy": policy, "resources": cpu(amount)});
        let containers = json!([
            {"name": "a", "resources": cpu("1")}, {"name": "b", "resources": cpu("500m")},
        ]);
        for (inits, more, expected) in [
            (json!([]), json!({}), "1500m"),
            (json!([init("i", Value::Null, "1")]), json!({}), "1500m"),
            (json!([init("i", Value::Null, "4")]), json!({}), "4"),
            (json!([init("s", json!("Always"), "2"), init("i", Value::Null, "3")]), json!({}), "5"),
            (json!([init("s", json!("Always"), "2")]), json!({}), "3500m"),
            (
                json!([init("i", Value::Null, "3"), init("s", json!("Always"), "2")]),
                json!({}),
                "3500m",
            ),
            (json!([]), json!({"overhead": {"cpu": "250m"}}), "1750m"),
            (json!([]), json!({"resources": cpu("8")}), "8"),
            (json!([]), json!({"resources": {"limits": {"cpu": "8"}}}), "8"),
        ] {
            let mut spec = json!({"containers": containers, "initContainers": inits});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let found = requests(&serde_json::from_value(spec.clone()).unwrap());
            assert_eq!(found, amounts(json!({"cpu": expected})), "{spec}");
        }
    }

    #[test]
    fn the_scarcest_resource_limits_what_fits() {
        let free = amounts(json!({"cpu": "8", "memory": "4Gi"}));
        for (wanted, times) in [
            (json!({}), 100),
            (json!({"cpu": "2"}), 4),
            (json!({"cpu": "2", "memory": "3Gi"}), 1),
            (json!({"cpu": "9"}), 0),
            (json!({"example.com/x": "1"}), 0),
            (json!({"example.com/x": "0"}), 100),
        ] {
            let wanted = amounts(wanted);
            assert_eq!(wanted.times_in(|name| free.get(name), 100), times);
        }
        let mut left = free.clone();
        left.add_times(&amounts(json!({"cpu": "2"})), -4);
        assert_eq!(amounts(json!({"cpu": "1m"})).times_in(|name| left.get(name), 9), 0);
    }
}
