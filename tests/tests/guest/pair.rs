//! Two machines on one wire, and the driver installed on them from outside, by the chart and as
//! its image: an annotated pod on each, scheduled and prepared as on a real cluster, verbs
//! between them, and the chart upgraded meanwhile.

mod installed;
mod measured;
mod modes;
mod modules;
mod nccl;
mod pooled;
mod vendor;

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope,
    chart::NAMESPACE,
    eventually,
    guest::{
        Guest, Hardware, Wire,
        node::{GuestNode, disk_with},
    },
    installation::Installation,
    node::pods,
    setting,
    suite::Test,
    with_scope,
};

use installed::Installed;

/// Only the first runs always: each of the others takes 10 to 40 minutes, and runs if
/// `$DRANET_LONG_GUESTS` is not 0.
pub(crate) fn tests() -> anyhow::Result<Vec<Test>> {
    let mut all = tests::tests![pods_write_to_each_other_while_the_chart_is_upgraded];
    if setting("DRANET_LONG_GUESTS", 0_u8)? != 0 {
        all.extend(tests::tests![
            pods_write_to_each_other_during_a_rollback_and_in_both_modes,
            pods_with_addresses_of_a_pool_reach_each_other,
        ]);
    }
    Ok(all.into_iter().map(Test::alone).collect())
}

async fn pods_write_to_each_other_while_the_chart_is_upgraded(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let folder = tempfile::tempdir()?;
        let pair = boot(&plane, folder.path(), false).await?;
        let chart = Installed::install(&plane, &pair, &[]).await?;
        published(&plane, &pair).await?;
        installation.start_admission().await?;

        pods_write_during(chart.upgrade(), scope, &pair).await?;
        chart.uninstall().await
    })
    .await
}

/// `kubectl dranet bench` also measures between the machines. In the exclusive mode of the RDMA
/// subsystem, devices move into pods.
async fn pods_write_to_each_other_during_a_rollback_and_in_both_modes(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let folder = tempfile::tempdir()?;
        let pair = boot(&plane, folder.path(), false).await?;
        let [one, other] = &pair;
        let chart = Installed::install(&plane, &pair, &[]).await?;
        chart.upgrade().await?;
        published(&plane, &pair).await?;
        installation.start_admission().await?;

        pods_write_during(chart.roll_back(), scope, &pair).await?;
        measured::by_bench(&plane, scope, &pair).await?;
        modes::published(&plane, &pair, "shared").await?;
        tokio::try_join!(is_as_before(one), is_as_before(other))?;

        // The kubelet starts the driver again, in the other mode.
        tokio::try_join!(one.guest.run(EXCLUSIVE), other.guest.run(EXCLUSIVE))?;
        let running = writes(scope, &pair, "exclusive").await?;
        modes::published(&plane, &pair, "exclusive").await?;
        end(scope, running).await?;
        tokio::try_join!(is_as_before(one), is_as_before(other))?;
        chart.uninstall().await
    })
    .await
}

/// A first deployment: the chart loads kernel modules and lets pods share NICs, and a pool has
/// addresses for them. Then a vendor's driver replaces a module.
async fn pods_with_addresses_of_a_pool_reach_each_other(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let folder = tempfile::tempdir()?;
        let pair = boot(&plane, folder.path(), true).await?;
        let [one, other] = &pair;
        modules::not_loaded(&pair).await?;
        let chart = Installed::install(&plane, &pair, &installed::FIRST).await?;
        published(&plane, &pair).await?;
        modules::some_lacking(&plane, &pair).await?;
        installation.start_admission().await?;
        installation.start_fabric_controllers(1, &[]).await?;
        pooled::on_shared_and_whole_nics(scope, &pair).await?;
        vendor::replaces_modules(&plane, scope, &pair, &chart).await?;
        tokio::try_join!(is_as_before(one), is_as_before(other))?;
        chart.uninstall().await
    })
    .await
}

