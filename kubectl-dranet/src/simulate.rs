//! `simulate`: where pods would land, one after another.

mod added;
mod claim;
mod cluster;

use crate::Output;
use crate::answer::{Pending, Placed, Remark, Simulate, Unknown};
use crate::args::{Form, SimulateArgs};
use crate::explain::{self, Answer};
use crate::extenders;
use crate::kinds::{DAEMON_SETS, DEPLOYMENTS, PODS, USE};
use crate::settings;
use crate::source::{self, Source};
use crate::subject::{self, Beside, Subject};
use crate::text::{self, counted, listed, table};
use cluster::{Cluster, Fate};
use cluster_model::gpu_drivers;
use cluster_model::nic_drivers;
use k8s_openapi::api::core::v1::PodSpec;
use scheduler_ext::score::AtStart;
use serde::Deserialize as _;
use serde_json::Value;
use std::fmt::{self, Write as _};

/// The kinds of a subject, if nodes are added that copy existing ones.
const WITH_MACHINES: &[&str] = &[
    "DaemonSet",
    "Deployment",
    "LimitRange",
    "Namespace",
    "Node",
    "NodeTopology",
    "Pod",
    "PodDisruptionBudget",
    "PriorityClass",
    "ResourceQuota",
    "ResourceSlice",
    "RuntimeClass",
];

/// What follows if the workloads of extenders cannot be read.
const UNLEARNED: &str = "what scheduler-ext has learned is unknown";

/// The results of all pods.
#[derive(Default)]
struct Scheduled {
    /// In their order.
    placed: Vec<Placed>,
    kept: Vec<Kept>,
    /// Rules of workloads whose pods are placed that are ignored here.
    remarks: Vec<Remark>,
    /// Whether nodes are ranked with what the running extender has learned.
    has_learned: bool,
    /// Whether another scheduler places some of the pods.
    has_other_scheduler: bool,
}

/// Pods of one origin that stay pending for one reason.
struct Kept {
    origin: String,
    pods: Vec<String>,
    answer: Answer,
}

pub(crate) fn run(args: &SimulateArgs) -> anyhow::Result<Output> {
    let (mut subjects, mut notes, mut beside) = (Vec::new(), Vec::new(), Beside::default());
    for file in &args.files {
        let asked = subject::of_file(file)?;
        subjects.extend(asked.subjects);
        notes.extend(asked.remarks);
        beside.extend(asked.beside);
    }
    let kinds = if args.added.is_empty() { subject::KINDS } else { WITH_MACHINES };
    let mut more = vec![PODS.all("nodes are assumed to run no pods")];
    more.extend(args.preemption.then(source::disruption_budgets));
    more.extend(beside.namespaces(&source::namespaces(&subjects, Some("default"))));
    let source = Source::open(&args.source)?;
    let own = args.admission.admission_namespace.as_str();
    more.extend([DEPLOYMENTS, DAEMON_SETS].map(|kind| kind.of(Some(own), UNLEARNED)));
    let mut seen = source.read_as_admission(&args.admission, kinds, &more, &subjects)?;
    let expected = extenders::expected(args.extender_metrics.as_deref(), &source, &seen)?;
    seen.must_know(&USE)?;
    let namespace = seen.namespace.as_deref().unwrap_or("default");
    subject::put_into(&mut subjects, namespace);
    beside.refuse(&mut subjects, &seen.kept);
    beside.put_into(&mut seen.view, namespace)?;
    subject::fill(&mut subjects, &seen);
    let policy = settings::policy(&args.policy, &seen.kept);
    notes.extend(seen.notes.iter().cloned());
    let has_learned = expected.is_some();
    let added = (&*args.added, args.preemption);
    let mut cluster = Cluster::new(seen, policy, added, expected.unwrap_or_default())?;
    let mut scheduled = schedule(&mut cluster, &subjects)?;
    scheduled.has_learned = has_learned;
    // A pod that is already bound is not pending.
    let denied = scheduled.kept.iter().any(|kept| !matches!(kept.answer, Answer::Fine(_)));
    let text = match args.output {
        Form::Text => person(&scheduled)?,
        Form::Json => text::answer(&program(scheduled), false)?,
        Form::Yaml => text::answer(&program(scheduled), true)?,
    };
    Ok(Output { denied, notes, ..Output::from(text) })
}

