//! `doctor`: what is wrong in the cluster, and what to do.

mod certificate;
mod cluster;
mod devices;
mod extender;
mod finding;
pub(crate) mod gpu_direct;
mod installation;
mod kubelet;
mod machines;
pub(crate) mod modules;
mod rdma;
mod rights;
mod server;

use crate::Output;
use crate::args::{DoctorArgs, Form};
use crate::kinds::{PODS, QUOTAS};
use crate::live::Cluster;
use crate::reply::{Probe, Proxied};
use crate::settings;
use crate::snapshot::of_installation;
use crate::source::{self, Seen, Source};
use crate::text::{self, counted, table};
use admission::lint::Severity;
use cluster::{Report, examine};
use cluster_model::names::{annotation, object};
use finding::ClusterFinding;
use jiff::Timestamp;
use machines::MachineType;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Kinds that findings are made from in addition to the view.
const KINDS: &[&str] = &[
    "CustomResourceDefinition",
    "DaemonSet",
    "Deployment",
    "EndpointSlice",
    "MutatingWebhookConfiguration",
    "Node",
    "Pod",
];

/// The namespace of the control plane's pods.
const CONTROL_PLANE: &str = "kube-system";

const RIGHTS_UNKNOWN: &str = "you may not create subjectaccessreviews.authorization.k8s.io, so the \
                              rights of the project's service accounts are not checked";

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Output> {
    let source = Source::open(&args.source)?;
    let mut queries = source::of_view();
    queries.push(QUOTAS.all("quotas are not checked"));
    queries.push(PODS.of(Some(CONTROL_PLANE), "the flags of the control plane are not checked"));
    queries.extend(of_installation(&args.admission_namespace));
    if args.admission_namespace != CONTROL_PLANE {
        let own = Some(args.admission_namespace.as_str());
        queries.push(PODS.of(own, "it is not checked whether scheduler-ext answers"));
    }
    let mut seen = source.read(&queries, KINDS)?;
    if let Source::Live(cluster) = &source {
        seen.gates = cluster.feature_gates();
    }
    let mut policy = settings::of_cluster(&seen.kept);
    policy.nic_class = args.nic_class.clone().unwrap_or(policy.nic_class);
    let mut report = examine(&seen.view, &policy.nic_class);
    let (machines, of_machines) = machines::examine(&seen.view, &policy)?;
    report.findings.extend(of_machines);
    report.findings.extend(server::examine(&seen));
    report.findings.extend(devices::examine(&seen));
    report.findings.extend(gpu_direct::examine(&seen.view));
    report.findings.extend(modules::examine(&seen.view));
    report.findings.extend(rdma::examine(&seen.view));
    report.findings.extend(installation::examine(&seen, Timestamp::now()));
    if let Source::Live(cluster) = &source {
        report.findings.extend(called(cluster)?);
        report.findings.extend(asked_extenders(cluster, &mut seen));
        for (review, finding) in rights::questions(&seen) {
            match cluster.is_allowed(&review)? {
                Some(true) => {}
                Some(false) => report.findings.push(finding),
                None => {
                    seen.notes.push(RIGHTS_UNKNOWN.to_owned());
                    break;
                }
            }
        }
        for node in kubelet::asked(&seen.view) {
            let (config, note) = cluster.kubelet_config(&node);
            report.findings.extend(config.and_then(|it| kubelet::examine(&seen.view, &node, &it)));
            seen.notes.extend(note.filter(|note| !seen.notes.contains(note)));
        }
    }
    report.findings.sort_by_key(|finding| Reverse(finding.severity));
    let counts = |finding: &ClusterFinding| finding.severity >= args.fail_on.into();
    let denied = report.findings.iter().any(counts);
    let text = match args.output {
        Form::Text => person(&report, &machines, &seen)?,
        Form::Json => text::document(&program(&report, &machines, &seen), false)?,
        Form::Yaml => text::document(&program(&report, &machines, &seen), true)?,
    };
    Ok(Output { text, denied, notes: seen.notes })
}

