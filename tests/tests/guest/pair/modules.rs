//! The chart's init container loads modules of a real kernel: what it loads, what is missing, what
//! the kernel refuses, and where an operator reads it.

use k8s_openapi::api::core::v1::Event;
use kube::{Api, api::ListParams};
use tests::{Check, ControlPlane, eventually, guest::node::GuestNode, node::pods};
use topology_graph::NodeTopology;

/// Modules that the chart loads, and one that it must not have loaded.
const LOADED: &str = "cat /proc/modules | cut -d' ' -f1";

/// What is said of each, in the order of the list; the machine's kernel is a part of it.
const LACKING: [&str; 4] = [
    "ib_uverbs was loaded before; ",
    "irdma loaded: with i40e, ice; ",
    "efa is absent: no such module in /lib/modules/",
    "mlx5_ib failed to load: mlx5_ib (lib/modules/",
];

/// Why the last failed: the kernel has the module's file, and not that of `mlx5_core`.
const WHY: &str = "a symbol that it needs is missing";

/// None of those to be loaded is there.
pub(super) async fn not_loaded(pair: &[GuestNode; 2]) -> anyhow::Result<()> {
    for node in pair {
        let loaded = node.guest.run(LOADED).await?;
        let early = loaded.lines().find(|it| ["irdma", "ice", "i40e", "mlx5_ib"].contains(it));
        anyhow::ensure!(early.is_none(), "guest {} has {early:?} already", node.name);
    }
    Ok(())
}

/// Two of four work. The others are in the condition and in an event, and keep no driver away.
pub(super) async fn some_lacking(
    plane: &ControlPlane,
    pair: &[GuestNode; 2],
) -> anyhow::Result<()> {
    for node in pair {
        let message = condition(plane, node, "KernelModules", "False", "Absent").await?;
        for expected in LACKING.into_iter().chain([WHY]) {
            anyhow::ensure!(message.contains(expected), "`{expected}` is missing in: {message}");
        }
        let loaded = node.guest.run(LOADED).await?;
        for (module, expected) in [("irdma", true), ("ice", true), ("mlx5_ib", false)] {
            let is_loaded = loaded.lines().any(|it| it == module);
            anyhow::ensure!(is_loaded == expected, "guest {}: {module}: {is_loaded}", node.name);
        }
        event(plane, node, &message).await?;
    }
    Ok(())
}

/// Waits for a condition of the node's NodeTopology. Returns its message.
pub(super) async fn condition(
    plane: &ControlPlane,
    node: &GuestNode,
    kind: &str,
    status: &str,
    reason: &str,
) -> anyhow::Result<String> {
    let topologies: Api<NodeTopology> = Api::all(plane.client());
    eventually(pods::POD, async || {
        let found = topologies.get(&node.name).await?.status.unwrap_or_default().conditions;
        Ok(match found.iter().find(|it| it.type_ == kind) {
            Some(it) if (&*it.status, &*it.reason) == (status, reason) => {
                Check::Done(it.message.clone())
            }
            _ => Check::NotYet(format!("node {} has {found:?}", node.name)),
        })
    })
    .await
}

/// Waits for the event on the Node, which has the text.
async fn event(plane: &ControlPlane, node: &GuestNode, text: &str) -> anyhow::Result<()> {
    let events: Api<Event> = Api::namespaced(plane.client(), "default");
    eventually(pods::POD, async || {
        let all = events.list(&ListParams::default()).await?.items.into_iter();
        let of_node = all.filter(|it| it.involved_object.name.as_deref() == Some(&node.name));
        let said: Vec<_> = of_node
            .filter(|it| it.reason.as_deref() == Some("KernelModulesLacking"))
            .filter_map(|it| it.message)
            .collect();
        let is_said = said.iter().any(|it| it == text);
        Ok(Check::that(is_said, || format!("events of {}: {said:?}, not {text}", node.name)))
    })
    .await
}
