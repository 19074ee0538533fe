//! Reads the pods in a file's objects, including those that controllers would create from
//! them.

use crate::rollout::Surge;
use admission::misplaced::beside_template;
use cluster_model::names::{annotation, label};
use serde_json::{Map, Value, json};

/// Kinds without pods that often stand beside workloads. Others are named when they are skipped.
const WITHOUT_PODS: &[&str] = &[
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "CustomResourceDefinition",
    "DeviceClass",
    "HorizontalPodAutoscaler",
    "Ingress",
    "LimitRange",
    "Namespace",
    "NetworkPolicy",
    "NicPool",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "PriorityClass",
    "ResourceClaim",
    "ResourceClaimTemplate",
    "ResourceQuota",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "StorageClass",
];

/// Labels of pods that look like annotations.
const LABELS: &[&str] = &[label::FABRIC_GROUP];

/// The beginning of the UID of a workload that may not exist yet.
const PLANNED: &str = "planned-";

/// Removes an owner that may not exist yet, so that the pod can be created.
pub(crate) fn disown(pod: &mut Value) {
    let uid = pod.pointer("/metadata/ownerReferences/0/uid").and_then(Value::as_str);
    if uid.is_some_and(|uid| uid.starts_with(PLANNED))
        && let Some(metadata) = pod["metadata"].as_object_mut()
    {
        metadata.remove("ownerReferences");
    }
}

/// A pod, or pods that a controller would create.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Subject {
    /// The pod.
    pub(crate) pod: Value,
    /// Its origin in user-facing words: `Job train, worker`.
    pub(crate) origin: String,
    /// How many such pods exist at a time: `replicas`, `parallelism`.
    pub(crate) count: u64,
    /// The number of jobs that these pods belong to, in equal parts and in order: a group of a
    /// `LeaderWorkerSet` is a job of its own.
    pub(crate) jobs: u64,
    /// The number of pods of such a job, of this and other templates of the workload; `None` for a
    /// pod without a workload.
    pub(crate) job_size: Option<u64>,
    /// Why the API server refuses such pods, if it does.
    pub(crate) refused: Option<String>,
    /// The workload, if a rollout of it creates new pods before old ones leave.
    pub(crate) surge: Option<Surge>,
}

impl Subject {
    /// A single pod.
    pub(crate) fn one(pod: Value, origin: String) -> Self {
        Self { pod, origin, count: 1, jobs: 1, job_size: None, refused: None, surge: None }
    }

    /// Whether its pods are to be on one fabric.
    pub(crate) fn asks_for_fabric(&self) -> bool {
        self.pod["metadata"]["annotations"][annotation::FABRIC].is_string()
    }

    /// The pod with this number, starting from 0, as its controller would create it.
    pub(crate) fn pod(&self, number: u64) -> Value {
        let mut pod = self.pod.clone();
        if self.job_size.is_some() && self.jobs > 1 {
            let job = number * self.jobs / self.count.max(1);
            if let Some(uid) = pod.pointer_mut("/metadata/ownerReferences/0/uid") {
                *uid = format!("{}-{job}", uid.as_str().unwrap_or_default()).into();
            }
        }
        pod
    }
}

/// Mistakes in an object around its pods: annotations beside the pod template or written as labels,
/// where they have no effect, and a kind without a pod template; and pods that are not counted.
pub(super) fn remarks(object: &Value) -> Vec<String> {
    let kind = object["kind"].as_str().unwrap_or("?");
    if WITHOUT_PODS.contains(&kind) {
        return Vec::new();
    }
    let who = title(object);
    if kind == "Pod" {
        return label_remark(object, &who).into_iter().collect();
    }
    let found = templates_of(object);
    let Some(first) = found.first() else {
        return vec![format!("skipped {who}: it has no pod template")];
    };
    let mut remarks: Vec<String> =
        found.iter().filter_map(|template| label_remark(template.object, &who)).take(1).collect();
    let place = first.keys.iter().fold(String::new(), |all, key| all + key + ".");
    remarks.extend(beside_template(&who, &object["metadata"]["annotations"], &place));
    if kind == "DaemonSet" {
        remarks.push(format!("{who} has a pod on each node; one of them is looked at"));
    }
    remarks
}

/// A remark about an annotation of ours that is written as a label.
fn label_remark(pod: &Value, who: &str) -> Option<String> {
    let key = first_of_ours(&pod["metadata"]["labels"])?;
    let is_missing = pod["metadata"]["annotations"][key].is_null();
    is_missing.then(|| {
        format!("{who} has {key} as a label, where it has no effect; write it as an annotation")
    })
}

/// The first key of our annotations in a map of labels or annotations.
fn first_of_ours(map: &Value) -> Option<&String> {
    let mut keys = map.as_object()?.keys();
    keys.find(|key| key.starts_with(annotation::DOMAIN) && !LABELS.contains(&key.as_str()))
}

/// What people call an object: its name, or the beginning of the name that it will get.
fn name(object: &Value) -> Option<&str> {
    let metadata = &object["metadata"];
    metadata["name"].as_str().or_else(|| metadata["generateName"].as_str())
}

/// Its kind and name.
fn title(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("?");
    format!("{kind} {}", name(object).unwrap_or("without a name"))
}

