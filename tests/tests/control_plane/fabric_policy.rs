//! The fabric controller can write only its gate, node affinity, its annotations and its condition
//! of pods with `dranet.io/fabric`, and the fabric of nodes. The test grants it all permissions
//! that RBAC can grant, so that only the admission policy restricts it.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, Error, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually, installation::Installation, suite::Test, with_scope,
};

const SOON: Duration = Duration::from_secs(30);
const POLICY: &str = "fabric-controller.dranet.io";
const CHOSEN: &str = "fabric-chosen.dranet.io";
const ALL_RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: fabric-controller-with-all-rights}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: fabric-controller, namespace: dranet-system}]
";

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![the_fabric_controller_writes_only_its_own_fields]
}

async fn the_fabric_controller_writes_only_its_own_fields(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        scope.apply_yaml(ALL_RIGHTS).await?;
        let node = scope.node("labelled").await?.name_any();
        let client = installation.client_as("fabric-controller").await?;
        let pods: Api<Pod> = Api::namespaced(client.clone(), scope.namespace());
        let nodes: Api<Node> = Api::all(client);
        create(scope, "grouped", json!({"dranet.io/fabric": "same"})).await?;
        create(scope, "other", json!({})).await?;

        let patch = async |pod: &str, patch: Value| {
            let params = PatchParams::default();
            pods.patch(pod, &params, &Patch::Strategic(patch)).await.map(drop)
        };
        let status = async |pod: &str, patch: Value| {
            let params = PatchParams::default();
            pods.patch_status(pod, &params, &Patch::Strategic(patch)).await.map(drop)
        };
        let label = async |patch: Value| {
            nodes.patch(&node, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
        };
        // A policy takes effect some time after it is written.
        eventually(SOON, async || {
            let answer = patch("other", annotation("dranet.io/fabric-chosen")).await;
            Ok(Check::that(answer.is_err(), || "it is not in force".to_owned()))
        })
        .await?;

        for (what, refused) in [
            ("another pod", annotation("dranet.io/fabric-chosen")),
            ("its gate", json!({"spec": {"schedulingGates": null}})),
        ] {
            forbidden(what, patch("other", refused).await);
        }
        let image = json!({"spec": {"containers": [{"name": "main", "image": "evil"}]}});
        // Kubernetes itself allows adding tolerations, but not changing existing ones.
        let there = pods.get("grouped").await?.spec.and_then(|spec| spec.tolerations);
        let mut tolerations = serde_json::to_value(there.unwrap_or_default())?;
        tolerations.as_array_mut().context("a list")?.push(json!({"operator": "Exists"}));
        let gate =
            |name: &str| json!({"spec": {"schedulingGates": [{"name": name, "$patch": "delete"}]}});
        for (what, refused) in [
            ("an annotation", annotation("dranet.io/aligned-nics")),
            ("a label", json!({"metadata": {"labels": {"a": "b"}}})),
            ("an image", image),
            ("another's gate", gate("example.org/quota")),
            ("a node selector", json!({"spec": {"nodeSelector": {"a": "b"}}})),
            ("a toleration", json!({"spec": {"tolerations": tolerations}})),
            ("a finalizer", json!({"metadata": {"finalizers": ["example.org/a"]}})),
        ] {
            forbidden(what, patch("grouped", refused).await);
        }
        let condition = |name: &str| {
            json!({"status": {"conditions": [
                {"type": name, "status": "False", "reason": "Waits", "message": "it waits"},
            ]}})
        };
        forbidden("its readiness", status("grouped", condition("Ready")).await);
        forbidden("its phase", status("grouped", json!({"status": {"phase": "Failed"}})).await);
        forbidden("deleting", pods.delete("grouped", &DeleteParams::default()).await);
        let new: Pod = pod("new", &json!({"dranet.io/fabric": "same"}));
        forbidden("making", pods.create(&PostParams::default(), &new).await);
        for (what, refused) in [
            ("a label of a node", json!({"metadata": {"labels": {"a": "b"}}})),
            ("an annotation of a node", annotation("a")),
            ("a node's readiness", json!({"spec": {"unschedulable": true}})),
        ] {
            forbidden(what, label(refused).await);
        }

        // Nobody else chooses, not even a person with all rights.
        let others: Api<Pod> = scope.api();
        let forged = Patch::Strategic(annotation("dranet.io/fabric-chosen"));
        let refused = others.patch("grouped", &PatchParams::default(), &forged).await;
        forbidden_by(CHOSEN, "another's choice", refused);
        let chosen =
            pod("born", &json!({"dranet.io/fabric": "same", "dranet.io/fabric-chosen": "f"}));
        let refused = others.create(&PostParams::default(), &chosen).await;
        forbidden_by(CHOSEN, "a new pod's choice", refused);
        patch("grouped", annotation("dranet.io/fabric-chosen")).await?;
        let labelled = Patch::Strategic(json!({"metadata": {"labels": {"a": "b"}}}));
        others.patch("grouped", &PatchParams::default(), &labelled).await?;
        patch("grouped", annotation("dranet.io/fabric-moves")).await?;
        status("grouped", condition("dranet.io/FabricChosen")).await?;
        let mut ungated = gate("dranet.io/fabric");
        ungated["spec"]["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [
                    {"key": "topology.dranet.io/fabric", "operator": "In", "values": ["f"]},
                ]},
            ]},
        }});
        patch("grouped", ungated).await?;
        label(json!({"metadata": {"labels": {
            "topology.dranet.io/fabric": "f", "topology.dranet.io/fabric-from": "NodeTopology",
            "topology.dranet.io/nvlink-domain": "n", "topology.dranet.io/nvlink-domain-from": "l",
            "topology.dranet.io/block": "b", "topology.dranet.io/block-from": "l",
            "topology.dranet.io/gpu-count": "8", "topology.dranet.io/rail-count": "8",
            "topology.dranet.io/nic-count": "8", "topology.dranet.io/machine-type": "m",
        }}}))
        .await?;
        Ok(())
    })
    .await
}

fn annotation(key: &str) -> Value {
    json!({"metadata": {"annotations": {key: "f"}}})
}

/// Checks that the policy refuses a request.
#[track_caller]
fn forbidden<T>(what: &str, answer: Result<T, Error>) {
    forbidden_by(POLICY, what, answer);
}

/// Checks that a policy refuses a request.
#[track_caller]
fn forbidden_by<T>(policy: &str, what: &str, answer: Result<T, Error>) {
    match answer {
        Err(Error::Api(status)) if status.code == 403 && status.message.contains(policy) => {}
        Err(error) => panic!("{what}: {error}"),
        Ok(_) => panic!("{what}: allowed"),
    }
}

async fn create(scope: &Scope, name: &str, annotations: Value) -> anyhow::Result<()> {
    scope.api::<Pod>().create(&PostParams::default(), &pod(name, &annotations)).await?;
    Ok(())
}

/// A pod with two gates, so that it is not scheduled.
fn pod(name: &str, annotations: &Value) -> Pod {
    let pod = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "containers": [{"name": "main", "image": "none"}],
            "schedulingGates": [{"name": "dranet.io/fabric"}, {"name": "example.org/quota"}],
        },
    });
    serde_json::from_value(pod).unwrap()
}
