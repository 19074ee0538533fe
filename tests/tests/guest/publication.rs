//! The driver's publication of a machine that QEMU emulates. The slices, the graph and the matrix
//! equal QEMU's configuration, and changes are detected.

use std::{
    collections::BTreeMap,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, ResourceSlice};
use kube::{Api, api::ListParams};
use tests::{
    Check, ControlPlane, Scope, eventually,
    guest::{Guest, Hardware, NICS, NicModel},
    installation::Installation,
    node::device_name,
    process::Program,
    suite::Test,
    with_scope,
};
use topology_graph::NodeTopology;

/// The longest time until a change is in the API; emulation is slow on a busy machine.
const SEEN: Duration = Duration::from_secs(20);

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![a_virtual_machine_is_published_as_it_is].into_iter().map(Test::alone).collect()
}

/// One machine with a NIC of each model, from its first slice to its last change.
async fn a_virtual_machine_is_published_as_it_is(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let node = scope.node("virtual").await?.metadata.name.context("a name")?;
        let nics = [NicModel::Virtio, NicModel::E1000e, NicModel::Vmxnet3, NicModel::Igb];
        let guest =
            Guest::boot(&plane, "publication", &Hardware { nics, ..Hardware::default() }).await?;
        guest.run(NAME_LINKS).await?;
        let driver = Driver { plane: &plane, scope, guest: &guest, node: &node };
        driver.start(&installation).await?;
        driver.publishes_the_hardware().await?;
        driver.shows_the_distances().await?;
        driver.sees_links().await?;
        driver.sees_virtual_functions().await?;
        driver.sees_rdma().await
    })
    .await
}

