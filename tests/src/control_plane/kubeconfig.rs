//! The kubeconfig file and the token behind it.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

/// The one token that kube-apiserver knows here. It listens on the loopback
/// interface only, for as long as a test runs.
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
