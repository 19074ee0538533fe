//! `KubeSchedulerConfiguration`, v1: what `kube-scheduler --config` reads.

use std::path::Path;

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

/// What of the scheduler's configuration tests choose.
#[derive(Clone, Debug, Default)]
pub struct SchedulerConfig {
    /// The HTTP extenders, in the order of the file.
    pub extenders: Vec<Extender>,
    /// More top-level fields, `{"percentageOfNodesToScore": 100}`; they win.
    pub more: Map<String, Value>,
}

/// An extender that prioritizes.
#[derive(Clone, Debug)]
pub struct Extender {
    /// The URL before the verb.
    pub url_prefix: String,
    /// The verb of prioritize, `prioritize`.
    pub prioritize_verb: String,
    /// The certificate authority of its server, as PEM; empty for plain HTTP.
    pub ca_pem: String,
    /// What its scores, 0 to 10, are multiplied with.
    pub weight: i64,
    /// How long the scheduler waits for it, `2s`.
    pub http_timeout: String,
    /// Whether pods schedule where it does not answer.
    pub ignorable: bool,
    /// Whether it is sent names of nodes rather than nodes.
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
    /// An extender as this project's manifests register it: `prioritize`, weight
    /// 18, names of nodes only, and pods schedule without it.
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
