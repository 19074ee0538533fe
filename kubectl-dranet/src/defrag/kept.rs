//! The devices of nodes that pods leave are kept from new pods by DeviceTaintRules, so that the pod that
//! takes the place of another does not return to its node.

use crate::kinds::TAINT_RULES;
use crate::live::{Cluster, Signals};
use crate::reply::{Missing, Verb};
use cluster_model::names::label;
use k8s_openapi::api::resource::v1::DeviceTaintRule;
use preemptor::defrag::Move;
use preemptor::kept::rule_of_pool;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The time until kube-scheduler has seen a rule.
const SETTLE: Duration = Duration::from_secs(2);

/// The rules that exist.
#[derive(Debug)]
pub(super) struct Kept {
    /// The node of the devices, and the name of each rule.
    rules: Vec<(String, String)>,
    /// Whether the API server has the kind; otherwise nothing is kept.
    is_served: bool,
}

impl Kept {
    /// Keeps nothing yet. Removes the rules of an earlier call that was killed.
    pub(super) fn new(cluster: &Cluster, signals: &mut Signals) -> anyhow::Result<Self> {
        let mut rules = Vec::new();
        let read = cluster.read(&TAINT_RULES.all(""), &mut |text| {
            let rule = serde_json::from_str::<DeviceTaintRule>(text.get());
            let metadata = rule.map(|rule| rule.metadata).unwrap_or_default();
            let has_mark =
                metadata.labels.is_some_and(|it| it.contains_key(label::DEFRAGMENTATION));
            rules.extend(metadata.name.filter(|_| has_mark).map(|name| (String::new(), name)));
        })?;
        let mut kept = Self { rules, is_served: read != Err(Missing::Kind) };
        kept.end(cluster, signals)?;
        Ok(kept)
    }

    /// Keeps the devices of the node that a pod is about to leave, also those that are free: its successor
    /// would take them. Those of the node where it goes are given free before: they are for it.
    pub(super) fn keep(
        &mut self,
        cluster: &Cluster,
        signals: &mut Signals,
        step: &Move,
    ) -> anyhow::Result<()> {
        if !self.is_served {
            return Ok(());
        }
        self.remove(cluster, signals, |node| node == step.to)?;
        let pools = step.devices.iter().map(|device| [&*device.driver, &*device.pool]);
        for pool in pools.collect::<BTreeSet<_>>() {
            let rule = rule_of_pool(label::DEFRAGMENTATION, &step.pod.uid, pool);
            let name = rule.metadata.name.clone().unwrap_or_default();
            let mut object = serde_json::to_value(&rule)?;
            object["apiVersion"] = json!(TAINT_RULES.version);
            object["kind"] = json!(TAINT_RULES.name);
            let created: Option<Value> =
                cluster.request_object(signals, TAINT_RULES, ("", &name), Verb::Create(&object))?;
            self.rules.extend(created.map(|_| (step.from.clone(), name)));
        }
        cluster.pause_or_end(signals, SETTLE)
    }

    /// Removes all rules.
    pub(super) fn end(&mut self, cluster: &Cluster, signals: &mut Signals) -> anyhow::Result<()> {
        self.remove(cluster, signals, |_| true)
    }

    /// Removes the rules for devices of these nodes.
    fn remove(
        &mut self,
        cluster: &Cluster,
        signals: &mut Signals,
        is_meant: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        for (_, name) in self.rules.extract_if(.., |(node, _)| is_meant(node)) {
            cluster.request_object(signals, TAINT_RULES, ("", &name), Verb::Delete)?;
        }
        Ok(())
    }
}
