//! The network interfaces of the host's namespace, and which of them the host itself
//! needs.
//!
//! The facts come from rtnetlink or, for a recorded machine, from a file;
//! everything derived from them here is pure. Interfaces in other namespaces are
//! invisible: a NIC whose interface is in a pod is known only by its PCI function.

mod host_nics;

pub use host_nics::{HostNics, NicPattern};

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Not;
use std::{fmt, iter};

/// Everything that is read from rtnetlink.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkFacts {
    /// Interfaces by name.
    pub interfaces: Vec<Interface>,
    /// Default routes of the main table.
    pub default_routes: Vec<DefaultRoute>,
    /// Indices of the interfaces through which the host reaches its API server.
    pub to_server: BTreeSet<u32>,
    /// Indices of the interfaces that were uplinks earlier in this boot. A default route can be
    /// absent for a moment.
    pub earlier_uplinks: BTreeSet<u32>,
    /// Indices of the interfaces through which the host routes packets of others, by source address:
    /// network plugins give addresses of an interface to pods, and leave the interface on the host.
    pub of_others: BTreeSet<u32>,
    /// Names of the interfaces that pods have, or are about to get.
    pub in_pods: BTreeSet<String>,
    /// The operator's choice.
    pub choice: HostNics,
}

/// One network interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Interface {
    /// Its index in the namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `IFLA_INFO_KIND`, for example `veth`; none for the interface of a device.
    pub kind: Option<String>,
    /// The type of its frames.
    pub encapsulation: Encapsulation,
    /// Its hardware address, `60:5e:65:14:0f:10`.
    pub mac: Option<String>,
    /// Its MTU.
    pub mtu: Option<u32>,
    /// Operational state, `up`.
    pub state: Option<String>,
    /// Its alias.
    pub alias: Option<String>,
    /// Index of the bond, bridge or virtual switch that it is a member of.
    pub master: Option<u32>,
    /// Bus of its device, for example `pci` or `vmbus`.
    pub bus: Option<String>,
    /// Its device on that bus, for PCI its address.
    pub parent: Option<String>,
    /// Whether it is a port of a NIC's own switch (`IFLA_PHYS_SWITCH_ID`): the NIC is in mode `switchdev`.
    #[serde(skip_serializing_if = "Not::not")]
    pub is_switch_port: bool,
    /// Whether an administrator has set it up (`IFF_UP`).
    pub is_up: Option<bool>,
    /// Index of its lower interface in the same namespace (`IFLA_LINK`).
    pub lower: Option<u32>,
    /// Its addresses.
    pub addresses: Vec<Cidr>,
}

/// The most interfaces on top of each other (`MAX_NEST_DEV` in `include/linux/netdevice.h`).
const MOST_LAYERS: usize = 8;

/// Kinds of interfaces whose link is not below them, but the other end of a pair; and that of IP over InfiniBand,
/// below which is an interface that stays on the host.
const NOT_UPPER: [&str; 4] = ["ipoib", "netkit", VETH, "vxcan"];

/// Whether an interface of this kind reaches nothing without its link, which is below it: a VLAN, a tunnel.
pub fn is_upper(kind: &str) -> bool {
    !NOT_UPPER.contains(&kind)
}

/// The kind of the pairs by which network plugins connect pods.
pub(crate) const VETH: &str = "veth";

/// Bus of Hyper-V's paravirtual devices.
const VMBUS: &str = "vmbus";

/// What an interface's frames are (`ARPHRD_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encapsulation {
    /// Ethernet.
    Ether,
    /// IP over InfiniBand.
    InfiniBand,
    /// The loopback interface.
    Loopback,
    /// Anything else.
    #[default]
    Other,
}

