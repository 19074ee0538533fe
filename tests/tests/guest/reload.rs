//! A NIC's kernel driver is loaded again under running pods, as an administrator or a vendor's
//! operator does (Mellanox/network-operator 271, google/dranet 51). The interfaces get each other's
//! names, and the RDMA devices each other's names and numbers.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::{Api, api::ListParams};
use tests::{
    Check, ControlPlane, Scope, eventually,
    guest::{NicModel, node::GuestNode},
    installation::Installation,
    node::{device_name, pods},
    suite::Test,
    with_scope,
};

use super::{
    hardware::{NAME_LINK, SLOW},
    publication::attribute,
};

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![a_driver_reload_under_running_pods].into_iter().map(Test::alone).collect()
}

/// The two NICs of the driver: PCI address, and the hardware address that QEMU gives.
const NICS: [Nic; 2] = [
    Nic { pci: "0000:85:00.0", mac: "52:54:00:00:01:10" },
    Nic { pci: "0000:86:00.0", mac: "52:54:00:00:01:11" },
];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Nic {
    pci: &'static str,
    mac: &'static str,
}

/// Soft RDMA devices below the NICs' PCI functions, numbered in the order in which they are made.
const FIRST: &str = r"
modprobe -a e1000e ib_uverbs ib_umad rdma_ucm udp_tunnel ip6_udp_tunnel crc32_generic
insmod /lib/modules/rdma_rxe_pci.ko
name_link 85:00.0 rail0; name_link 86:00.0 rail1
rdma link add mlx5_0 type rxe netdev rail0
rdma link add mlx5_1 type rxe netdev rail1";

/// The driver finds the NICs in another order.
const AGAIN: &str = r"
modprobe -r e1000e
until ! compgen -G /sys/class/infiniband/'*' >/dev/null; do sleep 0.1; done
modprobe e1000e
name_link 86:00.0 rail0; name_link 85:00.0 rail1
rdma link add mlx5_0 type rxe netdev rail0
rdma link add mlx5_1 type rxe netdev rail1";

async fn a_driver_reload_under_running_pods(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let nics = [NicModel::Virtio, NicModel::Virtio, NicModel::E1000e, NicModel::E1000e];
        let node = GuestNode::boot(&plane, "reload", nics, 512).await?;
        node.guest.run(&format!("{NAME_LINK}{FIRST}")).await?;
        let kubeconfig = installation.node_kubeconfig("node-driver", &node.name).await?;
        node.start_driver(&plane, &kubeconfig, "").await?;
        let machine = Machine { scope, node: &node };
        machine.publishes([("rail0", "mlx5_0"), ("rail1", "mlx5_1")]).await?;
        machine.pod("first", NICS[0]).await?;
        machine.pod("second", NICS[1]).await?;
        machine.has("first", NICS[0], 0).await?;
        machine.has("second", NICS[1], 1).await?;

        node.guest.run(&format!("{NAME_LINK}{AGAIN}")).await?;
        machine.publishes([("rail1", "mlx5_1"), ("rail0", "mlx5_0")]).await?;
        machine.tells_both_claims().await?;
        // A container that starts again gets its own NIC.
        let processes = node.processes(scope, "second").await?;
        node.guest.run(&format!("kill -9 $(cat {processes})")).await?;
        machine.has("second", NICS[1], 0).await?;
        // The one that has not started again ends without a fault, and its NIC is another pod's.
        pods::delete(scope, "first").await?;
        machine.pod("third", NICS[0]).await?;
        machine.has("third", NICS[0], 1).await?;
        for name in ["second", "third"] {
            pods::delete(scope, name).await?;
        }
        machine.has_its_nics().await
    })
    .await
}

struct Machine<'a> {
    scope: &'a Scope,
    node: &'a GuestNode,
}

impl Machine<'_> {
    /// Waits until each NIC is published with this interface and this RDMA device.
    async fn publishes(&self, expected: [(&str, &str); 2]) -> anyhow::Result<()> {
        eventually(SLOW, async || {
            let devices = self.devices().await?;
            let are = NICS.iter().zip(expected).all(|(nic, (interface, rdma))| {
                devices.get(&device_name(nic.pci)).is_some_and(|device| {
                    [("ifName", interface), ("rdmaDevice", rdma), ("mac", nic.mac)].into_iter().all(
                        |(name, value)| {
                            attribute(device, &format!("dra.net/{name}")).as_deref() == Some(value)
                        },
                    )
                })
            });
            Ok(Check::that(are, || format!("{devices:#?}\n{}", self.node.guest.log("node-driver"))))
        })
        .await
    }

    async fn devices(&self) -> anyhow::Result<BTreeMap<String, Device>> {
        let slices: Api<ResourceSlice> = Api::all(self.scope.client());
        let own = ListParams::default()
            .fields(&format!("spec.nodeName={},spec.driver=dra.net", self.node.name));
        let devices = slices.list(&own).await?.items.into_iter();
        let devices = devices.flat_map(|slice| slice.spec.devices.unwrap_or_default());
        Ok(devices.map(|device| (device.name.clone(), device)).collect())
    }

    /// Creates a pod with a claim of the same name on this NIC.
    async fn pod(&self, name: &str, nic: Nic) -> anyhow::Result<()> {
        let device = device_name(nic.pci);
        pods::create_user(self.scope, [name, &self.node.name, &device], None).await.map(drop)
    }

    /// Waits until the pod's latest container has this NIC's interface, and the RDMA device of this number
    /// and no other.
    async fn has(&self, pod: &str, nic: Nic, number: u32) -> anyhow::Result<()> {
        eventually(SLOW, async || {
            let log = self.node.pod_log(self.scope.namespace(), pod).await?;
            let told = log.rsplit("TOLD").nth(1).unwrap_or_default();
            let devices = told.lines().filter_map(|line| line.strip_prefix("DEV uverbs"));
            let devices: Vec<_> = devices.collect();
            let macs: Vec<_> = NICS.iter().filter(|nic| told.contains(nic.mac)).collect();
            let is_its = devices == [number.to_string()]
                && told.contains(&format!("ENV NCCL_IB_HCA==mlx5_{number}\n"))
                && macs == [&nic];
            let events = pods::events(self.scope, pod).await?;
            Ok(Check::that(is_its, || {
                format!("{pod} has {devices:?}, {macs:?}: {told}\n{events:?}")
            }))
        })
        .await
    }

    /// Waits for events about each claim: a running container has numbers of before, and its pod no
    /// interface.
    async fn tells_both_claims(&self) -> anyhow::Result<()> {
        let name = &self.node.name;
        eventually(SLOW, async || {
            let renumbered = pods::node_events(self.scope, name, "RDMADeviceRenumbered").await?;
            let left = pods::node_events(self.scope, name, "InterfaceLeftPod").await?;
            let are = ["first", "second"].into_iter().zip(NICS).all(|(pod, nic)| {
                let device = format!("device `{}` was", device_name(nic.pci));
                let claim = format!("{}/{pod}`", self.scope.namespace());
                renumbered.contains(&device) && left.contains(&claim)
            });
            Ok(Check::that(are, || format!("{renumbered}\n{left}")))
        })
        .await
    }

    /// Waits until the host has both NICs, up.
    async fn has_its_nics(&self) -> anyhow::Result<()> {
        eventually(SLOW, async || {
            let links = self.node.guest.run("ip -o link").await?;
            let is_up =
                |nic: &Nic| links.lines().any(|line| line.contains(nic.mac) && line.contains("UP"));
            Ok(Check::that(NICS.iter().all(is_up), || links.clone()))
        })
        .await
    }
}
