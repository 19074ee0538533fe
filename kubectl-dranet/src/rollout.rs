//! Rolling updates on a full cluster. Where a workload creates a new pod before an old one leaves
//! (`maxSurge`), and lets none leave before (`maxUnavailable` is 0), the new pod waits for ever for
//! devices that old ones hold.

use crate::in_use::InUse;
use cluster_model::predict::budget;
use cluster_model::room::{Ask, Places, Room};
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::ClaimName;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::collections::BTreeMap;

/// The label with the revision of a Deployment's pod.
const REVISION: &str = "pod-template-hash";

/// Characters at the end of the name of a Deployment's pod.
const RANDOM: usize = 5;

/// The most old pods of which it is tried whether the new one fits in their place.
const TRIED_MAX: usize = 16;

/// What to set.
const INSTEAD: &str = "maxSurge: 0 and maxUnavailable: 1";

/// A workload that creates new pods before old ones leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Surge {
    /// `Deployment srv`.
    workload: String,
    /// The name of the workload.
    name: String,
    /// The field with the numbers.
    field: &'static str,
    /// How many new pods are created at least.
    pods: u64,
}

impl Surge {
    /// Reads a workload of which `pods` belong to each replica.
    pub(crate) fn new(workload: &Value, pods: u64) -> Option<Self> {
        let spec = &workload["spec"];
        let kind = workload["kind"].as_str()?;
        let (field, [surge, unavailable]) = match kind {
            "Deployment" if spec["strategy"]["type"] != "Recreate" => {
                ("spec.strategy.rollingUpdate", ["25%", "25%"])
            }
            "LeaderWorkerSet" => ("spec.rolloutStrategy.rollingUpdateConfiguration", ["0", "1"]),
            _ => return None,
        };
        let numbers = field.split('.').fold(workload, |object, key| &object[key]);
        let replicas = spec["replicas"].as_u64().unwrap_or(1);
        let surge = number(&numbers["maxSurge"], surge)?.of(replicas, true);
        let unavailable = number(&numbers["maxUnavailable"], unavailable)?.of(replicas, false);
        let name = workload["metadata"]["name"].as_str()?.to_owned();
        let workload = format!("{kind} {name}");
        (replicas > 0 && surge > 0 && unavailable == 0).then_some(Self {
            workload,
            name,
            field,
            pods,
        })
    }

    /// The warning for a workload with `count` such pods, if the nodes have room for these and for none
    /// more.
    pub(crate) fn warning(
        &self,
        (pod, count): (&Pod, u64),
        view: &ClusterView,
        in_use: &InUse,
    ) -> Option<String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let running = holders(view, namespace, |name| is_of_workload(name, &self.name)).len();
        let missing = usize::try_from(count).ok()?.saturating_sub(running);
        let needed = missing.saturating_add(usize::try_from(self.pods).ok()?);
        let budget = budget(view);
        let room = in_use.room(view, &budget);
        let places = room.places(&Ask::new(pod), view.present_nodes(), needed);
        let places: usize = places.iter().map(|Places { count, .. }| count).sum();
        let Self { workload, field, .. } = self;
        (missing <= places && places < needed).then(|| {
            format!(
                "a rollout of {workload} creates a new pod before an old one leaves, and no node has \
                 room for it then, so it waits for ever; set {INSTEAD} in {field}"
            )
        })
    }
}

/// A number of replicas, or a part of them.
enum Number {
    Count(u64),
    Percent(u64),
}

impl Number {
    /// The number of these replicas; a part is rounded up or down.
    fn of(&self, replicas: u64, is_rounded_up: bool) -> u64 {
        match self {
            Self::Count(count) => *count,
            Self::Percent(part) if is_rounded_up => replicas.saturating_mul(*part).div_ceil(100),
            Self::Percent(part) => replicas.saturating_mul(*part) / 100,
        }
    }
}

/// Reads a number, a number with `%`, or the default.
fn number(value: &Value, default: &str) -> Option<Number> {
    if let Some(count) = value.as_u64() {
        return Some(Number::Count(count));
    }
    let text = value.as_str().unwrap_or(default);
    match text.strip_suffix('%') {
        Some(part) => part.parse().ok().map(Number::Percent),
        None => text.parse().ok().map(Number::Count),
    }
}

/// A Deployment's pod that waits for an old one.
pub(crate) struct Stuck<'a> {
    deployment: String,
    old: &'a str,
    node: &'a str,
}

impl<'a> Stuck<'a> {
    /// Looks for an old pod of the pod's Deployment in whose place the pod fits.
    pub(crate) fn new(pod: &Pod, ask: &Ask, room: &Room<'a>) -> Option<Self> {
        let (deployment, revision) = deployment_of(pod)?;
        let view = room.view();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
        let old = holders(view, namespace, |name| {
            let of = revision_of(name, deployment);
            of.is_some_and(|of| revision != Some(of))
        });
        old.into_iter().take(TRIED_MAX).find_map(|(old, claims)| {
            let claims: Vec<&ClaimName> = claims.iter().collect();
            let without = room.without(&claims);
            let node = *without.attempt(ask, view.present_nodes()).ok()?.fits().first()?;
            Some(Self { deployment: deployment.to_owned(), old, node })
        })
    }

