//! Karpenter with its provider `kwok` on a control plane, with all permissions. It creates Node objects; the
//! test plays their kubelets and drivers.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::Context;
use serde_json::{Value, json};

use crate::{ControlPlane, Process, Program, Scope, binaries, ports};

const READY: Duration = Duration::from_mins(1);

/// A running Karpenter; it is killed when dropped.
#[derive(Debug)]
pub struct Karpenter(Process);

impl Karpenter {
    /// Starts it with an instance type for each of these built-in machines, which is named like the machine
    /// and has the devices that `kubectl dranet machines` prints, and with a pool of nodes for each, whose
    /// nodes get these labels.
    pub async fn start(
        plane: &ControlPlane,
        scope: &Scope,
        machines: &[&str],
        labels: &Value,
    ) -> anyhow::Result<Self> {
        for file in fs::read_dir(binaries::neighbour("karpenter-definitions")?)? {
            scope.apply_file(&file?.path()).await?;
        }
        let root = plane.directory().join("karpenter");
        fs::create_dir_all(&root)?;
        let types = root.join("types.json");
        let all: Vec<_> = machines.iter().map(|name| instance_type(name)).collect();
        fs::write(&types, Value::from(all).to_string())?;
        let devices = machines.iter().map(|name| Ok(((*name).to_owned(), devices(name)?)));
        let devices = devices.collect::<anyhow::Result<BTreeMap<_, _>>>()?;
        let resources = root.join("resources.json");
        fs::write(&resources, serde_json::to_string(&devices)?)?;

        let (metrics, health) = (ports::free()?, ports::free()?);
        let process = Program::new(binaries::neighbour("karpenter")?, plane.logs())
            .env("KUBECONFIG", &plane.kubeconfig().display().to_string())
            .env("INSTANCE_TYPES_FILE_PATH", &types.display().to_string())
            .env("DYNAMIC_RESOURCES_FILE_PATH", &resources.display().to_string())
            .env("IGNORE_DRA_REQUESTS", "false")
            .env("DISABLE_LEADER_ELECTION", "true")
            .env("METRICS_PORT", &metrics.to_string())
            .env("HEALTH_PROBE_PORT", &health.to_string())
            .spawn()?;
        process.wait_until_ready(&format!("http://127.0.0.1:{health}/readyz"), READY).await?;
        let class = json!({
            "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass",
            "metadata": {"name": "default"},
        });
        scope.apply(serde_json::from_value(class)?).await?;
        for machine in machines {
            scope.apply(serde_json::from_value(pool(machine, labels))?).await?;
        }
        Ok(Self(process))
    }

    /// The process.
    pub fn process(&self) -> &Process {
        &self.0
    }
}

/// An instance type as the provider reads it. Its GPUs are devices, so no extended resource counts them.
fn instance_type(name: &str) -> Value {
    let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
    json!({
        "name": name,
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": "128", "memory": "1Ti"},
        "offerings": [{
            "Price": 1.0,
            "Available": true,
            "Requirements": [
                is("karpenter.sh/capacity-type", "on-demand"),
                is("topology.kubernetes.io/zone", "zone"),
            ],
        }],
    })
}

/// What `kubectl dranet machines` prints for Karpenter.
fn devices(machine: &str) -> anyhow::Result<Value> {
    let args = ["machines", machine, "--built-in", "--output=karpenter"];
    let text = binaries::kubectl_dranet(&args)?;
    serde_saphyr::from_str(&text).with_context(|| text.clone())
}

/// A pool of nodes of one instance type, which are removed when no pod needs them.
fn pool(machine: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": machine},
        "spec": {
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "requirements": [{
                        "key": "node.kubernetes.io/instance-type",
                        "operator": "In",
                        "values": [machine],
                    }],
                    "nodeClassRef":
                        {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                },
            },
            "disruption":
                {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "1s"},
        },
    })
}
