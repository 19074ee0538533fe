//! The project's own parts in the cluster.

use super::certificate;
use super::finding::Findings;
use super::scene::{Scene, words};
use crate::answer::Severity;
use crate::kinds::{DEFINITIONS, GRAPHS, INSTALLATION};
use crate::source::ReadCluster;
use crate::text::number;
use cluster_model::names::object;
use jiff::Timestamp;
use serde_json::Value;

/// The extender's DaemonSet (`deploy/chart`).
const EXTENDER: &str = "scheduler-ext";

/// Certificates that expire within this many days are reported.
const EXPIRES_DAYS: i64 = 14;

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn workloads(seen: &ReadCluster) -> impl Iterator<Item = &Value> {
    seen.of_kind("Deployment").chain(seen.of_kind("DaemonSet"))
}

fn has(seen: &ReadCluster, part: &str) -> bool {
    workloads(seen).any(|object| {
        name(object) == part || object["metadata"]["labels"]["app.kubernetes.io/name"] == part
    })
}

fn is_ours(object: &Value) -> bool {
    object["metadata"]["labels"]["app.kubernetes.io/part-of"] == "dranet"
}

/// Returns true if the user may read all objects of which the installation consists.
pub(super) fn is_readable(seen: &ReadCluster) -> bool {
    !INSTALLATION.iter().any(|kind| seen.refused.contains(kind))
}

/// Returns true if a part of the project is there, or may be without the user being able to read it.
pub(super) fn is_there(seen: &ReadCluster) -> bool {
    let mut webhooks = seen.of_kind("MutatingWebhookConfiguration");
    !is_readable(seen)
        || workloads(seen).any(is_ours)
        || webhooks.any(|webhook| name(webhook) == object::WEBHOOK)
}

/// Whether the project is installed; `None` if that is not known, as of a file with a part of a
/// cluster's objects.
pub(super) fn is_installed(seen: &ReadCluster) -> Option<bool> {
    let is_whole = seen.server.is_some() && is_readable(seen);
    let is_there = is_readable(seen) && is_there(seen);
    (is_whole || is_there).then_some(is_there)
}

/// Returns true if scheduler-ext is there, beside kube-scheduler or with a scheduler of its own.
pub(super) fn has_extender(seen: &ReadCluster) -> bool {
    has(seen, EXTENDER) || has(seen, "dranet-scheduler")
}

/// Servers without all of their replicas.
pub(super) fn deployments(scene: &Scene<'_>, found: &mut Findings) {
    for object in scene.seen.of_kind("Deployment").filter(|it| is_ours(it)) {
        let wanted = object["spec"]["replicas"].as_u64().unwrap_or(1);
        let ready = number(&object["status"]["readyReplicas"]);
        if ready < wanted {
            let message = format!(
                "has {ready} of {wanted} replicas ready; `kubectl -n {} describe deployment {}` shows \
                 why",
                object["metadata"]["namespace"].as_str().unwrap_or_default(),
                name(object)
            );
            let severity = if ready == 0 { Severity::Error } else { Severity::Warning };
            found.add(severity, format!("Deployment {}", name(object)), message);
        }
    }
}

/// Parts that are not ready, or not up to date, on all of their nodes.
pub(super) fn daemon_sets(scene: &Scene<'_>, found: &mut Findings) {
    for object in scene.seen.of_kind("DaemonSet").filter(|it| is_ours(it)) {
        let [wanted, ready, updated] =
            ["desiredNumberScheduled", "numberReady", "updatedNumberScheduled"]
                .map(|field| number(&object["status"][field]));
        let place = format!("DaemonSet {}", name(object));
        if ready < wanted {
            let without = if name(object) == EXTENDER {
                "on the others, kube-scheduler ranks nodes without it"
            } else {
                "the others publish no NICs and start no pods with NICs"
            };
            let message = format!(
                "is ready on {ready} of {wanted} nodes; {without}; check the logs of the pods that are \
                 not ready"
            );
            found.warning(place, message);
        } else if updated < wanted {
            let message =
                format!("is being updated: {updated} of {wanted} nodes have the new version");
            found.note(place, message);
        }
    }
}

