//! The audit log of kube-apiserver: the requests of our programs, each with its user, verb and resource.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::PathBuf,
};

use anyhow::Context;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::installation::NAMESPACE;

/// The service accounts of our programs.
pub const ACCOUNTS: [&str; 6] = [
    "node-driver",
    "admission",
    "admission-authority",
    "fabric-controller",
    "preemptor",
    "scheduler-ext",
];

/// An audit log of the requests of [`ACCOUNTS`].
#[derive(Debug)]
pub struct Audit {
    folder: TempDir,
}

impl Audit {
    /// Writes the policy and an empty log.
    ///
    /// # Errors
    ///
    /// Fails if the files cannot be written.
    pub fn prepare() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let users: Vec<_> = ACCOUNTS.iter().map(|account| user(account)).collect();
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata", "users": users}, {"level": "None"}],
        });
        fs::write(folder.path().join("policy.yaml"), policy.to_string())?;
        let audit = Self { folder };
        // Two API servers append to it. The first to create it would overwrite what the other wrote.
        fs::write(audit.log(), "")?;
        Ok(audit)
    }

    /// The flags of kube-apiserver.
    pub fn flags(&self) -> Vec<String> {
        vec![
            format!("--audit-policy-file={}", self.folder.path().join("policy.yaml").display()),
            format!("--audit-log-path={}", self.log().display()),
            "--audit-log-mode=blocking".to_owned(),
        ]
    }

    /// The events so far. A watch has one when it starts and one when it ends.
    ///
    /// # Errors
    ///
    /// Fails if the log cannot be read.
    pub fn events(&self) -> anyhow::Result<impl Iterator<Item = Event> + use<>> {
        let lines = BufReader::new(File::open(self.log()).context("the audit log")?).lines();
        // The last line may be cut.
        Ok(lines
            .map_while(Result::ok)
            .filter_map(|line| Some(Event(serde_json::from_str(&line).ok()?))))
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("audit.log")
    }
}

/// An event of the log.
#[derive(Clone, Debug)]
pub struct Event(Value);

impl Event {
    /// The service account that made the request.
    pub fn account(&self) -> Option<&str> {
        self.text("/user/username")
            .strip_prefix("system:serviceaccount:")?
            .strip_prefix(NAMESPACE)?
            .strip_prefix(':')
    }

    /// The API group and the resource, and the subresource if any: `GROUP/RESOURCE/PART`.
    pub fn resource(&self) -> String {
        let whole =
            format!("{}/{}", self.text("/objectRef/apiGroup"), self.text("/objectRef/resource"));
        match self.text("/objectRef/subresource") {
            "" => whole,
            part => format!("{whole}/{part}"),
        }
    }

    /// The verb: `list`, `patch`.
    pub fn verb(&self) -> &str {
        self.text("/verb")
    }

    /// When kube-apiserver received the request, to the second: `2026-11-29T18:00:00`.
    pub fn second(&self) -> &str {
        self.text("/requestReceivedTimestamp").split('.').next().unwrap_or_default()
    }

    /// Whether this is the answer to the request, and not the beginning of a watch.
    pub fn is_complete(&self) -> bool {
        self.text("/stage") == "ResponseComplete"
    }

    /// Whether this is the beginning of a watch.
    pub fn is_start_of_watch(&self) -> bool {
        self.text("/stage") == "ResponseStarted" && self.verb() == "watch"
    }

    /// The decision of the authorizer, `allow` or `forbid`, and its reason.
    pub fn decision(&self) -> (&str, &str) {
        let annotations = self.0.get("annotations");
        let text =
            |name: &str| annotations.and_then(|all| all.get(name)?.as_str()).unwrap_or_default();
        (text("authorization.k8s.io/decision"), text("authorization.k8s.io/reason"))
    }

    fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

fn user(account: &str) -> String {
    format!("system:serviceaccount:{NAMESPACE}:{account}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_who_did_what_and_when() {
        let event = Event(json!({
            "stage": "ResponseComplete",
            "verb": "patch",
            "user": {"username": user("node-driver")},
            "objectRef": {"apiGroup": "resource.k8s.io", "resource": "resourceclaims", "subresource": "status"},
            "requestReceivedTimestamp": "2026-11-29T18:00:00.123456Z",
            "annotations": {
                "authorization.k8s.io/decision": "allow",
                "authorization.k8s.io/reason": "RBAC",
            },
        }));
        assert_eq!(event.account(), Some("node-driver"));
        assert_eq!(event.resource(), "resource.k8s.io/resourceclaims/status");
        assert_eq!((event.verb(), event.second()), ("patch", "2026-11-29T18:00:00"));
        assert_eq!(event.decision(), ("allow", "RBAC"));
        assert!(event.is_complete() && !event.is_start_of_watch());
    }
}
