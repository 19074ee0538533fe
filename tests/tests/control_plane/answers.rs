//! The responses of admission if its API server is slow or a namespace is being deleted, and its
//! metrics about responses.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use http::Request;
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Pod},
    resource::v1::ResourceClaimTemplate,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually,
    installation::{Installation, review},
    ports,
    proxy::Proxy,
    suite::Test,
    with_scope,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const SOON: Duration = Duration::from_secs(30);
/// The time that kube-apiserver waits for the webhook.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        a_slow_api_server_delays_only_templates,
        a_terminating_namespace_gets_no_template,
        metrics_count_the_responses,
        it_is_ready_only_after_it_has_seen_everything,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// Requests of admission to its API server are held; all others reach it. Pods are admitted from
/// memory, and their template is created as soon as the API server answers.
async fn a_slow_api_server_delays_only_templates(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        let proxy = Proxy::start(plane.url().trim_start_matches("https://")).await?;
        installation.reach_api_by(format!("https://{}", proxy.address()));
        installation.start_admission().await?;
        // The plan is made before.
        create(scope, "first", "2").await?;
        scope.bound("first", SOON).await?;

        proxy.hold(true);
        let begin = Instant::now();
        create(scope, "slow", "1").await?;
        let took = begin.elapsed();
        assert!(took < PATIENCE, "admitted after {took:?}");
        proxy.hold(false);
        scope.bound("slow", SOON).await?;
        Ok(())
    })
    .await
}

/// kube-apiserver refuses the pod itself. A review that was already in flight is answered, and no
/// template is created, since there is no pod.
async fn a_terminating_namespace_gets_no_template(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        installation.start_admission().await?;
        let name = format!("{}-ends", scope.namespace());
        let last = ending(&plane, &name).await?;

        let answer = asked(&installation.webhook().await?.client()?, &name).await?;
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
        let templates: Api<ResourceClaimTemplate> = Api::namespaced(plane.client(), &name);
        assert_eq!(templates.list(&ListParams::default()).await?.items.len(), 0);

        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        last.patch("last", &PatchParams::default(), &free).await?;
        Ok(())
    })
    .await
}

/// Creates a namespace that is being deleted. It remains until the finalizer of its ConfigMap
/// `last` is removed.
async fn ending(plane: &ControlPlane, name: &str) -> anyhow::Result<Api<ConfigMap>> {
    let namespaces: Api<Namespace> = Api::all(plane.client());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), name);
    let last = json!({"metadata": {"name": "last", "finalizers": ["tests.dranet.io/last"]}});
    maps.create(&PostParams::default(), &serde_json::from_value(last)?).await?;
    namespaces.delete(name, &DeleteParams::default()).await?;
    let pods: Api<Pod> = Api::namespaced(plane.client(), name);
    let plain: Pod = serde_json::from_value(json!({
        "metadata": {"name": "plain"},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }))?;
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    eventually(SOON, async || match pods.create(&dry_run, &plain).await {
        Err(kube::Error::Api(status)) if status.message.contains("being terminated") => {
            Ok(Check::Done(()))
        }
        other => Ok(Check::NotYet(format!("{other:?}"))),
    })
    .await?;
    Ok(maps)
}