/// Why an interface stays with the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Withheld {
    /// The node's own traffic uses it: an effective default route, or the route to the
    /// API server.
    Uplink,
    /// The node's own traffic has used it earlier in this boot.
    EarlierUplink,
    /// It is a member of this interface of the host.
    Member(String),
    /// The host or a pod uses this interface, which is on top of it.
    Below(String),
    /// Packets of pods go through it, as their network plugin wants.
    OfOthers,
    /// It is a port of the NIC's own switch, which the host controls.
    SwitchPort,
    /// The operator keeps it for the host.
    Operator,
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uplink => f.write_str(
                "the node's own traffic uses it: a default route of the lowest metric, or the route \
                 to the API server; raise the metric of its default route, or name it by --pod-nic",
            ),
            Self::EarlierUplink => f.write_str(
                "the node's own traffic used it earlier in this boot; name it by --pod-nic if pods \
                 may get it",
            ),
            Self::Member(master) => write!(f, "it is a member of the host's interface `{master}`"),
            Self::Below(upper) => write!(
                f,
                "the interface `{upper}` of the host or a pod is on top of it and would reach nothing; \
                 remove that, or name the NIC by --pod-nic"
            ),
            Self::OfOthers => f.write_str(
                "the network plugin routes packets of pods through it, by their source addresses; \
                 name it by --pod-nic if a pod may get it",
            ),
            Self::SwitchPort => f.write_str(
                "it is a port of the NIC's own switch (mode `switchdev`), which connects the NIC's other \
                 functions and stays with the host; give out its virtual functions, or set its mode to \
                 `legacy` by `devlink dev eswitch`",
            ),
            Self::Operator => f.write_str("--host-nic keeps it for the host"),
        }
    }
}

/// An address with the length of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// Length of the network's prefix.
    pub prefix: u8,
}

/// A default route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefaultRoute {
    /// True for IPv6, false for IPv4.
    pub ipv6: bool,
    /// Its metric; the route with the lowest metric is used.
    pub metric: u32,
    /// Index of its output interface.
    pub interface: u32,
    /// Whether a router advertised it.
    pub advertised: bool,
}

impl Cidr {
    /// Whether other hosts can reach the host at it: neither loopback, link-local,
    /// multicast nor unspecified.
    pub fn is_global_unicast(&self) -> bool {
        let address = self.address;
        let is_link_local = match address {
            IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        !(is_link_local
            || address.is_loopback()
            || address.is_multicast()
            || address.is_unspecified())
    }
}

impl Encapsulation {
    /// The link type's name in upstream's attributes.
    pub fn word(self) -> Option<&'static str> {
        match self {
            Self::Ether => Some("ether"),
            Self::InfiniBand => Some("infiniband"),
            Self::Loopback => Some("loopback"),
            Self::Other => None,
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl NetworkFacts {
    /// The interface of this name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// Interfaces that must stay with the host, by index: those that the host needs, and
    /// members of bonds, bridges and virtual switches. Both publishing and preparing use
    /// this one rule.
    ///
    /// A virtual function below Azure's paravirtual interface does not count as a member:
    /// that interface (`drivers/net/hyperv`) takes over when the function goes away.
    pub fn withheld(&self) -> BTreeMap<u32, Withheld> {
        let mut withheld: BTreeMap<_, _> = self
            .interfaces
            .iter()
            .filter_map(|interface| {
                let master = self.by_index(interface.master?);
                let name = master.map_or_else(|| "another".to_owned(), |it| it.name.clone());
                let is_netvsc =
                    master.is_some_and(|it| it.kind.is_none() && it.bus.as_deref() == Some(VMBUS));
                (!is_netvsc).then_some((interface.index, Withheld::Member(name)))
            })
            .collect();
        let earlier = self.earlier_uplinks.iter().map(|index| (*index, Withheld::EarlierUplink));
        let now = self.uplinks().into_iter().map(|index| (index, Withheld::Uplink));
        // Whatever the operator says, pods never get what leads to the API server.
        let necessary = self.closure(self.to_server.clone());
        let uplinks = earlier.chain(now);
        withheld.extend(uplinks.filter(|(index, _)| !self.is_for_pods(*index, &necessary)));
        let of_others = self.of_others.iter().map(|index| (*index, Withheld::OfOthers));
        for (index, reason) in self.below().chain(of_others) {
            if !self.is_for_pods(index, &necessary) {
                withheld.entry(index).or_insert(reason);
            }
        }
        let of_switch = self.interfaces.iter().filter(|it| it.is_switch_port);
        for interface in of_switch.filter(|it| !self.is_for_pods(it.index, &necessary)) {
            withheld.entry(interface.index).or_insert(Withheld::SwitchPort);
        }
        let of_operator = self.interfaces.iter().filter(|it| self.choice.is_for_host(it));
        for interface in of_operator {
            withheld.entry(interface.index).or_insert(Withheld::Operator);
        }
        withheld
    }

    /// Whether the operator leaves an interface to pods that is not one of the necessary ones.
    fn is_for_pods(&self, index: u32, necessary: &BTreeSet<u32>) -> bool {
        !necessary.contains(&index)
            && self.by_index(index).is_some_and(|it| self.choice.is_for_pods(it))
    }

    /// Whether the operator keeps a PCI function for the host, by its address.
    pub fn is_for_host(&self, address: &str) -> bool {
        self.choice.keeps(address)
    }

    /// The interfaces below those that are used, down to the lowest. The host uses an interface that is
    /// up and has an address, or is a member of another; pods use what they have. A bond itself never
    /// leaves the host.
    fn below(&self) -> impl Iterator<Item = (u32, Withheld)> {
        let used = self.interfaces.iter().filter(|upper| {
            let has_address = upper.addresses.iter().any(Cidr::is_global_unicast);
            let is_hosts = upper.is_up == Some(true) && (has_address || upper.master.is_some());
            is_hosts || self.in_pods.contains(&upper.name)
        });
        used.flat_map(|upper| {
            // A ring of interfaces cannot be made; the bound is for facts that change while they are read.
            iter::successors(self.lower_of(upper), |at| self.lower_of(at))
                .take(MOST_LAYERS)
                .map(move |lower| (upper, lower))
        })
        .filter(|(_, lower)| lower.kind.as_deref() != Some("bond"))
        .map(|(upper, lower)| (lower.index, Withheld::Below(upper.name.clone())))
    }

    /// The interface below it in the same namespace, without which it reaches nothing.
    pub fn lower_of(&self, upper: &Interface) -> Option<&Interface> {
        let lower = upper.lower.filter(|_| upper.kind.as_deref().is_some_and(is_upper));
        lower.and_then(|lower| self.by_index(lower))
    }

    /// What would not work any more without an interface, as text: the list of all that can stand on a NIC.
    pub fn use_of(&self, interface: &Interface) -> Option<String> {
        let (name, index) = (&interface.name, interface.index);
        if self.uplinks().contains(&index) {
            return Some(format!("the node's own traffic goes through {name}"));
        }
        if let Some(Withheld::Member(master)) = self.withheld().get(&index) {
            return Some(format!("interface {master} has {name} as a member"));
        }
        if self.of_others.contains(&index) {
            return Some(format!("packets of pods go through {name}"));
        }
        let mut uppers = self.interfaces.iter();
        let upper =
            uppers.find(|it| self.lower_of(it).is_some_and(|lower| lower.index == index))?;
        Some(format!("interface {} uses {name}", upper.name))
    }

    fn by_index(&self, index: u32) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.index == index)
    }

