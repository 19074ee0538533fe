//! Several sandboxes in the life of a claim: the kubelet creates a new one when a pod's sandbox
//! ended by itself, and after a reboot.

use std::sync::Arc;

use serde_json::{Value, json};
use tests::{
    ControlPlane,
    node::{
        links::{self, shell},
        plugin::{self, Sandbox},
        with_played_machine,
    },
    suite::Test,
};

use super::user::NIC;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![a_new_sandbox_gets_what_the_old_one_had, a_claim_survives_a_reboot,];
    all.into_iter().map(Test::alone).collect()
}

fn parameters() -> Value {
    json!({
        "interface": {"name": "net1", "mtu": 1400, "addresses": ["192.168.7.5/24"]},
        "ethtool": {"features": {"tso": false}},
    })
}

fn features() -> anyhow::Result<String> {
    shell("ethtool -k rail0")
}

async fn a_new_sandbox_gets_what_the_old_one_had(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_played_machine(&plane, "again", &[NIC], async |machine, scope| {
        let own = features()?;
        machine.start_driver(&[]).await?;
        let on = [machine.name.as_str(), &NIC.device()];
        let claim = plugin::claim(scope, "again", on, Some(parameters())).await?;
        plugin::prepare(machine, &claim).await.done()?;
        let old = Sandbox::open("old")?;
        plugin::starts(machine, &claim, &old).await?;
        // Ended, except for what the driver still holds.
        old.close()?;
        let new = Sandbox::open("new")?;
        for _ in 0..2 {
            plugin::starts(machine, &claim, &new).await?;
            assert!(new.addresses()?.contains("192.168.7.5/24"));
            let features = new.run("ethtool -k net1")?;
            assert!(features.contains("tcp-segmentation-offload: off"), "{features}");
        }
        plugin::unprepare(machine, &claim).await.done()?;
        assert_eq!(features()?, own);
        new.close()
    })
    .await
}

/// Files in memory are lost then, the checkpoint is not, and interfaces are as the machine creates
/// them.
async fn a_claim_survives_a_reboot(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_played_machine(&plane, "reboot", &[NIC], async |machine, scope| {
        machine.start_driver(&[]).await?;
        let on = [machine.name.as_str(), &NIC.device()];
        let claim = plugin::claim(scope, "reboot", on, Some(parameters())).await?;
        let devices = plugin::prepare(machine, &claim).await.done()?;
        let sandbox = Sandbox::open("before")?;
        plugin::starts(machine, &claim, &sandbox).await?;

        machine.reboot()?;
        sandbox.close()?;
        links::make(&[NIC]).await?;
        let own = features()?;
        machine.start_driver(&[]).await?;
        assert_eq!(plugin::prepare(machine, &claim).await.done()?, devices, "the plan is the same");
        let sandbox = Sandbox::open("after")?;
        plugin::starts(machine, &claim, &sandbox).await?;
        assert!(sandbox.addresses()?.contains("192.168.7.5/24"));
        plugin::unprepare(machine, &claim).await.done()?;
        sandbox.close()?;
        assert_eq!(features()?, own);
        machine.wait_until_clean().await?;

        // After a reboot with a claim that is no longer needed, the settings of the new boot stay.
        plugin::prepare(machine, &claim).await.done()?;
        let sandbox = Sandbox::open("last")?;
        plugin::starts(machine, &claim, &sandbox).await?;
        machine.reboot()?;
        sandbox.close()?;
        links::make(&[NIC]).await?;
        shell("ip link set rail0 mtu 1300")?;
        machine.start_driver(&[]).await?;
        plugin::unprepare(machine, &claim).await.done()?;
        let link = shell("ip link show rail0")?;
        assert!(link.contains("mtu 1300"), "{link}");
        shell("ip link set rail0 mtu 9000").map(drop)
    })
    .await
}