/// The pod templates of an object.
fn templates_of(object: &Value) -> Vec<PodTemplate<'_>> {
    let mut found = Vec::new();
    // A PodTemplate has no spec.
    let field = if object["kind"] == "PodTemplate" { "template" } else { "spec" };
    let mut place = Place { keys: vec![field.to_owned()], ..Place::default() };
    templates(&object[field], &mut place, &mut found);
    found
}

/// The pod that an object is, or those that its controller would create.
pub(super) fn of_object(object: &Value) -> Vec<Subject> {
    let kind = object["kind"].as_str().unwrap_or("?");
    let owner = title(object);
    if kind == "Pod" {
        return vec![Subject::one(object.clone(), owner)];
    }
    let found = templates_of(object);
    let jobs = if is_set_of_jobs(object) { times(&object["spec"]) } else { 1 };
    let all: u64 = found.iter().map(|template| template.count).sum();
    found
        .into_iter()
        .map(|PodTemplate { path, count, object: template, .. }| {
            let pod = pod_of(template, object, &path);
            let origin = if path.is_empty() { owner.clone() } else { format!("{owner}, {path}") };
            let job_size = Some(all / jobs.max(1));
            let of_replica = if is_set_of_jobs(object) { count / jobs.max(1) } else { 1 };
            let surge = Surge::new(object, of_replica);
            Subject { pod, origin, count, jobs, job_size, refused: None, surge }
        })
        .collect()
}

/// Whether each replica of the object is a job of its own.
fn is_set_of_jobs(object: &Value) -> bool {
    object["spec"]["leaderWorkerTemplate"].is_object()
}

/// A pod template within an object.
struct PodTemplate<'o> {
    /// The names on the path that distinguish it from other templates.
    path: String,
    /// The keys and indexes from the object to it.
    keys: Vec<String>,
    /// How many pods are created from it.
    count: u64,
    object: &'o Value,
}

/// A place in an object.
struct Place {
    /// The names that distinguish it from others.
    path: Vec<String>,
    /// The keys and indexes that lead to it.
    keys: Vec<String>,
    /// The number of copies of the value there.
    count: u64,
}

impl Default for Place {
    fn default() -> Self {
        Self { path: Vec::new(), keys: Vec::new(), count: 1 }
    }
}

/// Finds every value with `spec.containers`: a pod template, whatever the kind around it.
fn templates<'o>(value: &'o Value, place: &mut Place, found: &mut Vec<PodTemplate<'o>>) {
    if value["spec"]["containers"].is_array() {
        let Place { path, keys, count } = place;
        found.push(PodTemplate {
            path: path.join(" "),
            keys: keys.clone(),
            count: *count,
            object: value,
        });
        return;
    }
    let before = place.count;
    place.count *= times(value);
    match value {
        Value::Object(fields) => {
            for (key, below) in fields {
                let many = if key == "workerTemplate" { workers(value) } else { 1 };
                below_key(below, (key, many), place, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = ["name", "groupName"].iter().find_map(|key| item[key].as_str());
                place.path.extend(name.map(str::to_owned));
                place.keys.push(index.to_string());
                templates(item, place, found);
                place.keys.pop();
                place.path.truncate(place.path.len() - usize::from(name.is_some()));
            }
        }
        _ => {}
    }
    place.count = before;
}

/// Finds the templates in the value of a key, of which there are `many`.
fn below_key<'o>(
    below: &'o Value,
    (key, many): (&str, u64),
    place: &mut Place,
    found: &mut Vec<PodTemplate<'o>>,
) {
    // Keys that every kind has distinguish nothing.
    let tells = !matches!(key, "spec" | "template" | "jobTemplate" | "leaderWorkerTemplate");
    let tells = tells && !key.ends_with("Specs") && key != "replicatedJobs";
    if tells {
        place.path.push(key.to_owned());
    }
    place.keys.push(key.to_owned());
    let before = place.count;
    place.count *= many;
    templates(below, place, found);
    place.count = before;
    place.keys.pop();
    if tells {
        place.path.pop();
    }
}

/// The number of copies of an object's content: `replicas` for most kinds, `parallelism`
/// for a Job, which never runs more pods than are left to complete.
fn times(object: &Value) -> u64 {
    let [replicas, parallelism, completions] =
        ["replicas", "parallelism", "completions"].map(|key| object[key].as_u64());
    let at_a_time = parallelism.map(|number| completions.map_or(number, |all| number.min(all)));
    replicas.or(at_a_time).unwrap_or(1)
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
    let owner_name = name(owner).unwrap_or("pod").trim_end_matches('-');
    let parts = [&[owner_name], path.split_whitespace().collect::<Vec<_>>().as_slice()].concat();
    metadata.insert("name".to_owned(), parts.join("-").to_lowercase().into());
    if let Some(namespace) = owner["metadata"]["namespace"].as_str() {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    // Its controller would own it, which tells admission to which job it belongs.
    let controller = json!({
        "apiVersion": owner["apiVersion"].as_str().unwrap_or("v1"),
        "kind": owner["kind"],
        "name": owner_name,
        "uid": format!("{PLANNED}{}-{owner_name}", owner["kind"].as_str().unwrap_or_default()),
        "controller": true,
    });
    metadata.insert("ownerReferences".to_owned(), json!([controller]));
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": template["spec"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
