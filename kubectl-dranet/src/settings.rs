//! Reads admission's settings in the cluster from the flags of its Deployment.

use crate::args::PolicyArgs;
use admission::fabric::FabricPlacement;
use admission::plan::{Policy, QuotaEscape};
use serde_json::Value;

/// Name of admission's Deployment and of its container (`deploy/chart`).
pub(crate) const ADMISSION: &str = "admission";

/// Admission's policy: its own flags, overridden by those of the command line. Without
/// its Deployment, the chart's defaults.
pub(crate) fn policy(args: &PolicyArgs, objects: &[Value]) -> Policy {
    let mut policy = of_cluster(objects);
    let PolicyArgs { gpu_class, nic_class, max_steps, network_namespaces, fabric_controller } =
        args.clone();
    policy.gpu_class = gpu_class.or(policy.gpu_class);
    policy.nic_class = nic_class.unwrap_or(policy.nic_class);
    policy.max_steps = max_steps.unwrap_or(policy.max_steps);
    policy.fabric = match fabric_controller {
        None => policy.fabric,
        Some(false) => FabricPlacement::Off,
        Some(true) if policy.fabric == FabricPlacement::PodGroups => policy.fabric,
        Some(true) => FabricPlacement::Gates,
    };
    if !network_namespaces.is_empty() {
        policy.network_namespaces = network_namespaces;
    }
    policy
}

/// The same without the command line.
pub(crate) fn of_cluster(objects: &[Value]) -> Policy {
    let default = Policy { fabric: FabricPlacement::Gates, ..Policy::default() };
    let is_it =
        |object: &&Value| object["kind"] == "Deployment" && object["metadata"]["name"] == ADMISSION;
    let Some(deployment) = objects.iter().find(is_it) else { return default };
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let container = containers.into_iter().flatten().find(|it| it["name"] == ADMISSION);
    let Some(args) = container.and_then(|container| container["args"].as_array()) else {
        return default;
    };
    let words: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
    of_flags(&words)
}

/// Parses admission's flags (`admission/src/server/args.rs`); ignores others.
fn of_flags(words: &[&str]) -> Policy {
    let mut policy = Policy::default();
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        // The second flag only has an effect with the first one.
        match word {
            "--fabric-controller" if policy.fabric == FabricPlacement::Off => {
                policy.fabric = FabricPlacement::Gates;
                continue;
            }
            "--fabric-controller" => continue,
            "--pod-groups" => {
                policy.fabric = FabricPlacement::PodGroups;
                continue;
            }
            _ => {}
        }
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag, value),
            None => match words.next_if(|next| !next.starts_with("--")) {
                Some(value) => (word, value),
                None => continue,
            },
        };
        match flag {
            "--gpu-class" => policy.gpu_class = Some(value.to_owned()),
            "--nic-class" => value.clone_into(&mut policy.nic_class),
            "--max-steps" => policy.max_steps = value.parse().unwrap_or(policy.max_steps),
            "--network-namespace" => policy.network_namespaces.push(value.to_owned()),
            "--unknown-shape" => policy.admit_unknown = value == "admit",
            "--scheduler-name" => policy.scheduler_name = Some(value.to_owned()),
            "--quota-escape" if value == "warn" => policy.quota_escape = QuotaEscape::Warn,
            _ => {}
        }
    }
    policy
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(args: &[&str]) -> Value {
        json!({
            "kind": "Deployment",
            "metadata": { "name": "admission" },
            "spec": { "template": { "spec": { "containers": [
                { "name": "sidecar", "args": ["--nic-class=other"] },
                { "name": "admission", "args": args },
            ] } } },
        })
    }

    fn no_flags() -> PolicyArgs {
        PolicyArgs {
            gpu_class: None,
            nic_class: None,
            max_steps: None,
            network_namespaces: Vec::new(),
            fabric_controller: None,
        }
    }

    #[test]
    fn command_line_flags_override_those_of_admission() {
        let cluster = [deployment(&[
            "--listen=0.0.0.0:8443",
            "--gpu-class=gpus",
            "--nic-class",
            "nics",
            "--max-steps=5",
            "--network-namespace=a",
            "--network-namespace=b",
            "--fabric-controller",
            "--unknown-shape=admit",
            "--quota-escape=warn",
            "--scheduler-name=dranet",
        ])];
        let expected = Policy {
            gpu_class: Some("gpus".to_owned()),
            nic_class: "nics".to_owned(),
            max_steps: 5,
            network_namespaces: vec!["a".to_owned(), "b".to_owned()],
            admit_unknown: true,
            fabric: FabricPlacement::Gates,
            scheduler_name: Some("dranet".to_owned()),
            quota_escape: QuotaEscape::Warn,
        };
        assert_eq!(policy(&no_flags(), &cluster), expected);
        let flags = PolicyArgs {
            nic_class: Some("mine".to_owned()),
            fabric_controller: Some(false),
            ..no_flags()
        };
        let expected =
            Policy { nic_class: "mine".to_owned(), fabric: FabricPlacement::Off, ..expected };
        assert_eq!(policy(&flags, &cluster), expected);
        let fabric = |cluster: &[Value]| policy(&no_flags(), cluster).fabric;
        assert_eq!(fabric(&[deployment(&[])]), FabricPlacement::Off);
        let flags = ["--pod-groups", "--fabric-controller"];
        assert_eq!(fabric(&[deployment(&flags)]), FabricPlacement::PodGroups);
        assert_eq!(fabric(&[]), FabricPlacement::Gates, "as the chart installs it");
    }
}