/// Creates a machine's NICs, and starts the GPUs' driver.
async fn start(plane: &ControlPlane, node: &GuestNode, number: usize) -> anyhow::Result<()> {
    node.guest.run(&format!("{RDMA}\n{}", address(number))).await?;
    node.start_gpu_driver(plane).await
}

/// Waits until the NICs and GPUs of both are published. A kubelet that starts deletes all slices of
/// its node, and the library of the GPUs' driver publishes a deleted slice again after 30 s.
async fn published(plane: &ControlPlane, pair: &[GuestNode; 2]) -> anyhow::Result<()> {
    for node in pair {
        for driver in ["gpu.nvidia.com", "dra.net"] {
            node.published(plane, driver).await?;
        }
    }
    Ok(())
}

/// Checks that pods that write to each other go on during a change, and that the machines are as
/// before once the pods have ended.
async fn pods_write_during(
    change: impl Future<Output = anyhow::Result<()>>,
    scope: &Scope,
    pair: &[GuestNode; 2],
) -> anyhow::Result<()> {
    let running = writes(scope, pair, "shared").await?;
    let before = written(scope, pair, &running).await?;
    change.await?;
    write_on(scope, pair, &running, before).await?;
    end(scope, running).await?;
    let [one, other] = pair;
    tokio::try_join!(is_as_before(one), is_as_before(other))?;
    Ok(())
}

/// Checks that the pods, with the same containers, have written since.
async fn write_on(
    scope: &Scope,
    pair: &[GuestNode; 2],
    running: &[String; 2],
    before: usize,
) -> anyhow::Result<()> {
    eventually(WORKED, async || {
        // One write may have begun before.
        let after = written(scope, pair, running).await?;
        let told = || format!("{before} writes, then {after}");
        Ok(Check::that(after >= before + 2, told))
    })
    .await?;
    for pod in running {
        let status = scope.api::<Pod>().get(pod).await?.status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let restarts: Vec<_> = containers.iter().map(|it| it.restart_count).collect();
        assert_eq!(restarts, [0], "{pod}");
    }
    Ok(())
}

/// The number of successful writes of the client.
async fn written(
    scope: &Scope,
    pair: &[GuestNode; 2],
    [client, _]: &[String; 2],
) -> anyhow::Result<usize> {
    let log = pair[1].pod_log(scope.namespace(), client).await?;
    Ok(log.lines().filter(|line| *line == "WRITE 0").count())
}

/// Waits until what was in a pod is back on the machine, with its settings.
async fn is_as_before(node: &GuestNode) -> anyhow::Result<()> {
    eventually(pods::POD, async || {
        let state = node.guest.run(RAILS).await?;
        let is_there = |word: &&str| state.lines().any(|line| line == *word);
        let back = NAMES.iter().all(is_there) && is_there(&SETTING);
        let log = node.pod_log(NAMESPACE, "node-driver-*").await?;
        let is_failure =
            |line: &&str| line.contains("Failed to restore") || line.contains("not restored");
        let lacks = log.lines().filter(is_failure).collect::<Vec<_>>();
        Ok(Check::that(back, || format!("guest {} has: {state}\n{lacks:#?}", node.name)))
    })
    .await
}

/// The names that [`RDMA`] sets.
const NAMES: [&str; 8] =
    ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "rail0", "rail1", "rail2", "rail3"];

/// A setting of one of them that is not the host's default; [`RDMA`] sets it.
const SETTING: &str = "accept_ra 0";

/// Prints which of [`NAMES`] the host has, and [`SETTING`].
const RAILS: &str = "ls /sys/class/infiniband; ls /sys/class/net
    echo accept_ra $(cat /proc/sys/net/ipv6/conf/rail0/accept_ra)";

/// The kernel refuses it while another network namespace exists, and those of pods end late. Then
/// the driver is killed.
const EXCLUSIVE: &str = "until rdma system set netns exclusive 2>/dev/null; do sleep 0.2; done
    pkill -9 -x node-driver";

