//! Reads the pods in a file's objects, including those that controllers would create from
//! them.

use serde_json::{Map, Value};

/// A pod, or pods that a controller would create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subject {
    /// The pod.
    pub(crate) pod: Value,
    /// Its origin in user-facing words: `Job train, worker`.
    pub(crate) origin: String,
    /// How many such pods exist at a time: `replicas`, `parallelism`.
    pub(crate) count: u64,
}

impl Subject {
    /// A single pod.
    pub(super) fn one(pod: Value, origin: String) -> Self {
        Self { pod, origin, count: 1 }
    }
}

/// The pod that an object is, or those that its controller would create.
pub(super) fn of_object(object: &Value) -> Vec<Subject> {
    let kind = object["kind"].as_str().unwrap_or("?");
    let name = object["metadata"]["name"].as_str().unwrap_or("without a name");
    let owner = format!("{kind} {name}");
    if kind == "Pod" {
        return vec![Subject::one(object.clone(), owner)];
    }
    let mut found = Vec::new();
    templates(&object["spec"], (&mut Vec::new(), 1), &mut found);
    let subject = |PodTemplate { path, count, object: template }: PodTemplate<'_>| {
        let pod = pod_of(template, object, &path);
        let origin = if path.is_empty() { owner.clone() } else { format!("{owner}, {path}") };
        Subject { pod, origin, count }
    };
    found.into_iter().map(subject).collect()
}

/// A pod template within an object.
struct PodTemplate<'o> {
    /// The names on the path that distinguish it from other templates.
    path: String,
    /// How many pods are created from it.
    count: u64,
    object: &'o Value,
}

/// Finds every value with `spec.containers`: a pod template, whatever the kind around it.
/// `count` is the number of copies of the value.
fn templates<'o>(
    value: &'o Value,
    (path, count): (&mut Vec<String>, u64),
    found: &mut Vec<PodTemplate<'o>>,
) {
    if value["spec"]["containers"].is_array() {
        found.push(PodTemplate { path: path.join(" "), count, object: value });
        return;
    }
    let count = count * times(value);
    match value {
        Value::Object(fields) => {
            for (key, below) in fields {
                // Keys that every kind has distinguish nothing.
                let tells = !matches!(
                    key.as_str(),
                    "spec" | "template" | "jobTemplate" | "leaderWorkerTemplate"
                );
                let tells = tells && !key.ends_with("Specs") && key != "replicatedJobs";
                if tells {
                    path.push(key.clone());
                }
                let count = if key == "workerTemplate" { count * workers(value) } else { count };
                templates(below, (path, count), found);
                if tells {
                    path.pop();
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let name = item["name"].as_str();
                path.extend(name.map(str::to_owned));
                templates(item, (path, count), found);
                path.truncate(path.len() - usize::from(name.is_some()));
            }
        }
        _ => {}
    }
}

/// The number of copies of an object's content: `replicas` for most kinds, `parallelism`
/// for a Job, which never runs more pods than are left to complete.
fn times(object: &Value) -> u64 {
    let number = |key: &str| object[key].as_u64();
    let at_a_time = number("parallelism").map(|at_a_time| {
        number("completions").map_or(at_a_time, |completions| at_a_time.min(completions))
    });
    number("replicas").or(at_a_time).unwrap_or(1)
}

/// The number of workers per group of a `LeaderWorkerSet`: `size` includes the leader,
/// which uses the workers' template if it has none of its own.
fn workers(group: &Value) -> u64 {
    let size = group["size"].as_u64().unwrap_or(1);
    if group["leaderTemplate"].is_object() { size.saturating_sub(1) } else { size }
}

/// The pod that is created from a template.
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

    /// Origins, names and numbers of the pods of a workload.
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

    #[test]
    fn pods_are_counted() {
        let jobs = json!({ "replicatedJobs": [
            { "name": "a", "replicas": 2, "template": { "spec": {
                "parallelism": 3, "completions": 9, "template": template(),
            } } },
            { "name": "b", "template": { "spec": { "template": template() } } },
        ] });
        let group = |leader: Value| {
            json!({ "replicas": 2, "leaderWorkerTemplate": {
                "size": 4, "leaderTemplate": leader, "workerTemplate": template(),
            } })
        };
        let cases = [
            ("Deployment", json!({ "replicas": 3, "template": template() }), vec![3]),
            ("StatefulSet", json!({ "replicas": 0, "template": template() }), vec![0]),
            ("Job", json!({ "parallelism": 4, "template": template() }), vec![4]),
            ("Job", json!({ "parallelism": 4, "completions": 2, "template": template() }), vec![2]),
            (
                "CronJob",
                json!({ "jobTemplate": { "spec": { "parallelism": 2, "template": template() } } }),
                vec![2],
            ),
            ("JobSet", jobs, vec![6, 1]),
            ("LeaderWorkerSet", group(template()), vec![2, 6]),
            ("LeaderWorkerSet", group(Value::Null), vec![8]),
        ];
        for (kind, spec, expected) in cases {
            let object = json!({ "kind": kind, "metadata": { "name": "x" }, "spec": spec });
            let counts: Vec<_> = of_object(&object).iter().map(|subject| subject.count).collect();
            assert_eq!(counts, expected, "{object}");
        }
    }
}
