//! Compares the requests of the programs in the whole run, from the audit log of the API server,
//! with the permissions that `deploy` grants. No request is refused, and no permission is unused.

use std::collections::BTreeSet;

use anyhow::Context;
use kube::ResourceExt;
use tests::{audit::Audit, binaries, manifest};

/// The files of the roles of each account.
const ROLES: [(&str, &[&str]); 6] = [
    ("node-driver", &["manifests/node-driver-rbac.yaml"]),
    ("admission", &["manifests/admission-rbac.yaml"]),
    ("admission-authority", &["manifests/admission-authority.yaml"]),
    (
        "fabric-controller",
        &["manifests/fabric-controller-rbac.yaml", "components/fabric-evict/fabric-evict.yaml"],
    ),
    ("preemptor", &["components/preemption/preemptor-rbac.yaml"]),
    ("scheduler-ext", &["components/kubeadm-scheduler/scheduler-ext-rbac.yaml"]),
];

/// Permissions that need not be used in this suite: account, group and resource, verb, and when it
/// is used.
const ELSEWHERE: &[(&str, &str, &str, &str)] = &[
    ("node-driver", "resource.k8s.io/resourceclaims", "get", "suite node: claims are prepared"),
    ("node-driver", "resource.k8s.io/resourceclaims", "list", "suite node: ranges of addresses"),
    ("node-driver", "resource.k8s.io/resourceclaims", "watch", "suite node: ranges of addresses"),
    ("node-driver", "resource.k8s.io/resourceclaims/status", "patch", "suite node"),
    ("node-driver", "topology.dranet.io/nicpools", "get", "a claim that names a pool"),
    ("node-driver", "topology.dranet.io/nicaddresses", "create", "a claim that names a pool"),
    ("node-driver", "topology.dranet.io/nicaddresses", "list", "a claim that names a pool"),
    ("node-driver", "resource.k8s.io/resourceclaims/driver", "associated-node:patch", "suite node"),
    (
        "admission",
        "events.k8s.io/events",
        "create",
        "a pod that waits for a cell while another is free",
    ),
    ("admission", "events.k8s.io/events", "patch", "an event that happens again"),
    (
        "admission",
        "resource.k8s.io/resourceclaimtemplates",
        "get",
        "two replicas create a template in the same moment",
    ),
    ("admission", "scheduling.k8s.io/podgroups", "list", "API servers that have the group on"),
    ("admission", "scheduling.k8s.io/podgroups", "watch", "API servers that have the group on"),
    (
        "admission",
        "resource.nvidia.com/computedomains",
        "patch",
        "a job of several controllers that are not of a JobSet",
    ),
    (
        "admission",
        "scheduling.k8s.io/compositepodgroups",
        "list",
        "API servers that have the group on",
    ),
    (
        "admission",
        "scheduling.k8s.io/compositepodgroups",
        "watch",
        "API servers that have the group on",
    ),
    ("fabric-controller", "apps/replicasets", "get", "a group of a ReplicaSet: its size"),
    ("fabric-controller", "events.k8s.io/events", "patch", "an event that happens again"),
    (
        "fabric-controller",
        "scheduling.k8s.io/podgroups",
        "get",
        "API servers that have the group on",
    ),
    ("preemptor", "apps/replicasets", "get", "as for fabric-controller"),
    ("preemptor", "apps/statefulsets", "get", "as for fabric-controller"),
    ("preemptor", "batch/jobs", "get", "as for fabric-controller"),
    ("preemptor", "events.k8s.io/events", "patch", "an event that happens again"),
    ("preemptor", "scheduling.k8s.io/podgroups", "get", "API servers that have the group on"),
    (
        "preemptor",
        "resource.k8s.io/resourceclaims/binding",
        "patch",
        "kube-apiserver asks for it when the allocation changes, and does not log it",
    ),
    (
        "scheduler-ext",
        "events.k8s.io/events",
        "create",
        "a pod whose devices are on two NUMA nodes",
    ),
    ("scheduler-ext", "events.k8s.io/events", "patch", "an event that happens again"),
];
/// Requests that a test makes to see them refused: account, group and resource, verb.
const TRIED: &[(&str, &str, &str)] =
    &[("node-driver", "topology.dranet.io/nicaddresses", "delete")];