/// Whether scheduler-ext is installed, and whether schedulers can call it: only a configuration file
/// names extenders (`KubeSchedulerConfiguration`).
pub(super) fn extender(scene: &Scene<'_>, found: &mut Findings) {
    let seen = scene.seen;
    if has(seen, EXTENDER) {
        for (name, pod) in scene.of_control_plane("kube-scheduler") {
            if !words(pod).any(|it| it == "--config" || it.starts_with("--config=")) {
                let message = "has no --config, so it calls no extender and scheduler-ext has no \
                               effect; the guide on the scheduler shows how to register it";
                found.warning(format!("kube-scheduler {name}"), message);
            }
        }
    } else if workloads(seen).next().is_some() && !has_extender(seen) {
        let message = "is not installed: pods are aligned without it, but placed less well; see the \
                       guide on the scheduler";
        found.note(EXTENDER, message);
    }
}

/// The CRD of graphs.
pub(super) fn definition(scene: &Scene<'_>, found: &mut Findings) {
    let seen = scene.seen;
    let Some((group, version)) = GRAPHS.version.split_once('/') else { return };
    let mut definitions = seen.of_kind("CustomResourceDefinition");
    if let Some(crd) = definitions.find(|object| name(object).starts_with(GRAPHS.plural)) {
        let mut versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        if !versions.any(|it| it["name"] == version && it["served"] == true) {
            let message =
                format!("does not serve {version}; apply deploy/manifests/crd-nodetopologies.yaml");
            found.error(format!("CRD {}", name(crd)), message);
        }
        return;
    }
    // Without the right to read it, a note says so.
    let is_unread = seen.notes.iter().any(|note| note.contains(DEFINITIONS.plural));
    if workloads(seen).next().is_some() && !is_unread {
        let message = "does not exist, so no node has a graph; apply \
                       deploy/manifests/crd-nodetopologies.yaml";
        found.error(format!("CRD {}.{group}", GRAPHS.plural), message);
    }
}

/// The webhook's configuration, its certificate and its endpoints.
pub(super) fn webhook(scene: &Scene<'_>, found: &mut Findings) {
    let mut webhooks = scene.seen.of_kind("MutatingWebhookConfiguration");
    let Some(webhook) = webhooks.find(|object| name(object) == object::WEBHOOK) else { return };
    let place = format!("webhook {}", object::WEBHOOK);
    let Some(config) = webhook["webhooks"].get(0).map(|webhook| &webhook["clientConfig"]) else {
        let message = "calls no service, so annotated pods get no devices; apply \
                       deploy/manifests/webhook.yaml";
        return found.error(place, message);
    };
    match config["caBundle"].as_str().filter(|bundle| !bundle.is_empty()) {
        None => {
            let message = "has no caBundle, so the API server trusts no certificate and no annotated \
                           pod can be created; check whether admission-authority, or cert-manager, runs and may patch it";
            found.error(place, message);
        }
        Some(bundle) => authority(place, bundle, found),
    }
    if let Some(service) = config["service"]["name"].as_str() {
        endpoints(scene.seen, service, found);
    }
}

fn authority(place: String, bundle: &str, found: &mut Findings) {
    let ends = match certificate::last_end(bundle) {
        Ok(Some(ends)) => ends,
        Ok(None) => return,
        Err(why) => return found.error(place, format!("has an invalid caBundle ({why})")),
    };
    let now = Timestamp::now();
    let days = (ends.as_second() - now.as_second()) / (24 * 3600);
    let (severity, when) = if ends < now {
        (Severity::Error, format!("expired at {ends}"))
    } else if days < EXPIRES_DAYS {
        (Severity::Warning, format!("expire at {ends}, in {days} days"))
    } else {
        return;
    };
    let message = format!(
        "trusts only certificates that {when}; check the log of admission's leader about its \
         certificate"
    );
    found.add(severity, place, message);
}

/// Replicas behind the webhook's service.
fn endpoints(seen: &ReadCluster, service: &str, found: &mut Findings) {
    let mut slices = seen
        .of_kind("EndpointSlice")
        .filter(|it| it["metadata"]["labels"]["kubernetes.io/service-name"] == service)
        .peekable();
    if slices.peek().is_none() {
        return;
    }
    let endpoints = slices.filter_map(|slice| slice["endpoints"].as_array()).flatten();
    let place = format!("service {service}");
    // Absent means ready (`discovery/v1`, `EndpointConditions`).
    match endpoints.filter(|it| it["conditions"]["ready"] != false).count() {
        0 => found.error(
            place,
            "has no ready replica, so no annotated pod can be created; other pods are not affected",
        ),
        1 => found.note(
            place,
            "has one ready replica; while it restarts, no annotated pod can be created",
        ),
        _ => {}
    }
}
