//! What a stolen token of preemptor can do: it may evict pods, keep devices and allocate claims.

use std::{fmt::Debug, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::Pod,
    events::v1::Event,
    resource::v1::{DeviceTaintRule, ResourceClaim},
};
use kube::{
    Api, Client, Error, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually, installation::Installation, suite::Test, with_scope,
};

const SOON: Duration = Duration::from_secs(30);
const POLICY: &str = "preemptor.dranet.io";
const EVICT: &str = "preemptor-evict.dranet.io";
/// The UID of a pod for which devices are kept.
const KEPT_FOR: &str = "00000000-0000-4000-8000-000000000002";

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::attempts![
        a_preemptor_token_keeps_single_devices_only,
        a_preemptor_token_allocates_unused_claims_only,
        a_preemptor_token_evicts_no_pods_of_the_cluster_itself,
        a_preemptor_token_reports_events_in_its_own_name_only,
    ];
    // They leave rights that other tests must not see.
    all.into_iter().map(Test::alone).collect()
}

/// A client with the stolen token.
async fn stolen(plane: &ControlPlane, scope: &Scope) -> anyhow::Result<Client> {
    let installation = Installation::install(plane, scope).await?;
    for file in ["preemptor-rbac.yaml", "preemptor-policy.yaml"] {
        installation.apply(&format!("components/preemption/{file}")).await?;
    }
    let client = installation.client_as("preemptor").await?;
    let rules: Api<DeviceTaintRule> = Api::all(client.clone());
    // A policy takes effect some time after it is written.
    eventually(SOON, async || {
        let forged = rule(&json!({"metadata": {"name": "forged"}}))?;
        let answer = rules.create(&dry_run(), &forged).await;
        Ok(Check::that(is_refused(POLICY, &answer), || format!("{answer:?}")))
    })
    .await?;
    Ok(client)
}

async fn a_preemptor_token_keeps_single_devices_only(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let client = stolen(&plane, scope).await?;
        let rules: Api<DeviceTaintRule> = Api::all(client);
        rules.create(&dry_run(), &rule(&json!({}))?).await.context("its own")?;
        let forged = [
            json!({"metadata": {"name": "other"}}),
            json!({"metadata": {"labels": {"dranet.io/preemption": ""}}}),
            json!({"spec": {"taint": {"effect": "NoExecute"}}}),
            json!({"spec": {"taint": {"key": "example.com/broken"}}}),
            json!({"spec": {"taint": {"value": "another"}}}),
            json!({"spec": {"deviceSelector": {"device": null}}}),
            json!({"spec": {"deviceSelector": {"pool": null}}}),
            json!({"spec": {"deviceSelector": null}}),
        ];
        for change in &forged {
            let answer = rules.create(&dry_run(), &rule(change)?).await;
            refused(POLICY, &change.to_string(), &answer)?;
        }
        // One of an administrator stays.
        let theirs = rule(&json!({"metadata": {"name": format!("theirs-{}", scope.namespace())}}))?;
        let mut theirs = serde_json::to_value(theirs)?;
        theirs["apiVersion"] = "resource.k8s.io/v1".into();
        theirs["kind"] = "DeviceTaintRule".into();
        let name = scope.apply(serde_json::from_value(theirs)?).await?.name_any();
        let answer = rules.delete(&name, &kube::api::DeleteParams::default()).await;
        refused(POLICY, "a rule of somebody else", &answer)?;
        Ok(format!("{} refused by the policy", forged.len() + 1))
    })
    .await
}

/// The rule of a device with a change.
fn rule(change: &Value) -> anyhow::Result<DeviceTaintRule> {
    let mut rule = json!({
        "metadata": {"name": "dranet-kept-0", "labels": {"dranet.io/preemption": KEPT_FOR}},
        "spec": {
            "deviceSelector": {"driver": "gpu.nvidia.com", "pool": "nowhere", "device": "gpu-0"},
            "taint": {"key": "dranet.io/kept-for", "value": KEPT_FOR, "effect": "NoSchedule"},
        },
    });
    merge(&mut rule, change);
    Ok(serde_json::from_value(rule)?)
}

/// Merges a change into a value, as in RFC 7396.
fn merge(value: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *value = change.clone();
        return;
    };
    for (key, new) in change {
        merge(&mut value[key.as_str()], new);
    }
}

