//! What those try who reach the webhook without being kube-apiserver, and what tenants leave
//! behind whose pods are refused.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use k8s_openapi::api::{
    admissionregistration::v1::MutatingWebhookConfiguration, core::v1::Pod,
    resource::v1::ResourceClaimTemplate,
};
use kube::{
    Api, Client,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope,
    control_plane::WEBHOOK_CLIENT,
    eventually,
    installation::{Installation, Webhook, review},
    suite::Test,
    with_scope,
};

use super::pods::pod;

const SOON: Duration = Duration::from_secs(30);
/// The time in which a template would be written.
const SETTLED: Duration = Duration::from_secs(3);
const REVIEWS: usize = 200;
const PODS: usize = 50;
/// Reviews of others at a time.
const FLOOD: usize = 400;
/// Pods that are created meanwhile.
const CREATED: usize = 12;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::attempts![
        a_request_writes_nothing,
        a_client_without_a_certificate_gets_no_answer,
        a_flood_of_reviews_delays_no_api_server,
        pods_that_are_refused_leave_nothing,
    ];
    all.into_iter().map(Test::alone).collect()
}

async fn a_request_writes_nothing(plane: Arc<ControlPlane>) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        installation.start_admission().await?;
        let webhook = installation.webhook().await?.client()?;
        let ask = |_| ask(&webhook, "kube-system");
        let answers: Vec<Value> =
            stream::iter(0..REVIEWS).map(ask).buffer_unordered(8).try_collect().await?;
        let allowed = answers.iter().filter(|answer| answer["response"]["allowed"] == true).count();
        anyhow::ensure!(allowed == REVIEWS, "{allowed} of {REVIEWS} were decided");
        tokio::time::sleep(SETTLED).await;
        none(&Api::namespaced(plane.client(), "kube-system")).await?;
        let hooks: Api<MutatingWebhookConfiguration> = Api::all(plane.client());
        let hooks = hooks.get("admission.dranet.io").await?.webhooks.unwrap_or_default();
        anyhow::ensure!(hooks.iter().all(|hook| hook.side_effects == "None"), "{hooks:?}");
        // A pod that exists gets its template.
        let pod = serde_json::from_value(aligned("real"))?;
        scope.api::<Pod>().create(&PostParams::default(), &pod).await?;
        scope.bound("real", SOON).await?;
        Ok(format!("{REVIEWS} reviews were answered, and no object was written"))
    })
    .await
}

async fn a_client_without_a_certificate_gets_no_answer(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        let authority = plane.directory().join("ca.crt");
        let authority = format!("--client-ca-file={}", authority.display());
        let name = format!("--client-name={WEBHOOK_CLIENT}");
        installation.start_replicas(1, &[&authority, &name]).await?;
        let webhook = installation.webhook().await?.client()?;
        let answer = ask(&webhook, "kube-system").await;
        anyhow::ensure!(answer.is_err(), "without a certificate: {answer:?}");
        let pods = scope.api::<Pod>();
        pods.create(&PostParams::default(), &serde_json::from_value(aligned("real"))?).await?;
        scope.bound("real", SOON).await?;
        // The same authority has signed it, but for another client.
        installation.kill_replica(0).await?;
        installation.start_replica(0, &[&authority, "--client-name=somebody-else"]).await?;
        let other: Pod = serde_json::from_value(aligned("other"))?;
        eventually(SOON, async || match pods.create(&PostParams::default(), &other).await {
            Ok(_) => anyhow::bail!("a certificate with another name is answered"),
            Err(error) => {
                let why = error.to_string();
                Ok(Check::that(why.contains("tls: "), || why))
            }
        })
        .await?;
        Ok("the connection is refused; kube-apiserver shows its certificate and is answered"
            .to_owned())
    })
    .await
}

