//! The hardware for QEMU: two NUMA nodes, each with a PCIe switch below its own root port, and two
//! GPUs and two NICs below each switch.
//!
//! Display adapters with a GPU vendor's ID serve as GPUs, since the graph identifies a GPU by class
//! and vendor. With these bus numbers, the guest's kernel assigns the addresses in [`GPUS`] and
//! [`NICS`]. Other devices, on the machine's own bus, belong to no NUMA node.

use std::path::{Path, PathBuf};

/// The GPUs, with their NUMA nodes.
pub const GPUS: [(&str, i64); 4] =
    [("0000:43:00.0", 0), ("0000:44:00.0", 0), ("0000:83:00.0", 1), ("0000:84:00.0", 1)];

/// The NICs, with their NUMA nodes.
pub const NICS: [(&str, i64); 4] =
    [("0000:45:00.0", 0), ("0000:46:00.0", 0), ("0000:85:00.0", 1), ("0000:86:00.0", 1)];

/// An emulated NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicModel {
    /// The parent of its interface is a virtio device, whose parent is the PCI function.
    Virtio,
    /// Intel 82574L.
    E1000e,
    /// The NIC of `VMware`.
    Vmxnet3,
    /// Intel 82576, with up to 7 virtual functions.
    Igb,
}

impl NicModel {
    const fn device(self) -> &'static str {
        match self {
            Self::Virtio => "virtio-net-pci,speed=100000,duplex=full",
            Self::E1000e => "e1000e",
            Self::Vmxnet3 => "vmxnet3",
            Self::Igb => "igb",
        }
    }
}

/// An end of the cable between two guests. It is a datagram socket, so that the guests may start
/// in any order.
#[derive(Clone, Debug)]
pub struct Wire {
    /// The socket of this guest.
    pub local: PathBuf,
    /// The socket of the other guest.
    pub remote: PathBuf,
    /// Whether all NICs are on it; otherwise the first and the third of [`NICS`].
    pub has_all_nics: bool,
}

/// The hardware of a machine.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// The models, in the order of [`NICS`].
    pub nics: [NicModel; 4],
    /// Distinguishes guests on one cable.
    pub number: u8,
    /// The cable to another guest.
    pub wire: Option<Wire>,
    /// Memory of each NUMA node, in MiB.
    pub memory: u32,
    /// An ext4 image that the guest mounts at `/node`.
    pub disk: Option<PathBuf>,
}

impl Default for Hardware {
    fn default() -> Self {
        Self { nics: [NicModel::Virtio; 4], number: 1, wire: None, memory: 384, disk: None }
    }
}

impl Hardware {
    /// QEMU's command line. `shell` is the host's port for the guest's shell.
    pub(super) fn arguments(&self, image: &Path, folder: &Path, shell: u16) -> Vec<String> {
        let mut all = self.board(image, folder);
        all.extend(management(shell));
        for node in 0..2 {
            all.extend(switch(node));
            for slot in 0..2 {
                all.extend(option(
                    "-device",
                    &format!("ati-vga,model=rv100,bus=down{node}{slot},vgamem_mb=16,romfile="),
                ));
            }
            for slot in 0..2 {
                all.extend(self.nic(node, slot));
            }
        }
        all.extend(self.wire.iter().flat_map(Wire::arguments));
        all
    }

    fn board(&self, image: &Path, folder: &Path) -> Vec<String> {
        let memory = self.memory;
        let (image, folder) = (image.display(), folder.display());
        let mut all = vec!["-nodefaults".to_owned(), "-no-user-config".into(), "-no-reboot".into()];
        for (name, value) in [
            ("-L", format!("{image}/qemu/share")),
            ("-display", "none".into()),
            ("-machine", "q35,usb=off,vmport=off".into()),
            ("-accel", "tcg,thread=multi,tb-size=1024".into()),
            ("-cpu", CPU.into()),
            ("-smp", "2,sockets=2,cores=1,threads=1".into()),
            ("-m", (memory * 2).to_string()),
            ("-object", format!("memory-backend-ram,id=memory0,size={memory}M")),
            ("-object", format!("memory-backend-ram,id=memory1,size={memory}M")),
            ("-numa", "node,nodeid=0,cpus=0,memdev=memory0".into()),
            ("-numa", "node,nodeid=1,cpus=1,memdev=memory1".into()),
            ("-numa", "dist,src=0,dst=1,val=21".into()),
            ("-kernel", format!("{image}/vmlinuz")),
            ("-initrd", format!("{image}/initrd")),
            ("-append", KERNEL.into()),
            ("-serial", format!("file:{folder}/console")),
            // What the guest writes is discarded at its end.
            (
                "-drive",
                format!(
                    "if=none,id=root,file={image}/root.ext4,format=raw,snapshot=on,cache=unsafe"
                ),
            ),
            ("-device", "virtio-blk-pci,drive=root,bus=pcie.0".into()),
            (
                "-fsdev",
                format!("local,id=share,path={folder}/share,security_model=none,multidevs=remap"),
            ),
            ("-device", "virtio-9p-pci,fsdev=share,mount_tag=share,bus=pcie.0".into()),
            ("-device", "virtio-rng-pci,bus=pcie.0".into()),
        ] {
            all.extend(option(name, &value));
        }
        if let Some(disk) = &self.disk {
            let file = disk.display();
            all.extend(option(
                "-drive",
                &format!("if=none,id=node,file={file},format=raw,readonly=on,cache=unsafe"),
            ));
            all.extend(option("-device", "virtio-blk-pci,drive=node,bus=pcie.0"));
        }
        all
    }

