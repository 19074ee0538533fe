//! Quantities of CPU, memory and other resources, counted as the scheduler does.

use crate::pod_containers::in_order;
use dra_allocator::Quantity as Parsed;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, ResourceRequirements};
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

/// What a container counts with that requests nothing, in thousandths (`util/pod_resources.go`).
const ASSUMED: [(&str, i64); 2] = [("cpu", 100), ("memory", 200 * 1024 * 1024 * 1000)];

/// The CPU and memory with which a pod counts for free nodes, in thousandths: never nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct NonZero {
    pub(super) cpu: i64,
    pub(super) memory: i64,
}

impl NonZero {
    /// Reads a pod.
    pub(super) fn of(pod: &Pod) -> Self {
        let requests = requests_or(pod, &ASSUMED);
        Self { cpu: requests.get("cpu"), memory: requests.get("memory") }
    }

    /// Adds another this many times; subtracts it if that is negative.
    pub(super) fn add(&mut self, other: Self, times: i64) {
        self.cpu = self.cpu.saturating_add(other.cpu.saturating_mul(times));
        self.memory = self.memory.saturating_add(other.memory.saturating_mul(times));
    }
}

/// A pod's requests: those of its containers together or, if larger, those of an init
/// container with the sidecars before it (`PodRequests` in
/// `k8s.io/component-helpers/resource/helpers.go`, with `UseStatusResources` as kube-scheduler has it).
pub fn requests(pod: &Pod) -> Amounts {
    requests_or(pod, &[])
}

/// The same where a container without a request of a resource counts with this amount, in thousandths
/// (`NonMissingContainerRequests`).
fn requests_or(pod: &Pod, assumed: &[(&str, i64)]) -> Amounts {
    let Some(spec) = &pod.spec else { return Amounts::default() };
    let status = pod.status.as_ref();
    let is_infeasible = status.is_some_and(|status| {
        let mut conditions = status.conditions.iter().flatten();
        let pending = conditions.find(|it| it.type_ == "PodResizePending");
        pending.is_some_and(|it| it.reason.as_deref() == Some("Infeasible"))
    });
    let statuses = status.into_iter().flat_map(|status| {
        let inits = status.init_container_statuses.iter().flatten();
        inits.chain(status.container_statuses.iter().flatten())
    });
    let statuses: BTreeMap<&str, &ContainerStatus> =
        statuses.map(|status| (status.name.as_str(), status)).collect();
    // The running containers, and the most at any time.
    let (mut running, mut sum) = (Amounts::default(), Amounts::default());
    for (kind, container) in in_order(spec) {
        let mut now = running.clone();
        let status = statuses.get(container.name.as_str()).copied();
        let mut own = of_container(container, status, is_infeasible);
        for (name, amount) in assumed {
            own.0.entry((*name).into()).or_insert(*amount);
        }
        now.add(&own);
        sum.raise_to(&now);
        if kind.stays() {
            running = now;
        }
    }
    if let Some(whole) = &spec.resources {
        sum.0.extend(Amounts::new(whole.requests.as_ref()).0);
        // A limit of the pod is its request only where no container requests the resource
        // (`setDefaultPodLevelRequests`).
        for (name, limit) in Amounts::new(whole.limits.as_ref()).0 {
            sum.0.entry(name).or_insert(limit);
        }
    }
    sum.add(&Amounts::new(spec.overhead.as_ref()));
    sum
}

/// What a container requests; if it is resized in place, the most of what it has and of what it is to
/// have (`determineContainerReqs`).
fn of_container(
    container: &Container,
    status: Option<&ContainerStatus>,
    is_infeasible: bool,
) -> Amounts {
    let wanted = container.resources.as_ref().map(of_resources).unwrap_or_default();
    let Some((status, has)) = status.and_then(|it| Some((it, it.resources.as_ref()?))) else {
        return wanted;
    };
    let mut most = if is_infeasible { Amounts::default() } else { wanted };
    most.raise_to(&Amounts::new(has.requests.as_ref()));
    most.raise_to(&Amounts::new(status.allocated_resources.as_ref()));
    most
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
            (json!([]), json!({"resources": {"limits": {"cpu": "8"}}}), "1500m"),
        ] {
            let mut spec = json!({"containers": containers, "initContainers": inits});
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let found = requests(&serde_json::from_value(json!({"spec": spec})).unwrap());
            assert_eq!(found, amounts(json!({"cpu": expected})), "{spec}");
        }
    }

    #[test]
    fn a_limit_of_the_pod_is_its_request_where_no_container_has_one() {
        let spec = json!({"containers": [{"name": "a"}], "resources": {"limits": {"cpu": "8"}}});
        let found = requests(&serde_json::from_value(json!({"spec": spec})).unwrap());
        assert_eq!(found, amounts(json!({"cpu": "8"})));
    }

    /// What is asked for, is allocated, and is in force; and whether the resize is infeasible.
    #[test]
    fn a_container_that_is_resized_counts_with_the_most_of_what_it_has_and_is_to_have() {
        for (asks, allocated, has, reason, expected) in [
            ("1", Some("1"), Some("1"), None, "1"),
            ("1", Some("4"), Some("4"), None, "4"),
            ("4", Some("1"), Some("1"), Some("Deferred"), "4"),
            ("4", Some("1"), Some("2"), Some("Infeasible"), "2"),
            ("4", Some("9"), None, None, "4"),
        ] {
            let cpu = |cpu: &str| json!({"cpu": cpu});
            let mut status = json!({"name": "c", "allocatedResources": allocated.map(cpu)});
            if let Some(has) = has {
                status["resources"] = json!({"requests": cpu(has)});
            }
            let pod = json!({
                "spec": {"containers": [{"name": "c", "resources": {"requests": cpu(asks)}}]},
                "status": {"containerStatuses": [status], "conditions": reason.map(|reason| {
                    json!([{"type": "PodResizePending", "status": "True", "reason": reason}])
                })},
            });
            let found = requests(&serde_json::from_value(pod.clone()).unwrap());
            assert_eq!(found, amounts(cpu(expected)), "{pod}");
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
