//! `KubeSchedulerConfiguration`, v1: the file of `kube-scheduler --config`.

use std::path::Path;

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

/// The parts of the scheduler's configuration that tests choose.
#[derive(Clone, Debug, Default)]
pub struct SchedulerConfig {
    /// The HTTP extenders, in the order of the file.
    pub extenders: Vec<Extender>,
    /// Additional top-level fields, such as `{"percentageOfNodesToScore": 100}`; they take
    /// precedence.
    pub more: Map<String, Value>,
}

/// An extender with the verb prioritize.
#[derive(Clone, Debug)]
pub struct Extender {
    /// The URL before the verb.
    pub url_prefix: String,
    /// The verb of prioritize, `prioritize`.
    pub prioritize_verb: String,
    /// The certificate authority of its server, as PEM; empty for plain HTTP.
    pub ca_pem: String,
    /// The factor for its scores, which are 0 to 10.
    pub weight: i64,
    /// The scheduler's timeout for it, `2s`.
    pub http_timeout: String,
    /// True if pods are scheduled although it does not respond.
    pub ignorable: bool,
    /// True if it gets names of nodes instead of nodes.
    pub node_cache_capable: bool,
}

impl SchedulerConfig {
    /// A configuration with these extenders.
    pub fn with_extenders(extenders: Vec<Extender>) -> Self {
        Self { extenders, ..Self::default() }
    }

    /// The file's text. JSON is YAML.
    pub(super) fn render(&self, kubeconfig: &Path) -> Value {
        let mut config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": false},
            "clientConnection": {"kubeconfig": kubeconfig, "qps": 1000, "burst": 2000},
            "extenders": self.extenders.iter().map(Extender::render).collect::<Vec<_>>(),
        });
        for (field, value) in &self.more {
            config[field] = value.clone();
        }
        config
    }
}

impl Extender {
    /// An extender as this project's manifests register it: `prioritize`, weight 18, names of nodes
    /// only, and pods are scheduled without it.
    pub fn new(url_prefix: &str, ca_pem: &str) -> Self {
        Self {
            url_prefix: url_prefix.to_owned(),
            prioritize_verb: "prioritize".into(),
            ca_pem: ca_pem.to_owned(),
            weight: 18,
            http_timeout: "2s".into(),
            ignorable: true,
            node_cache_capable: true,
        }
    }

    fn render(&self) -> Value {
        let mut extender = json!({
            "urlPrefix": self.url_prefix,
            "prioritizeVerb": self.prioritize_verb,
            "weight": self.weight,
            "httpTimeout": self.http_timeout,
            "ignorable": self.ignorable,
            "nodeCacheCapable": self.node_cache_capable,
        });
        if !self.ca_pem.is_empty() {
            extender["enableHTTPS"] = true.into();
            extender["tlsConfig"] = json!({"caData": ByteString(self.ca_pem.clone().into_bytes())});
        }
        extender
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extender_as_the_scheduler_reads_it() {
        let extender = Extender::new("https://127.0.0.1:20000", "PEM");
        let mut config = SchedulerConfig::with_extenders(vec![extender]);
        config.more.insert("percentageOfNodesToScore".into(), json!(100));
        insta::assert_json_snapshot!(config.render(Path::new("/state/kubeconfig")));
    }
}