    fn nic(&self, node: usize, slot: usize) -> Vec<String> {
        let device = self.nics[node * 2 + slot].device();
        let mac = format!("52:54:00:00:0{}:{node}{slot}", self.number);
        let port = slot + 2;
        let hub = if self.wire.as_ref().is_some_and(|wire| wire.has_all_nics) { 0 } else { slot };
        let mut all =
            option("-netdev", &format!("hubport,id=nic{node}{slot},hubid={hub}")).to_vec();
        all.extend(option(
            "-device",
            &format!("{device},netdev=nic{node}{slot},mac={mac},bus=down{node}{port},romfile="),
        ));
        all
    }
}

impl Wire {
    /// QEMU's options to connect it to the first hub, to which NICs are connected too.
    fn arguments(&self) -> Vec<String> {
        let (local, remote) = (self.local.display(), self.remote.display());
        let socket = format!(
            "dgram,id=wire,local.type=unix,local.path={local},remote.type=unix,\
             remote.path={remote}"
        );
        let port = "hubport,id=wireport,hubid=0,netdev=wire";
        [option("-netdev", &socket), option("-netdev", port)].concat()
    }
}

/// QEMU executes a repeated string instruction in one step for each element, so copying bytes with
/// `rep movsb` is slow. Without `erms` and `fsrm` the kernel, Go and the C library do not use it.
const CPU: &str = "max,la57=off,pku=off,erms=off,fsrm=off";

/// Without mitigations and watchdogs, since the guest is slow enough, and without repeated string
/// instructions (see [`CPU`]). All processors read the time from QEMU's one clock, so their TSCs
/// agree; reading another clock takes QEMU's global lock. A panic stops it. The console has every
/// message of a boot; `tests/guest/init` silences the kernel.
const KERNEL: &str = "console=ttyS0 earlyprintk=serial,ttyS0 panic=-1 mitigations=off nokaslr \
    no_timer_check audit=0 security=apparmor apparmor=1 nowatchdog random.trust_cpu=on \
    rcupdate.rcu_expedited=1 cryptomgr.notests \
    clearcpuid=rep_good nopcid noinvpcid tsc=reliable clocksource=tsc";

/// The interface through which the tests reach the guest; `tests/guest/init` knows its hardware
/// address.
fn management(shell: u16) -> Vec<String> {
    [
        option("-netdev", &format!("user,id=management,hostfwd=tcp:127.0.0.1:{shell}-:2222")),
        option(
            "-device",
            "virtio-net-pci,netdev=management,mac=52:54:00:00:00:01,bus=pcie.0,romfile=",
        ),
    ]
    .concat()
}

/// The root complex of a NUMA node: a root port, and a switch with four ports.
fn switch(node: usize) -> Vec<String> {
    let bus = 64 + node * 64;
    let chassis = 10 + node;
    let mut all = Vec::new();
    for device in [
        format!("pxb-pcie,id=complex{node},bus=pcie.0,bus_nr={bus},numa_node={node}"),
        format!("pcie-root-port,id=root{node},bus=complex{node},chassis={chassis},slot={chassis}"),
        format!("x3130-upstream,id=up{node},bus=root{node}"),
    ] {
        all.extend(option("-device", &device));
    }
    for port in 0..4 {
        let (chassis, slot) = (20 + node, 20 + node * 8 + port);
        all.extend(option(
            "-device",
            &format!(
                "xio3130-downstream,id=down{node}{port},bus=up{node},chassis={chassis},slot={slot}"
            ),
        ));
    }
    all
}

fn option(name: &str, value: &str) -> [String; 2] {
    [name.to_owned(), value.to_owned()]
}