    /// Indices of the interfaces that the host needs: those of the effective default
    /// routes and of the route to the API server, their lower interfaces, and the members
    /// of bonds and bridges among them.
    ///
    /// A default route that a router advertised counts only if there is no IPv4 one:
    /// routers on backend networks have been seen to advertise themselves to every NIC.
    pub fn uplinks(&self) -> BTreeSet<u32> {
        let v4 = self.default_routes_in_force(|route| !route.ipv6);
        let v6 = self
            .default_routes_in_force(|route| route.ipv6 && (!route.advertised || v4.is_empty()));
        self.closure(v4.union(&v6).chain(&self.to_server).copied().collect())
    }

    /// These interfaces with their lower interfaces, and the members of bonds and bridges among
    /// them.
    fn closure(&self, mut uplinks: BTreeSet<u32>) -> BTreeSet<u32> {
        loop {
            let more: BTreeSet<u32> = self
                .interfaces
                .iter()
                .flat_map(|interface| {
                    let is_member =
                        interface.master.is_some_and(|master| uplinks.contains(&master));
                    let lower = interface.lower.filter(|_| uplinks.contains(&interface.index));
                    is_member.then_some(interface.index).into_iter().chain(lower)
                })
                .collect();
            if more.is_subset(&uplinks) {
                return uplinks;
            }
            uplinks.extend(more);
        }
    }

    /// Interfaces of the routes with the lowest metric among the chosen ones.
    fn default_routes_in_force(&self, choose: impl Fn(&DefaultRoute) -> bool) -> BTreeSet<u32> {
        let routes = self.default_routes.iter().filter(|route| choose(route));
        let lowest = routes.clone().map(|route| route.metric).min();
        routes.filter(|route| Some(route.metric) == lowest).map(|route| route.interface).collect()
    }
}

#[cfg(test)]
mod tests;
