//! The kubeconfig file and its token, and what kube-apiserver shows webhooks.

use std::path::Path;

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::certificates::Identity;

/// The only token that kube-apiserver accepts here. It listens on the loopback interface only,
/// while a test runs.
const TOKEN: &str = "dranet-tests";

/// A line of `--token-auth-file`: token, user, uid, groups.
pub(super) fn token_file() -> String {
    format!("{TOKEN},admin,admin,system:masters\n")
}

/// A kubeconfig for `url`. JSON is YAML.
pub(super) fn kubeconfig(url: &str, ca_pem: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tests", "cluster": {
            "server": url,
            "certificate-authority-data": ByteString(ca_pem.into()),
        }}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        "current-context": "tests",
    })
}

/// The certificate that kube-apiserver shows admission if it asks for one.
pub(super) fn webhook_client(identity: &Identity) -> String {
    let user = json!({"client-certificate": identity.certificate, "client-key": identity.key});
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": "admission.dranet-system.svc", "user": user}],
    });
    config.to_string()
}

/// A configuration of kube-apiserver that names the file of [`webhook_client`].
pub(super) fn admission_control(client: &Path) -> String {
    let plugin = |name: &str| {
        json!({"name": name, "configuration": {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": client,
        }})
    };
    let config = json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")],
    });
    config.to_string()
}
