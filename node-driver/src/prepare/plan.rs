//! What a claim's pod gets: character devices, interfaces with their
//! configuration. A pure function of the claim, the node's devices and what
//! other claims hold; the plan is what the checkpoint keeps.

use crate::attach::ethtool::{Abilities, EthtoolError};
use crate::attach::rdma::NetnsMode;
use crate::prepare::claim::{AllocatedClaim, AllocatedDevice, ClaimRef, OtherDevice, PodRef};
use crate::prepare::host_link::HostLink;
use crate::prepare::inventory::{CharDevice, Inventory, NicFacts};
use crate::prepare::wiring::Wiring;
use cluster_model::network_config::{
    ConfigError, InterfaceConfig, InterfaceKind, LinkName, MacAddress, NetworkConfig, RouteConfig,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// What one claim gets on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The claim.
    pub claim: ClaimRef,
    /// The pods that it was reserved for.
    pub pods: Vec<PodRef>,
    /// Its devices.
    pub devices: Vec<PlannedDevice>,
    /// `rdma_cm`, where one of them has RDMA.
    pub rdma_cm: Option<CharDevice>,
    /// Other drivers' devices in the claim.
    pub others: Vec<OtherDevice>,
    /// Its name in the pod, where it was made from a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_claim_name: Option<String>,
    /// How its devices lie, as files in the container tell.
    #[serde(default)]
    pub wiring: Wiring,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedDevice {
    /// The request that it satisfies, with its subrequest.
    pub request: String,
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: String,
    /// Which share of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// Given besides whoever holds it.
    #[serde(default)]
    pub admin_access: bool,
    /// Its PCI address.
    pub pci_bus_id: String,
    /// Its RDMA device.
    pub rdma: Option<PlannedRdma>,
    /// Its interface, to be moved into the pod.
    pub link: Option<PlannedLink>,
}

/// An RDMA device for a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedRdma {
    /// Kernel name, `mlx5_0`.
    pub name: String,
    /// Numbers of its ports.
    pub ports: Vec<u32>,
    /// Its character devices.
    pub chars: Vec<CharDevice>,
    /// Whether it is to be moved into the pod's network namespace: so in the
    /// exclusive mode of the RDMA subsystem, save for monitoring.
    #[serde(default)]
    pub moves: bool,
}

impl Plan {
    /// The devices that a container is told of, with their claims: its own, and those
    /// of its pod's other claims, in the order of their places then.
    pub fn told(&self) -> Vec<(&ClaimRef, &PlannedDevice)> {
        let own = self.devices.iter().map(|device| (&self.claim, device));
        let beside = self.wiring.beside.iter();
        let beside = beside.flat_map(|it| it.devices.iter().map(|device| (&it.claim, device)));
        let mut told: Vec<_> = own.chain(beside).collect();
        if !self.wiring.beside.is_empty() {
            told.sort_by_key(|(claim, device)| (&device.pci_bus_id, &claim.uid));
        }
        told
    }
}

impl PlannedDevice {
    /// Its RDMA device, where that goes into the pod's network namespace.
    pub fn moving_rdma(&self) -> Option<&PlannedRdma> {
        self.rdma.as_ref().filter(|rdma| rdma.moves)
    }

    /// Whether anything of it goes into the pod's network namespace.
    pub fn moves(&self) -> bool {
        self.link.is_some() || self.moving_rdma().is_some()
    }
}

/// An interface for a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedLink {
    /// How the host has it, and shall have it again.
    pub host: HostLink,
    /// Where the pod gets a child of it, and the host keeps it: of what kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<Child>,
    /// Its name in the pod.
    pub name: LinkName,
    /// Its whole configuration in the pod: the claim's, completed from the host's.
    pub config: NetworkConfig,
}

/// An interface that is made on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Child {
    /// Bridge mode: the children of one NIC reach each other.
    MacVlan,
    /// Mode `l2`.
    IpVlan,
}

impl fmt::Display for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::MacVlan => "macvlan",
            Self::IpVlan => "ipvlan",
        })
    }
}

