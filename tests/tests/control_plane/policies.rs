//! The admission policies of `deploy`, by the real API server: who may configure NICs, and
//! what the fabric controller may write into pods and nodes.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    core::v1::{Namespace, Node, Pod},
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
};
use kube::{
    Api, Client, Error, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tests::{Check, ControlPlane, Scope, eventually, floor::Test, rig::Rig, with_scope};

const SOON: Duration = Duration::from_secs(30);
const NETWORK: &str = "network-config.dranet.io";
const PODS: &str = "fabric-controller-pods.dranet.io";
const NODES: &str = "fabric-controller-nodes.dranet.io";

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![
        only_labelled_namespaces_may_configure_nics,
        the_fabric_controller_changes_gates_affinity_and_its_condition_only,
        the_expressions_of_the_policies_have_the_right_types,
    ]
}

fn is_by_policy(error: &Error, policy: &str) -> bool {
    matches!(error, Error::Api(status) if status.code == 403 && status.message.contains(policy))
}

/// A claim's spec with parameters for a driver.
fn configured(driver: &str) -> Value {
    json!({"devices": {
        "requests": [{"name": "nic", "exactly": {"deviceClassName": "dranet.net"}}],
        "config": [{"requests": ["nic"], "opaque": {
            "driver": driver, "parameters": {"interface": {"addresses": ["10.0.0.1/24"]}},
        }}],
    }})
}

async fn only_labelled_namespaces_may_configure_nics(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let _rig = Rig::install(&plane, scope).await?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let claim = |driver: &str| -> ResourceClaim {
            let spec = configured(driver);
            serde_json::from_value(json!({"metadata": {"name": "own"}, "spec": spec})).unwrap()
        };
        let template: ResourceClaimTemplate = serde_json::from_value(json!({
            "metadata": {"name": "own"}, "spec": {"spec": configured("dra.net")},
        }))?;
        let claims: Api<ResourceClaim> = scope.api();
        let templates: Api<ResourceClaimTemplate> = scope.api();
        // A policy is in force some time after it is written.
        eventually(SOON, async || {
            let answer = claims.create(&dry_run, &claim("dra.net")).await;
            let refused = answer.as_ref().is_err_and(|error| is_by_policy(error, NETWORK));
            Ok(Check::that(refused, || format!("{answer:?}")))
        })
        .await?;
        let refused = templates.create(&dry_run, &template).await;
        assert!(refused.is_err_and(|error| is_by_policy(&error, NETWORK)), "the template");
        claims.create(&dry_run, &claim("gpu.nvidia.com")).await?;
        let namespaces: Api<Namespace> = Api::all(plane.client());
        let label = json!({"metadata": {"labels": {"dranet.io/network-config": "allowed"}}});
        let params = PatchParams::default();
        namespaces.patch(scope.namespace(), &params, &Patch::Merge(label)).await?;
        eventually(SOON, async || {
            let answer = templates.create(&dry_run, &template).await;
            Ok(Check::that(answer.is_ok(), || format!("{answer:?}")))
        })
        .await?;
        claims.create(&dry_run, &claim("dra.net")).await?;
        Ok(())
    })
    .await
}

async fn the_fabric_controller_changes_gates_affinity_and_its_condition_only(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let rig = Rig::install(&plane, scope).await?;
        let client = rig.client_as("fabric-controller").await?;
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "labels": {"app": "a"}, "annotations": {"mine": "1"}},
            "spec": {
                "schedulingGates": [{"name": "dranet.io/fabric"}, {"name": "other/gate"}],
                "containers": [{"name": "c", "image": "none"}],
            },
        }))?;
        pods_of_admin(scope).create(&PostParams::default(), &pod).await?;
        let node = scope.node("n").await?.name_any();
        forbids(scope, &client, &node).await?;
        allows(scope, &client, &node).await
    })
    .await
}

fn pods_of_admin(scope: &Scope) -> Api<Pod> {
    scope.api()
}