/// Creates all pods in order. Room only shrinks: what does not fit once never fits later.
fn schedule(cluster: &mut Cluster, subjects: &[Subject]) -> anyhow::Result<Scheduled> {
    let mut all = Scheduled::default();
    cluster.expect(subjects);
    for subject in subjects {
        let mut kept: Option<Kept> = None;
        let before = all.placed.len();
        for (name, pod) in pods(subject) {
            if let Some(kept) = &mut kept {
                kept.pods.push(name);
                continue;
            }
            let fate = match &subject.refused {
                Some(why) => Fate::Kept(Answer::Refused(why.clone())),
                None => cluster.place((&name, &pod), subject.job_size)?,
            };
            match fate {
                Fate::Placed(placed) => all.placed.push(*placed),
                Fate::Kept(answer) => {
                    kept = Some(Kept { origin: subject.origin.clone(), pods: vec![name], answer });
                }
            }
        }
        all.kept.extend(kept);
        let spec = Option::<PodSpec>::deserialize(&subject.pod["spec"])?;
        let Some(spec) = spec.filter(|_| all.placed.len() > before) else { continue };
        all.has_other_scheduler |= explain::other_scheduler(&spec).is_some();
        if let Some(remark) = explain::not_looked_at(&spec, &cluster.view) {
            all.remarks.push(Remark { pod: subject.origin.clone(), remark });
        }
    }
    Ok(all)
}

/// The pods of a workload, each with a unique name, and the namespace.
fn pods(subject: &Subject) -> impl Iterator<Item = (String, Value)> {
    let Subject { pod, count, .. } = subject;
    let metadata = &pod["metadata"];
    let name = metadata["name"].as_str().or_else(|| metadata["generateName"].as_str());
    let name = name.unwrap_or("pod").trim_end_matches('-').to_owned();
    (0..*count).map(move |number| {
        let name = if *count == 1 { name.clone() } else { format!("{name}-{number}") };
        let mut pod = subject.pod(number);
        pod["metadata"]["name"] = name.as_str().into();
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default");
        (format!("{namespace}/{name}"), pod)
    })
}

/// How many GPUs and NICs a pod got.
fn amounts(placed: &Placed) -> [usize; 2] {
    let devices = placed.devices.iter();
    let gpus = devices.clone().filter(|it| gpu_drivers::by_name(&it.driver).is_some()).count();
    let nics = devices.filter(|it| nic_drivers::by_name(&it.driver).is_some()).count();
    [gpus + placed.plugin_gpus, nics]
}

/// What a pod whose NICs are chosen when it starts can expect: `near at start`, `near at start in 5/8`.
fn at_start(placed: &Placed) -> Option<String> {
    Some(match placed.near_eighths? {
        0 => "far at start".to_owned(),
        AtStart::PARTS => "near at start".to_owned(),
        some => format!("near at start in {some}/{}", AtStart::PARTS),
    })
}

impl Scheduled {
    /// What may make the scheduler choose other nodes.
    fn unknown(&self) -> Vec<Unknown> {
        let has_choice =
            self.placed.iter().any(|placed| placed.score.is_some() && placed.has_choice);
        let is_sampled = self.placed.iter().any(|placed| placed.is_sampled);
        let unknown = [
            (has_choice && !self.has_learned, Unknown::LearnedShapes),
            (is_sampled, Unknown::ExaminedNodes),
            (self.has_other_scheduler, Unknown::OtherScheduler),
            (self.is_delayed(Unknown::TriedAgain), Unknown::TriedAgain),
            (self.is_delayed(Unknown::EndingPods), Unknown::EndingPods),
        ];
        unknown.into_iter().filter(|it| it.0).map(|it| it.1).collect()
    }

