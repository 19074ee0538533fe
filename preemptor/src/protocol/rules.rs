//! The DeviceTaintRules of a preemption.

use super::record::{Begun, Record, devices};
use crate::Preemption;
use crate::kept::rule;
use cluster_model::names::label;
use dra_allocator::DeviceId;
use k8s_openapi::api::resource::v1::DeviceTaintRule;
use std::collections::BTreeMap;

/// The annotation of the head, with the [`Record`].
pub(crate) const RECORD: &str = "dranet.io/preemption";
/// The most bytes that the annotations of an object may have (`TotalAnnotationSizeLimitB` in
/// `apimachinery/pkg/api/validation`).
const RECORD_MAX: usize = 256 * 1024 - 64;

/// Why a decision cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoRules {
    /// It places no pod, or needs no devices.
    #[error("it has no pods, or these need no devices")]
    Empty,
    /// Its pods are too many for one object.
    #[error("it has {pods} pods, whose names do not fit into one object of Kubernetes")]
    TooLarge {
        /// How many pods get devices or leave.
        pods: usize,
    },
}

/// The rules of all preemptions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadRules {
    /// The preemptions that have begun.
    pub(crate) begun: Vec<Begun>,
    /// Rules without a head that can be read: of a preemption that has not begun.
    pub(crate) stray: Vec<String>,
}

/// The rules that begin a preemption, in the order in which they are created.
///
/// # Errors
/// The decision is empty, or too large.
pub(crate) fn rules_of(decided: &Preemption) -> Result<Vec<DeviceTaintRule>, NoRules> {
    let first = decided.placements.first().ok_or(NoRules::Empty)?;
    let record = Record::new(decided);
    let text = serde_json::to_string(&record).unwrap_or_default();
    if text.len() > RECORD_MAX {
        return Err(NoRules::TooLarge { pods: record.pods.len() + record.victims.len() });
    }
    let id = &first.pod.uid;
    let mut rules: Vec<_> =
        devices(decided).iter().map(|device| rule(label::PREEMPTION, id, device)).collect();
    let head = rules.last_mut().ok_or(NoRules::Empty)?;
    head.metadata.annotations = Some(BTreeMap::from([(RECORD.to_owned(), text)]));
    Ok(rules)
}

/// Reads all rules with the label.
pub(crate) fn read(rules: &[DeviceTaintRule]) -> ReadRules {
    let mut by_id: BTreeMap<&str, Vec<&DeviceTaintRule>> = BTreeMap::new();
    for rule in rules {
        let labels = rule.metadata.labels.as_ref();
        if let Some(id) = labels.and_then(|labels| labels.get(label::PREEMPTION)) {
            by_id.entry(id).or_default().push(rule);
        }
    }
    let mut read = ReadRules::default();
    for (id, rules) in by_id {
        match begun(id, &rules) {
            Some(begun) => read.begun.push(begun),
            None => read.stray.extend(rules.into_iter().filter_map(|it| it.metadata.name.clone())),
        }
    }
    read
}

fn begun(id: &str, rules: &[&DeviceTaintRule]) -> Option<Begun> {
    let (head, record) = rules.iter().find_map(|rule| {
        let text = rule.metadata.annotations.as_ref()?.get(RECORD)?;
        Some((rule, serde_json::from_str::<Record>(text).ok()?))
    })?;
    let named = rules.iter().filter_map(|rule| Some((rule.metadata.name.clone()?, device(rule)?)));
    Some(Begun {
        id: id.to_owned(),
        since: head.metadata.creation_timestamp.as_ref()?.0,
        head: head.metadata.name.clone()?,
        record,
        rules: named.collect(),
    })
}

/// The device that a rule keeps.
fn device(rule: &DeviceTaintRule) -> Option<DeviceId> {
    let selector = rule.spec.device_selector.as_ref()?;
    Some(DeviceId {
        driver: selector.driver.as_deref()?.into(),
        pool: selector.pool.as_deref()?.into(),
        device: selector.device.as_deref()?.into(),
    })
}
