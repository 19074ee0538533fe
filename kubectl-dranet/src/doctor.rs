//! `doctor`: what is wrong in the cluster, and what to do.

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
mod pages;
mod rdma;
mod rights;
mod server;
mod trial;
mod waiting;

use crate::Output;
use crate::answer::{Doctor, DoctorFinding, DoctorMachine, Severity};
use crate::args::{DoctorArgs, Form};
use crate::kinds::{
    DAEMON_SETS, DEPLOYMENTS, DEVICES, INSTALLATION, Kind, LIMIT_RANGES, PODS, QUOTAS,
};
use crate::live::Cluster;
use crate::reply::{Probe, Proxied};
use crate::settings;
use crate::snapshot::of_installation;
use crate::source::{self, Seen, Source};
use crate::text::{self, counted, table};
use checks::Checklist;
use cluster::examine;
use cluster_model::gpu_drivers::GpuDriver;
use cluster_model::names::{annotation, object};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use pages::{DIRECT, DRIVERS, FABRICS, LINKS, MODULES, PAGE, PLUGINS};
use serde_json::json;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Kinds that findings are made from in addition to the view.
const KINDS: &[&str] = &[
    "CustomResourceDefinition",
    "DaemonSet",
    "Deployment",
    "DeviceTaintRule",
    "EndpointSlice",
    "MutatingWebhookConfiguration",
    "Node",
    "Pod",
];

/// The namespace of the control plane's pods.
const CONTROL_PLANE: &str = "kube-system";

/// Checks that a snapshot cannot answer, with their pages.
const LIVE: [(&str, &str); 4] = [
    ("the webhook is called", PAGE),
    ("scheduler-ext answers", "docs/guides/scheduler.md"),
    ("rights of the service accounts", PAGE),
    ("kubelets place CPUs and memory", "docs/guides/cpu-and-memory.md"),
];
/// The most machine types that a line names.
const NAMED: usize = 3;

const RIGHTS_UNKNOWN: &str = "you may not create subjectaccessreviews.authorization.k8s.io, so the \
                              rights of the project's service accounts are not checked";

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Output> {
    let source = Source::open(&args.source)?;
    let mut queries = source::of_view();
    queries.push(QUOTAS.all("quotas are not checked"));
    queries.push(LIMIT_RANGES.all("LimitRanges are not checked"));
    queries.extend(source::foreign_topologies());
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
    let of_cluster = std::mem::take(&mut report.findings);
    let unknown = unknown(&seen, &DEVICES);
    let mut list = Checklist::default();
    let facts = seen.nodes()?;
    list.add("nodes are there and ready", PAGE, nodes::examine(&seen, &facts));
    list.known("GPUs, NICs, graphs, classes and quotas", PAGE, unknown.as_ref(), of_cluster);
    list.known("drivers are known", DRIVERS, unknown.as_ref(), drivers::examine(&seen.view));
    let (machines, of_machines) = machines::examine(&seen.view, &policy)?;
    list.known("every machine type serves a pod", PAGE, unknown.as_ref(), of_machines);
    let pods = waiting_pods(&source, &mut seen)?;
    let outdated = waiting::examine(&seen.view, &policy, &pods);
    list.known("waiting pods have claims for today's machines", PAGE, unknown.as_ref(), outdated);
    let moved = former_plugins::nodes(&seen);
    let pods = pods_on(&moved, &source, &mut seen)?;
    let mut holders = former_plugins::examine(&moved, &pods);
    holders.append(&mut report.offered_twice);
    let devices = devices::examine(&seen, &facts);
    list.known("GPUs have one owner", PLUGINS, unknown.as_ref(), holders);
    list.known("sources of fabrics agree", FABRICS, unknown.as_ref(), fabrics::examine(&seen));
    list.known("NICs have one owner", PLUGINS, unknown.as_ref(), devices.owners);
    list.known("GPUs can be allocated", PAGE, unknown.as_ref(), devices.gpus);
    list.known("NICs are up", LINKS, unknown.as_ref(), devices.nics);
    list.known("GPUDirect RDMA", DIRECT, unknown.as_ref(), gpu_direct::examine(&seen.view));
    list.known("kernel modules", MODULES, unknown.as_ref(), modules::examine(&seen.view));
    list.known("RDMA subsystem", PAGE, unknown.as_ref(), rdma::examine(&seen.view));
    let of_server = server::examine(&seen);
    list.found("control plane", PAGE, self::unknown(&seen, &[PODS]), of_server);
    let of_installation = installation::examine(&seen, Timestamp::now());
    list.found("installation", PAGE, self::unknown(&seen, &INSTALLATION), of_installation);
    match &source {
        Source::Live(cluster) => live(cluster, &mut list, &mut seen)?,
        Source::File(..) => {
            for (name, page) in LIVE {
                list.skip(name, page, "only on a live cluster");
            }
        }
    }
    if args.trial.is_asked {
        trial::run(&source, &args.trial, args.namespace.as_deref(), &mut list)?;
    }
    let Checklist { checks, mut findings } = list;
    findings.sort_by_key(|finding| Reverse(finding.severity));
    let denied = findings.iter().any(|finding| finding.severity >= args.fail_on.into());
    let modes = rdma::modes(&seen.view).into_iter();
    let answer = Doctor {
        server: seen.server,
        nodes: report.nodes,
        with_gpus: report.with_gpus,
        with_nics: report.with_nics,
        with_graph: report.with_graph,
        machines,
        rdma_namespace_modes: modes.map(|(mode, nodes)| (mode.to_owned(), nodes.len())).collect(),
        checks,
        findings,
    };
    let text = match args.output {
        Form::Text => person(&answer)?,
        Form::Json => text::answer(&answer, false)?,
        Form::Yaml => text::answer(&answer, true)?,
    };
    Ok(Output { text, denied, notes: seen.notes })
}

