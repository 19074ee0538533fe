//! Determines how many pods a group has: which object defines it, and what that object
//! says.

use super::size_paths::{SizePaths, is_of_group, number};
use cluster_model::names::{is_subdomain, job_label, label, pod_group};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

/// Annotation value for the pod's own job.
pub(super) const SAME: &str = "same";

/// Labels and annotations with which pods of several controllers name their job, and the
/// API version and kind of that job.
const BY_LABEL: [(&str, &str, &str); 4] = [
    (job_label::JOB_SET, "jobset.x-k8s.io/v1alpha2", "JobSet"),
    (job_label::LEADER_WORKER_SET, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    (job_label::POD_GROUP, "scheduling.x-k8s.io/v1alpha1", "PodGroup"),
    (job_label::VOLCANO_GROUP, "scheduling.volcano.sh/v1beta1", "PodGroup"),
];

/// The object that defines how many pods a group has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// For example `batch/v1`.
    pub api_version: String,
    /// For example `Job`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The object that defines it if this one does not: a Job, for its `PodGroup`.
    pub otherwise: Option<Box<Self>>,
}

/// How many pods a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Number of pods that exist at the same time.
    pub pods: usize,
    /// Whether all are created at once; otherwise some wait until others run.
    pub at_once: bool,
}

impl Owner {
    /// Returns the object that defines the size of the group of a pod with this annotation
    /// value; `None` for a named group, which may contain several jobs, and if no such object can exist:
    /// names are from pods, and become parts of a URL.
    pub fn new(pod: &Pod, asked: &str) -> Option<Self> {
        if asked != SAME {
            return None;
        }
        for (key, version, kind) in BY_LABEL {
            if let Some(name) = marked(pod, key) {
                return Some(Self::named(version, kind, name));
            }
        }
        let own = controller(pod).map(|it| Self::named(&it.api_version, &it.kind, &it.name));
        let own = own.filter(Self::can_exist);
        let scheduling = pod.spec.as_ref().and_then(|spec| spec.scheduling_group.as_ref());
        let named = scheduling.and_then(|group| group.pod_group_name.as_deref());
        let named = named.filter(|name| is_subdomain(name));
        // The `PodGroup` that was created for the group defines nothing itself.
        if let Some(name) = named.filter(|_| !is_in_pod_group(pod)) {
            let job = own.filter(|own| own.kind == "Job").map(Box::new);
            let pod_group = Self::named("scheduling.k8s.io/v1beta1", "PodGroup", name);
            return Some(Self { otherwise: job, ..pod_group });
        }
        match (marked(pod, job_label::TRAINING_JOB), own) {
            (Some(_), Some(own)) if own.api_version.starts_with("kubeflow.org/") => Some(own),
            // The launcher of an MPIJob is the pod of a Job.
            (Some(name), _) => Some(Self::named("kubeflow.org/v2beta1", "MPIJob", name)),
            (None, own) => own,
        }
    }

    fn named(version: &str, kind: &str, name: &str) -> Self {
        Self {
            api_version: version.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            otherwise: None,
        }
    }

    /// Whether an object of this API version, kind and name can exist.
    fn can_exist(&self) -> bool {
        self.api_version.split('/').all(is_subdomain)
            && self.kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && is_subdomain(&self.name)
    }

    /// Whether its size can be read, so that it is worth a request.
    pub fn has_size(&self, paths: &SizePaths) -> bool {
        let (version, kind) = (self.api_version.as_str(), self.kind.as_str());
        let is_built_in = matches!(
            (version, kind),
            ("batch/v1", "Job") | ("apps/v1", "StatefulSet" | "ReplicaSet")
        );
        is_built_in
            || matches!(kind, "JobSet" | "LeaderWorkerSet" | "PodGroup")
            || version.starts_with("kubeflow.org/")
            || (version, kind) == ("ray.io/v1", "RayCluster")
            || paths.of(version, kind).is_some()
    }
}

