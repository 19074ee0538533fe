//! The pod `user`, whose only claim, of the same name, is a NIC with an interface. The test writes
//! the scheduler's part, since no kernel reports the interfaces of a planted machine to the driver.

use std::fs;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tests::{
    Check, Scope, eventually,
    node::{Machine, Nic, links::shell, pods},
};

pub(crate) const NIC: Nic = Nic { address: "0201:00:00.0", link: "rail0" };

pub(crate) fn parameters() -> Value {
    json!({
        "interface": {
            "name": "net1", "mtu": 4321, "hardwareAddr": "02:00:00:00:bb:01",
            "addresses": ["192.168.7.5/24", "fd77::5/64"]
        },
        "routes": [
            {"destination": "172.20.0.0/16", "gateway": "192.168.7.254"},
            {"destination": "172.21.0.0/16", "scope": 253}
        ],
        "rules": [{"priority": 3000, "source": "192.168.7.0/24", "table": 254}],
        "neighbors": [{"destination": "192.168.7.254", "hardwareAddr": "02:00:00:00:cc:01"}]
    })
}

/// Creates claim and pod, and does not wait.
pub(crate) async fn create(
    scope: &Scope,
    machine: &Machine,
    parameters: Option<Value>,
) -> anyhow::Result<()> {
    let place = ["user", &machine.name, &NIC.device()];
    pods::create_user(scope, place, parameters).await?;
    Ok(())
}

/// Creates it with its parameters and `hostUsers: false`, with a separate user namespace.
pub(crate) async fn create_with_own_users(scope: &Scope, machine: &Machine) -> anyhow::Result<()> {
    let (device, parameters) = (NIC.device(), Some(parameters()));
    pods::allocated_claim(scope, "user", &machine.name, &device, parameters).await?;
    let claim = json!({"resourceClaimName": "user"});
    let mut pod = pods::pod("user", &machine.name, claim)?;
    pod.spec.as_mut().context("a spec")?.host_users = Some(false);
    pods::create_bound(scope, pod, &machine.name).await?;
    Ok(())
}

/// Creates it with its parameters, and waits until it runs.
pub(crate) async fn start(scope: &Scope, machine: &Machine) -> anyhow::Result<()> {
    create(scope, machine, Some(parameters())).await?;
    runs(scope, machine).await
}

/// Waits until it runs, with its interface.
pub(crate) async fn runs(scope: &Scope, machine: &Machine) -> anyhow::Result<()> {
    pods::running(scope, "user").await?;
    has_its_interface(scope, machine).await
}

/// Checks that it has printed the interface that [`parameters`] describes, and that the host does
/// not have it.
pub(crate) async fn has_its_interface(scope: &Scope, machine: &Machine) -> anyhow::Result<()> {
    let told = pods::told(scope, machine, "user").await?;
    anyhow::ensure!(told.contains("net1 inet 192.168.7.5/24"), "the pod has:\n{told}");
    anyhow::ensure!(shell("ip link show rail0").is_err(), "the host has it");
    Ok(())
}

/// Creates it with its parameters and a claim that no other pod can have, and does not wait.
pub(crate) async fn create_from_template(scope: &Scope, machine: &Machine) -> anyhow::Result<()> {
    let (device, parameters) = (NIC.device(), Some(parameters()));
    pods::allocated_claim(scope, "user", &machine.name, &device, parameters).await?;
    pods::mark_as_from_template(scope, "user").await?;
    let pod = pods::pod("user", &machine.name, json!({"resourceClaimName": "user"}))?;
    pods::create_bound(scope, pod, &machine.name).await?;
    Ok(())
}

/// Waits for an event of the pod that contains this text.
pub(crate) async fn is_told(scope: &Scope, words: &str) -> anyhow::Result<String> {
    pod_is_told(scope, "user", words).await
}

/// The same of another pod.
pub(crate) async fn pod_is_told(scope: &Scope, pod: &str, words: &str) -> anyhow::Result<String> {
    eventually(pods::POD, async || {
        let events = pods::events(scope, pod).await?;
        let event = events.iter().find(|event| event.contains(words));
        Ok(event.map_or_else(
            || Check::NotYet(format!("{events:?}")),
            |event| Check::Done(event.clone()),
        ))
    })
    .await
}

/// The first process of the pod's container.
pub(crate) fn container(machine: &Machine) -> anyhow::Result<i32> {
    let is_it = |pid: &i32| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == b"sleep\x00100000\0")
    };
    machine.tasks()?.into_iter().find(is_it).context("the container runs")
}

/// Kills the pod's sandbox, which the kubelet replaces.
pub(crate) fn kill_sandbox(machine: &Machine) -> anyhow::Result<()> {
    let container = container(machine)?;
    let sandbox = machine.tasks()?.into_iter().find(|pid| *pid != container);
    kill(sandbox.context("the pod has a sandbox")?)
}

/// Kills a process.
pub(crate) fn kill(pid: i32) -> anyhow::Result<()> {
    let pid = Pid::from_raw(pid).context("a process")?;
    Ok(kill_process(pid, Signal::KILL)?)
}
