//! More than one sandbox in the life of a claim: the kubelet makes a new one when a
//! pod's ended by itself, and after the machine was started again.

use std::sync::Arc;

use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, eventually,
    floor::Test,
    node::{
        Nic,
        links::shell,
        plugin::{self, Hook, SOON, Sandbox},
    },
    with_scope,
};

use super::trouble::{done, listens, machine, make, nothing_left};

pub(crate) fn tests() -> Vec<Test> {
    let all =
        tests::tests![a_new_sandbox_gets_what_the_old_one_has, after_a_reboot_a_claim_lives_on,];
    all.into_iter().map(Test::alone).collect()
}

const NIC: Nic = Nic { address: "0201:00:00.0", link: "rail0" };

fn parameters() -> Value {
    json!({
        "interface": {"name": "net1", "mtu": 1400, "addresses": ["192.168.7.5/24"]},
        "ethtool": {"features": {"tso": false}},
    })
}

/// A NIC's address is its own, also after a reboot.
fn name_nic() -> anyhow::Result<()> {
    shell("ip link set rail0 address 02:00:00:00:aa:01").map(drop)
}

/// What a person sets; the kernel's own link-local addresses come in its own time.
fn host() -> anyhow::Result<[Value; 3]> {
    let link: Value = serde_json::from_str(&shell("ip -j link show rail0")?)?;
    let text = |line: &str| shell(line).map(Value::from);
    let (addresses, routes) =
        (text("ip -4 -o addr show rail0")?, text("ip -4 route show dev rail0")?);
    Ok([json!([link[0]["mtu"], link[0]["address"]]), addresses, routes])
}

async fn host_is(before: &[Value; 3]) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let after = host()?;
        // The index of an interface that was away may be another.
        Ok(Check::that(after[0] == before[0] && after[2] == before[2], || format!("{after:?}")))
    })
    .await
}

fn features() -> anyhow::Result<String> {
    shell("ethtool -k rail0")
}

async fn a_new_sandbox_gets_what_the_old_one_has(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut machine = machine(&plane, scope, "again", &[NIC]).await?;
        shell("ip addr add 10.7.0.1/24 dev rail0")?;
        let (before, own) = (host()?, features()?);
        listens(&mut machine).await?;
        let place = [machine.name.as_str(), &NIC.device()];
        let claim = plugin::claim(scope, "again", place, Some(parameters())).await?;
        done(plugin::prepare(&machine, &claim).await)?;
        let old = Sandbox::open("old")?;
        let started = plugin::start_container(&machine, &claim, &old, None).await?;
        assert_eq!(started, Hook::Attached);
        // Ended, but for what the driver holds of it.
        old.close()?;
        let new = Sandbox::open("new")?;
        for _ in 0..2 {
            let started = plugin::start_container(&machine, &claim, &new, None).await?;
            assert_eq!(started, Hook::Attached);
            assert!(new.addresses()?.contains("192.168.7.5/24"));
            let features = new.run("ethtool -k net1")?;
            assert!(features.contains("tcp-segmentation-offload: off"), "{features}");
        }
        done(plugin::unprepare(&machine, &claim).await)?;
        assert_eq!(features()?, own);
        host_is(&before).await?;
        new.close()?;
        nothing_left(&machine)
    })
    .await
}

/// What lies in memory is empty then, the checkpoint is not, and interfaces are as the
/// machine makes them.
async fn after_a_reboot_a_claim_lives_on(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut machine = machine(&plane, scope, "reboot", &[NIC]).await?;
        name_nic()?;
        listens(&mut machine).await?;
        let place = [machine.name.as_str(), &NIC.device()];
        let claim = plugin::claim(scope, "reboot", place, Some(parameters())).await?;
        let devices = done(plugin::prepare(&machine, &claim).await)?;
        let sandbox = Sandbox::open("before")?;
        let started = plugin::start_container(&machine, &claim, &sandbox, None).await?;
        assert_eq!(started, Hook::Attached);

        machine.reboot()?;
        sandbox.close()?;
        make(NIC.link)?;
        name_nic()?;
        let (before, own) = (host()?, features()?);
        listens(&mut machine).await?;
        assert_eq!(done(plugin::prepare(&machine, &claim).await)?, devices, "promised still");
        let sandbox = Sandbox::open("after")?;
        let started = plugin::start_container(&machine, &claim, &sandbox, None).await?;
        assert_eq!(started, Hook::Attached);
        assert!(sandbox.addresses()?.contains("192.168.7.5/24"));
        done(plugin::unprepare(&machine, &claim).await)?;
        sandbox.close()?;
        assert_eq!(features()?, own);
        host_is(&before).await?;
        nothing_left(&machine)?;

        // Rebooted with a claim that nobody wants any more: what the new boot has stays.
        done(plugin::prepare(&machine, &claim).await)?;
        let sandbox = Sandbox::open("last")?;
        let started = plugin::start_container(&machine, &claim, &sandbox, None).await?;
        assert_eq!(started, Hook::Attached);
        machine.reboot()?;
        sandbox.close()?;
        make(NIC.link)?;
        name_nic()?;
        shell("ip link set rail0 mtu 1300")?;
        let before = host()?;
        listens(&mut machine).await?;
        done(plugin::unprepare(&machine, &claim).await)?;
        host_is(&before).await?;
        nothing_left(&machine)
    })
    .await
}
