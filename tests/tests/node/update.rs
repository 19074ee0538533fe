//! An update of the driver: the new one starts next to the old one, and then the old one ends. Pods
//! come and go at any moment of it, and all of them are served.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope,
    binaries::in_tests,
    eventually,
    node::{Machine, Nic, pods, with_machine},
    suite::Test,
};

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        an_update_of_the_driver_leaves_no_gap,
        by_nri_an_update_of_the_driver_leaves_no_gap,
        an_instance_is_ready_only_when_it_is_registered,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// One NIC for each moment of an update.
const NICS: [Nic; 5] = [
    Nic { address: "0201:00:00.0", link: "rail0" },
    Nic { address: "0202:00:00.0", link: "rail1" },
    Nic { address: "0203:00:00.0", link: "rail2" },
    Nic { address: "0204:00:00.0", link: "rail3" },
    Nic { address: "0205:00:00.0", link: "rail4" },
];

/// The time that the driver's pod has to end (`terminationGracePeriodSeconds` in `deploy`).
const GRACE: Duration = Duration::from_secs(10);
/// The longest time for an instance to become ready.
const SOON: Duration = Duration::from_mins(1);

async fn an_update_of_the_driver_leaves_no_gap(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    updates(&plane, "update", &[]).await
}

async fn by_nri_an_update_of_the_driver_leaves_no_gap(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    updates(&plane, "nri-update", &["--attach", "nri"]).await
}

async fn updates(plane: &ControlPlane, node: &str, flags: &[&str]) -> anyhow::Result<()> {
    let whole = with_machine(plane, node, &NICS, async |machine, scope| {
        machine.start_driver(flags).await?;
        comes(scope, node, 0).await?;
        runs(scope, machine, 0).await?;

        // While the new one starts, and while both are there.
        let (coming, old) =
            tokio::join!(comes(scope, node, 1), machine.replace_driver("new", flags));
        coming?;
        comes(scope, node, 2).await?;
        // While the old one ends, and afterwards. Pods that it prepared are deleted meanwhile.
        let old = old?;
        let (coming, leaving, ended) = tokio::join!(
            comes(scope, node, 3),
            pods::delete_soon(scope, NICS[0].link),
            old.terminate(GRACE)
        );
        coming?;
        leaving?;
        ended.context("the old driver does not end")?;
        comes(scope, node, 4).await?;

        for (number, nic) in NICS.iter().enumerate().skip(1) {
            runs(scope, machine, number).await?;
            pods::delete(scope, nic.link).await?;
        }
        machine.wait_until_clean().await?;
        for nic in &NICS {
            let events = pods::events(scope, nic.link).await?;
            let failures: Vec<_> = events.iter().filter(|it| it.starts_with("Failed")).collect();
            anyhow::ensure!(failures.is_empty(), "{} was not served: {failures:?}", nic.link);
        }
        Ok(())
    });
    Box::pin(whole).await
}

/// The second instance starts while there is no NRI, and the first one answers only for itself.
async fn an_instance_is_ready_only_when_it_is_registered(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let whole = with_machine(&plane, "probes", &[], async |machine, scope| {
        // Without it, the first publication is never complete.
        let definition = in_tests("../deploy/manifests/crd-nodetopologies.yaml");
        scope.apply_file(&definition).await?;
        machine.start_driver(&[]).await?;
        let first = machine.replace_driver("one", &[]).await?;
        becomes_ready(machine, "one").await?;
        first.terminate(GRACE).await?;

        machine.kill_containerd();
        let one = machine.replace_driver("two", &["--attach", "nri"]).await?;
        let live = machine.probe("live", "two").await?;
        anyhow::ensure!(live.is_none(), "it does not answer: {live:?}");
        eventually(SOON, async || {
            let waiting = machine.probe("ready", "two").await?.unwrap_or_default();
            let expected = "`two` still waits for the registration with the container runtime";
            anyhow::ensure!(!waiting.is_empty(), "it is ready without NRI");
            let is_last = waiting.contains(expected);
            Ok(Check::that(is_last, || waiting))
        })
        .await?;
        let one_says = machine.probe("ready", "one").await?;
        anyhow::ensure!(one_says.is_none(), "the old one is not ready: {one_says:?}");

        machine.restart_containerd().await?;
        becomes_ready(machine, "two").await?;
        one.terminate(GRACE).await?;
        let gone = machine.probe("live", "one").await?;
        anyhow::ensure!(gone.is_some(), "another instance answers for the one that has ended");
        Ok(())
    });
    Box::pin(whole).await
}

async fn becomes_ready(machine: &Machine, instance: &str) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let waiting = machine.probe("ready", instance).await?;
        Ok(Check::that(waiting.is_none(), || waiting.unwrap_or_default()))
    })
    .await
}

/// Creates the pod that is named after its NIC's interface. Every second pod has a user namespace;
/// with NRI, both drivers adjust its container.
async fn comes(scope: &Scope, node: &str, number: usize) -> anyhow::Result<()> {
    let nic = &NICS[number];
    pods::allocated_claim(scope, nic.link, node, &nic.device(), None).await?;
    let mut pod = pods::pod(nic.link, node, json!({"resourceClaimName": nic.link}))?;
    let has_own_users = number.is_multiple_of(2);
    pod.spec.as_mut().context("a spec")?.host_users = has_own_users.then_some(false);
    pods::create_bound(scope, pod, node).await?;
    Ok(())
}

async fn runs(scope: &Scope, machine: &Machine, number: usize) -> anyhow::Result<()> {
    let name = NICS[number].link;
    pods::running(scope, name).await?;
    let told = pods::told(scope, machine, name).await?;
    let address = format!("inet 10.7.{number}.1/24");
    anyhow::ensure!(told.contains(&address), "{name} has:\n{told}");
    Ok(())
}