async fn forbids(scope: &Scope, client: &Client, node: &str) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), scope.namespace());
    let nodes: Api<Node> = Api::all(client.clone());
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let label = Patch::Merge(json!({"metadata": {"labels": {"app": "b"}}}));
    eventually(SOON, async || {
        let of_pod = pods.patch("p", &dry_run, &label).await;
        let of_node = nodes.patch(node, &dry_run, &label).await;
        let refused = of_pod.as_ref().is_err_and(|error| is_by_policy(error, PODS))
            && of_node.as_ref().is_err_and(|error| is_by_policy(error, NODES));
        Ok(Check::that(refused, || format!("{of_pod:?} {of_node:?}")))
    })
    .await?;
    // Kubernetes itself lets tolerations be added.
    let there = pods_of_admin(scope).get("p").await?.spec.and_then(|spec| spec.tolerations);
    let mut tolerations = serde_json::to_value(there.unwrap_or_default())?;
    tolerations.as_array_mut().context("a list")?.push(json!({"operator": "Exists"}));
    for patch in [
        json!({"metadata": {"annotations": {"mine": "2"}}}),
        json!({"metadata": {"annotations": {"mine": null}}}),
        json!({"metadata": {"finalizers": ["a/b"]}}),
        json!({"spec": {"containers": [{"name": "c", "image": "other"}]}}),
        json!({"spec": {"tolerations": tolerations}}),
        json!({"spec": {"nodeSelector": {"a": "b"}}}),
        json!({"spec": {"schedulingGates": [{"name": "other/gate", "$patch": "delete"}]}}),
    ] {
        let answer = pods.patch("p", &dry_run, &Patch::Strategic(&patch)).await;
        let refused = answer.as_ref().is_err_and(|error| is_by_policy(error, PODS));
        assert!(refused, "{patch}: {answer:?}");
    }
    for status in
        [json!({"phase": "Failed"}), json!({"conditions": [{"type": "Ready", "status": "True"}]})]
    {
        let patch = Patch::Strategic(json!({"status": status}));
        let answer = pods.patch_status("p", &dry_run, &patch).await;
        let refused = answer.as_ref().is_err_and(|error| is_by_policy(error, PODS));
        assert!(refused, "{status}: {answer:?}");
    }
    for patch in [
        json!({"metadata": {"annotations": {"a": "b"}}}),
        json!({"spec": {"unschedulable": true}}),
        json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
    ] {
        let answer = nodes.patch(node, &dry_run, &Patch::Merge(&patch)).await;
        let refused = answer.as_ref().is_err_and(|error| is_by_policy(error, NODES));
        assert!(refused, "{patch}: {answer:?}");
    }
    Ok(())
}

async fn allows(scope: &Scope, client: &Client, node: &str) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), scope.namespace());
    let nodes: Api<Node> = Api::all(client.clone());
    let params = PatchParams::default();
    let mark = json!({"metadata": {"annotations": {"dranet.io/fabric-chosen": "f"}}});
    pods.patch("p", &params, &Patch::Strategic(mark)).await?;
    let condition = json!({"status": {"conditions": [
        {"type": "dranet.io/FabricChosen", "status": "False", "reason": "NoRoom"},
    ]}});
    pods.patch_status("p", &params, &Patch::Strategic(condition)).await?;
    let requirement =
        json!({"key": "topology.dranet.io/fabric", "operator": "In", "values": ["f"]});
    let lift = json!({"spec": {
        "schedulingGates": [{"name": "dranet.io/fabric", "$patch": "delete"}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [requirement]}],
        }}},
    }});
    let lifted = pods.patch("p", &params, &Patch::Strategic(lift)).await?;
    let gates = lifted.spec.and_then(|spec| spec.scheduling_gates).unwrap_or_default();
    assert_eq!(gates.iter().map(|gate| &*gate.name).collect::<Vec<_>>(), ["other/gate"]);
    let labels = json!({"metadata": {"labels": {
        "topology.dranet.io/fabric": "f", "topology.dranet.io/fabric-from": "NodeTopology",
    }}});
    nodes.patch(node, &params, &Patch::Merge(labels)).await?;
    Ok(())
}

/// Kubernetes checks the types of a policy's expressions, and says so in its status.
async fn the_expressions_of_the_policies_have_the_right_types(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let _rig = Rig::install(&plane, scope).await?;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(plane.client());
        for name in [NETWORK, PODS, NODES] {
            eventually(SOON, async || {
                let policy = policies.get(name).await?;
                let status = policy.status.unwrap_or_default();
                let is_current = status.observed_generation == policy.metadata.generation;
                let checking = status.type_checking.unwrap_or_default();
                let warnings = checking.expression_warnings.unwrap_or_default();
                anyhow::ensure!(warnings.is_empty(), "{name}: {warnings:#?}");
                Ok(Check::that(is_current, || format!("{name} is not checked yet")))
            })
            .await?;
        }
        Ok(())
    })
    .await
}
