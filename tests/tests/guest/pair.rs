//! Two machines on one wire: an annotated pod on each, scheduled and prepared as
//! on a real cluster, and verbs between them.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope, eventually,
    floor::Test,
    guest::{
        Guest, Hardware, Wire,
        node::{GuestNode, disk},
    },
    node::pods,
    rig::Rig,
    with_scope,
};

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![two_pods_write_to_each_other].into_iter().map(Test::alone).collect()
}

async fn two_pods_write_to_each_other(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut rig = Rig::install(&plane, scope).await?;
        let cable = tempfile::tempdir()?;
        let pair = boot(&plane, cable.path()).await?;
        for (number, node) in pair.iter().enumerate() {
            node.guest.run(&format!("{RDMA}\n{}", address(number))).await?;
            node.start_gpu_driver(&plane).await?;
            let kubeconfig = rig.node_kubeconfig("node-driver", &node.name).await?;
            node.start_driver(&plane, &kubeconfig).await?;
        }
        rig.start_admission().await?;
        let running = writes(scope, &pair, "shared").await?;
        // Pods run on while the driver is away, and it takes up what it promised.
        for node in &pair {
            node.guest.kill("node-driver").await?;
            node.restart_driver().await?;
        }
        end(scope, running).await?;
        for node in &pair {
            node.guest.run(EXCLUSIVE).await?;
        }
        let running = writes(scope, &pair, "exclusive").await?;
        end(scope, running).await?;
        // What was in a pod is the machine's again.
        for node in &pair {
            eventually(pods::POD, async || {
                let devices = node.guest.run("ls /sys/class/infiniband; ls /sys/class/net").await?;
                let back = NAMES.iter().all(|name| devices.lines().any(|line| line == *name));
                Ok(Check::that(back, || format!("guest {} has: {devices}", node.name)))
            })
            .await?;
        }
        Ok(())
    })
    .await
}

/// What [`RDMA`] names.
const NAMES: [&str; 8] =
    ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "rail0", "rail1", "rail2", "rail3"];

/// Refused while there is another namespace, and pods' end late.
const EXCLUSIVE: &str = "until rdma system set netns exclusive 2>/dev/null; do sleep 0.2; done";

/// Boots both at once: each takes a processor. The ends of their cable are files in
/// the folder.
async fn boot(plane: &ControlPlane, folder: &Path) -> anyhow::Result<[GuestNode; 2]> {
    let disk = disk(folder)?;
    let ends = ["one", "other"].map(|name| folder.join(name));
    let hardware = |number, wire| Hardware {
        number,
        wire: Some(wire),
        memory: 640,
        disk: Some(disk.clone()),
        ..Hardware::default()
    };
    let [local, remote] = ends.clone();
    let one = hardware(1, Wire { local, remote });
    let [remote, local] = ends;
    let other = hardware(2, Wire { local, remote });
    let (one, other) =
        tokio::try_join!(Guest::boot(plane, "one", &one), Guest::boot(plane, "other", &other))?;
    let (one, other) = tokio::try_join!(
        GuestNode::join(plane, one, "one"),
        GuestNode::join(plane, other, "other")
    )?;
    Ok([one, other])
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
done";

/// An address on the wire. It goes into the pod with the interface.
fn address(number: usize) -> String {
    format!("ip addr add {WIRE}{number}/24 dev rail0")
}

/// The machines' addresses on the wire, but for the last digit.
const WIRE: &str = "192.168.50.1";

/// A pod on each machine; the one writes into the memory of the other.
async fn writes(scope: &Scope, pair: &[GuestNode; 2], round: &str) -> anyhow::Result<[String; 2]> {
    let [server, client] = [("server", &pair[0]), ("client", &pair[1])];
    // A log outlives its pod: another round, another name.
    let [server, client] = [server, client].map(|(role, node)| (format!("{role}-{round}"), node));
    let addresses = [0, 1].map(|number| format!("{WIRE}{number}"));
    create(scope, server.1, &server.0, ["", &addresses[1]]).await?;
    pods::running(scope, &server.0).await?;
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

/// What a machine says of the wire: for a failure.
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

async fn end(scope: &Scope, pods: [String; 2]) -> anyhow::Result<()> {
    for pod in &pods {
        pods::delete(scope, pod).await?;
    }
    Ok(())
}

/// Longest that the work may take.
const WORKED: Duration = Duration::from_mins(5);

/// What a container does: it tells its devices, then writes to its peer until
/// that went well once, or serves whoever writes, for ever: a server that left
/// with its first success would strand a client that lost the last answer. The
/// processors are emulated and busy, so answers may take seconds (`-u`). The ping
/// is for QEMU: a frame for an interface that is down stops its wire until the
/// machine sends one itself.
const WORK: &str = r#"
for d in /dev/infiniband/*; do echo DEV ${d##*/}; done; env; ip -o addr
device=${UCX_NET_DEVICES%%:*}
while sleep 1; do ping -c 1 -W 1 $OTHER >/dev/null 2>&1; done &
while :; do
  timeout 60 /usr/bin/ib_write_bw -d $device -x 1 -u 20 -n 20 -s 4096 -F $PEER; status=$?
  echo WRITE $status
  [ -n "$PEER" ] && [ $status = 0 ] && exec sleep 100000
  sleep 1
done"#;

async fn create(
    scope: &Scope,
    node: &GuestNode,
    name: &str,
    [peer, other]: [&str; 2],
) -> anyhow::Result<()> {
    let mount = |to: &str, part: &str| json!({"name": "usr", "mountPath": to, "subPath": part, "readOnly": true});
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {
            "dranet.io/aligned-nics": "1",
            "dranet.io/nic-config": json!({"interface": {"name": "net1"}}).to_string(),
        }},
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
                "command": ["/bin/sh", "-c", WORK],
                "env": [{"name": "PEER", "value": peer}, {"name": "OTHER", "value": other}],
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
    .context("a pod")?;
    scope.api::<Pod>().create(&PostParams::default(), &pod).await?;
    Ok(())
}

/// The pod's log, once a write has gone well.
async fn wrote(node: &GuestNode, scope: &Scope, pod: &str) -> anyhow::Result<String> {
    eventually(WORKED, async || {
        let log = node.pod_log(scope.namespace(), pod).await?;
        let running = format!("{log}\n{:?}", pods::events(scope, pod).await?);
        Ok(if log.contains("\nWRITE 0") { Check::Done(log) } else { Check::NotYet(running) })
    })
    .await
}