/// Interfaces are numbered as they are probed. This script names them by their PCI place.
const NAME_LINKS: &str = r"
modprobe -a e1000e igb igbvf vmxnet3
i=0
for bus in 45 46 85 86; do
  device=/sys/bus/pci/devices/0000:$bus:00.0
  until compgen -G $device/net/'*' >/dev/null || compgen -G $device/virtio'*'/net/'*' >/dev/null; do sleep 0.1; done
  name=$(basename $(ls -d $device/net/* $device/virtio*/net/* 2>/dev/null))
  ip link set $name name rail$i
  ip link set rail$i up
  i=$((i+1))
done";

struct Driver<'a> {
    plane: &'a ControlPlane,
    scope: &'a Scope,
    guest: &'a Guest,
    node: &'a str,
}

impl Driver<'_> {
    async fn start(&self, installation: &Installation<'_>) -> anyhow::Result<()> {
        let kubeconfig = installation.node_kubeconfig("node-driver", self.node).await?;
        let kubeconfig = self.guest.add_kubeconfig(&kubeconfig)?;
        self.guest.install("node-driver").await?;
        let command = format!(
            "/run/node-driver --node-name {} --kubeconfig {kubeconfig} --cloud none \
            --log info,node_driver=debug --rescan-seconds 3600",
            self.node
        );
        self.guest.start("node-driver", &command).await
    }

    async fn publishes_the_hardware(&self) -> anyhow::Result<()> {
        self.sees("the four NICs", |devices| {
            let names: Vec<_> = devices.keys().map(String::as_str).collect();
            names == NICS.map(|(address, _)| device_name(address))
        })
        .await?;
        let devices = self.devices().await?;
        for (position, (address, numa)) in NICS.into_iter().enumerate() {
            let device = &devices[&device_name(address)];
            let root = if numa == 0 { "pci0000:40" } else { "pci0000:80" };
            let expected = [
                ("dra.net/ifName", format!("rail{position}")),
                ("dra.net/numaNode", numa.to_string()),
                ("dra.net/pciAddress", address.to_owned()),
                ("resource.kubernetes.io/numaNode", numa.to_string()),
                ("resource.kubernetes.io/pciBusID", address.to_owned()),
                ("resource.kubernetes.io/pcieRoot", root.to_owned()),
            ];
            for (name, value) in expected {
                assert_eq!(attribute(device, name), Some(value), "`{name}` of {address}");
            }
        }
        Ok(())
    }

    async fn shows_the_distances(&self) -> anyhow::Result<()> {
        // The driver publishes the graph after the slices.
        let graphs: Api<NodeTopology> = Api::all(self.scope.client());
        eventually(SEEN, async || {
            let found = graphs.get_opt(self.node).await?.is_some();
            Ok(Check::that(found, || format!("no graph; {}", self.guest.log("node-driver"))))
        })
        .await?;
        for format in ["matrix", "tree"] {
            let graph = Program::new(tests::binaries::ours("kubectl-dranet")?, self.plane.logs())
                .named(&format!("graph-{format}"))
                .args(["graph", self.node, "-o", format])
                .args(["--kubeconfig".to_owned(), self.plane.kubeconfig().display().to_string()])
                .spawn()?
                .wait_for_success(SEEN)
                .await?;
            insta::assert_snapshot!(format, graph);
        }
        Ok(())
    }

    async fn sees_links(&self) -> anyhow::Result<()> {
        let state = |expected: &'static str| {
            move |devices: &BTreeMap<String, Device>| {
                let device = &devices[&device_name("0000:46:00.0")];
                attribute(device, "dra.net/state").as_deref() == Some(expected)
            }
        };
        self.guest.run("ip link set rail1 down").await?;
        self.sees("a link that went down", state("down")).await?;
        self.guest.run("ip link set rail1 up").await?;
        self.sees("a link that came up", state("up")).await
    }

    async fn sees_virtual_functions(&self) -> anyhow::Result<()> {
        let functions = ["0000:86:10.0", "0000:86:10.2", "0000:86:10.4"].map(device_name);
        let path = "/sys/bus/pci/devices/0000:86:00.0/sriov_numvfs";
        self.guest.run(&format!("echo 3 >{path}")).await?;
        self.sees("three virtual functions", |devices| {
            functions.iter().all(|name| {
                devices.get(name).is_some_and(|device| {
                    attribute(device, "dra.net/isSriovVf").as_deref() == Some("true")
                        && attribute(device, "dra.net/numaNode").as_deref() == Some("1")
                })
            })
        })
        .await?;
        self.guest.run(&format!("echo 0 >{path}")).await?;
        self.sees("none", |devices| devices.len() == NICS.len()).await
    }

    async fn sees_rdma(&self) -> anyhow::Result<()> {
        let name = |devices: &BTreeMap<String, Device>| {
            attribute(&devices[&device_name("0000:45:00.0")], "dra.net/rdmaDevice")
        };
        let is = |expected: Option<&'static str>| {
            move |devices: &BTreeMap<String, Device>| name(devices).as_deref() == expected
        };
        self.guest.run("modprobe rdma_rxe").await?;
        // Stock soft RDMA has no PCI parent; the interface identifies its NIC.
        let add = "rdma link add rxe0 type rxe netdev rail0";
        self.hears(add, "soft RDMA", is(Some("rxe0"))).await?;
        // The kernel shows a device in sysfs first.
        eventually(SEEN, async || {
            let is_told = self.is_told("\"rxe0\"")?;
            Ok(Check::that(is_told, || "RDMA netlink tells nothing of rxe0".to_owned()))
        })
        .await?;
        self.hears("rdma link delete rxe0", "its end", is(None)).await?;
        self.guest
            .run(
                "rmmod rdma_rxe; modprobe -a ib_uverbs rdma_ucm udp_tunnel ip6_udp_tunnel; \
            insmod /lib/modules/rdma_rxe_pci.ko",
            )
            .await?;
        let add = "rdma link add mlx5_0 type rxe netdev rail0";
        self.hears(add, "RDMA with a PCI parent", is(Some("mlx5_0"))).await?;
        self.hears("rdma link delete mlx5_0", "its end", is(None)).await
    }

    /// Like [`Self::sees`], for a change of RDMA devices that the kernel itself reports.
    async fn hears(
        &self,
        change: &str,
        what: &str,
        holds: impl Fn(&BTreeMap<String, Device>) -> bool,
    ) -> anyhow::Result<()> {
        let before = self.notifications()?;
        self.guest.run(change).await?;
        self.sees(what, holds).await?;
        // Another event may have triggered the scan before.
        eventually(SEEN, async || {
            let heard = self.notifications()? - before;
            Ok(Check::that(heard > 0, || format!("{what}: seen, and the kernel was not heard")))
        })
        .await
    }

    /// Returns true if RDMA netlink has reported a device, as sysfs did.
    fn is_told(&self, device: &str) -> anyhow::Result<bool> {
        let told = |line: &str| line.contains("RDMA netlink reports") && line.contains(device);
        Ok(self.whole_log()?.lines().any(told))
    }

    fn whole_log(&self) -> anyhow::Result<String> {
        Ok(fs::read_to_string(self.guest.share().join("node-driver.log"))?)
    }

    /// The number of notifications about RDMA devices that the driver received.
    fn notifications(&self) -> anyhow::Result<usize> {
        let log = self.whole_log()?;
        let is_told = |line: &&str| {
            line.contains("RDMA notification")
                || (line.contains("Device event") && line.contains("\"infiniband\""))
        };
        Ok(log.lines().filter(is_told).count())
    }

    /// Waits until the condition holds for the published devices, and reports how long it took.
    async fn sees(
        &self,
        what: &str,
        holds: impl Fn(&BTreeMap<String, Device>) -> bool,
    ) -> anyhow::Result<()> {
        let begin = Instant::now();
        eventually(SEEN, async || {
            let devices = self.devices().await?;
            Ok(Check::that(holds(&devices), || {
                let log = self.guest.log("node-driver");
                format!("{what}: published is {devices:#?}\nthe driver wrote:\n{log}")
            }))
        })
        .await?;
        report(&format!("{what}: seen after {:.1?}", begin.elapsed()));
        Ok(())
    }

    async fn devices(&self) -> anyhow::Result<BTreeMap<String, Device>> {
        let slices: Api<ResourceSlice> = Api::all(self.scope.client());
        let own = ListParams::default().fields(&format!("spec.nodeName={}", self.node));
        let slices = slices.list(&own).await?.items;
        let devices = slices.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
        Ok(devices.map(|device| (device.name.clone(), device)).collect())
    }
}

/// An attribute of a device, as a text.
pub(crate) fn attribute(device: &Device, name: &str) -> Option<String> {
    let all = device.attributes.as_ref()?;
    // Upstream's names have no domain, which means the driver's.
    let value = all.get(name).or_else(|| all.get(name.strip_prefix("dra.net/")?))?;
    let DeviceAttribute { bool, int, string, version, .. } = value;
    string
        .clone()
        .or_else(|| version.clone())
        .or_else(|| int.map(|int| int.to_string()))
        .or_else(|| bool.map(|bool| bool.to_string()))
}

#[expect(clippy::print_stderr, reason = "how long a change took is worth reading")]
fn report(line: &str) {
    eprintln!("{line}");
}
