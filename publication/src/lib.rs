//! Derives what is published about a machine: its NICs with their attributes, taints and sharing, as
//! ResourceSlices, and its topology.
//!
//! Facts → model → decision: [`machine`] takes the facts of a machine, which a caller reads from the
//! kernel or from a file, and makes a [`nic::NicState`] of each NIC; [`judge`] decides on each; [`attributes`]
//! writes the devices, and [`slices`] plans the writes. The crate uses no client, no netlink, and no
//! clock. The node driver publishes with it, and the simulator derives nodes of recorded machines.

pub mod attribute;
pub mod attributes;
pub mod cloud;
pub mod decision;
mod fabric;
pub mod filter;
pub mod health;
pub mod held;
pub mod history;
pub mod host_setup;
pub mod judge;
pub mod lag;
pub mod late;
#[cfg(feature = "fixture")]
pub mod live;
pub mod machine;
#[cfg(feature = "machines")]
pub mod machine_type;
pub mod netns_mode;
pub mod network;
pub mod nic;
mod nic_conditions;
pub mod node;
pub mod notice;
mod order;
mod pci_names;
pub mod rails;
pub mod sharing;
pub mod slices;
