//! How kubelets assign CPUs to pods that have devices by claims.

use super::checks::Outcome;
use super::scene::Scene;
use crate::answer::{DoctorFinding, Severity};
use crate::kinds::DEVICES;
use crate::live::Cluster;
use crate::nodes::machine;
use cluster_model::names::cpu;
use cluster_model::node_devices::published;
use cluster_model::view::ClusterView;
use serde_json::Value;
use std::collections::BTreeMap;

/// Asks a kubelet of each machine type for its configuration.
#[expect(clippy::unnecessary_wraps, reason = "same signature as the others")]
pub(super) fn ask(scene: &Scene<'_>, cluster: &Cluster) -> anyhow::Result<Outcome> {
    let asked = asked(scene.view);
    let (mut outcome, mut is_silent) = (Outcome::default(), !asked.is_empty());
    for node in &asked {
        let (config, note) = cluster.kubelet_config(node);
        is_silent &= config.is_none();
        outcome.findings.0.extend(config.and_then(|it| examine(scene.view, node, &it)));
        outcome.notes.extend(note.filter(|note| !outcome.notes.contains(note)));
    }
    if is_silent {
        let why = scene.unread(&DEVICES);
        outcome.skipped = Some(why.unwrap_or_else(|| "no kubelet answered".to_owned()));
    }
    Ok(outcome)
}

/// The first node of each machine type with GPUs and NICs: kubelets of one machine type are
/// configured alike.
fn asked(view: &ClusterView) -> Vec<String> {
    let mut first: BTreeMap<String, &str> = BTreeMap::new();
    for node in view.present_nodes() {
        if published(view, node).any(|(role, _)| role.is_gpu())
            && published(view, node).any(|(role, _)| role.is_nic())
        {
            first.entry(machine(view, node)).or_insert(node);
        }
    }
    first.into_values().map(str::to_owned).collect()
}

/// Checks the configuration of a node's kubelet (`KubeletConfiguration`, from its endpoint
/// `/configz`).
fn examine(view: &ClusterView, node: &str, config: &Value) -> Option<DoctorFinding> {
    let [cpus, topology] = ["cpuManagerPolicy", "topologyManagerPolicy"]
        .map(|field| config[field].as_str().unwrap_or("none"));
    let devices = view.inventory().devices_on(node, view.settings()).unwrap_or_default();
    let has_cpu_driver = devices.iter().any(|device| *device.id().driver == *cpu::DRIVER);
    let (severity, message) = match (has_cpu_driver, cpus == "static", topology) {
        (true, true, _) => (
            Severity::Warning,
            format!(
                "has cpuManagerPolicy: static, but driver {} also assigns the CPUs; set the policy to \
                 none",
                cpu::DRIVER
            ),
        ),
        (false, _, "restricted" | "single-numa-node") => (
            Severity::Warning,
            format!(
                "has topologyManagerPolicy: {topology}, which does not know the devices of claims: it \
                 puts a pod's CPUs on any NUMA node, or rejects the pod; set none or best-effort"
            ),
        ),
        (false, false, _) => (
            Severity::Note,
            format!(
                "has cpuManagerPolicy: {cpus}, and no DRA driver publishes CPUs, so the threads of a \
                 container may run far from its GPUs and NICs; set static, or install a DRA driver \
                 for CPUs and use dranet.io/aligned-cpus"
            ),
        ),
        _ => return None,
    };
    let place = format!("kubelet of node {node} (machine type {})", machine(view, node));
    Some(DoctorFinding { severity, place, message })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::snapshot::load_keeping;
    use cluster_model::view::Index as _;
    use k8s_openapi::api::resource::v1::ResourceSlice;
    use serde_json::json;
    use std::path::Path;

    const NODE: &str = "aks-gpu-45139532-vmss000081";

    fn found(view: &ClusterView, cpus: &str, topology: &str) -> Option<String> {
        let config = json!({ "cpuManagerPolicy": cpus, "topologyManagerPolicy": topology });
        examine(view, NODE, &config).map(|it| {
            let words: Vec<_> = it.message.split(", ").next().into_iter().collect();
            format!("{}: {}", it.severity, words.concat())
        })
    }

    #[test]
    fn policies_that_work_against_claims_are_found() {
        let example = Path::new("../deploy/examples/aks-gb300/cluster.yaml");
        let mut view = load_keeping(example, &[]).unwrap().view;
        assert_eq!(asked(&view), [NODE]);
        let note = "note: has cpuManagerPolicy: none";
        assert_eq!(found(&view, "none", "none").as_deref(), Some(note));
        assert_eq!(examine(&view, NODE, &json!({})).map(|it| it.severity), Some(Severity::Note));
        assert_eq!(found(&view, "static", "best-effort"), None);
        assert_eq!(
            found(&view, "static", "single-numa-node").as_deref(),
            Some("warning: has topologyManagerPolicy: single-numa-node")
        );
        let slice = json!({
            "metadata": { "name": "cpus" },
            "spec": {
                "driver": "dra.cpu", "nodeName": NODE,
                "pool": { "name": NODE, "generation": 1, "resourceSliceCount": 1 },
                "devices": [{ "name": "numa0" }],
            },
        });
        view.apply(serde_json::from_value::<ResourceSlice>(slice).unwrap()).unwrap();
        assert_eq!(found(&view, "none", "none"), None);
        assert_eq!(
            found(&view, "static", "none").as_deref(),
            Some("warning: has cpuManagerPolicy: static")
        );
    }
}
