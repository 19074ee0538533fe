//! Rights that the project's parts cannot work without, as the API server's authorizers answer.

use super::checks::Outcome;
use super::scene::Scene;
use crate::answer::{DoctorFinding, Severity};
use crate::live::Cluster;
use crate::text::string;
use serde_json::{Value, json};

/// A right that a part needs: the part, the verb, the group, the resource, and what does not work
/// without it.
type Right = [&'static str; 5];

/// The rights in `deploy/chart/templates/*-rbac.yaml` without which a part fails completely,
/// whatever the chart's values.
const NEEDED: [Right; 9] = [
    ["admission", "create", DRA, "resourceclaimtemplates", "annotated pods are admitted and wait"],
    ["admission", "watch", DRA, "resourceslices", "it never becomes ready"],
    ["admission", "watch", TOPOLOGY, "nodetopologies", "it never becomes ready"],
    ["node-driver", "create", DRA, "resourceslices", "no NIC is published"],
    ["node-driver", "create", TOPOLOGY, "nodetopologies", "no graph is published"],
    ["node-driver", "get", DRA, "resourceclaims", "no pod with NICs starts"],
    ["fabric-controller", "watch", "", "pods", "it never becomes ready"],
    ["fabric-controller", "watch", DRA, "resourceclaims", "it never becomes ready"],
    ["scheduler-ext", "watch", DRA, "resourceclaims", "nodes are ranked without it"],
];

const DRA: &str = "resource.k8s.io";
const TOPOLOGY: &str = "topology.dranet.io";

/// What is noted if the user may not ask about the rights of others.
const UNKNOWN: &str = "you may not create subjectaccessreviews.authorization.k8s.io, so the rights of \
                       the project's service accounts are not checked";

/// Asks the API server about the rights of the parts that are installed.
pub(super) fn ask(scene: &Scene<'_>, cluster: &Cluster) -> anyhow::Result<Outcome> {
    let workloads = scene.seen.of_kind("Deployment").chain(scene.seen.of_kind("DaemonSet"));
    let mut outcome = Outcome::default();
    for (review, finding) in workloads.flat_map(of_workload) {
        match cluster.is_allowed(&review)? {
            Some(true) => {}
            Some(false) => outcome.findings.0.push(finding),
            None => {
                let skipped = Outcome::skipped("you may not create subjectaccessreviews");
                return Ok(Outcome { notes: vec![UNKNOWN.to_owned()], ..skipped });
            }
        }
    }
    Ok(outcome)
}

/// `SubjectAccessReview`s, each with the finding if it is denied.
fn of_workload(object: &Value) -> Vec<(Value, DoctorFinding)> {
    let metadata = &object["metadata"];
    let (name, namespace) = (string(&metadata["name"]), string(&metadata["namespace"]));
    let account = string(&object["spec"]["template"]["spec"]["serviceAccountName"]);
    let is_ours = metadata["labels"]["app.kubernetes.io/part-of"] == "dranet";
    let of_part = NEEDED.into_iter().filter(|[part, ..]| is_ours && *part == name);
    of_part.map(|right| asked(right, &namespace, &account)).collect()
}

fn asked(right: Right, namespace: &str, account: &str) -> (Value, DoctorFinding) {
    let [part, verb, group, resource, without] = right;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": format!("system:serviceaccount:{namespace}:{account}"),
            "groups": [
                "system:serviceaccounts",
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated",
            ],
            "resourceAttributes": { "verb": verb, "group": group, "resource": resource },
        },
    });
    let resource =
        if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    let message = format!(
        "of {part} may not {verb} {resource}, so {without}; apply the RBAC of the chart or of \
         the manifests again"
    );
    let place = format!("service account {namespace}/{account}");
    (review, DoctorFinding { severity: Severity::Error, place, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The manifests grant every right, so an installation from them lacks none.
    #[test]
    fn rights_are_those_of_the_manifests() {
        for [part, verb, group, resource, _] in NEEDED {
            let of = format!(
                "{}/../deploy/chart/templates/{part}-rbac.yaml",
                env!("CARGO_MANIFEST_DIR")
            );
            let text = std::fs::read_to_string(&of).unwrap();
            let mut rules = text.split("- apiGroups: ").skip(1);
            let group = if group.is_empty() { "[\"\"]".to_owned() } else { format!("[{group}]") };
            let words = |line: &str| -> Vec<String> {
                let inner = line.split(['[', ']']).nth(1).unwrap_or_default();
                inner.split(", ").map(str::to_owned).collect()
            };
            let grants = |rule: &str, field: &str, word: &str| {
                let line = rule.lines().find(|line| line.trim_start().starts_with(field));
                line.is_some_and(|line| words(line).iter().any(|it| it == word))
            };
            let is_granted = rules.any(|rule| {
                rule.starts_with(&group)
                    && grants(rule, "resources:", resource)
                    && grants(rule, "verbs:", verb)
            });
            assert!(is_granted, "{part}: {verb} {resource}");
        }
    }

    #[test]
    fn parts_that_are_installed_are_asked_about() {
        let object = |name: &str, part_of: &str| {
            json!({
                "metadata": { "name": name, "namespace": "d", "labels": { "app.kubernetes.io/part-of": part_of } },
                "spec": { "template": { "spec": { "serviceAccountName": "s" } } },
            })
        };
        assert_eq!(of_workload(&object("admission", "other")).len(), 0);
        let asked = of_workload(&object("fabric-controller", "dranet"));
        let (review, finding) = &asked[0];
        assert_eq!(review["spec"]["user"], "system:serviceaccount:d:s");
        assert_eq!(finding.place, "service account d/s");
        assert!(finding.message.starts_with("of fabric-controller may not watch pods, so"));
    }
}
