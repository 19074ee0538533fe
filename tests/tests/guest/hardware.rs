//! Moves interfaces of devices into pods and back, on a machine with PCI functions: virtual
//! functions, driver flags, and a kernel that takes a device out of a namespace that ended while
//! our driver was down.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::DeleteParams};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually,
    guest::{NicModel, node::GuestNode},
    installation::Installation,
    node::{device_name, pods},
    suite::Test,
    with_scope,
};

mod functions;

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![functions_go_into_pods_and_come_back].into_iter().map(Test::alone).collect()
}

/// Emulation is slow on a busy machine.
pub(crate) const SLOW: Duration = Duration::from_mins(5);

/// Names interfaces by their PCI place.
pub(crate) const NAME_LINK: &str = r"
name_link() {
  device=/sys/bus/pci/devices/0000:$1
  until compgen -G $device/net/'*' >/dev/null || compgen -G $device/virtio'*'/net/'*' >/dev/null; do sleep 0.1; done
  link=$(basename $(ls -d $device/net/* $device/virtio*/net/* 2>/dev/null))
  ip link set $link down
  ip link set $link name $2
  ip link set $2 up
}";

/// Configures the NICs' interfaces. The last one and its virtual functions get settings that must
/// be restored.
const LINKS: &str = r"
modprobe -a e1000e igb igbvf vmxnet3 macvlan vrf
name_link 45:00.0 rail0; name_link 46:00.0 rail1; name_link 85:00.0 rail2; name_link 86:00.0 rail3
ip addr add 10.7.3.1/24 dev rail3
ethtool -K rail3 gro off
ethtool --set-priv-flags rail3 legacy-rx on";

/// The virtual functions that the driver has made.
const FUNCTIONS: &str = r"
name_link 86:10.0 vf0; name_link 86:10.2 vf1
ip link set vf0 mtu 1400
ip addr add 10.7.0.1/24 dev vf0
ip route add 10.70.0.0/16 via 10.7.0.254 dev vf0 metric 77
ip addr add 10.7.1.1/24 dev vf1
ip route add 10.71.0.0/16 via 10.7.1.254 dev vf1";

/// Everything that must be restored on the host: hardware address, MTU, up or down, addresses,
/// routes, features, flags and rings.
const STATE: &str = r"
for link in vf0 vf1 rail3; do
  echo $link $(cat /sys/class/net/$link/{address,mtu}) $(($(cat /sys/class/net/$link/flags) & 1))
  ip -o -4 addr show $link | cut -d' ' -f2-
  ip route show dev $link | sed 's/ linkdown//'
  ethtool -k $link
  ethtool --show-priv-flags $link 2>/dev/null || true
  ethtool -g $link
done";

async fn functions_go_into_pods_and_come_back(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let nics = [NicModel::Virtio, NicModel::E1000e, NicModel::Vmxnet3, NicModel::Igb];
        let node = GuestNode::boot(&plane, "hardware", nics, 640).await?;
        node.guest.run(&format!("{NAME_LINK}{LINKS}")).await?;
        let kubeconfig = installation.node_kubeconfig("node-driver", &node.name).await?;
        node.start_driver(&plane, &kubeconfig, functions::TWO).await?;
        functions::are_made(scope, &node, 2).await?;
        node.guest.run(&format!("{NAME_LINK}{FUNCTIONS}")).await?;
        let before = node.guest.run(STATE).await?;
        functions::are_set_and_restored(scope, &node).await?;
        each_pod_has_its_own(scope, &node).await?;
        pods_share_one_by_ipvlan(scope, &node).await?;

        // Their namespaces end while the driver is down, and the kernel returns the devices.
        node.guest.kill("node-driver").await?;
        let pods: Api<Pod> = scope.api();
        for (name, ..) in PODS {
            pods.delete(name, &DeleteParams::default()).await?;
        }
        returned(&node, None).await?;
        let rings = "ethtool -g $(ls /sys/bus/pci/devices/0000:86:00.0/net)";
        let rings = node.guest.run(rings).await?;
        assert_eq!(rings.matches("512").count(), 2, "as the pod has set them: {rings}");
        node.restart_driver(functions::TWO).await?;
        for (name, ..) in PODS {
            eventually(SLOW, async || {
                let pod = pods.get_opt(name).await?;
                Ok(Check::that(pod.is_none(), || format!("{name} is still there")))
            })
            .await?;
        }
        returned(&node, Some(&before)).await?;
        functions::others_are_made_when_nobody_has_one(scope, &node).await?;
        functions::the_drivers_pod_may_write(scope, &node).await
    })
    .await
}

/// Pods with whole functions: name, PCI address, and the address in the pod.
const PODS: [(&str, &str, &str); 3] = [
    ("first", "0000:86:10.0", "192.168.7.1/24"),
    ("second", "0000:86:10.2", "10.7.1.1/24"),
    ("physical", "0000:86:00.0", "192.168.7.3/24"),
];

/// The configuration of each pod. The second keeps the host's address, in a routing domain (VRF).
/// Only the physical function's driver has private flags.
fn parameters(name: &str, address: &str) -> Value {
    if name == "second" {
        return json!({"interface": {"name": "net1", "vrf": {"name": "blue", "table": 77}}});
    }
    let interface = json!({"name": "net1", "addresses": [address]});
    if name == "physical" {
        let flags = json!({"legacy-rx": false});
        let ethtool = json!({"features": {"gro": true, "tso": false}, "privateFlags": flags});
        json!({"interface": interface, "ethtool": ethtool})
    } else {
        json!({ "interface": interface })
    }
}

async fn each_pod_has_its_own(scope: &Scope, node: &GuestNode) -> anyhow::Result<()> {
    for (name, place, address) in PODS {
        let claim = json!({"resourceClaimName": name});
        let device = device_name(place);
        let parameters = Some(parameters(name, address));
        pods::allocated_claim(scope, name, &node.name, &device, parameters).await?;
        pods::create_bound(scope, pods::pod(name, &node.name, claim)?, &node.name).await?;
    }
    for (name, _, own) in PODS {
        let log = told(node, scope, name).await?;
        let addresses = log.lines().filter(|line| line.starts_with("IP ") && line.contains("net1"));
        let all: Vec<_> = addresses.filter(|line| line.contains("inet ")).collect();
        assert!(all.len() == 1 && all[0].contains(own), "{name}:\n{log}");
        // The loopback interface, the pod's network, the function, and its routing domain.
        let links = log.lines().filter(|line| line.starts_with("LINK ") && line.contains("mtu"));
        let count = if name == "second" { 4 } else { 3 };
        assert_eq!(links.count(), count, "{name}:\n{log}");
    }
    routes_are_the_domains(node).await?;
    let flags =
        node.guest.run(&in_pod_with("192.168.7.3", "ethtool --show-priv-flags net1")).await?;
    assert!(flags.contains("legacy-rx: off"), "{flags}");
    let features = node.guest.run(&in_pod_with("192.168.7.3", "ethtool -k net1")).await?;
    for line in ["generic-receive-offload: on", "tcp-segmentation-offload: off"] {
        assert!(features.contains(line), "{features}");
    }
    // As a pod may that administers its network.
    let rings = in_pod_with("192.168.7.3", "ethtool -G net1 rx 512 tx 512");
    node.guest.run(&rings).await?;
    let host = node.guest.run("ls /sys/class/net").await?;
    let is_away = |name: &str| host.lines().all(|line| line != name);
    assert!(["vf0", "vf1", "rail3"].into_iter().all(is_away), "in pods, not on the host: {host}");
    Ok(())
}

/// The host's route is only in the table of the pod's routing domain, and a server of the pod that
/// listens on all addresses responds in it.
async fn routes_are_the_domains(node: &GuestNode) -> anyhow::Result<()> {
    let in_pod = async |command: &str| node.guest.run(&in_pod_with("10.7.1.1", command)).await;
    let domain = in_pod("ip route show table 77").await?;
    assert!(domain.contains("10.71.0.0/16 via 10.7.1.254 dev net1"), "{domain}");
    let main = in_pod("ip route show table main").await?;
    assert!(!main.contains("10.71.0.0/16"), "{main}");
    let joined = in_pod("ip link show net1").await?;
    assert!(joined.contains("master blue"), "{joined}");
    let accept = ["tcp", "udp"].map(|it| format!("/proc/sys/net/ipv4/{it}_l3mdev_accept"));
    let accept = in_pod(&format!("cat {}", accept.join(" "))).await?;
    assert_eq!(accept, "1\n1\n");
    Ok(())
}

/// A command in the network namespace that has this address.
fn in_pod_with(address: &str, command: &str) -> String {
    format!(
        "for name in $(ip netns list | cut -d' ' -f1); do
           if ip -n $name -o addr | grep ' {address}/' >/dev/null; then ip netns exec $name {command}; fi
         done"
    )
}

/// Two pods on one NIC, with its hardware address, reach each other.
async fn pods_share_one_by_ipvlan(scope: &Scope, node: &GuestNode) -> anyhow::Result<()> {
    let names = ["flat-1", "flat-2"];
    for (number, name) in (1..).zip(names) {
        let share = format!("0000000{number}-0000-4000-8000-000000000000");
        let device = device_name("0000:46:00.0");
        let place = [node.name.as_str(), &device, &share];
        let address = format!("192.168.8.{number}/24");
        let parameters =
            json!({"interface": {"name": "net1", "type": "ipvlan", "addresses": [address]}});
        pods::allocated_share(scope, name, place, Some(parameters)).await?;
        let claim = json!({"resourceClaimName": name});
        pods::create_bound(scope, pods::pod(name, &node.name, claim)?, &node.name).await?;
    }
    for name in names {
        told(node, scope, name).await?;
    }
    let ping = in_pod_with("192.168.8.1", "busybox ping -c 1 -W 5 192.168.8.2");
    let answer = node.guest.run(&ping).await?;
    assert!(answer.contains("1 packets received"), "{answer}");
    let kind = node.guest.run(&in_pod_with("192.168.8.1", "ip -d link show net1")).await?;
    assert!(kind.contains("ipvlan"), "{kind}");
    node.guest.run("ip link show rail1").await?;
    for name in names {
        pods::delete(scope, name).await?;
    }
    Ok(())
}

/// The first output of a pod's container.
async fn told(node: &GuestNode, scope: &Scope, pod: &str) -> anyhow::Result<String> {
    eventually(SLOW, async || {
        let log = node.pod_log(scope.namespace(), pod).await?;
        let events = pods::events(scope, pod).await?;
        let is_whole = log.contains("TOLD");
        Ok(if is_whole { Check::Done(log) } else { Check::NotYet(format!("{log}\n{events:?}")) })
    })
    .await
}

/// Waits until the functions' interfaces are back on the host: under any name, or in this state.
async fn returned(node: &GuestNode, state: Option<&str>) -> anyhow::Result<()> {
    eventually(SLOW, async || {
        let Some(state) = state else {
            let there = "(ls -d /sys/bus/pci/devices/0000:86:{00.0,10.0,10.2}/net/* 2>/dev/null \
                || true) | wc -l";
            let count = node.guest.run(there).await?;
            return Ok(Check::that(count.trim() == "3", || format!("{} are back", count.trim())));
        };
        let now = node.guest.run(&format!("( {STATE}\n) 2>&1 || true")).await?;
        Ok(Check::that(now == state, || format!("was:\n{state}\nis:\n{now}")))
    })
    .await
}
