//! The pods that a command is about: those of a file, also as templates in workloads, or
//! one of the cluster.

use crate::args::{AdmissionArgs, SourceArgs, SubjectArgs};
use crate::kinds::PODS;
use crate::source::{self, Seen, Source};
use cluster_model::names::annotation;
use serde_json::{Map, Value};
use std::path::Path;

/// A pod, or what a controller would make pods of.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subject {
    /// The pod.
    pub(crate) pod: Value,
    /// Where it is from, for a person: `Job train, worker`.
    pub(crate) origin: String,
}

/// The pods that the flags name, each with its namespace where that is known, and the
/// cluster as admission sees it: with pods and nodes where a pod is of a group.
pub(crate) fn read(
    args: &SubjectArgs,
    from: &SourceArgs,
    admission: &AdmissionArgs,
) -> anyhow::Result<(Vec<Subject>, Seen)> {
    let source = Source::open(from)?;
    let named = admission.namespace.as_deref();
    let name = args.pod.as_deref().map(pod_name).transpose()?;
    let mut subjects = match (&args.file, name, &source) {
        (Some(path), _, _) => of_file(path)?,
        (None, Some(name), Source::Live(cluster)) => {
            vec![Subject { pod: cluster.pod(named, name)?, origin: format!("Pod {name}") }]
        }
        _ => Vec::new(),
    };
    let of_pod = subjects.first().and_then(|it| it.pod["metadata"]["namespace"].as_str());
    let namespace = source.namespace(of_pod.or(named));
    let is_grouped =
        |it: &Subject| it.pod["metadata"]["annotations"][annotation::FABRIC].is_string();
    let mut asks = source::of_admission(admission, namespace.as_deref());
    let is_from_file = matches!(&source, Source::File(_)) && name.is_some();
    let kinds: &[&str] = if is_from_file || subjects.iter().any(is_grouped) {
        asks.push(PODS.all("every fabric counts as empty of pods"));
        &["Deployment", "Node", "Pod"]
    } else {
        &["Deployment"]
    };
    let mut seen = source.read(&asks, kinds)?;
    if let (Source::File(path), Some(name)) = (&source, name) {
        let namespace = named.or(seen.namespace.as_deref()).unwrap_or("default");
        let pod = find(&seen, name, namespace).ok_or_else(|| {
            anyhow::anyhow!(
                "found no Pod `{name}` of namespace `{namespace}` in `{}`",
                path.display()
            )
        })?;
        subjects.push(Subject { pod, origin: format!("Pod {name}") });
    }
    seen.namespace = namespace.or(seen.namespace);
    if let Some(namespace) = &seen.namespace {
        for Subject { pod, .. } in &mut subjects {
            if pod["metadata"].get("namespace").is_none_or(Value::is_null) {
                pod["metadata"]["namespace"] = namespace.as_str().into();
            }
        }
    }
    Ok((subjects, seen))
}

