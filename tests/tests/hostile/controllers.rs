//! What stolen tokens of the controllers can do, with the permissions of `deploy`: write what people
//! read as another controller's word, or what Kubernetes then acts on.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Pod, events::v1::Event,
};
use kube::{
    Api, Client, Error, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, binaries, eventually, installation::Installation, suite::Test,
    with_scope,
};

const SOON: Duration = Duration::from_secs(30);
const EVENTS: &str = "events.dranet.io";
const ADMISSION: &str = "admission.dranet.io";
const FABRIC: &str = "fabric-controller.dranet.io";
const EVICT: &str = "fabric-evict.dranet.io";
/// NVIDIA's definition of a ComputeDomain.
const DOMAINS: &str = "fixtures/nvidia-dra/computedomains.yaml";
/// An owner that does not exist: Kubernetes deletes what only it owns.
const NOBODY: &str = "00000000-0000-4000-8000-000000000001";

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::attempts![
        controllers_report_events_in_their_own_name_only,
        an_admission_token_writes_compute_domains_of_its_own_only,
        an_admission_token_changes_no_webhook,
        a_fabric_controller_token_writes_its_condition_only,
        a_fabric_controller_token_evicts_pods_with_a_fabric_only,
    ];
    // Some leave definitions and rights that other tests must not see.
    all.into_iter().map(Test::alone).collect()
}

async fn controllers_report_events_in_their_own_name_only(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let namespace = scope.namespace();
        let about = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "name": "x", "namespace": namespace});
        let (pod, job, secret) = (about("v1", "Pod"), about("batch/v1", "Job"), about("v1", "Secret"));
        let node = json!({"apiVersion": "v1", "kind": "Node", "name": "x"});
        let kubelets = events(&plane.client(), namespace);
        let theirs = event(namespace, "kubelet", &pod);
        let theirs = kubelets.create(&PostParams::default(), &theirs).await?.name_any();
        let mut count = 0;
        for (account, its) in
            [("admission", Some(&job)), ("fabric-controller", None), ("scheduler-ext", None)]
        {
            let client = installation.client_as(account).await?;
            let own = format!("dranet-{account}");
            in_force(&client, namespace, &event(namespace, "kubelet", &pod)).await?;
            let api = events(&client, namespace);
            for regarding in [Some(&pod), its].into_iter().flatten() {
                let event = event(namespace, &own, regarding);
                api.create(&dry_run(), &event).await.with_context(|| format!("{account} {event:?}"))?;
            }
            let others = ["kubelet", "dra.net", "dranet-admission", "dranet-scheduler-ext"];
            let others = others.into_iter().filter(|it| *it != own);
            let mut forged: Vec<_> =
                others.map(|controller| event(namespace, controller, &pod)).collect();
            forged.push(event(namespace, &own, &secret));
            let mut related = event(namespace, &own, &pod);
            related.related = Some(serde_json::from_value(secret.clone())?);
            forged.push(related);
            for event in &forged {
                refused(EVENTS, &format!("{account} {event:?}"), &api.create(&dry_run(), event).await)?;
            }
            let about_node = events(&client, "default");
            let told = about_node.create(&dry_run(), &event("default", &own, &node)).await;
            if account == "fabric-controller" {
                told.context("an event on a node")?;
            } else {
                refused(EVENTS, &format!("{account} on a node"), &told)?;
            }
            // What Kubernetes lets one change of an event: that it happens again, and its metadata.
            let series = json!({"count": 7, "lastObservedTime": "2026-01-01T00:00:01.000000Z"});
            let annotations = json!({"annotations": {"example.org/a": "b"}});
            for patch in [json!({"series": series}), json!({"metadata": annotations})] {
                let answer = api.patch(&theirs, &PatchParams::default(), &Patch::Merge(patch)).await;
                refused(EVENTS, &format!("{account} patches"), &answer)?;
            }
            count += forged.len() + 3;
        }
        Ok(format!("{count} refused by the policy"))
    })
    .await
}