/// What the decision reads besides the claim.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The devices of this node.
    pub inventory: &'a Inventory,
    /// Their interfaces by name.
    pub links: &'a BTreeMap<String, HostLink>,
    /// What those can do of which a configuration asks for features.
    pub abilities: &'a BTreeMap<String, Abilities>,
    /// Which processes may open an RDMA device.
    pub netns_mode: NetnsMode,
    /// The plans of the other claims.
    pub held: &'a [&'a Plan],
}

/// The claim cannot have what it asks for.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// No such device.
    #[error("device `{device}` is not on this machine; it has {present}")]
    UnknownDevice {
        /// The device.
        device: String,
        /// Those that are there.
        present: String,
    },
    /// Another claim has it.
    #[error("device `{device}` is held by claim `{holder}`, whose pod still uses it")]
    Held {
        /// The device.
        device: String,
        /// Who has it.
        holder: ClaimRef,
    },
    /// Its character device is not there.
    #[error(
        "device `{device}`: `/dev/infiniband/{missing}` is not there; is the module ib_uverbs loaded?"
    )]
    NoCharDevice {
        /// The device.
        device: String,
        /// What is missing.
        missing: String,
    },
    /// Its interface is not in the host's network namespace.
    #[error(
        "device `{device}` has no interface in the host's network namespace; a pod that ends may still have it"
    )]
    NoLink {
        /// The device.
        device: String,
    },
    /// It carries the node's own traffic.
    #[error(
        "device `{device}`: interface `{link}` carries the node's default route and stays with the host"
    )]
    Uplink {
        /// The device.
        device: String,
        /// Its interface.
        link: String,
    },
    /// An interface can be in one pod only.
    #[error(
        "device `{device}` has an interface, which only one pod can have, but the claim is reserved for {pods} pods"
    )]
    ManyPods {
        /// The device.
        device: String,
        /// How many.
        pods: usize,
    },
    /// So can an RDMA device where the subsystem is in exclusive mode.
    #[error(
        "device `{device}` has an RDMA device, which only one pod can have while the node's RDMA subsystem is in exclusive mode, but the claim is reserved for {pods} pods"
    )]
    ExclusiveRdma {
        /// The device.
        device: String,
        /// How many.
        pods: usize,
    },
    /// Nor can the subsystem share one then.
    #[error(
        "device `{device}` is shared, and while the node's RDMA subsystem is in exclusive mode an RDMA device is in one pod only; set it to shared mode, or give whole devices"
    )]
    ExclusiveShare {
        /// The device.
        device: String,
    },
    /// A share is no whole interface.
    #[error(
        "device `{device}` is shared, and its interface stays with the host; set `interface.type` to `macvlan` or `ipvlan`"
    )]
    SharedLink {
        /// The device.
        device: String,
    },
    /// The kernel has children of one kind on an interface.
    #[error(
        "device `{device}`: claim `{holder}` has a {theirs} of it, and an interface has no {asked} beside that; set `interface.type` to `{theirs}`"
    )]
    OtherChild {
        /// The device.
        device: String,
        /// Whose child is there.
        holder: ClaimRef,
        /// Of which kind it is.
        theirs: Child,
        /// What is asked for.
        asked: Child,
    },
    /// Two pods on one NIC would have one address.
    #[error("device `{device}`: address `{address}` is that of claim `{holder}` on the same NIC")]
    SameAddress {
        /// The device.
        device: String,
        /// The address.
        address: IpAddr,
        /// Who has it.
        holder: ClaimRef,
    },
    /// Two interfaces of one claim would have one name.
    #[error(
        "two devices of the claim would be named `{name}` in the pod; name them by separate configurations"
    )]
    SameName {
        /// The name.
        name: LinkName,
    },
    /// Its configuration is malformed.
    #[error("device `{device}`")]
    Config {
        /// The device.
        device: String,
        /// What is wrong.
        source: ConfigError,
    },
    /// Its interface cannot have the features that are asked for.
    #[error("device `{device}`")]
    Ethtool {
        /// The device.
        device: String,
        /// What is asked for, and what it has.
        source: EthtoolError,
    },
    /// DHCP knows it not.
    #[error(
        "device `{device}`: `interface.dhcp` is for Ethernet, and interface `{link}` is IP over InfiniBand; name an address by `interface.addresses`"
    )]
    DhcpOverInfiniBand {
        /// The device.
        device: String,
        /// Its interface.
        link: String,
    },
}

