//! A kubelet for a machine that it does not own: without cgroups of pods and eviction, with all
//! files below one folder.

use std::{fs, path::Path, time::Duration};

use serde_json::json;

use crate::{
    binaries,
    node::containerd,
    ports,
    process::{Process, Program},
};

const SOON: Duration = Duration::from_mins(1);

/// Starts the kubelet and waits until it is healthy. It registers its node itself.
pub(super) async fn start(
    kubeconfig: &Path,
    logs: &Path,
    folder: &Path,
    name: &str,
) -> anyhow::Result<Process> {
    let config = folder.join("kubelet.json");
    let health = ports::free()?;
    fs::write(&config, configuration(folder, health, ports::free()?, "2s").to_string())?;
    let process = Program::new(binaries::kubernetes("kubelet")?, logs)
        .named(&format!("{name}-kubelet"))
        .args([
            format!("--config={}", config.display()),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--hostname-override={name}"),
            format!("--root-dir={}", folder.join("kubelet").display()),
            format!("--cert-dir={}", folder.join("kubelet-pki").display()),
            "--node-ip=10.88.0.2".to_owned(),
            "--v=2".to_owned(),
        ])
        .spawn()?;
    process.wait_until_ready(&format!("http://127.0.0.1:{health}/healthz"), SOON).await?;
    Ok(process)
}

/// Its configuration, with all files below `folder`. It looks at each pod, and writes the Node's
/// status, once in `period`.
pub(crate) fn configuration(
    folder: &Path,
    health: u16,
    port: u16,
    period: &str,
) -> serde_json::Value {
    let zero = "0%";
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "localStorageCapacityIsolation": false,
        "containerRuntimeEndpoint": format!("unix://{}", containerd::socket(folder).display()),
        "port": port,
        "readOnlyPort": 0,
        "healthzPort": health,
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "podLogsDir": folder.join("pod-logs"),
        "maxPods": 120,
        "evictionHard": {
            "imagefs.available": zero, "imagefs.inodesFree": zero, "memory.available": zero,
            "nodefs.available": zero, "nodefs.inodesFree": zero,
        },
        "syncFrequency": period,
        "nodeStatusUpdateFrequency": period,
    })
}