    /// What lets the pod run.
    pub(crate) fn change(&self) -> String {
        let Self { deployment, old, node } = self;
        format!(
            "a rollout: pod {old} of the same Deployment {deployment} has the devices of node {node}, and \
             leaves only when the new pod runs; {INSTEAD} in its spec.strategy.rollingUpdate lets the old \
             pod leave first"
        )
    }
}

/// The name of a pod's Deployment, and the pod's revision if it exists.
fn deployment_of(pod: &Pod) -> Option<(&str, Option<&str>)> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true))?;
    match owner.kind.as_str() {
        "Deployment" => Some((&owner.name, None)),
        "ReplicaSet" => {
            let revision = pod.metadata.labels.as_ref()?.get(REVISION)?;
            let deployment = owner.name.strip_suffix(revision.as_str())?.strip_suffix('-')?;
            Some((deployment, Some(revision)))
        }
        _ => None,
    }
}

/// The revision in the name of a Deployment's pod, `NAME-REVISION-RANDOM`.
fn revision_of<'p>(pod: &'p str, deployment: &str) -> Option<&'p str> {
    let (revision, random) = pod.strip_prefix(deployment)?.strip_prefix('-')?.split_once('-')?;
    (random.len() == RANDOM && !random.contains('-')).then_some(revision)
}

/// Whether a pod's name is one of those that a Deployment or a `LeaderWorkerSet` gives: the latter
/// numbers groups and workers.
fn is_of_workload(pod: &str, workload: &str) -> bool {
    let rest = pod.strip_prefix(workload).and_then(|rest| rest.strip_prefix('-'));
    revision_of(pod, workload).is_some()
        || rest.is_some_and(|rest| rest.splitn(2, '-').all(is_number))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())
}

/// The pods of a namespace that hold devices, by name, with their claims.
fn holders<'v>(
    view: &'v ClusterView,
    namespace: &str,
    is_meant: impl Fn(&str) -> bool,
) -> BTreeMap<&'v str, Vec<ClaimName>> {
    let mut holders: BTreeMap<&str, Vec<ClaimName>> = BTreeMap::new();
    for (ObjectKey { namespace: of, name }, claim) in view.claims() {
        let Some((pod, _)) = claim.pod.as_ref().filter(|_| claim.is_allocated) else { continue };
        if of == namespace && is_meant(pod) {
            holders.entry(pod).or_default().push(ClaimName::new(of.as_str(), name.as_str()));
        }
    }
    holders
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Specs, and whether a new pod is created while no old one may leave.
    #[test]
    fn rolling_updates_that_wait_are_known() {
        let deployment = |replicas: u64, strategy: Value| {
            ("Deployment", json!({ "replicas": replicas, "strategy": strategy }))
        };
        let rolling = |surge: Value, unavailable: Value| json!({ "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } });
        let set = |replicas: u64, surge: Value, unavailable: Value| {
            let numbers = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
            let strategy = json!({ "rollingUpdateConfiguration": numbers });
            ("LeaderWorkerSet", json!({ "replicas": replicas, "rolloutStrategy": strategy }))
        };
        for ((kind, spec), waits) in [
            (("Deployment", json!({})), true),
            (deployment(2, json!({})), true),
            (deployment(3, json!({})), true),
            (deployment(4, json!({})), false),
            (deployment(0, json!({})), false),
            (deployment(2, json!({ "type": "Recreate" })), false),
            (deployment(2, rolling(json!(0), json!(1))), false),
            (deployment(8, rolling(json!(1), json!(0))), true),
            (deployment(8, rolling(json!("10%"), json!("10%"))), true),
            (deployment(10, rolling(json!("10%"), json!("10%"))), false),
            (("StatefulSet", json!({ "replicas": 2 })), false),
            (("LeaderWorkerSet", json!({ "replicas": 2 })), false),
            (set(2, json!(1), json!(0)), true),
            (set(2, json!(1), json!(1)), false),
        ] {
            let workload = json!({ "kind": kind, "metadata": { "name": "a" }, "spec": spec });
            assert_eq!(Surge::new(&workload, 1).is_some(), waits, "{workload}");
        }
    }

    #[test]
    fn pods_of_a_deployment_are_known_by_name() {
        for (pod, revision) in [
            ("srv-7d4b9c-x2x4z", Some("7d4b9c")),
            ("srv-a-7d4b9c-x2x4z", None),
            ("srv-0", None),
            ("other-7d4b9c-x2x4z", None),
        ] {
            assert_eq!(revision_of(pod, "srv"), revision, "{pod}");
        }
        for (pod, is_meant) in
            [("set-0", true), ("set-1-7", true), ("set-a-1", false), ("set-7d4b9c-x2x4z", true)]
        {
            assert_eq!(is_of_workload(pod, "set"), is_meant, "{pod}");
        }
    }
}