/// Checks that need the cluster itself.
fn live(cluster: &Cluster, list: &mut Checklist, seen: &mut Seen) -> anyhow::Result<()> {
    let [webhook, extender, rights, _] = LIVE;
    match called(cluster)? {
        Called::Tested(finding) => list.add(webhook.0, webhook.1, finding),
        Called::NoRight => {
            list.skip(webhook.0, webhook.1, "you may not create pods in your namespace");
        }
    }
    match asked_extenders(cluster, seen) {
        Ok(found) => {
            let unread = unknown(seen, &[PODS, DEPLOYMENTS, DAEMON_SETS]);
            list.found(extender.0, extender.1, unread, found);
        }
        Err(why) => list.skip(extender.0, extender.1, &why),
    }
    let mut lacking = Vec::new();
    let mut is_unknown = false;
    for (review, finding) in rights::questions(seen) {
        match cluster.is_allowed(&review)? {
            Some(true) => {}
            Some(false) => lacking.push(finding),
            None => {
                is_unknown = true;
                seen.notes.push(RIGHTS_UNKNOWN.to_owned());
                break;
            }
        }
    }
    if is_unknown {
        list.skip(rights.0, rights.1, "you may not create subjectaccessreviews");
    } else {
        list.found(rights.0, rights.1, unknown(seen, &[DEPLOYMENTS, DAEMON_SETS]), lacking);
    }
    ask_kubelets(cluster, list, seen);
    Ok(())
}

/// Asks a kubelet of each machine type for its configuration.
fn ask_kubelets(cluster: &Cluster, list: &mut Checklist, seen: &mut Seen) {
    let [.., (name, page)] = LIVE;
    let asked = kubelet::asked(&seen.view);
    let (mut found, mut answers) = (Vec::new(), 0);
    for node in &asked {
        let (config, note) = cluster.kubelet_config(node);
        answers += usize::from(config.is_some());
        found.extend(config.and_then(|it| kubelet::examine(&seen.view, node, &it)));
        seen.notes.extend(note.filter(|note| !seen.notes.contains(note)));
    }
    let is_silent = answers == 0 && !asked.is_empty();
    let why = unknown(seen, &DEVICES);
    let why = why.or_else(|| is_silent.then(|| "no kubelet answered".to_owned()));
    list.found(name, page, why, found);
}

/// Why nothing is known from these kinds, if the user may not read one of them.
fn unknown(seen: &Seen, kinds: &[Kind]) -> Option<String> {
    let refused: Vec<_> = kinds.iter().filter(|kind| seen.refused.contains(kind)).collect();
    let (first, others) = refused.split_first()?;
    let others = match others.len() {
        0 => String::new(),
        number => format!(" and {}", counted(number, "other kind")),
    };
    Some(format!("you may not read {}{others}", first.resource()))
}

/// The pods that wait for devices: of a snapshot all that it has, of a cluster those with an open
/// claim.
fn waiting_pods(source: &Source, seen: &mut Seen) -> anyhow::Result<Vec<Pod>> {
    if let Source::File(..) = source {
        return seen.pods(None);
    }
    let named = waiting::pods(&seen.view).into_iter();
    let queries: Vec<_> = named
        .map(|key| {
            PODS.one(
                &key.namespace,
                &key.name,
                "it is not checked whether waiting pods are outdated",
            )
        })
        .collect();
    let read = source.read(&queries, &["Pod"])?;
    let notes: Vec<_> =
        read.notes.iter().filter(|note| !seen.notes.contains(note)).cloned().collect();
    seen.notes.extend(notes);
    read.pods(None)
}

