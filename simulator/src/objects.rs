//! The simulated cluster as objects, as controllers see it.

use cluster_model::names::label;
use cluster_model::view::{ClusterView, Index as _, ViewError};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use serde_json::json;

use crate::claims::{Claims, NAMESPACE, Placement, PlannedPod};
use crate::cluster::{Cluster, domain_name, fabric_name, node_name};

/// A view of the nodes, without claims and pods.
pub fn view(claims: &Claims, cluster: &Cluster) -> Result<ClusterView, ViewError> {
    let mut view = ClusterView::default();
    for machine in &claims.machines {
        machine.classes().into_iter().try_for_each(|class| view.apply(class))?;
    }
    for (index, state) in cluster.nodes.iter().enumerate() {
        let (name, fabric) = (node_name(index), fabric_name(state.fabric));
        let machine = &claims.machines[state.kind];
        view.apply(node(claims, cluster, index))?;
        view.apply(machine.node_topology(&name, &fabric))?;
        machine.slices(&name).into_iter().try_for_each(|slice| view.apply(slice))?;
    }
    Ok(view)
}

/// A node.
pub fn node(claims: &Claims, cluster: &Cluster, index: usize) -> Node {
    let state = &cluster.nodes[index];
    let machine = &claims.machines[state.kind];
    let mut node = machine.node(&node_name(index), &fabric_name(state.fabric));
    let domain = state.domain.map(|domain| (label::NODE_NVLINK.to_owned(), domain_name(domain)));
    node.metadata.labels.get_or_insert_default().extend(domain);
    node
}

/// The template of claims for pods with this many GPUs.
///
/// # Panics
///
/// If no claim is planned for them.
pub fn template(name: &str, claims: &Claims, gpus: u32) -> ResourceClaimTemplate {
    let planned = claims.planned(gpus).expect("a claim is planned");
    let object = json!({
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": planned.labels },
        "spec": { "metadata": { "labels": planned.labels }, "spec": *planned.spec },
    });
    serde_json::from_value(object).expect("this is a ResourceClaimTemplate")
}

/// What a running pod has.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// Its node.
    pub node: usize,
    /// Its devices.
    pub placement: &'a Placement,
    /// Its UID.
    pub uid: &'a str,
}

/// The claim of the pod of the same name, which runs if it has something.
///
/// # Panics
///
/// Never: the object is a valid ResourceClaim, which tests check.
pub fn claim(name: &str, planned: &PlannedPod, held: Option<Held<'_>>) -> ResourceClaim {
    let mut object = json!({
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": planned.labels },
        "spec": *planned.spec,
    });
    if let Some(Held { node, placement, uid }) = held {
        let results = placement.allocations.iter().flat_map(|it| &it.results);
        let results = results.map(|result| {
            json!({
                "request": *result.request,
                "driver": *result.device.driver,
                "pool": node_name(node),
                "device": *result.device.device,
            })
        });
        object["status"] = json!({
            "allocation": { "devices": { "results": results.collect::<Vec<_>>() } },
            "reservedFor": [{ "resource": "pods", "name": name, "uid": uid }],
        });
    }
    serde_json::from_value(object).expect("this is a ResourceClaim")
}
