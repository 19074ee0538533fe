//! An outline of the machine: for each NUMA node the trees of host bridges, root ports and
//! switches, with the devices below them.
//!
//! Pictures are laid out from this value alone.

mod build;

use crate::{PathKind, PciAddress};

pub(super) use build::outline;

/// One NUMA node, or all devices whose NUMA node is unknown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// `NUMA node 0, socket 0, CPUs 0-63`.
    pub(super) title: String,
    /// The vertices without a parent, in drawing order.
    pub(super) roots: Vec<Node>,
}

/// A vertex of a tree.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// A port that leads to devices.
    Port(Port),
    /// A source or destination of data.
    Device(OutlineDevice),
}

/// A host bridge, a root port, or a switch with all its ports.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) kind: PortKind,
    /// The root bus, or the address of the port nearest to the CPU.
    pub(super) place: String,
    /// True if it also leads to devices of other NUMA nodes, and is drawn there again.
    pub(super) is_shared: bool,
    pub(super) children: Vec<Node>,
}

/// The kinds of ports that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortKind {
    HostBridge,
    RootPort,
    Switch,
}

/// A device, or the function that moves a NIC's data.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutlineDevice {
    pub(super) kind: DeviceKind,
    /// `NIC0`.
    pub(super) name: String,
    /// The model, or the kernel's name.
    pub(super) known_as: Option<String>,
    pub(super) address: PciAddress,
    pub(super) relation: Option<Relation>,
    /// The index of the GPU that it is paired with, among GPUs with paired NICs.
    pub(super) pair_group: Option<usize>,
}

/// The kinds of devices that are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DeviceKind {
    Gpu,
    Nic,
    DataPath,
    Nvme,
}

/// A device's connection to others besides its place in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Relation {
    pub(super) path: PathKind,
    /// For a NIC, the GPU that it is paired with. For a GPU, `None`: the path applies to every GPU
    /// of its mesh.
    pub(super) gpu: Option<String>,
}

impl Port {
    /// `root port 0000:14:01.0`.
    pub(super) fn label(&self) -> String {
        let kind = match self.kind {
            PortKind::HostBridge => "host bridge",
            PortKind::RootPort => "root port",
            PortKind::Switch => "switch",
        };
        let shared = if self.is_shared { ", shared" } else { "" };
        format!("{kind} {}{shared}", self.place)
    }
}

impl Node {
    /// The children.
    pub(super) fn children(&self) -> &[Self] {
        match self {
            Self::Port(port) => &port.children,
            Self::Device(_) => &[],
        }
    }

    /// All devices in the tree, from left to right.
    pub(super) fn devices(&self) -> Vec<&OutlineDevice> {
        match self {
            Self::Port(port) => port.children.iter().flat_map(Self::devices).collect(),
            Self::Device(device) => vec![device],
        }
    }
}
