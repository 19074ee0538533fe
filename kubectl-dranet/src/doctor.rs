//! `doctor`: what is wrong in the cluster, and what to do. The checks are in `doctor/table.rs`.

mod annotations;
mod census;
mod certificate;
mod checks;
mod cluster;
mod devices;
mod drivers;
mod extender;
mod fabrics;
mod finding;
mod former_plugins;
pub(crate) mod gpu_direct;
mod installation;
mod kubelet;
mod machines;
pub(crate) mod modules;
mod nodes;
mod person;
mod rdma;
mod rights;
mod scene;
mod selectors;
mod server;
mod table;
mod trial;
mod waiting;
mod webhook;

use crate::Output;
use crate::answer::Doctor;
use crate::args::DoctorArgs;
use crate::kinds::{LIMIT_RANGES, PODS, QUOTAS, Query};
use crate::nodes::NodeState;
use crate::settings;
use crate::snapshot::of_installation;
use crate::source::{self, ReadCluster, Source};
use census::Census;
use checks::{Checklist, Outcome};
use k8s_openapi::api::core::v1::Pod;
use person::person;
use scene::Scene;
use serde_json::Value;
use std::cmp::Reverse;
use std::time::{Duration, Instant};
use table::{CHECKS, TRIAL};

/// Kinds that findings are made from in addition to the view.
const KINDS: &[&str] = &[
    "ClusterQueue",
    "CronJob",
    "CustomResourceDefinition",
    "DaemonSet",
    "Deployment",
    "DeviceTaintRule",
    "EndpointSlice",
    "Job",
    "MutatingWebhookConfiguration",
    "Node",
    "Pod",
    "StatefulSet",
];

/// The namespace of the control plane's pods.
const CONTROL_PLANE: &str = "kube-system";

/// Time between two looks with `--wait`.
const PERIOD: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Output> {
    let source = Source::open(&args.source)?;
    let end = Instant::now() + Duration::from_secs(args.wait.into());
    let mut output = look(args, &source, false)?;
    while let Source::Live(cluster) = &source
        && output.denied
        && Instant::now() < end
    {
        cluster.pause(PERIOD);
        output = look(args, &source, false)?;
    }
    if args.trial.is_asked { look(args, &source, true) } else { Ok(output) }
}

/// Makes all checks once.
fn look(args: &DoctorArgs, source: &Source, with_trial: bool) -> anyhow::Result<Output> {
    let mut seen = source.read(&queries(&args.admission_namespace), KINDS)?;
    let cluster = match source {
        Source::Live(cluster) => Some(cluster),
        Source::File(..) => None,
    };
    if let Some(cluster) = cluster {
        seen.gates = cluster.feature_gates();
    }
    let facts = seen.nodes()?;
    let mut policy = settings::of_cluster(&seen.kept);
    policy.nic_class = args.nic_class.clone().unwrap_or(policy.nic_class);
    let asked = waiting::queries(&seen.view);
    let waiting = more_pods(source, &asked, &mut seen)?;
    let asked = former_plugins::queries(&seen);
    let holders = more_pods(source, &asked, &mut seen)?;
    let workloads = workloads(source, &mut seen)?;
    let view = &seen.view;
    let nodes = view.present_nodes();
    let scene = Scene {
        cluster,
        seen: &seen,
        view,
        policy: &policy,
        facts: &facts,
        states: nodes.map(|node| (node, NodeState::new(view, node, &facts))).collect(),
        census: Census::new(view),
        machines: machines::all(view, &policy)?,
        waiting,
        holders,
        workloads,
    };
    let mut list = Checklist::default();
    for check in &CHECKS {
        let outcome = if args.is_before && !check.is_early {
            Outcome::skipped("only after the installation")
        } else {
            check.outcome(&scene)?
        };
        list.add((check.name, check.page), outcome);
    }
    if with_trial {
        let named = policy.gpu_class.is_some();
        let classes = if named { Vec::new() } else { scene.census.gpu_classes() };
        let outcomes = trial::run(source, &args.trial, args.namespace.as_deref(), &classes)?;
        TRIAL.into_iter().zip(outcomes).for_each(|(subject, outcome)| list.add(subject, outcome));
    }
    let Checklist { checks, mut findings, notes } = list;
    findings.sort_by_key(|finding| Reverse(finding.severity));
    let denied = findings.iter().any(|finding| finding.severity >= args.fail_on.into());
    let Scene { census, machines, .. } = scene;
    let modes = rdma::modes(view).into_iter();
    let mut unread: Vec<String> = Vec::new();
    for kind in seen.refused.iter().map(|kind| kind.resource()) {
        if !unread.contains(&kind) {
            unread.push(kind);
        }
    }
    let answer = Doctor {
        installed: installation::is_installed(&seen),
        unread,
        server: seen.server.clone(),
        nodes: census.nodes,
        with_gpus: census.with_gpus().len(),
        with_nics: census.with_nics().len(),
        with_graph: census.graphs.len(),
        machines,
        rdma_namespace_modes: modes.map(|(mode, nodes)| (mode.to_owned(), nodes.len())).collect(),
        checks,
        findings,
    };
    let text = args.output.write(&answer, || person(&answer))?;
    add_new(notes, &mut seen.notes);
    Ok(Output { text, denied, notes: seen.notes })
}

/// The objects to read.
fn queries(admission: &str) -> Vec<Query> {
    let mut queries = source::of_view();
    queries.push(QUOTAS.all("quotas are not checked"));
    queries.push(LIMIT_RANGES.all("LimitRanges are not checked"));
    queries.push(source::cluster_queues());
    queries.extend(source::foreign_topologies());
    queries.push(PODS.of(Some(CONTROL_PLANE), "the flags of the control plane are not checked"));
    queries.extend(of_installation(admission));
    if admission != CONTROL_PLANE {
        queries.push(PODS.of(Some(admission), "it is not checked whether scheduler-ext answers"));
    }
    queries
}

/// Reads more pods of a cluster; of a snapshot, all were read.
fn more_pods(
    source: &Source,
    queries: &[Query],
    seen: &mut ReadCluster,
) -> anyhow::Result<Vec<Pod>> {
    if let Source::File(..) = source {
        return seen.pods(None);
    }
    if queries.is_empty() {
        return Ok(Vec::new());
    }
    let read = source.read(queries, &["Pod"])?;
    let pods = read.pods(None)?;
    add_new(read.notes, &mut seen.notes);
    Ok(pods)
}

/// Reads the workloads of a cluster; of a snapshot, all were read.
fn workloads(source: &Source, seen: &mut ReadCluster) -> anyhow::Result<Vec<Value>> {
    if let Source::File(..) = source {
        let all = annotations::KINDS.iter().flat_map(|kind| seen.of_kind(kind));
        return Ok(all.cloned().collect());
    }
    let read = source.read(&annotations::queries(), &annotations::KINDS)?;
    seen.refused.extend(read.refused);
    add_new(read.notes, &mut seen.notes);
    Ok(read.kept)
}

/// Adds the notes that are new.
fn add_new(new: Vec<String>, notes: &mut Vec<String>) {
    for note in new {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}