/// Boots both at once, since each takes a processor, creates their NICs, and starts their GPUs'
/// drivers. The ends of their cable are files in the folder.
async fn boot(
    plane: &ControlPlane,
    folder: &Path,
    has_all_nics: bool,
) -> anyhow::Result<[GuestNode; 2]> {
    let disk = disk_with(folder, &installed::archives(folder).await?)?;
    let hardware = |number, [own, peer]: [&str; 2]| {
        let (local, remote) = (folder.join(own), folder.join(peer));
        Hardware {
            number,
            wire: Some(Wire { local, remote, has_all_nics }),
            memory: 640,
            disk: Some(disk.clone()),
            ..Hardware::default()
        }
    };
    let [one, other] = [hardware(1, ["one", "other"]), hardware(2, ["other", "one"])];
    let (one, other) =
        tokio::try_join!(Guest::boot(plane, "one", &one), Guest::boot(plane, "other", &other))?;
    let (one, other) = tokio::try_join!(
        GuestNode::join(plane, one, "one"),
        GuestNode::join(plane, other, "other")
    )?;
    let pair = [one, other];
    installed::import(&pair).await?;
    let [one, other] = &pair;
    tokio::try_join!(start(plane, one, 0), start(plane, other, 1))?;
    Ok(pair)
}

/// Soft RDMA with a PCI parent on each NIC, named as real ones are.
const RDMA: &str = r"
modprobe -a ib_uverbs ib_umad rdma_ucm udp_tunnel ip6_udp_tunnel crc32_generic
insmod /lib/modules/rdma_rxe_pci.ko
i=0
for bus in 45 46 85 86; do
  link=$(basename /sys/bus/pci/devices/0000:$bus:00.0/virtio*/net/*)
  ip link set $link name rail$i
  ip link set rail$i up
  rdma link add mlx5_$i type rxe netdev rail$i
  i=$((i+1))
done
echo 0 >/proc/sys/net/ipv6/conf/rail0/accept_ra";

/// An address on the wire. It goes into the pod with the interface.
fn address(number: usize) -> String {
    format!("ip addr add {WIRE}{number}/24 dev rail0")
}

/// The machines' addresses on the wire, without the last digit.
const WIRE: &str = "192.168.50.1";

/// Creates a pod on each machine; one writes into the memory of the other.
async fn writes(scope: &Scope, pair: &[GuestNode; 2], round: &str) -> anyhow::Result<[String; 2]> {
    let [server, client] = [("server", &pair[0]), ("client", &pair[1])];
    // A log outlives its pod, so each round uses other names.
    let [server, client] = [server, client].map(|(role, node)| (format!("{role}-{round}"), node));
    let addresses = [0, 1].map(|number| format!("{WIRE}{number}"));
    create(scope, server.1, &server.0, ["", &addresses[1]]).await?;
    // It tries until the server is there.
    create(scope, client.1, &client.0, [&addresses[0], &addresses[0]]).await?;
    for (pod, node) in [&client, &server] {
        let told = match wrote(node, scope, pod).await {
            Ok(told) => told,
            Err(error) => {
                let [one, other] = [wire(&pair[0]).await, wire(&pair[1]).await];
                return Err(error.context(format!("{pod}\n{one}\n{other}")));
            }
        };
        // Without the devices that manage the subnet.
        for (one, expected) in [("DEV uverbs", 1), ("DEV umad", 0), ("DEV issm", 0), ("GPU_", 1)] {
            let lines = told.lines().filter(|line| line.starts_with(one));
            assert_eq!(lines.count(), expected, "`{one}` of {pod}, which wrote:\n{told}");
        }
    }
    Ok([client.0, server.0])
}

/// The state of the wire on a machine, for error messages.
async fn wire(node: &GuestNode) -> String {
    let told = node.guest.run(STATE).await;
    format!("--- guest {}\n{}", node.name, told.unwrap_or_else(|error| format!("{error:#}")))
}

const STATE: &str = r#"
set +e
uptime; rdma link; rdma res show qp
for space in /run/netns/*; do
  echo "in $space"
  nsenter --net=$space sh -c 'ip -s link show net1; ip neigh; ss -tan'
done
ps ax -o pid,stat,etime,args | grep -w -e ib_write_bw -e ping
dmesg | tail -n 15"#;

async fn end(scope: &Scope, [client, server]: [String; 2]) -> anyhow::Result<()> {
    tokio::try_join!(pods::delete(scope, &client), pods::delete(scope, &server))?;
    Ok(())
}

/// The longest time that the work may take.
const WORKED: Duration = Duration::from_mins(10);

/// The script of a container. It prints its devices, then repeatedly writes to its peer, or serves
/// writers. It pauses between writes, since a write keeps a processor busy. The processors are
/// emulated, so responses may take seconds (`-u`). The ping is for QEMU: a frame for an interface
/// that is down stops its wire until the machine sends one itself.
const WORK: &str = r#"
for d in /dev/infiniband/*; do echo DEV ${d##*/}; done; env; ip -o addr
device=${UCX_NET_DEVICES%%:*}
while sleep 1; do ping -c 1 -W 1 $OTHER >/dev/null 2>&1; done &
while :; do
  timeout 60 /usr/bin/ib_write_bw -d $device -x 1 -u 20 -n 20 -s 4096 -F $PEER; status=$?
  echo WRITE $status
  [ -n "$PEER" ] && [ $status = 0 ] && sleep 10
  sleep 1
