//! Levels that other schedulers describe: Volcano's `HyperNode`s and Kueue's `Topology`. Only the objects
//! are here, with definitions that accept any field; their schedulers are not.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::{core::v1::Node, events::v1::Event};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tests::{Check, ControlPlane, Scope, eventually};

use super::{
    gangs::run,
    levels::levelled,
    site::{SOON, fabrics, placed, waits, with_fabrics},
};

const BLOCK: &str = "topology.dranet.io/block";
const FROM: &str = "topology.dranet.io/block-from";
const RACK: &str = "tests.dranet.io/rack";

/// Pods share the block that a `HyperNode` names. A `Topology` that divides it is reported.
pub(super) async fn hyper_nodes_and_topologies_are_levels(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_fabrics(plane, (1, 5), 1, &[], async |scope, installation| {
        let nodes: Vec<_> = fabrics(scope).await?.into_keys().collect();
        let hyper_nodes = ("HyperNode", "hypernodes");
        define(scope, "topology.volcano.sh", "v1alpha1", hyper_nodes, Reach::Cluster).await?;
        let topologies = ("Topology", "topologies");
        define(scope, "kueue.x-k8s.io", "v1beta2", topologies, Reach::Cluster).await?;
        // It looks for the kinds when it starts.
        installation.start_fabric_controllers(1, &[]).await?;
        let exact = |node: &String| json!({"exactMatch": {"name": node}});
        hyper_node(scope, "leaf-1", 1, "Node", &[exact(&nodes[0]), exact(&nodes[1])]).await?;
        let pattern = format!("^({}|{}|{})$", nodes[2], nodes[3], nodes[4]);
        hyper_node(scope, "leaf-2", 1, "Node", &[json!({"regexMatch": {"pattern": pattern}})])
            .await?;
        let leaves = ["leaf-1", "leaf-2"].map(|name| json!({"exactMatch": {"name": name}}));
        hyper_node(scope, "spine", 2, "HyperNode", &leaves).await?;
        let leaf = |index: usize| if index < 2 { "leaf-1" } else { "leaf-2" };
        let expected: BTreeMap<_, _> =
            nodes.iter().enumerate().map(|(index, node)| (node.clone(), leaf(index))).collect();
        blocks(scope, &expected, "topology.volcano.sh_HyperNode").await?;

        let four = run(scope, &levelled("four", 4, &[("fabric-level", "block")])).await?;
        waits(scope, &four, 4, "TooLarge").await?;
        let three = run(scope, &levelled("three", 3, &[("fabric-level", "block")])).await?;
        placed(scope, &three, 3).await?;
        for pod in super::site::pods(scope, &three).await? {
            let on = super::site::node(&pod).unwrap_or_default().to_owned();
            assert_eq!(expected.get(&on), Some(&"leaf-2"), "{}", pod.name_any());
        }

        let rack = |index: usize| if index < 4 { "a" } else { "b" };
        let all: Api<Node> = Api::all(scope.client());
        for (index, node) in nodes.iter().enumerate() {
            let patch = Patch::Merge(json!({"metadata": {"labels": {RACK: rack(index)}}}));
            all.patch(node, &PatchParams::default(), &patch).await?;
        }
        let topology = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Topology",
            "metadata": {"name": "racks"},
            "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]},
        });
        scope.apply(serde_json::from_value(topology)?).await?;
        disagrees(scope, &nodes[4], "kueue.x-k8s.io/Topology divides").await?;
        // Without HyperNodes the racks are the blocks.
        for name in ["spine", "leaf-1", "leaf-2"] {
            forget(scope, name).await?;
        }
        let expected = nodes.iter().enumerate().map(|(index, node)| (node.clone(), rack(index)));
        blocks(scope, &expected.collect(), "kueue.x-k8s.io_Topology").await
    })
    .await
}

/// Whether objects of a kind belong to a namespace.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reach {
    Cluster,
    Namespaced,
}

/// Defines a kind of another project, with any fields.
pub(super) async fn define(
    scope: &Scope,
    group: &str,
    version: &str,
    (kind, plural): (&str, &str),
    reach: Reach,
) -> anyhow::Result<()> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": format!("{reach:?}"),
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{"name": version, "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}],
        },
    });
    scope.apply(serde_json::from_value(definition)?).await?;
    Ok(())
}

async fn hyper_node(
    scope: &Scope,
    name: &str,
    tier: usize,
    kind: &str,
    selectors: &[Value],
) -> anyhow::Result<()> {
    let members: Vec<_> =
        selectors.iter().map(|selector| json!({"type": kind, "selector": selector})).collect();
    let object = json!({
        "apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode",
        "metadata": {"name": name}, "spec": {"tier": tier, "members": members},
    });
    scope.apply(serde_json::from_value(object)?).await?;
    Ok(())
}

/// Removes the members of a `HyperNode`.
async fn forget(scope: &Scope, name: &str) -> anyhow::Result<()> {
    hyper_node(scope, name, 1, "Node", &[]).await
}

/// Waits until each node has this block, from this source.
async fn blocks(
    scope: &Scope,
    expected: &BTreeMap<String, &str>,
    source: &str,
) -> anyhow::Result<()> {
    let nodes: Api<Node> = Api::all(scope.client());
    eventually(SOON, async || {
        let mut found = BTreeMap::new();
        for name in expected.keys() {
            let labels = nodes.get(name).await?.labels().clone();
            let of = |key: &str| labels.get(key).cloned().unwrap_or_default();
            found.insert(name.clone(), (of(BLOCK), of(FROM)));
        }
        let is_it = |(name, block): (&String, &&str)| {
            found.get(name).is_some_and(|(own, from)| own == block && from == source)
        };
        Ok(Check::that(expected.iter().all(is_it), || format!("{found:?}")))
    })
    .await
}

/// Waits for an event on a node about sources that disagree, with this text.
async fn disagrees(scope: &Scope, node: &str, text: &str) -> anyhow::Result<()> {
    let events: Api<Event> = Api::all(scope.client());
    let of_reason = ListParams::default().fields("reason=FabricSourcesDisagree");
    eventually(SOON, async || {
        let events = events.list(&of_reason).await?.items;
        let about = events.iter().filter(|event| {
            event.regarding.as_ref().and_then(|it| it.name.as_deref()) == Some(node)
        });
        let notes: Vec<_> = about.filter_map(|event| event.note.clone()).collect();
        Ok(Check::that(notes.iter().any(|note| note.contains(text)), || format!("{notes:?}")))
    })
    .await
}