/// Whether the pod names the `PodGroup` that is created for its group.
pub(super) fn is_in_pod_group(pod: &Pod) -> bool {
    let group = pod.metadata.labels.as_ref().and_then(|labels| labels.get(label::FABRIC_GROUP));
    let named = pod.spec.as_ref().and_then(|spec| spec.scheduling_group.as_ref());
    let named = named.and_then(|named| named.pod_group_name.as_ref());
    named.is_some() && named == group.map(|group| pod_group(group)).as_ref()
}

/// The label of a pod with this key, otherwise the annotation.
pub(super) fn label_or_annotation<'p>(pod: &'p Pod, key: &str) -> Option<&'p str> {
    let maps = [&pod.metadata.labels, &pod.metadata.annotations];
    maps.into_iter().flatten().find_map(|map| map.get(key)).map(String::as_str)
}

/// The name of an object in a label or annotation of a pod.
fn marked<'p>(pod: &'p Pod, key: &str) -> Option<&'p str> {
    label_or_annotation(pod, key).filter(|name| is_subdomain(name))
}

/// The controller of a pod.
pub(super) fn controller(pod: &Pod) -> Option<&OwnerReference> {
    let mut owners = pod.metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.controller == Some(true))
}

impl Size {
    /// The size of a group whose pods are all created at once.
    pub fn all_at_once(pods: usize) -> Self {
        Self { pods, at_once: true }
    }

    /// Reads the size from the object, by a path if there is one for its kind.
    pub fn read(owner: &Owner, object: &Value, paths: &SizePaths) -> Option<Self> {
        match paths.of(&owner.api_version, &owner.kind) {
            Some(path) => Some(Self::all_at_once(path.pods(object))).filter(|it| it.pods > 0),
            None => Self::of(owner, object),
        }
    }

    /// Reads the size from an object of a built-in kind; `None` if it defines none.
    pub fn of(owner: &Owner, object: &Value) -> Option<Self> {
        let spec = &object["spec"];
        match owner.kind.as_str() {
            "Job" => {
                let done = number(&object["status"]["succeeded"]).unwrap_or(0);
                Some(Self::all_at_once(job(spec, done)))
            }
            "StatefulSet" => {
                let at_once = spec["podManagementPolicy"] == "Parallel";
                Some(Self { pods: number(&spec["replicas"]).unwrap_or(1), at_once })
            }
            "ReplicaSet" => Some(Self::all_at_once(number(&spec["replicas"]).unwrap_or(1))),
            "JobSet" => job_set(spec),
            "LeaderWorkerSet" => Some(leader_worker_set(spec)),
            "RayCluster" => Some(ray_cluster(spec)),
            // Other groups of the workload are unknown.
            "PodGroup" if spec.get("parentCompositePodGroupName").is_some() => None,
            "PodGroup" => {
                let gang = number(&spec["schedulingPolicy"]["gang"]["minCount"]);
                gang.or_else(|| number(&spec["minMember"])).map(Self::all_at_once)
            }
            _ => training_job(spec),
        }
        .filter(|size| size.pods > 0)
    }
}

/// How many pods of a Job run at the same time (`wantActivePods` of the Job controller).
fn job(spec: &Value, done: usize) -> usize {
    let parallelism = number(&spec["parallelism"]).unwrap_or(1);
    let left = number(&spec["completions"]).map(|completions| completions.saturating_sub(done));
    left.map_or(parallelism, |left| left.min(parallelism))
}

fn job_set(spec: &Value) -> Option<Size> {
    let jobs = spec["replicatedJobs"].as_array()?;
    let of_group = jobs.iter().filter(|it| is_of_group(&it["template"]["spec"]["template"]));
    let pods = of_group
        .clone()
        .map(|it| number(&it["replicas"]).unwrap_or(1) * job(&it["template"]["spec"], 0))
        .sum();
    // Jobs may be created one after another, when the earlier ones are ready.
    let in_order = spec["startupPolicy"]["startupPolicyOrder"] == "InOrder";
    let depends = of_group.clone().any(|it| it.get("dependsOn").is_some());
    Some(Size { pods, at_once: of_group.count() < 2 || !(in_order || depends) })
}

