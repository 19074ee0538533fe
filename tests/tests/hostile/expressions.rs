//! Expressions of a tenant that kube-apiserver accepts and that once took minutes to evaluate. Other
//! tenants do not wait for them: neither for a gang, nor for a score, nor for advice.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, SchedulerConfig, Scope, binaries, eventually, figures,
    installation::{Installation, RunningExtender},
    suite::Test,
    with_scope,
};

use super::pods::{claims, create, pod};

const SOON: Duration = Duration::from_mins(2);
/// The number of pods with hostile expressions.
const HOSTILE: usize = 20;
/// The pods of a gang.
const GANG: usize = 2;
/// How much memory the extender may need beyond its usual.
const MEMORY: u64 = 128 << 20;
/// The webhook for claims, in `deploy/manifests/webhook.yaml`, has this time.
const ADVICE: Duration = Duration::from_secs(2);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::attempts![expressions_of_a_tenant_delay_nobody];
    all.into_iter().map(Test::alone).collect()
}

async fn expressions_of_a_tenant_delay_nobody(plane: Arc<ControlPlane>) -> anyhow::Result<String> {
    let outcome = with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        two_fabrics(&installation).await?;
        installation.start_replicas(1, &["--fabric-controller"]).await?;
        installation.start_fabric_controllers(1, &[]).await?;
        installation.start_extender().await?;
        gang(scope, "before").await?;
        let extender = installation.extender()?;
        let usual = figures::memory(extender.process().pid(), "VmHWM")?;

        let advice = advice(scope).await?;
        let waiting = waiting(scope).await?;
        let gang = gang(scope, "other").await?;
        let score = slowest_score(scope, extender, &waiting).await?;
        let more = figures::memory(extender.process().pid(), "VmHWM")?.saturating_sub(usual);

        anyhow::ensure!(gang < longest(2), "a gang waited {gang:.1?}");
        anyhow::ensure!(score < longest(1), "a score took {score:.1?}");
        anyhow::ensure!(advice < ADVICE, "advice took {advice:.1?}");
        anyhow::ensure!(more < MEMORY, "the extender took {:.0} MB", figures::megabytes(more));
        Ok(format!(
            "gang placed after {gang:.1?}, a score within {score:.1?}, advice within \
             {advice:.1?}, extender {:.0} MB above its usual",
            figures::megabytes(more),
        ))
    })
    .await;
    plane.restart_scheduler(&SchedulerConfig::default()).await?;
    outcome
}

/// The limit in seconds of programs as shipped; others are not optimised.
fn longest(seconds: u64) -> Duration {
    Duration::from_secs(if binaries::are_shipped() { seconds } else { 10 * seconds })
}

async fn two_fabrics(installation: &Installation<'_>) -> anyhow::Result<()> {
    for fabric in ["one", "two"] {
        let first = installation.gb300_in(fabric, fabric).await?;
        installation.add_copy(&first, &format!("{fabric}-more")).await?;
    }
    Ok(())
}

/// The time from the first pod of a gang until all have nodes.
async fn gang(scope: &Scope, name: &str) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let names: Vec<_> = (0..GANG).map(|number| format!("{name}-{number}")).collect();
    for of_gang in &names {
        create(scope, &member(of_gang, name)).await?;
    }
    for of_gang in &names {
        scope.bound(of_gang, SOON).await?;
    }
    Ok(begin.elapsed())
}

/// Creates gated pods with a hostile claim each, in a group for every two of them. Returns them when
/// their claims exist.
async fn waiting(scope: &Scope) -> anyhow::Result<Vec<Pod>> {
    let template: ResourceClaimTemplate = serde_json::from_value(hostile("template"))?;
    scope.api::<ResourceClaimTemplate>().create(&PostParams::default(), &template).await?;
    for number in 0..HOSTILE {
        let mut pod = member(&format!("hostile-{number}"), &format!("g{}", number / GANG));
        pod["metadata"]["labels"] = json!({"hostile": ""});
        pod["spec"]["resourceClaims"] =
            json!([{"name": "hostile", "resourceClaimTemplateName": "template"}]);
        create(scope, &pod).await?;
    }
    let hostile = ListParams::default().labels("hostile");
    eventually(SOON, async || {
        let pods = scope.api::<Pod>().list(&hostile).await?.items;
        let with_claims = pods.iter().filter(|pod| claims(pod) == 2).count();
        Ok(match with_claims {
            HOSTILE => Check::Done(pods),
            count => Check::NotYet(format!("{count} of {HOSTILE} pods have both claims")),
        })
    })
    .await
}

/// Asks the extender for all pods, as a scheduler with several profiles does.
async fn slowest_score(
    scope: &Scope,
    extender: &RunningExtender,
    pods: &[Pod],
) -> anyhow::Result<Duration> {
    let nodes = Api::<Node>::all(scope.client()).list_metadata(&ListParams::default()).await?;
    let nodes: Vec<_> = nodes.iter().map(ResourceExt::name_any).collect();
    let ask = async |pod: &Pod| {
        let begin = Instant::now();
        let answer = extender.prioritize(&json!({"Pod": pod, "NodeNames": nodes})).await?;
        anyhow::ensure!(answer.len() == nodes.len(), "{answer:?}");
        Ok(begin.elapsed())
    };
    let took: Vec<_> = stream::iter(pods).map(ask).buffer_unordered(4).try_collect().await?;
    Ok(took.into_iter().max().unwrap_or_default())
}

/// The longest time to create hostile claims together with one of another tenant.
async fn advice(scope: &Scope) -> anyhow::Result<Duration> {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let mut claims: Vec<_> = (0..3).map(|number| hostile(&format!("claim-{number}"))).collect();
    claims.push(json!({
        "metadata": {"name": "honest"},
        "spec": {"spec": {"devices": {"requests": [
            {"name": "nic", "exactly": {"deviceClassName": "dranet.net"}},
        ]}}},
    }));
    let api = scope.api::<ResourceClaim>();
    let create = async |template: Value| {
        let claim = json!({"metadata": template["metadata"], "spec": template["spec"]["spec"]});
        let begin = Instant::now();
        api.create(&dry, &serde_json::from_value(claim)?).await?;
        anyhow::Ok(begin.elapsed())
    };
    let took = stream::iter(claims).map(create).buffer_unordered(4).try_collect::<Vec<_>>();
    Ok(took.await?.into_iter().max().unwrap_or_default())
}

/// A pod of a group of two, with a GPU and its NIC.
fn member(name: &str, group: &str) -> Value {
    let annotations = json!({
        "dranet.io/aligned-nics": "per-gpu",
        "dranet.io/fabric": group,
        "dranet.io/fabric-size": GANG.to_string(),
    });
    pod(name, &annotations)
}

/// 9 KB that kube-apiserver accepts and kube-scheduler evaluates in milliseconds: four selectors of
/// 60 alternatives, none of which any device passes.
fn hostile(name: &str) -> Value {
    let selector = |number: usize| {
        let alternative = |n: usize| format!(r"'x'.matches('(\\pL{{400}}){number}x{n}')");
        let expression: Vec<_> = (0..60).map(alternative).collect();
        json!({"cel": {"expression": expression.join(" || ")}})
    };
    let selectors: Vec<_> = (0..4).map(selector).collect();
    json!({
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "nic", "exactly": {
            "deviceClassName": "dranet.net", "selectors": selectors,
        }}]}}},
    })
}
