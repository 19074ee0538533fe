//! The project's own parts in the cluster.

use super::certificate;
use crate::answer::{DoctorFinding, Severity};
use crate::kinds::{DEFINITIONS, GRAPHS};
use crate::source::Seen;
use cluster_model::names::object;
use jiff::Timestamp;
use serde_json::Value;

/// The extender's DaemonSet (`deploy/chart`).
const EXTENDER: &str = "scheduler-ext";

/// Certificates that expire within this many days are reported.
const EXPIRES_DAYS: i64 = 14;

/// Findings from the objects that were read.
pub(super) fn examine(seen: &Seen, now: Timestamp) -> Vec<DoctorFinding> {
    let is_read = |kind: &str| seen.of_kind(kind).next().is_some();
    let mut findings = Vec::new();
    findings.extend(seen.of_kind("Deployment").filter_map(deployment));
    findings.extend(seen.of_kind("DaemonSet").flat_map(daemon_set));
    findings.extend(webhook(seen, now));
    let has_servers = is_read("Deployment") || is_read("DaemonSet");
    findings.extend(definition(seen, has_servers));
    findings.extend(has(seen, EXTENDER).then(|| unregistered(seen)).into_iter().flatten());
    if has_servers && !has(seen, EXTENDER) && !has(seen, "dranet-scheduler") {
        let message = "is not installed: pods are aligned without it, but placed less well; see the \
                       guide on the scheduler";
        findings.push(DoctorFinding::new(Severity::Note, "scheduler-ext", message));
    }
    findings
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn has(seen: &Seen, part: &str) -> bool {
    let mut workloads = seen.of_kind("Deployment").chain(seen.of_kind("DaemonSet"));
    workloads.any(|object| {
        name(object) == part || object["metadata"]["labels"]["app.kubernetes.io/name"] == part
    })
}

fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"]["app.kubernetes.io/part-of"] == "dranet"
}

fn deployment(object: &Value) -> Option<DoctorFinding> {
    let wanted = object["spec"]["replicas"].as_u64().unwrap_or(1);
    let ready = number(&object["status"]["readyReplicas"]);
    let severity = match ready {
        0 => Severity::Error,
        _ => Severity::Warning,
    };
    (is_ours(object) && ready < wanted).then(|| {
        let message = format!(
            "has {ready} of {wanted} replicas ready; `kubectl -n {} describe deployment {}` shows why",
            object["metadata"]["namespace"].as_str().unwrap_or_default(),
            name(object)
        );
        DoctorFinding::new(severity, format!("Deployment {}", name(object)), message)
    })
}

fn daemon_set(object: &Value) -> Vec<DoctorFinding> {
    let status = &object["status"];
    let wanted = number(&status["desiredNumberScheduled"]);
    let (ready, updated) =
        (number(&status["numberReady"]), number(&status["updatedNumberScheduled"]));
    let place = format!("DaemonSet {}", name(object));
    let mut findings = Vec::new();
    if is_ours(object) && ready < wanted {
        let without = if name(object) == EXTENDER {
            "on the others, kube-scheduler ranks nodes without it"
        } else {
            "the others publish no NICs and start no pods with NICs"
        };
        let message = format!(
            "is ready on {ready} of {wanted} nodes; {without}; check the logs of the pods that are not \
             ready"
        );
        findings.push(DoctorFinding::new(Severity::Warning, place, message));
    } else if is_ours(object) && updated < wanted {
        let message = format!("is being updated: {updated} of {wanted} nodes have the new version");
        findings.push(DoctorFinding::new(Severity::Note, place, message));
    }
    findings
}

/// Schedulers that cannot call the extender: only a configuration file names extenders
/// (`KubeSchedulerConfiguration`).
fn unregistered(seen: &Seen) -> Vec<DoctorFinding> {
    let schedulers = seen.of_kind("Pod").filter(|pod| {
        let metadata = &pod["metadata"];
        metadata["namespace"] == "kube-system"
            && metadata["labels"]["component"] == "kube-scheduler"
    });
    schedulers.filter(|pod| !has_config(pod)).map(|pod| {
        let message = "has no --config, so it calls no extender and scheduler-ext has no effect; the \
                       guide on the scheduler shows how to register it";
        DoctorFinding::new(Severity::Warning, format!("kube-scheduler {}", name(pod)), message)
    }).collect()
}

/// Whether a scheduler's pod names a configuration file.
fn has_config(pod: &Value) -> bool {
    let container = &pod["spec"]["containers"][0];
    let words = ["command", "args"].iter().filter_map(|field| container[*field].as_array());
    let mut words = words.flatten().filter_map(Value::as_str);
    words.any(|word| word == "--config" || word.starts_with("--config="))
}