async fn metrics_count_the_responses(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        installation.start_admission().await?;
        let replica = &installation.replicas()[0];
        let before = replica.metrics().await?;
        // The leader's own writes invalidate a plan or two at first.
        let mut pods = 0_u32;
        let after = eventually(SOON, async || {
            create(scope, &format!("p{pods}"), "2").await?;
            pods += 1;
            let now = replica.metrics().await?;
            let hits = grown(&before, &now, &cache(true));
            Ok(if hits > 0.0 { Check::Done(now) } else { Check::NotYet("no hit".into()) })
        })
        .await?;
        let pods = f64::from(pods);
        let of = |name: &str| grown(&before, &after, name);
        assert!((of(&outcome("Patched")) - pods).abs() < 0.5, "{after:?}");
        assert!((of("dranet_admission_plans_total{join=\"cells\"}") - pods).abs() < 0.5);
        assert!((of(&cache(true)) + of(&cache(false)) - pods).abs() < 0.5, "{after:?}");
        eventually(SOON, async || {
            let now = replica.metrics().await?;
            let created = grown(&before, &now, "dranet_admission_templates_created_total");
            Ok(Check::that((created - 1.0).abs() < 0.5, || format!("{created} templates")))
        })
        .await?;
        assert!((of("dranet_admission_request_seconds_count") - pods).abs() < 0.5);
        assert!(of("dranet_admission_request_seconds_sum") > 0.0, "{after:?}");

        create(scope, "three", "3").await.unwrap_err();
        let denied = replica.metrics().await?;
        assert!((grown(&after, &denied, &outcome("Denied")) - 1.0).abs() < 0.5, "{denied:?}");
        assert!(grown(&after, &denied, &outcome("Patched")).abs() < 0.5, "{denied:?}");
        let denials = "dranet_admission_denials_total{reason=\"dranet.io/aligned-nics\"}";
        assert!((grown(&after, &denied, denials) - 1.0).abs() < 0.5, "{denied:?}");
        let version = format!("dranet_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
        assert!((grown(&before, &denied, &version)).abs() < 0.5 && denied.contains_key(&version));
        let log = replica.process().tail(usize::MAX);
        let lines = |event: &str, pod: &str| {
            let of_pod = log.lines().filter(|it| it.contains(event) && it.contains(pod));
            of_pod.filter(|it| it.contains(scope.namespace())).count()
        };
        assert_eq!(lines("Denied", "\"Pod/three\""), 1, "{log}");
        assert_eq!(lines("Patched", "\"Pod/p0\""), 1, "{log}");
        Ok(())
    })
    .await
}

async fn it_is_ready_only_after_it_has_seen_everything(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let proxy = Proxy::start(plane.url().trim_start_matches("https://")).await?;
        installation.reach_api_by(format!("https://{}", proxy.address()));
        let kubeconfig = installation.kubeconfig("admission").await?;
        proxy.hold(true);
        let operations = ports::free()?;
        let process = plane
            .program("admission")?
            .args([format!("--listen=127.0.0.1:{}", ports::free()?)])
            .args([format!("--operations-listen=127.0.0.1:{operations}")])
            .args([format!("--kubeconfig={}", kubeconfig.display())])
            .args(["--lease-seconds=3"])
            .spawn()?;
        let url = |path: &str| format!("http://127.0.0.1:{operations}/{path}");
        process.wait_until_ready(&url("healthz"), SOON).await?;
        let unready = said(operations, "readyz").await?;
        assert!(unready.starts_with("HTTP/1.1 503"), "{unready}");
        for kind in ["resourceslices", "nodetopologies", "nodes", "machines", "certificate"] {
            assert!(unready.contains(kind), "`{kind}` is missing in: {unready}");
        }
        proxy.hold(false);
        process.wait_until_ready(&url("readyz"), SOON).await
    })
    .await
}

/// The whole response of a server to one request. A client library would retry while the server is
/// not ready.
async fn said(port: u16, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET /{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

/// The webhook's response to kube-apiserver's request for a pod in a namespace.
async fn asked(webhook: &Client, namespace: &str) -> anyhow::Result<Value> {
    let body = serde_json::to_vec(&review(namespace, pod("p", "2")))?;
    let request = Request::post("/mutate").header("content-type", "application/json");
    Ok(webhook.request(request.body(body)?).await?)
}

fn outcome(outcome: &str) -> String {
    format!("dranet_admission_requests_total{{outcome=\"{outcome}\"}}")
}

fn cache(hit: bool) -> String {
    format!("dranet_admission_plan_cache_total{{hit=\"{hit}\"}}")
}

/// The increase of a sample; a missing one counts as 0.
fn grown(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>, name: &str) -> f64 {
    let value = |samples: &BTreeMap<String, f64>| samples.get(name).copied().unwrap_or_default();
    value(after) - value(before)
}

async fn create(scope: &Scope, name: &str, nics: &str) -> kube::Result<Pod> {
    let pod = serde_json::from_value(pod(name, nics)).expect("it is a pod");
    scope.api::<Pod>().create(&PostParams::default(), &pod).await
}

fn pod(name: &str, nics: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {"dranet.io/aligned-nics": nics}},
        "spec": {"containers": [
            {"name": "nccl", "image": "nccl", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        ]},
    })
}