/// The cluster's pods, if there are nodes that have moved from a device plugin to a DRA driver.
fn pods_on(
    moved: &BTreeMap<String, Vec<&'static GpuDriver>>,
    source: &Source,
    seen: &mut Seen,
) -> anyhow::Result<Vec<Pod>> {
    if moved.is_empty() {
        return Ok(Vec::new());
    }
    if let Source::File(..) = source {
        return seen.pods(None);
    }
    let without = "it is not checked whether pods still have GPUs of a device plugin";
    let read = source.read(&[PODS.all(without)], &["Pod"])?;
    let notes = read.notes.iter().filter(|note| !seen.notes.contains(note)).cloned();
    let notes: Vec<_> = notes.collect();
    seen.notes.extend(notes);
    read.pods(None)
}

/// Whether the API server calls the webhook.
enum Called {
    Tested(Option<DoctorFinding>),
    /// The user may not create pods.
    NoRight,
}

/// Checks with a dry run that the API server calls the webhook, which denies this pod.
fn called(cluster: &Cluster) -> anyhow::Result<Called> {
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
    let finding = match cluster.dry_run_pod(&cluster.default_namespace(), &pod)? {
        Probe::Refused(why) if why.contains(annotation::ALIGNED_NICS) => None,
        Probe::Created(_) => {
            let message = "is not called, so annotated pods are created without devices; apply \
                           deploy/manifests/webhook.yaml";
            Some(DoctorFinding::new(Severity::Error, place, message))
        }
        Probe::Refused(why) => {
            let message = format!("failed for a test pod (dry run): {why}");
            Some(DoctorFinding::new(Severity::Error, place, message))
        }
        Probe::NoRight => return Ok(Called::NoRight),
    };
    Ok(Called::Tested(finding))
}

/// Asks each extender about its requests, and judges the answers.
///
/// # Errors
/// Why they cannot be asked.
fn asked_extenders(cluster: &Cluster, seen: &Seen) -> Result<Vec<DoctorFinding>, String> {
    let extenders = extender::pods(seen);
    let mut findings = extender::unreachable(&extenders);
    let mut answers = Vec::new();
    for pod in extenders {
        let Some(path) = pod.metrics_path() else { continue };
        match cluster.proxied(&path) {
            Proxied::Text(text) => answers.push((pod.name, Ok(extender::Requests::new(&text)))),
            Proxied::Failed(why) => answers.push((pod.name, Err(why))),
            Proxied::NoRight => {
                return Err(format!("you may not get pods/proxy in namespace `{}`", pod.namespace));
            }
        }
    }
    findings.extend(extender::judge(&answers));
    Ok(findings)
}

/// What would give machine types a better join, with these types.
fn betters(machines: &[DoctorMachine]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut betters: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for machine in machines {
        if let Some(better) = &machine.better {
            betters.entry(better).or_default().insert(&machine.name);
        }
    }
    betters
}

fn person(answer: &Doctor) -> anyhow::Result<String> {
    let Doctor { server, nodes, with_gpus, with_nics, with_graph, .. } = answer;
    let Doctor { machines, rdma_namespace_modes: modes, checks, findings, .. } = answer;
    let mut out = String::new();
    if let Some(server) = server {
        writeln!(out, "API server: {server}")?;
    }
    writeln!(
        out,
        "nodes: {nodes}, with GPUs of a DRA driver: {with_gpus}, with NICs: {with_nics}, with a \
         graph: {with_graph}"
    )?;
    if !modes.is_empty() {
        let modes = modes.iter();
        let modes: Vec<_> =
            modes.map(|(mode, nodes)| format!("{mode} on {}", counted(*nodes, "node"))).collect();
        writeln!(out, "RDMA namespace mode: {}", modes.join(", "))?;
    }
    if !machines.is_empty() {
        let rows: Vec<_> = machines
            .iter()
            .map(|it| {
                let join = it.join.as_deref().unwrap_or("none");
                let numbers = [it.nodes, it.gpus, it.nics].map(|number| number.to_string());
                [vec![it.name.clone()], numbers.to_vec(), vec![join.to_owned()]].concat()
            })
            .collect();
        write!(out, "\n{}\n", table(&["MACHINE", "NODES", "GPUS", "NICS", "JOIN"], &rows))?;
        for (better, machines) in betters(machines) {
            let names = machines.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
            let more = if machines.len() > NAMED { " and others" } else { "" };
            writeln!(out, "join of {names}{more}: {better}")?;
        }
    }
    if machines.is_empty() {
        out.push('\n');
    }
    checks.iter().try_for_each(|check| writeln!(out, "{check}"))?;
    out.push('\n');
    if findings.is_empty() {
        writeln!(out, "no findings")?;
    }
    for DoctorFinding { severity, place, message } in findings {
        writeln!(out, "{severity}: {place} {message}")?;
    }
    Ok(out)
}