/// Groups whose definitions are not installed here, since they belong to operators of jobs.
const FOREIGN_GROUPS: [&str; 7] = [
    "grove.io",
    "jobset.x-k8s.io",
    "kubeflow.org",
    "leaderworkerset.x-k8s.io",
    "ray.io",
    "scheduling.volcano.sh",
    "scheduling.x-k8s.io",
];

/// Compares after all tests have run.
pub(crate) fn compare(audit: &Audit) -> anyhow::Result<()> {
    let mut findings = Vec::new();
    for (account, files) in ROLES {
        let requests = Requests::new(account, audit)?;
        let granted = granted(files)?;
        // A granted request is refused only while a new API server has not read the roles.
        let is_tried =
            |(what, by): &(String, String)| TRIED.contains(&(account, what.as_str(), by.as_str()));
        let refused = requests.refused.iter().filter(|it| !granted.contains(*it));
        let refused = refused.filter(|it| !is_tried(it));
        findings.extend(refused.map(|(what, by)| format!("{account} is refused {by} {what}")));
        for (resource, verb) in granted {
            let is_used = requests.allowed.contains(&(resource.clone(), verb.clone()));
            let group = resource.split('/').next().unwrap_or_default();
            let elsewhere = ELSEWHERE.iter().any(|(its, what, by, _)| {
                (*its, *what, *by) == (account, resource.as_str(), verb.as_str())
            });
            if !is_used && !elsewhere && !FOREIGN_GROUPS.contains(&group) {
                findings.push(format!("{account} never does {verb} {resource}"));
            }
        }
    }
    anyhow::ensure!(findings.is_empty(), "{findings:#?}");
    Ok(())
}

/// The requests of an account, each as GROUP/RESOURCE and verb.
#[derive(Debug, Default)]
struct Requests {
    allowed: BTreeSet<(String, String)>,
    refused: BTreeSet<(String, String)>,
}

impl Requests {
    fn new(account: &str, audit: &Audit) -> anyhow::Result<Self> {
        let mut requests = Self::default();
        for event in audit.events()?.filter(|event| event.account() == Some(account)) {
            let request = (event.resource(), event.verb().to_owned());
            match event.decision() {
                ("forbid", _) => {
                    requests.refused.insert(request);
                }
                // Only permissions that `deploy` binds count, not those that a test grants.
                ("allow", reason) if reason.contains("Binding \"dranet-") => {
                    requests.allowed.insert(request);
                }
                _ => {}
            }
        }
        anyhow::ensure!(!requests.allowed.is_empty(), "{account} made no request");
        Ok(requests)
    }
}

/// The permissions that the roles in these files grant.
fn granted(files: &[&str]) -> anyhow::Result<BTreeSet<(String, String)>> {
    let mut all = BTreeSet::new();
    for file in files {
        for object in manifest::read(&binaries::in_tests("../deploy").join(file))? {
            let kind = object.types.as_ref().map_or("", |types| &types.kind);
            if !kind.ends_with("Role") {
                continue;
            }
            let rules = object.data["rules"].as_array().with_context(|| object.name_any())?;
            for rule in rules {
                let list = |key: &str| {
                    let list = rule[key].as_array().into_iter().flatten();
                    list.filter_map(|it| Some(it.as_str()?.to_owned())).collect::<Vec<_>>()
                };
                for group in list("apiGroups") {
                    for resource in list("resources") {
                        for verb in list("verbs") {
                            all.insert((format!("{group}/{resource}"), verb));
                        }
                    }
                }
            }
        }
    }
    Ok(all)
}