async fn an_admission_token_writes_compute_domains_of_its_own_only(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        scope.apply_file(&binaries::in_tests(DOMAINS)).await?;
        let client = installation.client_as("admission").await?;
        let namespace = scope.namespace();
        let own = domain(namespace, "0123456789abcdef");
        let create = async |namespace: &str, domain: &Value| {
            let domain: DynamicObject = serde_json::from_value(domain.clone())?;
            anyhow::Ok(domains(&client, namespace).create(&dry_run(), &domain).await)
        };
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut domain = own.clone();
            change(&mut domain);
            domain
        };
        eventually(SOON, async || {
            let mine = changed(&|it| it["metadata"]["name"] = "mine".into());
            let answer = create(namespace, &mine).await?;
            Ok(Check::that(is_refused(ADMISSION, &answer), || format!("{answer:?}")))
        })
        .await?;
        create(namespace, &own).await?.context("its own")?;
        let system = domain("kube-system", "0123456789abcdef");
        refused(ADMISSION, "in kube-system", &create("kube-system", &system).await?)?;
        for (what, forged) in [
            ("without the label", changed(&|it| it["metadata"]["labels"] = Value::Null)),
            ("without an owner", changed(&|it| it["metadata"]["ownerReferences"] = Value::Null)),
            ("a finalizer", changed(&|it| it["metadata"]["finalizers"] = json!(["a.example/b"]))),
        ] {
            refused(ADMISSION, what, &create(namespace, &forged).await?)?;
        }
        // A tenant's own, and one of admission.
        let all = domains(&plane.client(), namespace);
        let theirs = changed(&|it| {
            it["metadata"]["name"] = "theirs".into();
            it["metadata"]["labels"] = Value::Null;
            it["metadata"]["ownerReferences"] = Value::Null;
        });
        let existing = own.clone();
        let holder = holder(scope).await?;
        let existing = {
            let mut existing = existing;
            existing["metadata"]["ownerReferences"] = json!([holder]);
            existing
        };
        for object in [&theirs, &existing] {
            all.create(&PostParams::default(), &serde_json::from_value(object.clone())?).await?;
        }
        let stolen = domains(&client, namespace);
        let patch = async |name: &str, patch: Value| {
            stolen.patch_metadata(name, &PatchParams::default(), &Patch::Merge(patch)).await
        };
        let orphan = json!({"metadata": {"ownerReferences": [owner(NOBODY)]}});
        refused(ADMISSION, "a tenant's", &patch("theirs", orphan.clone()).await)?;
        let name = own["metadata"]["name"].as_str().context("a name")?;
        refused(ADMISSION, "its owner is gone", &patch(name, orphan).await)?;
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        refused(ADMISSION, "a label", &patch(name, labels).await)?;
        let both = json!({"metadata": {"ownerReferences": [holder, owner(NOBODY)]}});
        patch(name, both).await.context("one more owner")?;
        Ok("7 refused by the policy; one more owner is allowed".to_owned())
    })
    .await
}

async fn an_admission_token_changes_no_webhook(plane: Arc<ControlPlane>) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.start_admission().await?;
        let client = installation.client_as("admission").await?;
        let api: Api<MutatingWebhookConfiguration> = Api::all(client);
        let all = json!([{"op": "replace", "path": "/webhooks/0/rules", "value": [
            {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"], "scope": "*"},
        ]}]);
        let patch = Patch::Json::<()>(serde_json::from_value(all)?);
        let answer = api.patch(ADMISSION, &PatchParams::default(), &patch).await;
        anyhow::ensure!(matches!(&answer, Err(Error::Api(it)) if it.code == 403), "{answer:?}");
        // What may write it still does.
        installation.distrust().await?;
        installation.answers().await?;
        Ok("refused; the authority is written by another program".to_owned())
    })
    .await
}

async fn a_fabric_controller_token_writes_its_condition_only(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let client = installation.client_as("fabric-controller").await?;
        gated(scope, "grouped", &json!({"dranet.io/fabric": "same"})).await?;
        let pods: Api<Pod> = Api::namespaced(client, scope.namespace());
        let patch = async |status: Value| {
            let patch = Patch::Strategic(json!({"status": status}));
            pods.patch_status("grouped", &PatchParams::default(), &patch).await
        };
        eventually(SOON, async || {
            let answer = patch(json!({"phase": "Failed"})).await;
            Ok(Check::that(is_refused(FABRIC, &answer), || format!("{answer:?}")))
        })
        .await?;
        let waiting = json!({"name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0});
        let forged = [
            json!({"reason": "Evicted"}),
            json!({"message": "forged"}),
            json!({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}]}),
            json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}),
            json!({"startTime": "2026-01-01T00:00:00Z"}),
            json!({"resize": "Infeasible"}),
            json!({"nominatedNodeName": "node-1"}),
            json!({"containerStatuses": [waiting]}),
            json!({"initContainerStatuses": [waiting]}),
            json!({"conditions": [{"type": "Ready", "status": "True"}]}),
            json!({"conditions": [{"type": "dranet.io/FabricChosen", "status": "False"}], "reason": "a"}),
        ];
        for status in &forged {
            refused(FABRIC, &status.to_string(), &patch(status.clone()).await)?;
        }
        let own = json!({"conditions": [
            {"type": "dranet.io/FabricChosen", "status": "False", "reason": "NoRoom", "message": "m"},
        ]});
        patch(own).await.context("its own condition")?;
        Ok(format!("{} refused by the policy", forged.len() + 1))
    })
    .await
}