done"#;

async fn create(
    scope: &Scope,
    node: &GuestNode,
    name: &str,
    [peer, other]: [&str; 2],
) -> anyhow::Result<()> {
    let annotations = json!({
        "dranet.io/aligned-nics": "1",
        "dranet.io/nic-config": json!({"interface": {"name": "net1"}}).to_string(),
    });
    let env = json!([{"name": "PEER", "value": peer}, {"name": "OTHER", "value": other}]);
    let mut pod = pod(node, name, &annotations, WORK)?;
    for container in pod.spec.iter_mut().flat_map(|spec| &mut spec.containers) {
        container.env = serde_json::from_value(env.clone())?;
    }
    pods::create(scope, &pod).await
}

/// A pod with a GPU and the machine's tools for verbs.
fn pod(node: &GuestNode, name: &str, annotations: &Value, script: &str) -> anyhow::Result<Pod> {
    let mount = |to: &str, part: &str| json!({"name": "usr", "mountPath": to, "subPath": part, "readOnly": true});
    serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node.name},
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            // The tools for verbs are the guest's own.
            "volumes": [
                {"name": "usr", "hostPath": {"path": "/usr"}},
                {"name": "providers", "hostPath": {"path": "/etc/libibverbs.d"}},
            ],
            "containers": [{
                "name": "main",
                "image": pods::IMAGE,
                "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", script],
                "resources": {"limits": {"nvidia.com/gpu": "1"}},
                "volumeMounts": [
                    {"name": "usr", "mountPath": "/usr", "readOnly": true},
                    mount("/lib", "lib"),
                    mount("/lib64", "lib64"),
                    {"name": "providers", "mountPath": "/etc/libibverbs.d", "readOnly": true},
                ],
            }],
        },
    }))
    .context("a pod")
}

/// The pod's log, once a write has succeeded.
async fn wrote(node: &GuestNode, scope: &Scope, pod: &str) -> anyhow::Result<String> {
    eventually(WORKED, async || {
        let log = node.pod_log(scope.namespace(), pod).await?;
        let running = format!("{log}\n{:?}", pods::events(scope, pod).await?);
        Ok(if log.contains("\nWRITE 0") { Check::Done(log) } else { Check::NotYet(running) })
    })
    .await
}
