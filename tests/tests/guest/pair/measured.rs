//! Runs `kubectl dranet bench` between the machines, as a user does from outside. Compares its
//! figures with the kernel's counters, and checks that it leaves nothing.

use std::{collections::BTreeSet, fs, process::Stdio, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::api::ListParams;
use serde_json::Value;
use tests::{
    Check, ControlPlane, Scope, binaries, eventually,
    guest::{NICS, node::GuestNode},
    node::{device_name, image, pods},
};
use tokio::{process::Command, time::timeout};

use super::{WIRE, nccl};

/// perftest and a shell, from the machine's own files.
const IMAGE: &str = "localhost/perftest:test";

/// The longest time that it may take, on emulated processors.
const ENDED: Duration = Duration::from_mins(10);

/// The number of seconds that it writes. perftest counts the middle half.
const SECONDS: u32 = 6;

/// The layer of [`IMAGE`], in the folder that the machine shares.
const LAYER: &str = r"
folder=$(mktemp -d); cd $folder
mkdir -p bin etc proc sys dev tmp
cp /bin/busybox bin/
for command in sh grep ls head tail tee sleep; do ln -s busybox bin/$command; done
cp --parents -L /usr/bin/ib_write_bw /etc/libibverbs.d/rxe.driver \
  $(ldd /usr/bin/ib_write_bw | grep -o '/[^ ]*') /usr/lib/x86_64-linux-gnu/libibverbs/librxe* .
tar -cf /share/perftest-layer.tar .
rm -r $folder";

/// Keeps QEMU's wire alive: a frame for an interface that is down stops it until the machine sends
/// one itself.
const PING: &str = "while sleep 1; do for space in /run/netns/*; do \
    nsenter --net=$space busybox ping -c 1 -W 1 ADDRESS; done; done";

pub(super) async fn by_bench(
    plane: &ControlPlane,
    scope: &Scope,
    pair: &[GuestNode; 2],
) -> anyhow::Result<()> {
    load_image(pair).await?;
    for (number, node) in pair.iter().enumerate() {
        // It is on the wire, like its neighbour that goes into the pods.
        node.connect_pods("rail2", &format!("10.99.{}.1", number + 1)).await?;
        let ping = PING.replace("ADDRESS", &format!("{WIRE}{}", 1 - number));
        node.guest.start("ping", &format!("bash -c '{ping}'")).await?;
    }
    let before = sent(&pair[1]).await?;
    // Acknowledgements may take seconds, and QEMU's queues are short.
    let seconds = SECONDS.to_string();
    let flags = ["--image", IMAGE, "--bytes", "4096", "--seconds", &seconds];
    let flags: Vec<&str> =
        flags.into_iter().chain(["--", "-u", "20", "-x", "1", "-t", "8"]).collect();
    let answer = bench(plane, scope, pair, &flags).await?;
    let text = answer.to_string();
    for (role, node) in ["server", "client"].into_iter().zip(pair) {
        assert_eq!(answer[role]["node"], node.name.as_str(), "{text}");
        let [nic] = answer[role]["nics"].as_array().context("NICs")?.as_slice() else {
            anyhow::bail!("each pod has one NIC: {text}");
        };
        assert_eq!(nic["name"], device_name(NICS[0].0).as_str(), "{text}");
        assert!(nic["portGbps"].is_number(), "{text}");
    }
    assert_eq!(answer["messageBytes"], 4096, "{text}");
    let figure = |name: &str| answer[name].as_f64().with_context(|| format!("{name} of {text}"));
    let [measured, promised, percent] =
        [figure("measuredGbps")?, figure("promisedGbps")?, figure("percent")?];
    assert!((percent - measured / promised * 100.0).abs() < 1e-6, "{text}");
    nothing_is_left(scope, pair).await?;

    // Once the interface is back, it has counted at least what was measured.
    let counted = sent(&pair[1]).await? - before;
    let least = measured * 1e9 / 8.0 * f64::from(SECONDS / 2);
    assert!(measured > 0.0 && counted >= least, "{text}: {counted} bytes sent, {least} measured");
    report(&format!("bench: {measured:.4} Gb/s; {counted} bytes were sent"));
    nccl::by_bench(plane, scope, pair).await?;
    for node in pair {
        node.guest.kill("ping").await?;
        node.guest.run("ip link set rail2 nomaster").await?;
    }
    Ok(())
}

async fn load_image([one, other]: &[GuestNode; 2]) -> anyhow::Result<()> {
    one.guest.run(LAYER).await?;
    let layer = fs::read(one.guest.share().join("perftest-layer.tar"))?;
    for node in [one, other] {
        image::write_layer(&node.guest.share().join("perftest.tar"), IMAGE, &layer)?;
    }
    tokio::try_join!(one.import_shared("perftest.tar"), other.import_shared("perftest.tar"))?;
    Ok(())
}

/// Its JSON output with these flags.
pub(super) async fn bench(
    plane: &ControlPlane,
    scope: &Scope,
    [server, client]: &[GuestNode; 2],
    flags: &[&str],
) -> anyhow::Result<Value> {
    let mut command = Command::new(binaries::ours("kubectl-dranet")?);
    command.args(["bench", "--at-least", "0", "-o", "json", "-n", scope.namespace()]);
    command.args(["--nodes", &format!("{},{}", server.name, client.name)]);
    command.arg("--kubeconfig").arg(plane.kubeconfig());
    command.args(flags);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(ENDED, command.output()).await.context("it does not end")??;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{}: {errors}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("no JSON; {errors}"))
}

/// Bytes that the NIC on the wire has sent. It must be on the host.
async fn sent(node: &GuestNode) -> anyhow::Result<f64> {
    let count = node.guest.run("cat /sys/class/net/rail0/statistics/tx_bytes").await?;
    Ok(count.trim().parse()?)
}

/// Checks that no pod is left, and waits until no claim is and the NIC is back on the machine.
pub(super) async fn nothing_is_left(scope: &Scope, pair: &[GuestNode; 2]) -> anyhow::Result<()> {
    let ours = ListParams::default().labels("bench.dranet.io/run");
    let left = scope.api::<Pod>().list(&ours).await?.items;
    anyhow::ensure!(left.is_empty(), "{} pods are left", left.len());
    eventually(pods::POD, async || {
        let claims = scope.api::<ResourceClaim>().list(&ListParams::default()).await?.items;
        let mut missing = BTreeSet::new();
        for node in pair {
            let links = node.guest.run("ls /sys/class/net").await?;
            if !links.lines().any(|link| link == "rail0") {
                missing.insert(&node.name);
            }
        }
        let is_done = claims.is_empty() && missing.is_empty();
        Ok(Check::that(is_done, || format!("{} claims; rail0 of {missing:?}", claims.len())))
    })
    .await
}

#[expect(clippy::print_stderr, reason = "what was measured is worth reading")]
fn report(line: &str) {
    eprintln!("{line}");
}