fn leader_worker_set(spec: &Value) -> Size {
    let template = &spec["leaderWorkerTemplate"];
    let size = number(&template["size"]).unwrap_or(1);
    let worker = is_of_group(&template["workerTemplate"]);
    let leader = template.get("leaderTemplate").map_or(worker, is_of_group);
    let workers = if worker { size.saturating_sub(1) } else { 0 };
    let waits = spec["startupPolicy"] == "LeaderReady" && leader && workers > 0;
    Size { pods: usize::from(leader) + workers, at_once: !waits }
}

/// A `RayCluster`, also that of a `RayJob` (ray-project/kuberay, `GetWorkerGroupDesiredReplicas` in
/// `ray-operator/controllers/ray/utils/util.go`): its replicas are kept between `minReplicas` and
/// `maxReplicas`, and a suspended group of workers has no pods.
fn ray_cluster(spec: &Value) -> Size {
    let head = usize::from(is_of_group(&spec["headGroupSpec"]["template"]));
    let groups = spec["workerGroupSpecs"].as_array().into_iter().flatten();
    let of_group =
        groups.filter(|it| is_of_group(&it["template"]) && it["suspend"].as_bool() != Some(true));
    let workers = of_group.map(|group| {
        let least = number(&group["minReplicas"]).unwrap_or(0);
        let most = number(&group["maxReplicas"]).unwrap_or(usize::MAX);
        let replicas = number(&group["replicas"]).unwrap_or(0).max(least).min(most);
        replicas.saturating_mul(number(&group["numOfHosts"]).unwrap_or(1))
    });
    Size::all_at_once(workers.fold(head, usize::saturating_add))
}

