//! `kubectl dranet doctor` asks the running extender through the API server's proxy.
//!
//! The nodes have no kubelet. A pod whose status names an address of this machine represents the
//! extender's pod, and a proxy forwards from that address to the extender.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope, binaries, eventually, lines::joined, proxy::Proxy, suite::Test,
};
use tokio::process::Command;

use super::thin_line::{create, devices, pod, with_installation};

const SOON: Duration = Duration::from_secs(30);

const NO_REQUEST: &str = "scheduler-ext answers, but has had no request since it started";
const NO_ANSWER: &str = "scheduler-ext pod extender does not answer through the API server's proxy";

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![doctor_asks_the_extender].into_iter().map(Test::alone).collect()
}

async fn doctor_asks_the_extender(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, installation, _| {
        let server = format!("127.0.0.1:{}", installation.extender()?.operations());
        let proxy = Proxy::start_on(own_address()?, &server).await?;
        create_extender_pod(scope, proxy.address()).await?;
        let text = doctor(&plane, scope).await?;
        assert!(text.contains(NO_REQUEST), "{text}");

        create(scope, pod("asked", Some("1"))).await?;
        devices(scope, "asked").await?;
        let text = doctor(&plane, scope).await?;
        assert!(text.contains("✓ scheduler-ext answers"), "{text}");

        installation.kill_extender();
        eventually(SOON, async || {
            let text = doctor(&plane, scope).await?;
            Ok(Check::that(text.contains(NO_ANSWER), || text.clone()))
        })
        .await
    })
    .await
}

/// An address of this machine other than loopback, which the API server refuses to proxy to. No
/// packet is sent.
fn own_address() -> anyhow::Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect("192.0.2.1:9").context("this machine has only loopback addresses")?;
    Ok(socket.local_addr()?.ip())
}

/// The extender's Deployment, without running pods.
const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: dranet-scheduler
  labels: {app.kubernetes.io/name: dranet-scheduler, app.kubernetes.io/part-of: dranet}
spec:
  replicas: 0
  selector: {matchLabels: {app: none}}
  template:
    metadata: {labels: {app: none}}
    spec:
      containers:
      - {name: scheduler-ext, image: none, args: ['--operations-listen=0.0.0.0:PORT']}
";

async fn create_extender_pod(scope: &Scope, operations: SocketAddr) -> anyhow::Result<()> {
    let port = operations.port().to_string();
    scope.apply_yaml(&DEPLOYMENT.replace("PORT", &port)).await?;
    let labels = json!({
        "app.kubernetes.io/name": "dranet-scheduler",
        "app.kubernetes.io/part-of": "dranet",
    });
    let pod = serde_json::from_value(json!({
        "metadata": { "name": "extender", "labels": labels },
        // It is never bound.
        "spec": { "schedulerName": "none", "containers": [{ "name": "main", "image": "none" }] },
    }))?;
    let pods = scope.api::<Pod>();
    pods.create(&PostParams::default(), &pod).await?;
    let address = operations.ip().to_string();
    let status = json!({ "status": {
        "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }],
    } });
    pods.patch_status("extender", &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// The output of doctor for the cluster, with the scope's namespace as that of the components.
async fn doctor(plane: &ControlPlane, scope: &Scope) -> anyhow::Result<String> {
    let mut command = Command::new(binaries::ours("kubectl-dranet")?);
    command.args(["doctor", "--admission-namespace", scope.namespace(), "--kubeconfig"]);
    let output = command.arg(plane.kubeconfig()).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(matches!(output.status.code(), Some(0 | 3)), "{}: {errors}", output.status);
    Ok(joined(&String::from_utf8(output.stdout)?))
}