async fn a_flood_of_reviews_delays_no_api_server(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        let authority = plane.directory().join("ca.crt");
        let authority = format!("--client-ca-file={}", authority.display());
        let name = format!("--client-name={WEBHOOK_CLIENT}");
        let preferred = "--client-certificate=preferred";
        installation.start_replicas(1, &[&authority, &name, preferred]).await?;
        let flood = Flood::new(installation.webhook().await?);
        let clients = stream::iter(0..FLOOD).map(|number| flood.ask_without_end(number));
        let clients = clients.buffer_unordered(FLOOD).try_collect::<Vec<()>>();
        let created = async {
            flood.has_begun().await?;
            for number in 0..CREATED {
                create_beside_the_flood(scope, number).await?;
            }
            flood.ended.store(true, Ordering::Relaxed);
            anyhow::Ok(())
        };
        tokio::try_join!(clients, created)?;
        let others = flood.answered.load(Ordering::Relaxed);
        Ok(format!("none of {CREATED} pods was refused, beside {others} answers to others"))
    })
    .await
}

/// Clients without a certificate.
struct Flood {
    webhook: Webhook,
    ended: AtomicBool,
    answered: AtomicUsize,
}

impl Flood {
    fn new(webhook: Webhook) -> Self {
        Self { webhook, ended: AtomicBool::new(false), answered: AtomicUsize::new(0) }
    }

    /// Sends reviews that each need a decision of their own.
    async fn ask_without_end(&self, number: usize) -> anyhow::Result<()> {
        let client = self.webhook.client()?;
        for round in 0.. {
            if self.ended.load(Ordering::Relaxed) {
                break;
            }
            let pod = unlike_others("p", &format!("{number}-{round}"));
            let body = serde_json::to_vec(&review("kube-system", pod))?;
            let request = Request::post("/mutate").header("content-type", "application/json");
            // It may be refused.
            if client.request::<Value>(request.body(body)?).await.is_ok() {
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    async fn has_begun(&self) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let answered = self.answered.load(Ordering::Relaxed);
            Ok(Check::that(answered > FLOOD / 4, || format!("{answered} answers to the flood")))
        })
        .await
    }
}

/// A pod for every node, with a node affinity that no other has.
fn unlike_others(name: &str, value: &str) -> Value {
    let mut pod = aligned(name);
    let other = json!({"key": "other", "operator": "NotIn", "values": [value]});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [other]}]});
    pod["spec"]["affinity"] =
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    pod
}

/// Creates a pod that needs a decision of its own.
async fn create_beside_the_flood(scope: &Scope, number: usize) -> anyhow::Result<()> {
    let name = format!("p{number}");
    let pod = serde_json::from_value(unlike_others(&name, &name))?;
    let created = scope.api::<Pod>().create(&PostParams::default(), &pod).await;
    created.map(drop).with_context(|| format!("pod {number}"))
}

async fn pods_that_are_refused_leave_nothing(plane: Arc<ControlPlane>) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        installation.start_admission().await?;
        scope.apply_yaml(NO_PODS).await?;
        let refused = stream::iter(0..PODS).map(|number| refused(scope, number));
        let refused: Vec<()> = refused.buffer_unordered(8).try_collect().await?;
        tokio::time::sleep(SETTLED).await;
        none(&scope.api()).await?;
        Ok(format!("{} pods were refused, and no template was created", refused.len()))
    })
    .await
}

const NO_PODS: &str = "
apiVersion: v1
kind: ResourceQuota
metadata: {name: none}
spec: {hard: {pods: '0'}}
";

/// Creates a pod that the quota refuses.
async fn refused(scope: &Scope, number: usize) -> anyhow::Result<()> {
    let pod = serde_json::from_value(aligned(&format!("p{number}")))?;
    match scope.api::<Pod>().create(&PostParams::default(), &pod).await {
        Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => Ok(()),
        other => anyhow::bail!("{other:?}"),
    }
}

/// Fails if there is a template of admission.
async fn none(api: &Api<ResourceClaimTemplate>) -> anyhow::Result<()> {
    let there = api.list_metadata(&ListParams::default()).await?.items;
    anyhow::ensure!(there.is_empty(), "{there:?}");
    Ok(())
}

async fn ask(webhook: &Client, namespace: &str) -> anyhow::Result<Value> {
    let body = serde_json::to_vec(&review(namespace, aligned("p")))?;
    let request = Request::post("/mutate").header("content-type", "application/json");
    Ok(webhook.request(request.body(body)?).await?)
}

fn aligned(name: &str) -> Value {
    pod(name, &json!({"dranet.io/aligned-nics": "2"}))
}
