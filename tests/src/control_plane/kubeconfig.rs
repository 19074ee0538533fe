//! The kubeconfig file and its token.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

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