fn definition(seen: &Seen, has_servers: bool) -> Option<DoctorFinding> {
    let (_, version) = GRAPHS.version.split_once('/')?;
    let Some(found) = seen
        .of_kind("CustomResourceDefinition")
        .find(|object| name(object).starts_with(GRAPHS.plural))
    else {
        // Without the right to read it, a note says so.
        let is_unread = seen.notes.iter().any(|note| note.contains(DEFINITIONS.plural));
        return (has_servers && !is_unread).then(|| {
            let message = "does not exist, so no node has a graph; apply \
                           deploy/manifests/crd-nodetopologies.yaml";
            let place = format!("CRD {}.topology.dranet.io", GRAPHS.plural);
            DoctorFinding::new(Severity::Error, place, message)
        });
    };
    let versions = found["spec"]["versions"].as_array();
    (!versions
        .is_some_and(|all| all.iter().any(|it| it["name"] == version && it["served"] == true)))
    .then(|| {
        let message =
            format!("does not serve {version}; apply deploy/manifests/crd-nodetopologies.yaml");
        DoctorFinding::new(Severity::Error, format!("CRD {}", name(found)), message)
    })
}

/// The webhook's configuration, its certificate and its endpoints.
fn webhook(seen: &Seen, now: Timestamp) -> Vec<DoctorFinding> {
    let Some(found) =
        seen.of_kind("MutatingWebhookConfiguration").find(|object| name(object) == object::WEBHOOK)
    else {
        return Vec::new();
    };
    let place = || format!("webhook {}", object::WEBHOOK);
    let mut findings = Vec::new();
    let Some(config) = found["webhooks"].get(0).map(|webhook| &webhook["clientConfig"]) else {
        let message = "calls no service, so annotated pods get no devices; apply \
                       deploy/manifests/webhook.yaml";
        return vec![DoctorFinding::new(Severity::Error, place(), message)];
    };
    match config["caBundle"].as_str().filter(|bundle| !bundle.is_empty()) {
        None => {
            let message = "has no caBundle, so the API server trusts no certificate and no annotated \
                           pod can be created; check whether admission runs and may patch it";
            findings.push(DoctorFinding::new(Severity::Error, place(), message));
        }
        Some(bundle) => findings.extend(authority(bundle, now)),
    }
    let service = config["service"]["name"].as_str();
    findings.extend(service.and_then(|service| endpoints(seen, service)));
    findings
}

fn authority(bundle: &str, now: Timestamp) -> Option<DoctorFinding> {
    let place = format!("webhook {}", object::WEBHOOK);
    let ends = match certificate::last_end(bundle) {
        Ok(Some(ends)) => ends,
        Ok(None) => return None,
        Err(why) => {
            let message = format!("has an invalid caBundle ({why})");
            return Some(DoctorFinding::new(Severity::Error, place, message));
        }
    };
    let days = (ends.as_second() - now.as_second()) / (24 * 3600);
    let how = if ends < now {
        (Severity::Error, format!("trusts only certificates that expired at {ends}"))
    } else if days < EXPIRES_DAYS {
        (
            Severity::Warning,
            format!("trusts only certificates that expire at {ends}, in {days} days"),
        )
    } else {
        return None;
    };
    let message = format!("{}; check the log of admission's leader about its certificate", how.1);
    Some(DoctorFinding::new(how.0, place, message))
}

/// Replicas behind the webhook's service.
fn endpoints(seen: &Seen, service: &str) -> Option<DoctorFinding> {
    let slices: Vec<_> = seen
        .of_kind("EndpointSlice")
        .filter(|it| it["metadata"]["labels"]["kubernetes.io/service-name"] == service)
        .collect();
    if slices.is_empty() {
        return None;
    }
    let endpoints = slices.iter().filter_map(|slice| slice["endpoints"].as_array()).flatten();
    // Absent means ready (`discovery/v1`, `EndpointConditions`).
    let ready = endpoints.filter(|it| it["conditions"]["ready"] != false).count();
    let (severity, message) = match ready {
        0 => (
            Severity::Error,
            "has no ready replica, so no annotated pod can be created; other pods are not affected",
        ),
        1 => (
            Severity::Note,
            "has one ready replica; while it restarts, no annotated pod can be created",
        ),
        _ => return None,
    };
    Some(DoctorFinding::new(severity, format!("service {service}"), message))
}