/// Checks with a dry run that the API server calls the webhook, which denies this pod.
fn called(cluster: &Cluster) -> anyhow::Result<Option<ClusterFinding>> {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "dranet-doctor-",
            "annotations": { annotation::ALIGNED_NICS: "asked-by-doctor" },
        },
        "spec": { "containers": [{ "name": "main", "image": "main" }] },
    });
    let place = format!("webhook {}", object::WEBHOOK);
    Ok(match cluster.dry_run_pod(&pod)? {
        Probe::Refused(why) if why.contains(annotation::ALIGNED_NICS) => None,
        Probe::Created => {
            let message = "is not called, so annotated pods are created without devices; apply \
                           deploy/manifests/webhook.yaml";
            Some(ClusterFinding::new(Severity::Error, place, message))
        }
        Probe::Refused(why) => {
            let message = format!("failed for a test pod (dry run): {why}");
            Some(ClusterFinding::new(Severity::Error, place, message))
        }
        Probe::NoRight => {
            let message = "was not tested: you may not create pods in your namespace";
            Some(ClusterFinding::new(Severity::Note, place, message))
        }
    })
}

/// Asks each extender about its requests, and judges the answers.
fn asked_extenders(cluster: &Cluster, seen: &mut Seen) -> Vec<ClusterFinding> {
    let extenders = extender::of(seen);
    let mut findings = extender::unreachable(&extenders);
    let mut answers = Vec::new();
    for pod in extenders {
        let Some(path) = pod.metrics_path() else { continue };
        match cluster.proxied(&path) {
            Proxied::Text(text) => answers.push((pod.name, Ok(extender::Requests::of(&text)))),
            Proxied::Failed(why) => answers.push((pod.name, Err(why))),
            Proxied::NoRight => {
                let namespace = pod.namespace;
                seen.notes.push(format!(
                    "you may not get pods/proxy in namespace `{namespace}`, so it is not \
                     checked whether scheduler-ext answers"
                ));
                break;
            }
        }
    }
    findings.extend(extender::judge(&answers));
    findings
}

fn person(report: &Report, machines: &[MachineType], seen: &Seen) -> anyhow::Result<String> {
    let Report { nodes, with_gpus, with_nics, with_graph, findings } = report;
    let mut out = String::new();
    if let Some(server) = &seen.server {
        writeln!(out, "API server: {server}")?;
    }
    writeln!(
        out,
        "nodes: {nodes}, with GPUs of a DRA driver: {with_gpus}, with NICs: {with_nics}, with a \
         graph: {with_graph}"
    )?;
    let modes = rdma::modes(&seen.view);
    if !modes.is_empty() {
        let mode = |(mode, nodes): (&&str, &BTreeSet<_>)| {
            format!("{mode} on {}", counted(nodes.len(), "node"))
        };
        let modes: Vec<_> = modes.iter().map(mode).collect();
        writeln!(out, "RDMA namespace mode: {}", modes.join(", "))?;
    }
    if !machines.is_empty() {
        let row = |it: &MachineType| {
            let join = it.join.as_deref().unwrap_or("none");
            let numbers = [it.nodes, it.gpus, it.nics].map(|number| number.to_string());
            [vec![it.name.clone()], numbers.to_vec(), vec![join.to_owned()]].concat()
        };
        let rows: Vec<_> = machines.iter().map(row).collect();
        write!(out, "\n{}\n", table(&["MACHINE", "NODES", "GPUS", "NICS", "JOIN"], &rows))?;
    }
    if findings.is_empty() {
        writeln!(out, "no findings")?;
    }
    for ClusterFinding { severity, place, message } in findings {
        writeln!(out, "{severity}: {place} {message}")?;
    }
    Ok(out)
}

fn program(report: &Report, machines: &[MachineType], seen: &Seen) -> Value {
    let finding = |ClusterFinding { severity, place, message }: &ClusterFinding| json!({"severity": severity.to_string(), "place": place, "message": message});
    let machine = |it: &MachineType| {
        json!({
            "name": it.name,
            "nodes": it.nodes,
            "gpus": it.gpus,
            "nics": it.nics,
            "join": it.join.as_ref().ok(),
            "denied": it.join.as_ref().err(),
        })
    };
    let modes = rdma::modes(&seen.view);
    let modes = modes.iter().map(|(mode, nodes)| ((*mode).to_owned(), json!(nodes.len())));
    json!({
        "server": seen.server,
        "nodes": report.nodes,
        "withGpus": report.with_gpus,
        "withNics": report.with_nics,
        "withGraph": report.with_graph,
        "machines": machines.iter().map(machine).collect::<Vec<_>>(),
        "rdmaNamespaceModes": modes.collect::<Map<_, _>>(),
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}
