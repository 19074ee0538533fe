//! Gangs in NVLink domains, under the real scheduler.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::{batch::v1::Job, core::v1::Node, events::v1::Event};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tests::{Check, ControlPlane, Scope, eventually};

use super::{
    gangs::{end, job, run},
    site::{SOON, fabrics, node, placed, pods, waits, with_fabrics},
};

const CLIQUE: &str = "nvidia.com/gpu.clique";
const NVLINK: &str = "topology.dranet.io/nvlink-domain";

/// Two fabrics of four nodes; in each, the first three nodes and the last are a domain.
pub(super) async fn pods_share_the_domain_of_their_level(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_fabrics(plane, (2, 4), 1, &[], async |scope, _| {
        let mut domains = BTreeMap::new();
        for name in fabrics(scope).await?.into_keys() {
            let (fabric, rest) = name.split_at(2);
            let part = if rest.starts_with("-n3") { "b" } else { "a" };
            set_clique(scope, &name, &format!("{fabric}.{part}")).await?;
            domains.insert(name.clone(), format!("{fabric}.{part}"));
        }
        labelled(scope, &domains).await?;
        // A domain has three nodes: four pods wait, although a fabric has four.
        let large = run(scope, &levelled("large", 4, &[("fabric-level", "nvlink")])).await?;
        let message = waits(scope, &large, 4, "TooLarge").await?;
        assert!(message.contains("needs 4 places"), "{message}");
        end(scope, "large").await?;
        // The smallest domain that is large enough.
        let one = run(scope, &levelled("one", 1, &[("fabric-level", "nvlink")])).await?;
        assert!(one_domain(scope, &one, 1, &domains).await?.contains(".b"));
        let three = run(scope, &levelled("three", 3, &[("fabric-level", "nvlink")])).await?;
        assert!(one_domain(scope, &three, 3, &domains).await?.contains(".a"));
        // Slices of two, of which a domain has room for one.
        let slices = [("fabric-level", "nvlink"), ("domain-size", "2")];
        let two_each = run(scope, &levelled("sliced", 4, &slices)).await?;
        waits(scope, &two_each, 4, "TooLarge").await?;
        end(scope, "sliced").await?;
        let preferred = [("fabric-level", "nvlink=preferred")];
        let four = run(scope, &levelled("four", 4, &preferred)).await?;
        placed(scope, &four, 4).await?;
        // A pod that is created again goes back to its domain.
        let first = pods(scope, &three).await?.into_iter().next();
        let first = first.map(|pod| pod.name_any()).unwrap_or_default();
        scope.delete_pod(&first).await?;
        eventually(SOON, async || {
            let names: Vec<_> =
                pods(scope, &three).await?.iter().map(ResourceExt::name_any).collect();
            let is_new = names.len() == 3 && !names.contains(&first);
            Ok(Check::that(is_new, || format!("{names:?}")))
        })
        .await?;
        assert!(one_domain(scope, &three, 3, &domains).await?.contains(".a"));
        Ok(())
    })
    .await
}

/// A node that another source puts into another domain has an event that says so.
pub(super) async fn sources_that_disagree_are_reported_on_the_node(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_fabrics(plane, (1, 3), 1, &[], async |scope, _| {
        let names: Vec<_> = fabrics(scope).await?.into_keys().collect();
        let nodes: Api<Node> = Api::all(scope.client());
        for (index, name) in names.iter().enumerate() {
            let other = if index == 2 { "elsewhere" } else { "here" };
            let labels = json!({CLIQUE: "u.1", "accelerator.topograph.run/domain": other});
            let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
            nodes.patch(name, &PatchParams::default(), &patch).await?;
        }
        let events: Api<Event> = Api::all(scope.client());
        let of_reason = ListParams::default().fields("reason=FabricSourcesDisagree");
        eventually(SOON, async || {
            let events = events.list(&of_reason).await?.items;
            let about = |event: &Event| {
                let name = event.regarding.as_ref().and_then(|it| it.name.clone());
                (name.unwrap_or_default(), event.note.clone().unwrap_or_default())
            };
            let told: BTreeMap<_, _> = events.iter().map(about).collect();
            let note = told.get(&names[2]).map(String::as_str).unwrap_or_default();
            let is_told = note.contains("accelerator.topograph.run/domain divides")
                && !told.contains_key(&names[0]);
            Ok(Check::that(is_told, || format!("{told:?}")))
        })
        .await
    })
    .await
}

/// A job of pods that take a node each, with these annotations.
pub(super) fn levelled(name: &str, count: usize, annotations: &[(&str, &str)]) -> Job {
    let mut job = job(name, count, true);
    let metadata = job.spec.get_or_insert_default().template.metadata.get_or_insert_default();
    let own = metadata.annotations.get_or_insert_default();
    let named = |(key, value): &(&str, &str)| (format!("dranet.io/{key}"), (*value).to_owned());
    own.extend(annotations.iter().map(named));
    job
}

pub(super) async fn set_clique(scope: &Scope, name: &str, clique: &str) -> anyhow::Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"labels": {CLIQUE: clique}}}));
    Api::<Node>::all(scope.client()).patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until every node has the label of its domain.
pub(super) async fn labelled(
    scope: &Scope,
    domains: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(scope.client());
    eventually(SOON, async || {
        let mut left = 0;
        for (name, domain) in domains {
            let is_there = nodes.get(name).await?.labels().get(NVLINK) == Some(domain);
            left += usize::from(!is_there);
        }
        Ok(Check::that(left == 0, || format!("{left} nodes have no label")))
    })
    .await
}

/// Waits until this number of pods is bound. Returns their common domain.
async fn one_domain(
    scope: &Scope,
    labels: &str,
    count: usize,
    domains: &BTreeMap<String, String>,
) -> anyhow::Result<String> {
    placed(scope, labels, count).await?;
    let pods = pods(scope, labels).await?;
    let on: BTreeSet<_> =
        pods.iter().filter_map(node).filter_map(|node| domains.get(node)).collect();
    anyhow::ensure!(on.len() == 1, "split over {on:?}");
    Ok(on.into_iter().next().cloned().unwrap_or_default())
}
