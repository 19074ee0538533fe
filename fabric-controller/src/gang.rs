//! The pods that a job loses together: without one of them the others do nothing. Pods that ask for a
//! fabric are such a gang, and so are those that a controller numbers or marks as parts of one job.

use super::job_name::JobName;
use super::size::{Owner, SAME, controller, label_or_annotation};
use cluster_model::names::{annotation, job_label, label};
use k8s_openapi::api::core::v1::Pod;

/// A gang.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gang {
    /// Its identity among all gangs: what marks its pods, with the namespace.
    pub key: Box<str>,
    /// What people call it, for example `Job default/big`.
    pub title: Box<str>,
}

impl Gang {
    /// The gang of a pod; `None` if it runs by itself, as the pods of a Deployment do.
    pub fn new(pod: &Pod) -> Option<Self> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let marks = [label::FABRIC_GROUP].into_iter().chain(job_label::JOBS);
        let mut marked = marks.filter_map(|key| Some((key, label_or_annotation(pod, key)?)));
        let scheduling = pod.spec.as_ref().and_then(|spec| spec.scheduling_group.as_ref());
        let pod_group = scheduling.and_then(|group| group.pod_group_name.as_deref());
        let by_group = pod_group.map(|name| ("pod-group", name));
        let (mark, value) = marked.next().or(by_group).or_else(|| of_indexed_job(pod))?;
        let annotations = pod.metadata.annotations.as_ref();
        let asked = annotations.and_then(|all| all.get(annotation::FABRIC));
        let asked = asked.map_or(SAME, String::as_str);
        let title = JobName::new(pod, asked, Owner::new(pod, asked).as_ref());
        Some(Self {
            key: format!("{namespace}/{mark}/{value}").into(),
            title: title.in_namespace(namespace).into(),
        })
    }
}

/// The UID of the Job that numbers its pods.
fn of_indexed_job(pod: &Pod) -> Option<(&str, &str)> {
    label_or_annotation(pod, job_label::COMPLETION_INDEX)?;
    Some(("controller", &controller(pod)?.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn pods_of_jobs_are_gangs_and_those_of_deployments_are_not() {
        let owner = |kind: &str| json!([{"apiVersion": "batch/v1", "kind": kind, "name": "own", "uid": "1", "controller": true}]);
        let index = json!({job_label::COMPLETION_INDEX: "3"});
        for (labels, owners, expected) in [
            (json!({}), owner("Job"), None),
            (index.clone(), owner("Job"), Some("Job n/own")),
            (json!({}), owner("ReplicaSet"), None),
            (json!({label::FABRIC_GROUP: "g"}), owner("ReplicaSet"), Some("ReplicaSet n/own")),
            (json!({job_label::JOB_SET: "set"}), owner("Job"), Some("JobSet n/set")),
            (json!({}), Value::Null, None),
        ] {
            let pod = json!({"metadata": {"namespace": "n", "labels": labels, "ownerReferences": owners}});
            let gang = Gang::new(&serde_json::from_value(pod.clone()).unwrap());
            assert_eq!(gang.as_ref().map(|it| &*it.title), expected, "{pod}");
        }
    }
}
