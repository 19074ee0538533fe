//! What the plan of a claim depends on besides the claim.

use crate::kernel::attach::ethtool::Abilities;
use crate::kernel::attach::rdma::NetnsMode;
use crate::model::host_link::HostLink;
use crate::model::plan::Plan;
use crate::prepare::inventory::Inventory;
use publication::cloud::CloudNic;
use std::collections::BTreeMap;

/// Inputs of the decision besides the claim.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The NICs of this node.
    pub inventory: &'a Inventory,
    /// Their interfaces by name.
    pub links: &'a BTreeMap<String, HostLink>,
    /// Features of the interfaces for which a configuration requests some.
    pub abilities: &'a BTreeMap<String, Abilities>,
    /// Which processes may open an RDMA device.
    pub netns_mode: NetnsMode,
    /// The plans of the other claims.
    pub held: &'a [&'a Plan],
    /// What the administrator allows pods to get.
    pub policy: Policy,
    /// The machine's boot ID, if it has one.
    pub boot_id: Option<&'a str>,
    /// The cloud's metadata about the machine's interfaces.
    pub cloud_nics: &'a [CloudNic],
}

/// What the administrator allows pods to get in addition.
#[derive(clap::Args, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Move the IP over InfiniBand interfaces of NICs into pods; otherwise they stay on the host, so
    /// that file systems mounted over them stay reachable
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    pub move_ib_interfaces: bool,
    /// Also give pods the InfiniBand management devices (umad and issm) of physical functions, which
    /// can manage the whole subnet, and issm of virtual functions; pods always get umad of these
    #[arg(long, value_name = "BOOL", default_value_t = false, action = clap::ArgAction::Set)]
    pub management_devices: bool,
}
