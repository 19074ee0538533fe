//! A webhook that answers at once, with TLS like ours: what kube-apiserver takes to call any webhook.

use std::net::SocketAddr;

use anyhow::Context;
use axum::{Json, Router, routing::post};
use axum_server::{Handle, tls_rustls::RustlsConfig};
use k8s_openapi::{ByteString, api::core::v1::Pod};
use kube::{
    Api,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};
use tests::{Check, ControlPlane, Scope, eventually, ports};
use tokio::task::JoinHandle;

use super::{
    compare::LONG,
    shapes::{SHAPE, Shape},
};

/// The label that shows that the webhook was called.
const CALLED: &str = "tests.dranet.io/called";

/// The running webhook; it ends when dropped.
#[derive(Debug)]
pub(crate) struct InstantWebhook {
    serving: JoinHandle<std::io::Result<()>>,
}

impl InstantWebhook {
    /// Starts it, and registers it for the pods of [`Shape::Instant`]; returns when kube-apiserver calls it.
    pub(crate) async fn start(plane: &ControlPlane, scope: &Scope) -> anyhow::Result<Self> {
        let port = ports::free()?;
        let identity = plane.authority().issue("instant", plane.directory())?;
        let tls = RustlsConfig::from_pem_file(identity.certificate, identity.key).await?;
        let router = Router::new().route("/", post(allow));
        let handle = Handle::<SocketAddr>::new();
        let server = axum_server::bind_rustls(([127, 0, 0, 1], port).into(), tls);
        let serving = tokio::spawn(server.handle(handle.clone()).serve(router.into_make_service()));
        handle.listening().await.context("the webhook does not listen")?;
        let authority = ByteString(plane.authority().pem().into_bytes());
        let registration: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "instant.tests.dranet.io"},
            "webhooks": [{
                "name": "instant.tests.dranet.io",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
                "objectSelector": {"matchLabels": {SHAPE: Shape::Instant.name()}},
                "clientConfig": {"url": format!("https://127.0.0.1:{port}/"), "caBundle": authority},
            }],
        }))?;
        scope.apply(registration).await?;
        let webhook = Self { serving };
        webhook.is_called(scope).await?;
        Ok(webhook)
    }

    /// Waits until kube-apiserver has read the registration.
    async fn is_called(&self, scope: &Scope) -> anyhow::Result<()> {
        let pods: Api<Pod> = scope.api();
        let pod = Shape::Instant.pod("instant")?;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        eventually(LONG, async || {
            let made = pods.create(&dry_run, &pod).await?;
            let labels = made.metadata.labels.unwrap_or_default();
            Ok(Check::that(labels.contains_key(CALLED), || "it is not called".to_owned()))
        })
        .await
    }
}

impl Drop for InstantWebhook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Allows everything and adds the label.
async fn allow(Json(review): Json<Value>) -> Json<Value> {
    let key = CALLED.replace('/', "~1");
    let patch = json!([{"op": "add", "path": format!("/metadata/labels/{key}"), "value": "yes"}]);
    Json(json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": review["request"]["uid"],
            "allowed": true,
            "patchType": "JSONPatch",
            "patch": ByteString(patch.to_string().into_bytes()),
        },
    }))
}