/// Decides what the claim's pod gets; [`wiring`](super::wiring::wiring) tells then
/// how it lies.
pub fn plan(claim: &AllocatedClaim, facts: &Facts<'_>) -> Result<Plan, PlanError> {
    let devices: Vec<PlannedDevice> = claim
        .devices
        .iter()
        .map(|device| planned(claim, device, facts))
        .collect::<Result<_, _>>()?;
    refuse_same_names(&devices)?;
    let has_rdma = devices.iter().any(|device| device.rdma.is_some());
    Ok(Plan {
        claim: claim.claim.clone(),
        pods: claim.pods.clone(),
        devices,
        rdma_cm: facts.inventory.rdma_cm.clone().filter(|_| has_rdma),
        others: claim.others.clone(),
        pod_claim_name: claim.pod_claim_name.clone(),
        wiring: Wiring::default(),
    })
}

fn planned(
    claim: &AllocatedClaim,
    device: &AllocatedDevice,
    facts: &Facts<'_>,
) -> Result<PlannedDevice, PlanError> {
    let nic = facts.inventory.devices.get(&device.device).ok_or_else(|| unknown(device, facts))?;
    refuse_held(device, facts.held)?;
    let config = config(device)?;
    Ok(PlannedDevice {
        request: device.request.clone(),
        pool: device.pool.clone(),
        device: device.device.clone(),
        share_id: device.share_id.clone(),
        admin_access: device.admin_access,
        pci_bus_id: nic.address.to_string(),
        rdma: rdma(claim, device, nic, facts.netns_mode)?,
        link: link(claim, device, nic, config, facts)?,
    })
}

fn unknown(device: &AllocatedDevice, facts: &Facts<'_>) -> PlanError {
    let names: Vec<_> = facts.inventory.devices.keys().map(|name| format!("`{name}`")).collect();
    let present = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    PlanError::UnknownDevice { device: device.device.clone(), present }
}

/// A device is one claim's, save for shares of it and for monitoring.
fn refuse_held(device: &AllocatedDevice, held: &[&Plan]) -> Result<(), PlanError> {
    let conflicts = |other: &PlannedDevice| {
        let shares = device.share_id.is_some()
            && other.share_id.is_some()
            && device.share_id != other.share_id;
        other.device == device.device && !other.admin_access && !device.admin_access && !shares
    };
    let holder = held.iter().find(|plan| plan.devices.iter().any(conflicts));
    holder.map_or(Ok(()), |plan| {
        Err(PlanError::Held { device: device.device.clone(), holder: plan.claim.clone() })
    })
}

fn config(device: &AllocatedDevice) -> Result<NetworkConfig, PlanError> {
    let Some(parameters) = &device.parameters else { return Ok(NetworkConfig::default()) };
    let wrap = |source| PlanError::Config { device: device.device.clone(), source };
    let config = NetworkConfig::parse(parameters).map_err(wrap)?;
    Ok(with_address(device, config))
}

/// The address that was found in a range stands as if it had been named.
fn with_address(device: &AllocatedDevice, mut config: NetworkConfig) -> NetworkConfig {
    if config.interface.address_range.take().is_some() {
        config.interface.addresses = device.address.into_iter().collect();
    }
    config
}