/// The name may be written `pod/NAME`.
fn pod_name(name: &str) -> anyhow::Result<&str> {
    let name = ["pod/", "pods/", "po/"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    anyhow::ensure!(
        !name.contains('/'),
        "invalid value `{name}`: only pods can be named, as NAME or pod/NAME; write other kinds \
         into a file and name it with --filename"
    );
    Ok(name)
}

fn find(seen: &Seen, name: &str, namespace: &str) -> Option<Value> {
    let is_it = |object: &&Value| {
        let metadata = &object["metadata"];
        metadata["name"] == name && metadata["namespace"].as_str().unwrap_or("default") == namespace
    };
    seen.of_kind("Pod").find(is_it).cloned()
}

/// The pods of a file, in order.
fn of_file(path: &Path) -> anyhow::Result<Vec<Subject>> {
    let objects = source::objects(path)?;
    let subjects: Vec<Subject> = objects.iter().flat_map(of_object).collect();
    if subjects.is_empty() {
        let kinds: Vec<_> =
            objects.iter().map(|object| object["kind"].as_str().unwrap_or("?")).collect();
        let found = if kinds.is_empty() { "nothing".to_owned() } else { kinds.join(", ") };
        anyhow::bail!(
            "`{}` holds no Pod and no workload with a pod template; it holds: {found}",
            path.display()
        );
    }
    Ok(subjects)
}

/// The pod that an object is, or those that its controller would make.
fn of_object(object: &Value) -> Vec<Subject> {
    let kind = object["kind"].as_str().unwrap_or("?");
    let name = object["metadata"]["name"].as_str().unwrap_or("without a name");
    let owner = format!("{kind} {name}");
    if kind == "Pod" {
        return vec![Subject { pod: object.clone(), origin: owner }];
    }
    let mut found = Vec::new();
    templates(&object["spec"], &mut Vec::new(), &mut found);
    let subject = |(path, template): (String, &Value)| {
        let pod = pod_of(template, object, &path);
        let origin = if path.is_empty() { owner.clone() } else { format!("{owner}, {path}") };
        Subject { pod, origin }
    };
    found.into_iter().map(subject).collect()
}

/// Every value below that has `spec.containers`: a pod template, whatever the kind around
/// it. Each with the names on the way that tell it from the others.
fn templates<'o>(value: &'o Value, path: &mut Vec<String>, found: &mut Vec<(String, &'o Value)>) {
    if value["spec"]["containers"].is_array() {
        found.push((path.join(" "), value));
        return;
    }
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                // What every kind has says nothing.
                let tells = !matches!(
                    key.as_str(),
                    "spec" | "template" | "jobTemplate" | "leaderWorkerTemplate"
                );
                let tells = tells && !key.ends_with("Specs") && key != "replicatedJobs";
                if tells {
                    path.push(key.clone());
                }
                templates(value, path, found);
                if tells {
                    path.pop();
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let name = item["name"].as_str();
                path.extend(name.map(str::to_owned));
                templates(item, path, found);
                path.truncate(path.len() - usize::from(name.is_some()));
            }
        }
        _ => {}
    }
}

/// The pod of a template.
fn pod_of(template: &Value, owner: &Value, path: &str) -> Value {
    let mut metadata = match &template["metadata"] {
        Value::Object(metadata) => metadata.clone(),
        _ => Map::new(),
    };
    let owner_name = owner["metadata"]["name"].as_str().unwrap_or("pod");
    let parts = [&[owner_name], path.split_whitespace().collect::<Vec<_>>().as_slice()].concat();
    metadata.insert("name".to_owned(), parts.join("-").to_lowercase().into());
    if let Some(namespace) = owner["metadata"]["namespace"].as_str() {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template["spec"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template() -> Value {
        json!({ "metadata": { "annotations": { "a": "b" } }, "spec": { "containers": [] } })
    }

    /// Origins and names of the pods of a workload.
    #[test]
    fn every_kind_with_a_pod_template_is_read() {
        let replicas =
            json!({ "Launcher": { "template": template() }, "Worker": { "template": template() } });
        let cases = [
            ("Deployment", json!({ "template": template() }), vec![("Deployment x", "x")]),
            (
                "CronJob",
                json!({ "jobTemplate": { "spec": { "template": template() } } }),
                vec![("CronJob x", "x")],
            ),
            (
                "JobSet",
                json!({ "replicatedJobs": [
                    { "name": "driver", "template": { "spec": { "template": template() } } },
                    { "name": "workers", "template": { "spec": { "template": template() } } },
                ] }),
                vec![("JobSet x, driver", "x-driver"), ("JobSet x, workers", "x-workers")],
            ),
            (
                "LeaderWorkerSet",
                json!({ "leaderWorkerTemplate": {
                    "leaderTemplate": template(), "workerTemplate": template(),
                } }),
                vec![
                    ("LeaderWorkerSet x, leaderTemplate", "x-leadertemplate"),
                    ("LeaderWorkerSet x, workerTemplate", "x-workertemplate"),
                ],
            ),
            (
                "MPIJob",
                json!({ "mpiReplicaSpecs": replicas }),
                vec![("MPIJob x, Launcher", "x-launcher"), ("MPIJob x, Worker", "x-worker")],
            ),
            ("ConfigMap", json!({ "template": "no object" }), vec![]),
        ];
        for (kind, spec, expected) in cases {
            let object = json!({ "kind": kind, "metadata": { "name": "x" }, "spec": spec });
            let subjects = of_object(&object);
            let found: Vec<_> = subjects
                .iter()
                .map(|subject| {
                    assert_eq!(subject.pod["metadata"]["annotations"]["a"], "b", "{kind}");
                    (subject.origin.as_str(), subject.pod["metadata"]["name"].as_str().unwrap())
                })
                .collect();
            assert_eq!(found, expected, "{kind}");
        }
    }
}
