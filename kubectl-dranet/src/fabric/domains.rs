//! `ComputeDomain`s that pods wait for, and why admission has not created them.

use crate::answer::MissingDomain;
use crate::kinds::COMPUTE_DOMAINS;
use crate::source::{ReadCluster, Source, missing_domains};
use crate::text::string;
use cluster_model::compute_domain::{group_of_template, name};
use cluster_model::names::EVENT_COMPUTE_DOMAIN;
use cluster_model::view::ObjectKey;
use serde_json::Value;
use std::collections::BTreeMap;

/// The reason where no event says one.
const NOT_YET: &str = "admission has not created it yet";

/// The `ComputeDomain`s that pods without a node need and that do not exist.
pub(super) fn missing(
    source: &Source,
    seen: &mut ReadCluster,
) -> anyhow::Result<Vec<MissingDomain>> {
    if seen.refused.contains(&COMPUTE_DOMAINS) {
        return Ok(Vec::new());
    }
    let mut found: BTreeMap<ObjectKey, MissingDomain> = BTreeMap::new();
    let pods = seen.of_kind("Pod").filter(|pod| pod["spec"]["nodeName"].is_null());
    for pod in pods {
        let Some(key) = needed(pod) else { continue };
        if seen.view.compute_domains().get(&key).is_some() {
            continue;
        }
        found
            .entry(key.clone())
            .or_insert_with(|| MissingDomain {
                name: key.to_string(),
                job: job(pod),
                pods: 0,
                why: NOT_YET.to_owned(),
            })
            .pods += 1;
    }
    if found.is_empty() {
        return Ok(Vec::new());
    }
    if matches!(source, Source::Live(_)) {
        let mut events = source.read(&[missing_domains()], &["Event"])?;
        seen.kept.append(&mut events.kept);
        seen.notes.append(&mut events.notes);
    }
    for (key, domain) in &mut found {
        if let Some(why) = reason(key, seen.of_kind("Event")) {
            domain.why = why;
        }
    }
    Ok(found.into_values().collect())
}

/// The `ComputeDomain` that a pod needs, by the name of its template.
fn needed(pod: &Value) -> Option<ObjectKey> {
    let claims = pod["spec"]["resourceClaims"].as_array()?;
    let mut templates =
        claims.iter().filter_map(|claim| claim["resourceClaimTemplateName"].as_str());
    let group = templates.find_map(group_of_template)?;
    let namespace = string(&pod["metadata"]["namespace"]);
    Some(ObjectKey { namespace, name: name(group) })
}

/// The controller of a pod, otherwise the pod.
fn job(pod: &Value) -> String {
    let metadata = &pod["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or_default();
    let owners = metadata["ownerReferences"].as_array();
    let controller = owners.into_iter().flatten().find(|owner| owner["controller"] == true);
    let (kind, name) = match controller {
        Some(owner) => (string(&owner["kind"]), string(&owner["name"])),
        None => ("Pod".to_owned(), string(&metadata["name"])),
    };
    format!("{kind} {namespace}/{name}")
}

/// The words of the last event about a `ComputeDomain`.
fn reason<'e>(key: &ObjectKey, events: impl Iterator<Item = &'e Value>) -> Option<String> {
    let start = format!("ComputeDomain {} ", key.name);
    let about = events.filter(|event| {
        event["reason"] == EVENT_COMPUTE_DOMAIN
            && event["metadata"]["namespace"] == key.namespace.as_str()
            && event["note"].as_str().is_some_and(|note| note.starts_with(&start))
    });
    let last = about.max_by_key(|event| string(&event["eventTime"]));
    Some(last?["note"].as_str()?.strip_prefix(&start)?.to_owned())
}