async fn a_preemptor_token_allocates_unused_claims_only(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let client = stolen(&plane, scope).await?;
        let all: Api<ResourceClaim> = scope.api();
        let stolen: Api<ResourceClaim> = Api::namespaced(client, scope.namespace());
        for name in ["free", "used"] {
            let claim: ResourceClaim = serde_json::from_value(json!({
                "metadata": {"name": name, "labels": {"a": "b"}},
                "spec": {"devices": {"requests": [
                    {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
                ]}},
            }))?;
            all.create(&PostParams::default(), &claim).await?;
        }
        let params = PatchParams::default();
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let result =
            json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"});
        let allocation = json!({"allocation": {
            "devices": {"results": [result]}, "allocationTimestamp": "2026-01-01T00:00:00Z",
        }});
        let used = Patch::Merge(json!({"status": allocation.clone()}));
        all.patch_status("used", &params, &used).await?;
        let consumers = json!([{"resource": "pods", "name": "p", "uid": KEPT_FOR}]);
        let mut reserved = allocation.clone();
        reserved["reservedFor"] = consumers;
        let forged = [
            ("used", json!({"allocation": null})),
            ("used", reserved.clone()),
            ("free", reserved),
            ("free", json!({"reservedFor": []})),
        ];
        for (name, status) in &forged {
            let patch = Patch::Merge(json!({ "status": status }));
            let answer = stolen.patch_status(name, &dry_run, &patch).await;
            // The policy or, without an allocation, the validation of the API server.
            anyhow::ensure!(answer.is_err(), "{name} {status}");
        }
        let metadata = [
            json!({"labels": {"c": "d"}}),
            json!({"annotations": {"c": "d"}}),
            json!({"finalizers": ["example.com/never"]}),
        ];
        for change in &metadata {
            let patch = Patch::Merge(json!({ "metadata": change }));
            let answer = stolen.patch("free", &dry_run, &patch).await;
            refused(POLICY, &change.to_string(), &answer)?;
        }
        let finalizer =
            json!({"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}});
        stolen.patch("free", &params, &Patch::Merge(finalizer)).await.context("its finalizer")?;
        let patch = Patch::Merge(json!({ "status": allocation }));
        stolen.patch_status("free", &dry_run, &patch).await.context("an allocation")?;
        for name in ["free", "used"] {
            // So that the claims can go.
            let nothing = Patch::Merge(json!({"status": {"allocation": null}}));
            all.patch_status(name, &params, &nothing).await?;
            let open = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            all.patch(name, &params, &open).await?;
        }
        Ok(format!("{} refused", forged.len() + metadata.len()))
    })
    .await
}

async fn a_preemptor_token_evicts_no_pods_of_the_cluster_itself(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let client = stolen(&plane, scope).await?;
        let usual = gated(scope, "usual", None).await?;
        // kube-apiserver lets only kube-system have this class unless a quota allows it.
        let system = Api::<Pod>::namespaced(plane.client(), "kube-system");
        let pod = system.create(&PostParams::default(), &pod("critical", CRITICAL)?).await?;
        let critical = pod.uid().context("it has a UID")?;
        let evict = async |namespace: &str, name: &str, delete: Value| {
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": name}, "deleteOptions": delete,
            });
            let params = dry_run();
            pods.create_subresource::<_, Value>("eviction", name, &params, &eviction).await
        };
        let by = |uid: &str| json!({"preconditions": {"uid": uid}});
        let mut early = by(&usual);
        early["gracePeriodSeconds"] = 0.into();
        eventually(SOON, async || {
            let answer = evict(scope.namespace(), "usual", json!({})).await;
            Ok(Check::that(is_refused(EVICT, &answer), || format!("{answer:?}")))
        })
        .await?;
        let answers = [
            ("without its UID", evict(scope.namespace(), "usual", json!({})).await),
            ("at once", evict(scope.namespace(), "usual", early).await),
            ("of the cluster", evict("kube-system", "critical", by(&critical)).await),
        ];
        for (what, answer) in &answers {
            refused(EVICT, what, answer)?;
        }
        evict(scope.namespace(), "usual", by(&usual)).await.context("a usual pod")?;
        system.delete("critical", &kube::api::DeleteParams::default().grace_period(0)).await?;
        Ok(format!("{} refused by the policy", answers.len()))
    })
    .await
}

const CRITICAL: Option<&str> = Some("system-cluster-critical");

fn pod(name: &str, class: Option<&str>) -> anyhow::Result<Pod> {
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "priorityClassName": class,
            "containers": [{"name": "main", "image": "none"}],
            "schedulingGates": [{"name": "example.org/wait"}],
        },
    });
    Ok(serde_json::from_value(pod)?)
}

/// Creates a pod that is not scheduled; returns its UID.
async fn gated(scope: &Scope, name: &str, class: Option<&str>) -> anyhow::Result<String> {
    let pod = scope.api::<Pod>().create(&PostParams::default(), &pod(name, class)?).await?;
    pod.uid().context("it has a UID")
}

async fn a_preemptor_token_reports_events_in_its_own_name_only(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let client = stolen(&plane, scope).await?;
        let events: Api<Event> = Api::namespaced(client, scope.namespace());
        let event = |controller: &str, kind: &str| {
            let event = json!({
                "metadata": {"generateName": "forged-"},
                "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Warning", "action": "Preempt",
                "reason": "Forged", "note": "forged",
                "regarding": {"kind": kind, "name": "x", "namespace": scope.namespace()},
                "reportingController": controller, "reportingInstance": "i",
            });
            anyhow::Ok(serde_json::from_value::<Event>(event)?)
        };
        events.create(&dry_run(), &event("dranet-preemptor", "Pod")?).await.context("its own")?;
        for (controller, kind) in
            [("kubelet", "Pod"), ("dranet-admission", "Pod"), ("dranet-preemptor", "Secret")]
        {
            let answer = events.create(&dry_run(), &event(controller, kind)?).await;
            refused(POLICY, controller, &answer)?;
        }
        Ok("3 refused by the policy".to_owned())
    })
    .await
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

fn is_refused<T>(policy: &str, answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Api(it)) if it.code == 403 && it.message.contains(policy))
}

/// Fails unless the policy refused the request.
fn refused<T: Debug>(policy: &str, what: &str, answer: &Result<T, Error>) -> anyhow::Result<()> {
    anyhow::ensure!(is_refused(policy, answer), "{what}: {answer:?}");
    Ok(())
}
