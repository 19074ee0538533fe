//! Memory that RDMA locks. A pod with a NIC can lock as much as it has, also if it does not run as
//! root. Without the driver's help it can lock what the runtime's limit allows (8 MiB if systemd
//! starts it), and with the capability `IPC_LOCK` as much as it has.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually,
    node::{Machine, device_name, pods, with_machine},
    suite::Test,
};

use super::nri::{may_raise_limits, nri_with_rdma};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        a_pod_with_the_capability_locks_memory,
        a_pod_without_root_locks_memory,
        by_nri_a_pod_without_root_locks_memory,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// More than the usual limit.
const MIB: u64 = 64;

async fn a_pod_with_the_capability_locks_memory(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_machine(&plane, "memory", &[], async |machine, scope| {
        machine.start_driver(&["--locked-memory", "false"]).await?;
        let said = lock(scope, machine, "able", ["0101:00:00.0", "IPC_LOCK"]).await?;
        assert_eq!(said, format!("LOCKED {MIB}"));
        // Without it, the limit is the runtime's, which is the limit of this test.
        let limit = getrlimit(Resource::Memlock).current;
        let said = lock(scope, machine, "unable", ["0102:00:00.0", "NET_RAW"]).await?;
        let is_allowed = limit.is_none_or(|limit| limit >= MIB << 20);
        assert_eq!(said.starts_with("LOCKED"), is_allowed, "{said}, limit {limit:?}");
        for pod in ["able", "unable"] {
            pods::delete(scope, pod).await?;
        }
        Ok(())
    })
    .await
}

/// Where the runtime may not raise limits, the pod runs with the runtime's limit.
async fn a_pod_without_root_locks_memory(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let said = locks_without_root(&plane, "memory-user", &[]).await?;
    assert_eq!(said.starts_with("LOCKED"), may_raise_limits()?, "{said}");
    Ok(())
}

async fn by_nri_a_pod_without_root_locks_memory(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let said = locks_without_root(&plane, "memory-nri", nri_with_rdma()?).await?;
    assert_eq!(said.starts_with("LOCKED"), may_raise_limits()?, "{said}");
    Ok(())
}

/// What a pod without root says, after it tried to lock memory. Images of inference servers run as
/// user 1000, for whom added capabilities are not effective.
async fn locks_without_root(
    plane: &ControlPlane,
    node: &str,
    flags: &[&str],
) -> anyhow::Result<String> {
    let mut said = String::new();
    with_machine(plane, node, &[], async |machine, scope| {
        machine.start_driver(flags).await?;
        let context = json!({"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}});
        said = lock_with(scope, machine, "user", "0101:00:00.0", context).await?;
        pods::delete(scope, "user").await
    })
    .await?;
    Ok(said)
}

/// Tries to lock memory in a pod with a NIC and a capability; returns its output.
async fn lock(
    scope: &Scope,
    machine: &Machine,
    name: &str,
    [address, capability]: [&str; 2],
) -> anyhow::Result<String> {
    let context = json!({"capabilities": {"drop": ["ALL"], "add": [capability]}});
    lock_with(scope, machine, name, address, context).await
}

async fn lock_with(
    scope: &Scope,
    machine: &Machine,
    name: &str,
    address: &str,
    context: Value,
) -> anyhow::Result<String> {
    let node = machine.name.as_str();
    pods::allocated_claim(scope, name, node, &device_name(address), None).await?;
    let mut pod = pods::pod(name, node, json!({"resourceClaimName": name}))?;
    for container in pod.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
        let script = format!("/bin/lock {MIB}; exec sleep 100000");
        container.command = Some(["/bin/sh", "-c", &script].map(str::to_owned).into());
        container.security_context = Some(serde_json::from_value(context.clone())?);
    }
    pods::create_bound(scope, pod, node).await?;
    pods::running(scope, name).await?;
    eventually(pods::POD, async || {
        let log = machine.pod_log(scope.namespace(), name)?;
        let said = log.lines().find(|line| line.contains("LOCKED"));
        Ok(said.map_or_else(|| Check::NotYet(log.clone()), |said| Check::Done(said.to_owned())))
    })
    .await
}
