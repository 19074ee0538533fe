//! The pods that a command is about: from a file, including pod templates in workloads,
//! or one from the cluster.

mod admin_access;
mod beside;
mod filled;
mod wanted;
mod workload;

pub(crate) use admin_access::problem as admin_access_problem;
pub(crate) use beside::Beside;
pub(crate) use filled::fill;
use wanted::Wanted;
pub(crate) use workload::{Subject, disown};

use crate::args::{AdmissionArgs, SourceArgs, SubjectArgs};
use crate::kinds::{PODS, WORKLOADS};
use crate::kueue;
use crate::source::{self, ReadCluster, Source};
use dra_allocator::Quantity;
use serde_json::Value;
use std::path::Path;
use workload::{of_object, remarks};

/// Kinds of objects that are kept in addition to the view.
pub(crate) const KINDS: &[&str] = &[
    "DaemonSet",
    "Deployment",
    "LimitRange",
    "Namespace",
    "Node",
    "Pod",
    "PodDisruptionBudget",
    "PriorityClass",
    "ResourceQuota",
    "RuntimeClass",
    "Workload",
];

/// The pods that the flags name, each with its namespace if known, and the cluster as admission
/// sees it, with its pods, nodes and quotas.
pub(crate) fn read(
    args: &SubjectArgs,
    from: &SourceArgs,
    admission: &AdmissionArgs,
) -> anyhow::Result<(Vec<Subject>, ReadCluster)> {
    let wanted = match (&args.file, args.named()) {
        (Some(path), _) => Wanted::OfFile(path),
        (None, Some((kind, name))) => Wanted::named(kind, name)?,
        (None, None) => anyhow::bail!("name a pod, or a file with --filename"),
    };
    read_wanted(&wanted, from, admission)
}

/// The same for the pods that wait for devices, one of each owner; of the namespace, or of all.
pub(crate) fn read_waiting(
    in_all: bool,
    from: &SourceArgs,
    admission: &AdmissionArgs,
) -> anyhow::Result<(Vec<Subject>, ReadCluster)> {
    read_wanted(&Wanted::Waiting { in_all }, from, admission)
}

fn read_wanted(
    wanted: &Wanted<'_>,
    from: &SourceArgs,
    admission: &AdmissionArgs,
) -> anyhow::Result<(Vec<Subject>, ReadCluster)> {
    let source = Source::open(from)?;
    let named = admission.namespace.as_deref();
    let Asked { mut subjects, remarks, beside } = match (wanted, &source) {
        (Wanted::OfFile(path), _) => of_file(path)?,
        (Wanted::Pod(name), Source::Live(cluster)) => {
            let pod = Subject::one(cluster.pod(named, name)?, format!("Pod {name}"));
            Asked { subjects: vec![pod], ..Asked::default() }
        }
        _ => Asked::default(),
    };
    let namespace = source.namespace(named);
    let mut namespaces = source::namespaces(&subjects, namespace.as_deref());
    if wanted.is_everywhere() {
        namespaces.clear();
    }
    let mut queries = source::of_admission(admission, &namespaces);
    queries.push(PODS.all("CPU and memory that pods use are not known"));
    queries.extend(source::of_preemption(&admission.admission_namespace));
    queries.extend(beside.namespaces(&namespaces));
    if subjects.iter().any(|subject| kueue::holds(&subject.pod)) {
        let without = "why Kueue holds the pod is not known";
        queries.extend(namespaces.iter().map(|namespace| WORKLOADS.of(Some(namespace), without)));
    }
    let mut seen = source.read(&queries, KINDS)?;
    seen.notes.extend(remarks);
    seen.namespace = namespace.or(seen.namespace);
    if subjects.is_empty() {
        let place = match &source {
            Source::File(path, _) => format!("`{}`", path.display()),
            Source::Live(_) => "the cluster".to_owned(),
        };
        subjects = wanted.of_cluster(&seen, &place)?;
    }
    if let Some(namespace) = &seen.namespace {
        put_into(&mut subjects, namespace);
    }
    beside.refuse(&mut subjects, &seen.kept);
    beside.put_into(&mut seen.view, seen.namespace.as_deref().unwrap_or("default"))?;
    fill(&mut subjects, &seen);
    Ok((subjects, seen))
}

/// Sets the namespace of pods without one.
pub(crate) fn put_into(subjects: &mut [Subject], namespace: &str) {
    for Subject { pod, .. } in subjects {
        if pod["metadata"].get("namespace").is_none_or(Value::is_null) {
            pod["metadata"]["namespace"] = namespace.into();
        }
    }
}

/// What a file asks about.
#[derive(Default)]
pub(crate) struct Asked {
    /// The pods, in order.
    pub(crate) subjects: Vec<Subject>,
    /// Remarks about mistakes around them.
    pub(crate) remarks: Vec<String>,
    /// The claims and templates that they may use.
    pub(crate) beside: Beside,
}

/// The pods of a file, and what it has beside them.
pub(crate) fn of_file(path: &Path) -> anyhow::Result<Asked> {
    let objects = source::objects(path)?;
    let asked = of_objects(objects.clone());
    if asked.subjects.is_empty() {
        anyhow::ensure!(!objects.is_empty(), "`{}` is empty", path.display());
        let kinds: Vec<_> = objects
            .iter()
            .map(|object| match object["kind"].as_str() {
                Some(kind) => kind.to_owned(),
                None => "something without a kind".to_owned(),
            })
            .collect();
        anyhow::bail!(
            "`{}` holds no Pod and no workload with a pod template; it holds: {}",
            path.display(),
            kinds.join(", ")
        );
    }
    for Subject { pod, origin, .. } in &asked.subjects {
        check_annotations(pod, origin)?;
        check_amounts(pod, origin)?;
    }
    Ok(asked)
}

/// The pods of objects, and what is beside them.
pub(crate) fn of_objects(objects: Vec<Value>) -> Asked {
    let subjects = objects.iter().flat_map(of_object).collect();
    let remarks = objects.iter().flat_map(remarks).collect();
    Asked { subjects, remarks, beside: Beside::new(objects) }
}

/// Fails on annotations that are not texts, by name: the API server refuses them without it.
fn check_annotations(pod: &Value, origin: &str) -> anyhow::Result<()> {
    let annotations = pod["metadata"]["annotations"].as_object();
    let wrong = annotations.into_iter().flatten().find(|(_, value)| !value.is_string());
    if let Some((key, value)) = wrong {
        anyhow::bail!(
            "invalid value {value} for annotation {key} of {origin}: annotations are texts; write \
             {key}: \"{value}\""
        );
    }
    Ok(())
}

/// Fails on resources of containers that are not amounts, by name: the API server refuses them.
fn check_amounts(pod: &Value, origin: &str) -> anyhow::Result<()> {
    let lists = ["containers", "initContainers"].into_iter();
    for container in lists.filter_map(|list| pod["spec"][list].as_array()).flatten() {
        let lists = ["limits", "requests"].into_iter();
        let lists = lists.filter_map(|list| container["resources"][list].as_object());
        for (resource, amount) in lists.flatten() {
            let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
            anyhow::ensure!(
                text.parse::<Quantity>().is_ok(),
                "invalid value {amount} for {resource} of container {} of {origin}: write an amount \
                 such as 1, 500m or 16Gi",
                container["name"].as_str().unwrap_or_default()
            );
        }
    }
    Ok(())
}
