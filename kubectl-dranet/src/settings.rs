//! Reads admission's settings in the cluster from the flags of its Deployment.

use crate::args::PolicyArgs;
use admission::fabric::FabricPlacement;
use admission::plan::{Policy, QuotaEscape};
use fabric_controller::level_labels::LevelSources;
use serde_json::Value;

/// Name of admission's Deployment and of its container (`deploy/chart`).
pub(crate) const ADMISSION: &str = "admission";

/// Name of the fabric controller's Deployment and of its container.
pub(crate) const FABRIC_CONTROLLER: &str = "fabric-controller";

/// Name of preemptor's Deployment.
pub(crate) const PREEMPTOR: &str = "preemptor";

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
    flags(objects, ADMISSION).map_or(default, |words| of_flags(&words))
}

/// The labels from which the fabric controller copies the domains of nodes. Without its Deployment,
/// the built-in ones.
pub(crate) fn level_sources(objects: &[Value]) -> LevelSources {
    let words = flags(objects, FABRIC_CONTROLLER).unwrap_or_default();
    let mut values = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.split_once('=') {
            Some(("--level-labels", value)) => values.push(value),
            None if word == "--level-labels" => values.extend(words.next()),
            _ => {}
        }
    }
    LevelSources::with(values.into_iter().filter_map(|value| value.parse().ok()).collect())
}

/// The flags of the Deployment with this name, and of its container of the same name.
fn flags<'o>(objects: &'o [Value], name: &str) -> Option<Vec<&'o str>> {
    let deployment = objects
        .iter()
        .find(|object| object["kind"] == "Deployment" && object["metadata"]["name"] == name)?;
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array();
    let container = containers.into_iter().flatten().find(|it| it["name"] == name);
    let args = container.and_then(|container| container["args"].as_array())?;
    Some(args.iter().filter_map(Value::as_str).collect())
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
            "--counted" => policy.counted.extend(value.parse()),
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

    #[test]
    fn the_sources_of_levels_are_those_of_the_fabric_controller() {
        let mut controller = deployment(&[]);
        controller["metadata"]["name"] = FABRIC_CONTROLLER.into();
        let container = &mut controller["spec"]["template"]["spec"]["containers"][1];
        container["name"] = FABRIC_CONTROLLER.into();
        container["args"] =
            json!(["--label-rate=5", "--level-labels", "nvlink=a", "--level-labels=block=b,c"]);
        let own = ["nvlink=a", "block=b,c"].map(|value| value.parse().unwrap());
        assert_eq!(level_sources(&[controller]), LevelSources::with(own.to_vec()));
        assert_eq!(level_sources(&[]), LevelSources::default());
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
            "--counted=gpu.nvidia.com=example.org/gpus",
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
            counted: vec!["gpu.nvidia.com=example.org/gpus".parse().unwrap()],
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