/// Kinds with `mpiReplicaSpecs`, `pytorchReplicaSpecs` and similar fields.
fn training_job(spec: &Value) -> Option<Size> {
    let sets = spec.as_object()?.iter().find(|(key, _)| key.ends_with("ReplicaSpecs"))?.1;
    let of_group = sets.as_object()?.iter().filter(|(_, set)| is_of_group(&set["template"]));
    let pods = of_group.clone().map(|(_, set)| number(&set["replicas"]).unwrap_or(1)).sum();
    // The launcher of an MPIJob may be created only when its workers run.
    let waits = spec["launcherCreationPolicy"] == "WaitForWorkersReady";
    let has_launcher = of_group.into_iter().any(|(role, _)| role == "Launcher");
    Some(Size { pods, at_once: !(waits && has_launcher) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::names::annotation;
    use serde_json::json;

    fn pod(labels: &Value, controller: Option<(&str, &str)>) -> Pod {
        let owner = |(version, kind): (&str, &str)| json!({"apiVersion": version, "kind": kind, "name": "own", "uid": "1", "controller": true});
        serde_json::from_value(json!({"metadata": {
            "labels": labels,
            "ownerReferences": controller.map(owner).into_iter().collect::<Vec<_>>(),
        }}))
        .unwrap()
    }

    #[test]
    fn the_job_of_a_pod_is_found_from_its_labels_and_its_controller() {
        let job = Some(("batch/v1", "Job"));
        for (labels, controller, expected) in [
            (json!({}), job, Some("batch/v1 Job own")),
            (json!({}), Some(("apps/v1", "StatefulSet")), Some("apps/v1 StatefulSet own")),
            (json!({}), Some(("example.com/v1", "Farm")), Some("example.com/v1 Farm own")),
            (json!({}), None, None),
            (json!({job_label::JOB_SET: "a"}), job, Some("jobset.x-k8s.io/v1alpha2 JobSet a")),
            (
                json!({job_label::LEADER_WORKER_SET: "a"}),
                Some(("apps/v1", "StatefulSet")),
                Some("leaderworkerset.x-k8s.io/v1 LeaderWorkerSet a"),
            ),
            (
                json!({job_label::TRAINING_JOB: "a"}),
                Some(("kubeflow.org/v1", "PyTorchJob")),
                Some("kubeflow.org/v1 PyTorchJob own"),
            ),
            (json!({job_label::TRAINING_JOB: "a"}), job, Some("kubeflow.org/v2beta1 MPIJob a")),
            (
                json!({job_label::POD_GROUP: "a"}),
                None,
                Some("scheduling.x-k8s.io/v1alpha1 PodGroup a"),
            ),
        ] {
            let pod = pod(&labels, controller);
            let found = Owner::new(&pod, "same");
            let text = found.map(|it| format!("{} {} {}", it.api_version, it.kind, it.name));
            assert_eq!(text.as_deref(), expected, "{labels} {controller:?}");
            assert_eq!(Owner::new(&pod, "named"), None);
        }
        let with_group =
            json!({"spec": {"containers": [], "schedulingGroup": {"podGroupName": "g"}}});
        let mut with_group: Pod = serde_json::from_value(with_group).unwrap();
        let owner = Owner::new(&with_group, "same").unwrap();
        assert_eq!((&*owner.api_version, &*owner.name), ("scheduling.k8s.io/v1beta1", "g"));
        assert_eq!(owner.otherwise, None);
        with_group.metadata = pod(&json!({}), job).metadata;
        let owner = Owner::new(&with_group, "same").unwrap();
        assert_eq!(owner.otherwise.map(|it| it.kind).as_deref(), Some("Job"));
        let of_set = pod(&json!({job_label::JOB_SET: "a"}), job).metadata;
        with_group.metadata = of_set;
        let owner = Owner::new(&with_group, "same").unwrap();
        assert_eq!(owner.kind, "JobSet", "it has a PodGroup for each of its Jobs");
    }

    #[test]
    fn names_that_no_object_can_have_lead_to_none() {
        for name in
            ["bad name 1", "a?watch=true", "../pods/p", "a/b", "%2e%2e", "a\nERROR", "A", ""]
        {
            let pod: Pod = serde_json::from_value(json!({"metadata": {
                "annotations": {job_label::JOB_SET: name, job_label::POD_GROUP: name},
                "ownerReferences": [
                    {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "1", "controller": true},
                ],
            }}))
            .unwrap();
            assert_eq!(Owner::new(&pod, "same"), None, "{name}");
        }
        for (version, kind) in
            [("kubeflow.org/v1?a", "MPIJob"), ("a/../b", "JobSet"), ("batch/v1", "Job/../x")]
        {
            let pod = pod(&json!({}), Some((version, kind)));
            assert_eq!(Owner::new(&pod, "same"), None, "{version} {kind}");
        }
    }

    #[test]
    fn a_ray_cluster_has_the_pods_that_its_operator_creates() {
        let ours = json!({"metadata": {"annotations": {annotation::FABRIC: "same"}}});
        let owner = Owner {
            api_version: "ray.io/v1".into(),
            kind: "RayCluster".into(),
            name: String::new(),
            otherwise: None,
        };
        for (head, workers, expected) in [
            (&json!({}), json!([{"replicas": 4}, {"replicas": 2, "numOfHosts": 3}]), 10),
            (&ours, json!([{"replicas": 4}]), 5),
            // Its CRD has 0 by default.
            (&ours, json!([{}, {"minReplicas": 2}, {"replicas": 1, "minReplicas": 3}]), 6),
            (&ours, json!([{"replicas": 9, "maxReplicas": 4}]), 5),
            (
                &ours,
                json!([{"replicas": 4, "suspend": true}, {"replicas": 1, "suspend": false}]),
                2,
            ),
            (&ours, json!([{"replicas": u64::MAX, "numOfHosts": 2}]), usize::MAX),
            (&ours, json!("none"), 1),
        ] {
            let mut workers = workers;
            for group in workers.as_array_mut().into_iter().flatten() {
                group["template"] = ours.clone();
            }
            let spec = json!({"headGroupSpec": {"template": head}, "workerGroupSpecs": workers});
            let found = Size::of(&owner, &json!({"spec": spec}));
            assert_eq!(found, Some(Size { pods: expected, at_once: true }), "{spec}");
        }
        let others = json!({"spec": {"workerGroupSpecs": [{"replicas": 4, "template": {}}]}});
        assert_eq!(Size::of(&owner, &others), None);
        assert!(owner.has_size(&SizePaths::default()));
    }

    #[test]
    fn group_sizes_are_read_from_every_kind_of_controller() {
        let ours = json!({"metadata": {"annotations": {annotation::FABRIC: "same"}}});
        let mut replicated = json!({"replicas": 2, "template": {"spec": {"parallelism": 3}}});
        replicated["template"]["spec"]["template"] = ours.clone();
        let launcher = json!({"replicas": 1, "template": {"spec": {}}});
        let mut depends = replicated.clone();
        depends["dependsOn"] = json!([{"name": "first", "status": "Ready"}]);
        let lws = |leader: Option<Value>, policy: &str| {
            let mut template = json!({"size": 4, "workerTemplate": ours});
            if let Some(leader) = leader {
                template["leaderTemplate"] = leader;
            }
            json!({"startupPolicy": policy, "leaderWorkerTemplate": template})
        };
        let sets = |sets: Value| json!({"mpiReplicaSpecs": sets});
        for (kind, spec, status, expected) in [
            ("Job", json!({}), json!({}), Some((1, true))),
            ("Job", json!({"parallelism": 4}), json!({}), Some((4, true))),
            ("Job", json!({"parallelism": 4, "completions": 8}), json!({}), Some((4, true))),
            (
                "Job",
                json!({"parallelism": 4, "completions": 8}),
                json!({"succeeded": 6}),
                Some((2, true)),
            ),
            ("Job", json!({"parallelism": 0}), json!({}), None),
            ("StatefulSet", json!({"replicas": 3}), json!({}), Some((3, false))),
            (
                "StatefulSet",
                json!({"replicas": 3, "podManagementPolicy": "Parallel"}),
                json!({}),
                Some((3, true)),
            ),
            ("ReplicaSet", json!({"replicas": 3}), json!({}), Some((3, true))),
            (
                "JobSet",
                json!({"replicatedJobs": [launcher, replicated]}),
                json!({}),
                Some((6, true)),
            ),
            ("JobSet", json!({"replicatedJobs": [launcher]}), json!({}), None),
            (
                "JobSet",
                json!({"replicatedJobs": [replicated, depends]}),
                json!({}),
                Some((12, false)),
            ),
            ("LeaderWorkerSet", lws(None, "LeaderCreated"), json!({}), Some((4, true))),
            ("LeaderWorkerSet", lws(None, "LeaderReady"), json!({}), Some((4, false))),
            ("LeaderWorkerSet", lws(Some(json!({})), "LeaderReady"), json!({}), Some((3, true))),
            ("PodGroup", json!({"minMember": 5}), json!({}), Some((5, true))),
            (
                "PodGroup",
                json!({"schedulingPolicy": {"gang": {"minCount": 6}}}),
                json!({}),
                Some((6, true)),
            ),
            ("PodGroup", json!({"schedulingPolicy": {"basic": {}}}), json!({}), None),
            (
                "PodGroup",
                json!({
                    "schedulingPolicy": {"gang": {"minCount": 6}},
                    "parentCompositePodGroupName": "all",
                }),
                json!({}),
                None,
            ),
            (
                "MPIJob",
                sets(
                    json!({"Launcher": {"template": {}}, "Worker": {"replicas": 8, "template": ours}}),
                ),
                json!({}),
                Some((8, true)),
            ),
            (
                "MPIJob",
                json!({
                    "launcherCreationPolicy": "WaitForWorkersReady",
                    "mpiReplicaSpecs": {
                        "Launcher": {"template": ours},
                        "Worker": {"replicas": 8, "template": ours},
                    },
                }),
                json!({}),
                Some((9, false)),
            ),
            ("MPIJob", json!({}), json!({}), None),
        ] {
            let owner = Owner {
                api_version: String::new(),
                kind: kind.into(),
                name: String::new(),
                otherwise: None,
            };
            let found = Size::of(&owner, &json!({"spec": spec, "status": status}));
            let found = found.map(|size| (size.pods, size.at_once));
            assert_eq!(found, expected, "{kind} {spec} {status}");
        }
    }
}