async fn a_fabric_controller_token_evicts_pods_with_a_fabric_only(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        installation.apply_component("fabric-evict").await?;
        let client = installation.client_as("fabric-controller").await?;
        let grouped = gated(scope, "grouped", &json!({"dranet.io/fabric": "same"})).await?;
        let other = gated(scope, "other", &json!({})).await?;
        let pods: Api<Pod> = Api::namespaced(client, scope.namespace());
        let evict = async |name: &str, delete: Value, params: &PostParams| {
            let eviction = json!({
                "apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": name}, "deleteOptions": delete,
            });
            pods.create_subresource::<_, Value>("eviction", name, params, &eviction).await
        };
        let by = |uid: &str| json!({"preconditions": {"uid": uid}});
        let mut early = by(&grouped);
        early["gracePeriodSeconds"] = 0.into();
        let forged = [
            ("other", by(&other)),
            ("other", by(&grouped)),
            ("grouped", json!({})),
            ("grouped", by(&other)),
            ("grouped", early),
        ];
        // A policy takes effect some time after it is written; a pod that is gone must not pass.
        eventually(SOON, async || {
            let answer = evict("other", by(&other), &dry_run()).await;
            Ok(Check::that(is_refused(EVICT, &answer), || format!("{answer:?}")))
        })
        .await?;
        let params = PostParams::default();
        for (name, delete) in &forged {
            let answer = evict(name, delete.clone(), &params).await;
            refused(EVICT, &format!("{name} {delete}"), &answer)?;
        }
        evict("grouped", by(&grouped), &params).await.context("a pod of a group")?;
        Ok(format!("{} refused by the policy", forged.len()))
    })
    .await
}

fn events(client: &Client, namespace: &str) -> Api<Event> {
    Api::namespaced(client.clone(), namespace)
}

/// A policy takes effect some time after it is written.
async fn in_force(client: &Client, namespace: &str, forged: &Event) -> anyhow::Result<()> {
    let api = events(client, namespace);
    eventually(SOON, async || {
        let answer = api.create(&dry_run(), forged).await;
        Ok(Check::that(is_refused(EVENTS, &answer), || format!("{answer:?}")))
    })
    .await
}

fn event(namespace: &str, controller: &str, regarding: &Value) -> Event {
    let event = json!({
        "metadata": {"generateName": "forged-", "namespace": namespace},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Warning", "action": "Watching",
        "reason": "Forged", "note": "forged", "regarding": regarding,
        "reportingController": controller, "reportingInstance": "i",
    });
    serde_json::from_value(event).unwrap()
}

fn domains(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("resource.nvidia.com", "v1beta1", "ComputeDomain");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk(&kind))
}

/// As admission creates it for a job.
fn domain(namespace: &str, group: &str) -> Value {
    let name = format!("dranet-compute-domain-{group}");
    json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "ComputeDomain",
        "metadata": {
            "name": name, "namespace": namespace, "labels": {"dranet.io/fabric-group": group},
            "ownerReferences": [owner(NOBODY)],
        },
        "spec": {
            "numNodes": 0,
            "channel": {"resourceClaimTemplate": {"name": format!("{name}-channel")}},
        },
    })
}

fn owner(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "name": "gone", "uid": uid})
}

/// An owner that exists.
async fn holder(scope: &Scope) -> anyhow::Result<Value> {
    let uid = gated(scope, "holder", &json!({})).await?;
    Ok(json!({"apiVersion": "v1", "kind": "Pod", "name": "holder", "uid": uid}))
}

/// Creates a pod that is not scheduled; returns its UID.
async fn gated(scope: &Scope, name: &str, annotations: &Value) -> anyhow::Result<String> {
    let pod = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "containers": [{"name": "main", "image": "none"}],
            "schedulingGates": [{"name": "example.org/wait"}],
        },
    });
    let pod: Pod = serde_json::from_value(pod)?;
    let pod = scope.api::<Pod>().create(&PostParams::default(), &pod).await?;
    pod.uid().context("it has a UID")
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

fn is_refused<T>(policy: &str, answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Api(it)) if it.code == 403 && it.message.contains(policy))
}

/// Fails unless the policy refused the request.
fn refused<T: std::fmt::Debug>(
    policy: &str,
    what: &str,
    answer: &Result<T, Error>,
) -> anyhow::Result<()> {
    anyhow::ensure!(is_refused(policy, answer), "{what}: {answer:?}");
    Ok(())
}
