//! The scheduler calls an extender over TLS, as the harness registers it. An extender of this test
//! responds and records the requests.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context;
use axum::{Json, Router, extract::State, routing::post};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use k8s_openapi::api::events::v1::Event;
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Extender, SchedulerConfig, Scope, eventually, gb300, ports, suite::Test,
    with_scope,
};

use super::thin_line::{create, devices, pod_with_template, with_installation};

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        an_extender_is_called_over_tls_and_may_be_unreachable,
        a_pod_without_numa_alignment_gets_an_event,
    ];
    all.into_iter().map(Test::alone).collect()
}

async fn an_extender_is_called_over_tls_and_may_be_unreachable(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let port = ports::free()?;
    let identity = plane.authority().issue("extender", plane.directory())?;
    let tls = RustlsConfig::from_pem_file(identity.certificate, identity.key).await?;
    let asked = Arc::default();
    let router =
        Router::new().route("/prioritize", post(prefer_the_last)).with_state(Arc::clone(&asked));
    let handle = Handle::<SocketAddr>::new();
    let server = axum_server::bind_rustls(([127, 0, 0, 1], port).into(), tls);
    let serving = tokio::spawn(server.handle(handle.clone()).serve(router.into_make_service()));
    handle.listening().await.context("the extender does not listen")?;

    let url = format!("https://127.0.0.1:{port}");
    let extender = Extender::new(&url, &plane.authority().pem());
    plane.restart_scheduler(&SchedulerConfig::with_extenders(vec![extender])).await?;
    let result = with_scope(plane.client(), async |scope| {
        let names = [scope.node("a").await?.name_any(), scope.node("b").await?.name_any()];
        assert_eq!(place(scope, "asked").await?, names[1]);
        assert_eq!(*asked.lock().unwrap(), [names.to_vec()]);
        handle.shutdown();
        assert!(names.contains(&place(scope, "not-asked").await?));
        Ok(())
    })
    .await;
    plane.restart_scheduler(&SchedulerConfig::default()).await?;
    handle.shutdown();
    serving.await??;
    result
}

/// A template whose GPU and NIC are on two NUMA nodes, and one that is aligned.
async fn a_pod_without_numa_alignment_gets_an_event(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_installation(plane, async |scope, installation, _| {
        scope.apply_file(&gb300::file("resource-claim-template.yaml")).await?;
        // Pods that exist before its first look get no event.
        eventually(SOON, async || {
            let metrics = installation.extender()?.metrics().await?;
            let has_looked = metrics.keys().any(|name| name.contains("room_pods"));
            Ok(Check::that(has_looked, || "the extender has not looked at the cluster".into()))
        })
        .await?;
        for template in ["1nic-aligned", "1nic-unaligned"] {
            create(scope, pod_with_template(template, template)).await?;
            devices(scope, template).await?;
        }
        let events: Api<Event> = scope.api();
        eventually(SOON, async || {
            let all = events.list(&ListParams::default()).await?.items;
            let ours =
                all.into_iter().filter(|event| event.reason.as_deref() == Some("Misaligned"));
            let ours: Vec<Event> = ours.collect();
            let [event] = ours.as_slice() else {
                return Ok(Check::NotYet(format!(
                    "{} events; {}",
                    ours.len(),
                    installation.extender_log()
                )));
            };
            let pod = event.regarding.as_ref().and_then(|pod| pod.name.as_deref());
            assert_eq!(pod, Some("1nic-unaligned"));
            assert_eq!(event.type_.as_deref(), Some("Warning"));
            let note = event.note.as_deref().unwrap_or_default();
            assert!(note.contains("SYS"), "{note}");
            Ok(Check::Done(()))
        })
        .await?;
        let metrics = installation.extender()?.metrics().await?;
        let of = |path: &str| {
            metrics
                .get(&format!("dranet_scheduler_ext_pod_paths_total{{path=\"{path}\"}}"))
                .copied()
        };
        assert_eq!(of("SYS"), Some(1.0), "{metrics:?}");
        Ok(())
    })
    .await
}

/// The node of a pod without preferences.
async fn place(scope: &Scope, pod: &str) -> anyhow::Result<String> {
    let yaml = format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {pod}}}, \
         spec: {{containers: [{{name: worker, image: none}}]}}}}"
    );
    scope.apply_yaml(&yaml).await?;
    let bound = scope.bound(pod, SOON).await?;
    bound.spec.and_then(|spec| spec.node_name).context("a bound pod has a node")
}

/// Scores the last node by name 10, and the others 0. Records the nodes of the request.
async fn prefer_the_last(
    State(asked): State<Arc<Mutex<Vec<Vec<String>>>>>,
    Json(args): Json<Value>,
) -> Json<Value> {
    let nodes = args["NodeNames"].as_array().into_iter().flatten();
    let mut names: Vec<String> = nodes.filter_map(Value::as_str).map(str::to_owned).collect();
    names.sort();
    let last = names.len().saturating_sub(1);
    let score = |(index, name)| json!({"Host": name, "Score": if index == last { 10 } else { 0 }});
    let scores = names.iter().enumerate().map(score).collect();
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(names);
    Json(scores)
}
