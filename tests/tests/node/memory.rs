//! Memory that RDMA locks. A pod can lock what the runtime's limit allows (8 MiB if systemd starts
//! it), and with the capability `IPC_LOCK` as much as it has.

use std::sync::Arc;

use rustix::process::{Resource, getrlimit};
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope, eventually,
    node::{Machine, device_name, pods, with_machine},
    suite::Test,
};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![a_pod_with_the_capability_locks_memory];
    all.into_iter().map(Test::alone).collect()
}

/// More than the usual limit.
const MIB: u64 = 64;

async fn a_pod_with_the_capability_locks_memory(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_machine(&plane, "memory", &[], async |machine, scope| {
        machine.start_driver(&[]).await?;
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

/// Tries to lock memory in a pod with a NIC and a capability; returns its output.
async fn lock(
    scope: &Scope,
    machine: &Machine,
    name: &str,
    [address, capability]: [&str; 2],
) -> anyhow::Result<String> {
    let node = machine.name.as_str();
    pods::allocated_claim(scope, name, node, &device_name(address), None).await?;
    let mut pod = pods::pod(name, node, json!({"resourceClaimName": name}))?;
    for container in pod.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
        let script = format!("/bin/lock {MIB}; exec sleep 100000");
        container.command = Some(["/bin/sh", "-c", &script].map(str::to_owned).into());
        let context = json!({"capabilities": {"drop": ["ALL"], "add": [capability]}});
        container.security_context = Some(serde_json::from_value(context)?);
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