fn rdma(
    claim: &AllocatedClaim,
    device: &AllocatedDevice,
    nic: &NicFacts,
    mode: NetnsMode,
) -> Result<Option<PlannedRdma>, PlanError> {
    let Some(rdma) = &nic.rdma else { return Ok(None) };
    let moves = mode == NetnsMode::Exclusive && !device.admin_access;
    if moves && device.share_id.is_some() {
        return Err(PlanError::ExclusiveShare { device: device.device.clone() });
    }
    if moves && claim.pods.len() > 1 {
        return Err(PlanError::ExclusiveRdma {
            device: device.device.clone(),
            pods: claim.pods.len(),
        });
    }
    // Without verbs there is no RDMA; without the others there is no management.
    let missing = rdma.missing.iter().find(|name| name.starts_with("uverbs"));
    missing.map_or(Ok(()), |missing| {
        let (device, missing) = (device.device.clone(), missing.clone());
        Err(PlanError::NoCharDevice { device, missing })
    })?;
    let (name, ports, chars) = (rdma.name.clone(), rdma.ports.clone(), rdma.chars.clone());
    Ok(Some(PlannedRdma { name, ports, chars, moves }))
}

fn link(
    claim: &AllocatedClaim,
    device: &AllocatedDevice,
    nic: &NicFacts,
    config: NetworkConfig,
    facts: &Facts<'_>,
) -> Result<Option<PlannedLink>, PlanError> {
    let name = || device.device.clone();
    if device.admin_access {
        return Ok(None);
    }
    let host = nic.netdev.as_ref().and_then(|netdev| facts.links.get(netdev));
    let Some(host) = host else {
        let needs_none = nic.rdma.as_ref().is_some_and(|rdma| rdma.is_infiniband);
        if !needs_none {
            return Err(PlanError::NoLink { device: name() });
        }
        let wrap = |source| PlanError::Config { device: name(), source };
        return config.check_rdma_only().map(|()| None).map_err(wrap);
    };
    let child = child(device, &config)?;
    if let Some(asked) = child {
        refuse_beside(device, &config, asked, facts.held)?;
    } else if host.is_uplink() {
        return Err(PlanError::Uplink { device: name(), link: host.name.clone() });
    }
    if claim.pods.len() > 1 {
        return Err(PlanError::ManyPods { device: name(), pods: claim.pods.len() });
    }
    let is_infiniband = host.hardware_addr.as_ref().is_some_and(MacAddress::is_infiniband);
    if config.interface.dhcp == Some(true) && is_infiniband {
        return Err(PlanError::DhcpOverInfiniBand { device: name(), link: host.name.clone() });
    }
    let pod_name = pod_name(host, &config);
    let (host, config) = match child {
        None => with_features(device, host.clone(), completed(host, config), facts)?,
        // What it can do shows when it is there.
        Some(child) => (host.clone(), with_own_address(claim, device, child, config)),
    };
    Ok(Some(PlannedLink { host, child, name: pod_name, config }))
}

/// The features by the kernel's names, and how the host has them.
fn with_features(
    device: &AllocatedDevice,
    mut host: HostLink,
    mut config: NetworkConfig,
    facts: &Facts<'_>,
) -> Result<(HostLink, NetworkConfig), PlanError> {
    let abilities = facts.abilities.get(&host.name);
    if let Some((asked, abilities)) = config.ethtool.as_ref().zip(abilities) {
        let wrap = |source| PlanError::Ethtool { device: device.device.clone(), source };
        let resolved = abilities.resolve(&host.name, asked).map_err(wrap)?;
        host.ethtool = Some(abilities.former(&resolved));
        config.ethtool = Some(resolved);
    }
    Ok((host, config))
}

/// The NIC's own interface is for who has all of the NIC.
fn child(device: &AllocatedDevice, config: &NetworkConfig) -> Result<Option<Child>, PlanError> {
    let is_share = device.share_id.is_some();
    match config.interface.kind {
        Some(InterfaceKind::Passthrough) if is_share => {
            Err(PlanError::SharedLink { device: device.device.clone() })
        }
        Some(InterfaceKind::IpVlan) => Ok(Some(Child::IpVlan)),
        Some(InterfaceKind::MacVlan) => Ok(Some(Child::MacVlan)),
        None if is_share => Ok(Some(Child::MacVlan)),
        None | Some(InterfaceKind::Passthrough) => Ok(None),
    }
}

