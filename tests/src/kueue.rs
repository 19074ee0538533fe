//! Kueue's manager on a control plane, with its resource definitions and webhooks, and with all permissions.

use std::{fs, iter, path::Path, time::Duration};

use anyhow::Context;
use k8s_openapi::{ByteString, api::core::v1::Pod};
use kube::{Api, api::PostParams};
use serde_json::{Value, json};

use crate::{
    Check, ControlPlane, Process, Program, Scope, binaries, certificates, eventually, manifest,
    ports,
};

const READY: Duration = Duration::from_mins(1);

/// Whether Kueue counts claims itself, or leaves them to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claims {
    /// It counts them by a mapping of device classes.
    Counted,
    /// It does not look at them.
    Ignored,
}

/// The version of Kueue without its patch, `0.17`.
///
/// # Errors
///
/// Fails if Kueue was not built.
pub fn version() -> anyhow::Result<String> {
    let whole = fs::read_to_string(binaries::neighbour("kueue-version")?)?;
    let (version, _) =
        whole.trim().trim_start_matches('v').rsplit_once('.').context(whole.clone())?;
    Ok(version.to_owned())
}

/// The feature gates of this version. 0.18 renamed those of claims, and has the first two on by default; 0.19 has
/// all on, and wants the first for the last two.
fn gates(version: &str, claims: Claims) -> String {
    let on = claims == Claims::Counted;
    let of_claims = match version {
        "0.17" => &["DynamicResourceAllocation"][..],
        _ => &[
            "KueueDRAIntegration",
            "KueueDRARejectWorkloadsWhenDRADisabled",
            "KueueDRAIntegrationExtendedResource",
            "KueueDRAIntegrationPartitionableDevices",
        ],
    };
    let of_claims = of_claims.iter().map(|gate| format!("{gate}={on}"));
    // Nothing here serves an aggregated API.
    iter::once("VisibilityOnDemand=false".to_owned()).chain(of_claims).collect::<Vec<_>>().join(",")
}

/// A running manager; it is killed when dropped.
#[derive(Debug)]
pub struct Kueue(Process);

impl Kueue {
    /// Starts it with the value of `resources` of its configuration; returns when its webhooks are called.
    pub async fn start(
        plane: &ControlPlane,
        scope: &Scope,
        resources: &Value,
        claims: Claims,
    ) -> anyhow::Result<Self> {
        for file in fs::read_dir(binaries::neighbour("definitions")?)? {
            scope.apply_file(&file?.path()).await?;
        }
        let (webhook, health) = (ports::free()?, ports::free()?);
        let root = plane.directory().join("kueue");
        let folder = root.join("kueue/metrics/certs");
        fs::create_dir_all(&folder)?;
        let identity = plane.authority().issue("kueue", &folder)?;
        fs::rename(identity.certificate, folder.join("tls.crt"))?;
        fs::rename(identity.key, folder.join("tls.key"))?;
        let config = json!({
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
            "metrics": {"bindAddress": "0"},
            "webhook": {"port": webhook, "host": "127.0.0.1", "certDir": "/etc/kueue/metrics/certs"},
            "leaderElection": {"leaderElect": false},
            "internalCertManagement": {"enable": false},
            "integrations": {"frameworks": ["batch/job", "pod", "deployment", "statefulset"]},
            "resources": resources,
        });
        certificates::write(&root.join("config.yaml"), &config.to_string())?;
        let process = manager(plane, &root, &gates(&version()?, claims))?.spawn()?;
        process.wait_until_ready(&format!("http://127.0.0.1:{health}/readyz"), READY).await?;
        let url = format!("https://127.0.0.1:{webhook}");
        for object in manifest::read(&binaries::neighbour("webhooks.yaml")?)? {
            let object =
                with_address(serde_json::to_value(object)?, &url, &plane.authority().pem());
            scope.apply(serde_json::from_value(object)?).await?;
        }
        answers(scope).await?;
        Ok(Self(process))
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.0
    }
}

/// The manager, which sees `root` as `/etc`: the path of its certificates cannot be configured.
fn manager(plane: &ControlPlane, root: &Path, gates: &str) -> anyhow::Result<Program> {
    let bound = "mount --bind \"$0\" /etc && exec \"$@\"";
    let program = Program::new(binaries::on_path("unshare")?, plane.logs()).named("kueue");
    let command = ["--map-root-user", "--mount", "--", "sh", "-c", bound].map(str::to_owned);
    let root = root.display().to_string();
    let manager = binaries::neighbour("kueue")?.display().to_string();
    let config = "--config=/etc/config.yaml".to_owned();
    let gates = format!("--feature-gates={gates}");
    Ok(program
        .env("KUBECONFIG", &plane.kubeconfig().display().to_string())
        .args(command)
        .args([root, manager, config, gates]))
}

/// Webhook configurations with a URL in place of a service.
fn with_address(mut object: Value, url: &str, authority: &str) -> Value {
    object["metadata"]["name"] =
        format!("kueue-{}", object["metadata"]["name"].as_str().unwrap_or_default()).into();
    for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
        let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or_default();
        webhook["clientConfig"] = json!({
            "url": format!("{url}{path}"),
            "caBundle": ByteString(authority.as_bytes().to_vec()),
        });
    }
    object
}

/// Waits until Kueue holds a pod of a queue back.
async fn answers(scope: &Scope) -> anyhow::Result<()> {
    let probe: Pod = serde_json::from_value(json!({
        "metadata": {"name": "probe", "labels": {"kueue.x-k8s.io/queue-name": "probe"}},
        "spec": {"containers": [{"name": "probe", "image": "none"}]},
    }))?;
    let pods: Api<Pod> = scope.api();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    eventually(READY, async || {
        let pod = pods.create(&dry_run, &probe).await.context("the webhook of pods")?;
        let gates = pod.spec.and_then(|spec| spec.scheduling_gates).unwrap_or_default();
        Ok(Check::that(!gates.is_empty(), || "no scheduling gate".to_owned()))
    })
    .await
}