    fn is_delayed(&self, by: Unknown) -> bool {
        self.placed.iter().any(|placed| placed.delay == Some(by))
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LearnedShapes => {
                "what the running scheduler-ext has learned from pods that are gone is not known, so it may \
                 prefer other nodes; --extender-metrics reads it from a file"
            }
            Self::ExaminedNodes => {
                "in a cluster of more than 100 nodes kube-scheduler looks at some of those that fit, not known \
                 which, so it may choose others"
            }
            Self::TriedAgain => {
                "kube-scheduler may try a pod to which several others gave way again only after five minutes, \
                 since the last of them was not what it was refused for"
            }
            Self::EndingPods => {
                "how long a pod takes to end that is being deleted already is not known; until then the pod \
                 to which it gives way waits"
            }
            Self::OtherScheduler => {
                "whether the scheduler that a pod names runs, and what it does, is not known"
            }
        })
    }
}

fn person(scheduled: &Scheduled) -> anyhow::Result<String> {
    let Scheduled { placed, kept, remarks, .. } = scheduled;
    let rows: Vec<_> = placed
        .iter()
        .map(|at| {
            let [gpus, nics] = amounts(at);
            let near = at_start(at).or_else(|| at.path.map(|path| path.to_string()));
            vec![
                at.pod.clone(),
                at.node.clone(),
                at.machine.clone(),
                at.fabric.clone().unwrap_or_else(|| "-".to_owned()),
                gpus.to_string(),
                nics.to_string(),
                near.unwrap_or_else(|| "-".to_owned()),
            ]
        })
        .collect();
    let mut out = String::new();
    if !rows.is_empty() {
        out += &table(&["POD", "NODE", "MACHINE", "FABRIC", "GPUS", "NICS", "PATH"], &rows);
        out.push('\n');
    }
    let pending: usize = kept.iter().map(|kept| kept.pods.len()).sum();
    writeln!(out, "{} placed, {pending} not", counted(placed.len(), "pod"))?;
    for Placed { pod, evicts, .. } in placed.iter().filter(|placed| !placed.evicts.is_empty()) {
        writeln!(
            out,
            "Note: {pod}: kube-scheduler evicts {} of lower priority for it.",
            listed(evicts)
        )?;
    }
    for Placed { pod, evicted, binds_after, .. } in placed {
        if let Some(evicted) = evicted {
            writeln!(out, "Note: {pod}: {}.", evicted.text)?;
        }
        if !binds_after.is_empty() {
            let conditions = listed(binds_after);
            writeln!(
                out,
                "Note: {pod} is bound when condition {conditions} of its devices is true."
            )?;
        }
    }
    for Remark { pod, remark } in remarks {
        writeln!(out, "Note: {pod}: {remark}.")?;
    }
    for unknown in scheduled.unknown() {
        writeln!(out, "Note: {unknown}.")?;
    }
    for Kept { origin, pods, answer } in kept {
        writeln!(out, "\n{}:", pod_list(pods))?;
        out += &explain::person(origin, answer)?;
    }
    Ok(out)
}

/// `a`, `a, b`, `a to d (4 pods)`.
fn pod_list(pods: &[String]) -> String {
    match pods {
        [first, .., last] if pods.len() > 2 => {
            format!("{first} to {last} ({})", counted(pods.len(), "pod"))
        }
        pods => pods.join(", "),
    }
}

fn program(scheduled: Scheduled) -> Simulate {
    let unknown = scheduled.unknown();
    let Scheduled { placed, kept, remarks, .. } = scheduled;
    let pending = kept.into_iter().map(|Kept { origin, pods, answer }| Pending {
        pods,
        why: explain::program(&origin, answer),
    });
    Simulate { placed, pending: pending.collect(), remarks, unknown }
}
