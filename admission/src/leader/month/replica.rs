//! A replica of the program: what it sees, and what its leader does.

use super::api_server::{ApiServer, Change};
use crate::cluster;
use crate::leader::Leader;
use crate::leader::attempts::Attempts;
use crate::leader::recreate::{GRACE, Lost, RETRY_MAX};
use crate::plan::Policy;
use crate::server::metrics::Metrics;
use crate::server::templates::Templates;
use crate::waiting_pods::WaitingPods;
use cluster_model::retention::Retention;
use cluster_model::view::ObjectKey;
use cluster_model::watch::{SharedView, Sink};
use futures::FutureExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::jiff::SignedDuration;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::{Duration, Instant};
use topology_graph::NodeTopology;

pub(super) const NAMESPACE: &str = "dranet";
pub(super) const KEEP_UNUSED: Duration = Duration::from_hours(1);
pub(super) const RETENTION: Retention =
    Retention { forget_after: SignedDuration::from_hours(5 * 24), max: 12 };

/// A replica of the program.
pub(super) struct Replica {
    pub(super) view: SharedView,
    pub(super) waiting: WaitingPods,
    /// For requests and the creation of templates.
    pub(super) templates: Templates,
    pub(super) leader: Leader,
    pub(super) lost: Lost,
    pub(super) attempts: Attempts,
    /// How far its clock is ahead.
    pub(super) ahead: SignedDuration,
    /// How many changes it has seen.
    pub(super) seen: usize,
    /// Whether its watches are late in this step.
    pub(super) lags: bool,
    pub(super) registry: Registry,
}

impl Replica {
    pub(super) fn new(server: &ApiServer, ahead: SignedDuration) -> Self {
        let view = SharedView::from(cluster::cluster(&[]));
        let waiting = WaitingPods::default();
        let templates = Templates::new(server.client(), view.clone(), KEEP_UNUSED);
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let leader = Leader {
            templates: templates.clone(),
            waiting: waiting.clone(),
            policy: Policy::default(),
            namespace: NAMESPACE.to_owned(),
            names: Some(names()),
            keep_unused: KEEP_UNUSED,
            max_compute_domains: 0,
            retention: RETENTION,
            metrics,
        };
        let (lost, attempts) = (Lost::new(), Attempts::new(GRACE, RETRY_MAX));
        Self {
            view,
            waiting,
            templates,
            leader,
            lost,
            attempts,
            ahead,
            seen: 0,
            lags: false,
            registry,
        }
    }

    /// Takes a change as its watches do.
    pub(super) fn take(&mut self, change: &Change) {
        let Change { is_deleted, object } = change;
        match object["kind"].as_str().unwrap() {
            "Pod" => {
                // Its watch has pods without a node.
                let is_gone = *is_deleted || !object["spec"]["nodeName"].is_null();
                take::<Pod>(&mut self.waiting, is_gone, object);
            }
            "ResourceClaimTemplate" => {
                take::<ResourceClaimTemplate>(&mut self.view, *is_deleted, object);
            }
            "ResourceClaim" => take::<ResourceClaim>(&mut self.view, *is_deleted, object),
            "Node" => take::<Node>(&mut self.view, *is_deleted, object),
            "NodeTopology" => take::<NodeTopology>(&mut self.view, *is_deleted, object),
            "ResourceSlice" => take::<ResourceSlice>(&mut self.view, *is_deleted, object),
            "ConfigMap" => take::<ConfigMap>(&mut self.view, *is_deleted, object),
            _ => {}
        }
    }

    /// A round of the leader's tasks; `in_all` with those that look every hour, or when a replica begins
    /// to lead.
    pub(super) async fn lead(&mut self, in_all: bool) {
        let later = Instant::now() + GRACE;
        self.leader.recreate_missing(&mut self.lost, &mut self.attempts, later).await;
        self.leader.carry_out_due().await;
        if in_all {
            self.leader.keep_certificates_once(&names()).await.unwrap();
            self.leader.remember_once().await.unwrap();
        }
    }

    /// Creates the templates of pods that have arrived.
    pub(super) async fn create(&self) {
        let Some(arrived) = self.waiting.arrived().now_or_never() else { return };
        for key in arrived {
            self.templates.provide(&key).await.unwrap();
        }
    }

    /// The size of what it remembers, but for the view, in characters.
    pub(super) fn size(&self) -> usize {
        let mut metrics = String::new();
        encode(&mut metrics, &self.registry).unwrap();
        format!("{:?}{:?}{:?}", self.waiting, self.lost, self.attempts).len() + metrics.len()
    }
}

fn take<K: DeserializeOwned>(sink: &mut impl Sink<K>, is_deleted: bool, object: &Value) {
    if is_deleted {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        sink.delete(&ObjectKey { namespace: text("namespace"), name: text("name") });
    } else {
        sink.apply(serde_json::from_value(object.clone()).unwrap());
    }
}

pub(super) fn names() -> Vec<String> {
    vec!["admission.dranet.svc".to_owned()]
}
