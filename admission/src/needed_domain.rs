//! The `ComputeDomain` that a pod without a node needs, and its job, which owns it.

use crate::admitted;
use cluster_model::compute_domain::{CHANNEL_CLAIM, ComputeDomain, group_of_template, name};
use cluster_model::names::{annotation, job_label};
use cluster_model::view::ObjectKey;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// What a pod without a node needs of a `ComputeDomain`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NeededDomain {
    /// Namespace and name.
    pub(crate) key: ObjectKey,
    /// The name of the pod, and its UID.
    pub(crate) pod: (String, String),
    /// The group of its pods.
    pub(crate) group: String,
    /// The job: the `ComputeDomain` is deleted with the last of its owners.
    pub(crate) owner: OwnerReference,
    /// The number of pods that the job says; zero if it says none. Each needs a node of its own.
    pub(crate) size: u32,
}

impl NeededDomain {
    /// What a pod needs; `None` if admission has added no claim for a channel to it.
    pub(crate) fn new(pod: &Pod) -> Option<Self> {
        admitted::template(pod)?;
        let metadata = &pod.metadata;
        let annotations = metadata.annotations.as_ref()?;
        annotations.get(annotation::COMPUTE_DOMAIN)?;
        let claims = pod.spec.as_ref()?.resource_claims.as_deref()?;
        let claim = claims.iter().find(|claim| claim.name == CHANNEL_CLAIM)?;
        let template = claim.resource_claim_template_name.as_deref()?;
        let group = group_of_template(template)?.to_owned();
        let namespace = metadata.namespace.clone().unwrap_or_default();
        let size = annotations.get(annotation::FABRIC_SIZE).and_then(|size| size.parse().ok());
        Some(Self {
            key: ObjectKey { namespace, name: name(&group) },
            pod: (metadata.name.clone()?, metadata.uid.clone()?),
            group,
            owner: owner(pod)?,
            size: size.unwrap_or(0),
        })
    }

    /// The `ComputeDomain` to create.
    pub(crate) fn build(&self, owners: Vec<OwnerReference>) -> ComputeDomain {
        let mut domain = ComputeDomain::of_group(&self.key.namespace, &self.group, self.size);
        domain.metadata.owner_references = Some(owners);
        domain
    }
}

/// The job of a pod, as an owner that does not delay deletions: the JobSet, which outlives its Jobs,
/// or else the controller, or else the pod.
fn owner(pod: &Pod) -> Option<OwnerReference> {
    let metadata = &pod.metadata;
    if let Some(labels) = &metadata.labels
        && let Some(name) = labels.get(job_label::JOB_SET)
        && let Some(uid) = labels.get(job_label::JOB_SET_UID)
    {
        return Some(reference("jobset.x-k8s.io/v1alpha2", "JobSet", name.clone(), uid.clone()));
    }
    let mut owners = metadata.owner_references.iter().flatten();
    if let Some(own) = owners.find(|owner| owner.controller == Some(true)) {
        return Some(reference(&own.api_version, &own.kind, own.name.clone(), own.uid.clone()));
    }
    Some(reference(Pod::API_VERSION, Pod::KIND, metadata.name.clone()?, metadata.uid.clone()?))
}

fn reference(api_version: &str, kind: &str, name: String, uid: String) -> OwnerReference {
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name,
        uid,
        ..OwnerReference::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(labels: &Value, owners: &Value) -> Value {
        json!({
            "metadata": {
                "namespace": "n", "name": "p", "uid": "1", "labels": labels,
                "ownerReferences": owners,
                "annotations": {
                    annotation::COMPUTE_DOMAIN: "auto",
                    annotation::FABRIC_SIZE: "4",
                    annotation::PLAN: "1 GPU and 1 NIC; template dranet-0123456789abcdef",
                },
            },
            "spec": {"containers": [], "resourceClaims": [
                {"name": "dranet", "resourceClaimTemplateName": "dranet-0123456789abcdef"},
                {
                    "name": "dranet-compute-domain",
                    "resourceClaimTemplateName": "dranet-compute-domain-g-channel",
                },
            ]},
        })
    }

    fn needed(pod: Value) -> Option<NeededDomain> {
        NeededDomain::new(&serde_json::from_value(pod).unwrap())
    }

    #[test]
    fn a_compute_domain_is_made_for_admitted_pods_only() {
        let admitted = pod(&json!({}), &json!([]));
        assert!(needed(admitted.clone()).is_some());
        for missing in [annotation::PLAN, annotation::COMPUTE_DOMAIN] {
            let mut ghost = admitted.clone();
            ghost["metadata"]["annotations"].as_object_mut().unwrap().remove(missing);
            assert_eq!(needed(ghost), None, "without {missing}");
        }
        let mut other = admitted.clone();
        other["spec"]["resourceClaims"][1]["name"] = "mine".into();
        assert_eq!(needed(other), None, "a claim that admission has not added");
        let mut bare = admitted;
        bare["metadata"]["annotations"] = Value::Null;
        assert_eq!(needed(bare), None);
    }

    fn owned(labels: &Value, owners: &Value) -> Option<(String, String)> {
        let needed = needed(pod(labels, owners))?;
        assert_eq!((&*needed.key.name, needed.size), ("dranet-compute-domain-g", 4));
        assert_eq!(needed.owner.controller, None);
        assert_eq!(needed.pod, ("p".to_owned(), "1".to_owned()));
        let made = needed.build(vec![needed.owner.clone()]);
        assert_eq!(made.spec.num_nodes, 4);
        Some((needed.owner.kind, needed.owner.uid))
    }

    #[test]
    fn a_compute_domain_is_owned_by_the_job() {
        let job = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "2", "controller": true,
        }]);
        let of_set = json!({job_label::JOB_SET: "s", job_label::JOB_SET_UID: "3"});
        for (labels, owners, kind, uid) in [
            (json!({}), json!([]), "Pod", "1"),
            (json!({}), job.clone(), "Job", "2"),
            (json!({job_label::JOB_SET: "s"}), job.clone(), "Job", "2"),
            (of_set, job, "JobSet", "3"),
        ] {
            assert_eq!(owned(&labels, &owners), Some((kind.to_owned(), uid.to_owned())));
        }
    }
}