/// Children of one NIC live side by side: of one kind, with addresses of their own.
fn refuse_beside(
    device: &AllocatedDevice,
    config: &NetworkConfig,
    asked: Child,
    held: &[&Plan],
) -> Result<(), PlanError> {
    let children = held.iter().flat_map(|plan| {
        let same = plan.devices.iter().filter(|other| other.device == device.device);
        let links = same.filter_map(|other| other.link.as_ref());
        links.filter_map(move |link| Some((&plan.claim, link.child?, link)))
    });
    for (holder, theirs, link) in children {
        let (device, holder) = (device.device.clone(), holder.clone());
        if theirs != asked {
            return Err(PlanError::OtherChild { device, holder, theirs, asked });
        }
        let theirs: Vec<IpAddr> =
            link.config.interface.addresses.iter().map(|prefix| prefix.address).collect();
        let mut own = config.interface.addresses.iter().map(|prefix| prefix.address);
        if let Some(address) = own.find(|address| theirs.contains(address)) {
            return Err(PlanError::SameAddress { device, address, holder });
        }
    }
    Ok(())
}

/// A macvlan has the same hardware address in each sandbox of its pod, and it is known
/// before: made of the claim's UID and the device's name, locally administered.
fn with_own_address(
    claim: &AllocatedClaim,
    device: &AllocatedDevice,
    child: Child,
    config: NetworkConfig,
) -> NetworkConfig {
    if child == Child::IpVlan || config.interface.hardware_addr.is_some() {
        return config;
    }
    let digest = Sha256::digest(format!("{}/{}", claim.claim.uid, device.device));
    let bytes = [0x02, digest[0], digest[1], digest[2], digest[3], digest[4]];
    let hardware_addr = MacAddress::from_bytes(&bytes);
    NetworkConfig { interface: InterfaceConfig { hardware_addr, ..config.interface }, ..config }
}

/// The name that is asked for, else the host's, as the kernel allows more than
/// a configuration may say.
fn pod_name(host: &HostLink, config: &NetworkConfig) -> LinkName {
    let asked = config.interface.name.clone();
    asked.or_else(|| host.name.parse().ok()).unwrap_or_else(LinkName::fallback)
}

/// Without addresses of its own the interface keeps the host's, and the routes
/// that go with them; routes that are asked for come after.
fn completed(host: &HostLink, config: NetworkConfig) -> NetworkConfig {
    if !config.interface.addresses.is_empty() || config.interface.dhcp == Some(true) {
        return config;
    }
    let addresses = host.addresses.iter().filter(|address| address.is_global());
    let inherited = host.routes.iter().map(|route| RouteConfig {
        destination: route.destination,
        gateway: route.gateway,
        source: route.source,
        scope: if route.gateway.is_some() { 0 } else { SCOPE_LINK },
        table: route.table,
    });
    let asks_for = |route: &RouteConfig| {
        config.routes.iter().any(|asked| {
            asked.destination == route.destination && asked.table_id() == route.table_id()
        })
    };
    let routes = inherited.filter(|route| !asks_for(route)).chain(config.routes.clone()).collect();
    let addresses = addresses.map(|address| address.prefix).collect();
    let interface = InterfaceConfig { addresses, ..config.interface };
    NetworkConfig { interface, routes, ..config }
}

/// `RT_SCOPE_LINK`.
const SCOPE_LINK: u8 = 253;

fn refuse_same_names(devices: &[PlannedDevice]) -> Result<(), PlanError> {
    let mut names: Vec<_> =
        devices.iter().filter_map(|device| Some(&device.link.as_ref()?.name)).collect();
    names.sort();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    twice.map_or(Ok(()), |pair| Err(PlanError::SameName { name: pair[0].clone() }))
}

#[cfg(test)]
mod tests;
