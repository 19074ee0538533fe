//! What Kueue made of a kind of workload.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;
use tests::Scope;

use super::kinds::Kind;

/// Kueue's objects of a kind. A `ClusterQueue` has no namespace.
fn of_kueue(scope: &Scope, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta2", kind));
    match kind {
        "ClusterQueue" => Api::all_with(scope.client(), &resource),
        _ => Api::namespaced_with(scope.client(), scope.namespace(), &resource),
    }
}

/// The outcome as a row of a table: how many workloads were admitted, how much of its quota on this resource
/// the queue counts, and what Kueue says of those that wait. `Err` as long as it may still admit one: all of a
/// kind are equal, and newer versions do not look at one that is equal to another one that waits.
pub(crate) async fn row(
    scope: &Scope,
    (kind, queue): (&Kind, &str),
    resource: &str,
) -> anyhow::Result<Result<String, String>> {
    let all = of_kueue(scope, "Workload").list(&ListParams::default()).await?.items;
    let own: Vec<_> = all.iter().filter(|it| it.data["spec"]["queueName"] == queue).collect();
    let reserved: Vec<_> =
        own.iter().filter_map(|it| condition(&it.data, "QuotaReserved")).collect();
    let of_status =
        |status: &'static str| reserved.iter().filter(move |it| it["status"] == *status);
    let cluster_queue = of_kueue(scope, "ClusterQueue").get(queue).await?;
    let admitted = of_status("True").count();
    let counted = cluster_queue.data["status"]["admittedWorkloads"].as_u64().unwrap_or_default();
    let one_waits = of_status("False").next().is_some();
    let is_decided = admitted == kind.workloads || one_waits;
    if own.len() != kind.workloads || !is_decided || counted != admitted as u64 {
        return Ok(Err(format!(
            "{} of {} made, {admitted} admitted, one waits: {one_waits}, {counted} counted",
            own.len(),
            kind.workloads
        )));
    }
    let said = of_status("False").filter_map(|it| it["message"].as_str());
    // In front of the reason is the name of a set of pods, which may be a hash.
    let said: BTreeSet<_> = said.map(|it| it.split_once(": ").map_or(it, |(_, why)| why)).collect();
    let said: Vec<_> = said.into_iter().collect();
    Ok(Ok(format!(
        "{:32} {admitted} of {} admitted, {} of 4 used  {}",
        kind.name,
        kind.workloads,
        used(&cluster_queue.data, resource),
        said.join("; ")
    )
    .trim_end()
    .to_owned()))
}

fn condition<'a>(workload: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = workload["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind)
}

/// How much of a resource a queue has given.
fn used<'a>(queue: &'a Value, resource: &str) -> &'a str {
    let flavors = queue["status"]["flavorsUsage"].as_array().into_iter().flatten();
    let mut usage = flavors.filter_map(|flavor| flavor["resources"].as_array()).flatten();
    let found = usage.find(|usage| usage["name"] == resource);
    found.and_then(|usage| usage["total"].as_str()).unwrap_or("0")
}

/// The nodes of the pods with this label; for each without one, its gates and what its conditions say.
pub(crate) async fn nodes(
    scope: &Scope,
    labels: &str,
) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let pods = scope.api::<Pod>().list(&ListParams::default().labels(labels)).await?;
    let (mut nodes, mut waiting) = (Vec::new(), Vec::new());
    for pod in pods.items {
        let spec = pod.spec.unwrap_or_default();
        if let Some(node) = spec.node_name {
            nodes.push(node);
            continue;
        }
        let conditions = pod.status.into_iter().filter_map(|status| status.conditions);
        let said: Vec<String> = conditions.flatten().filter_map(|it| it.message).collect();
        waiting.push(format!("{:?} {said:?}", spec.scheduling_gates));
    }
    Ok((nodes, waiting))
}
