//! Checks ranges of values, and fields that exclude each other.

use super::{
    Addressing, ConfigError, InterfaceConfig, InterfaceKind, IpvlanConfig, NetworkConfig,
    RdmaConfig, RouteConfig, RuleConfig, VirtualFunctionConfig, VrfConfig,
};
use std::net::IpAddr;

/// The smallest MTU that the kernel accepts for IPv4 (`ETH_MIN_MTU`).
const MTU_MIN: u32 = 68;
/// `RT_SCOPE_UNIVERSE` and `RT_SCOPE_LINK`.
const SCOPES: [u8; 2] = [0, 253];
/// The highest rule priority below the kernel's own rules.
const RULE_PRIORITY_MAX: u32 = 32767;
/// Service levels have four bits (InfiniBand architecture specification, 7.6.5).
const SERVICE_LEVEL_MAX: u8 = 15;
/// VLANs 1 to 4094 are for networks (IEEE 802.1Q, 9.6).
const VLAN_MAX: u16 = 4094;
/// Priorities have three bits.
const VLAN_QOS_MAX: u8 = 7;
/// The tables `default`, `main` and `local`.
const RESERVED_TABLES: [u32; 3] = [253, 254, 255];

/// In upstream DRANET, a service of the site provides the fields of a profile.
const NO_PROFILES: &str =
    "refers to a profile service, which this driver does not use; write the fields instead";

type Check = Result<(), ConfigError>;

fn ensure(holds: bool, field: &str, problem: impl Into<String>) -> Check {
    if holds {
        return Ok(());
    }
    Err(ConfigError::Value { field: field.to_owned(), problem: problem.into() })
}

fn is_unset_or(value: Option<&str>, known: &str) -> bool {
    value.is_none_or(|value| value.is_empty() || value == known)
}

impl NetworkConfig {
    pub(super) fn check(&self) -> Check {
        let Self { profile, interface, routes, rules, rdma, virtual_function, .. } = self;
        ensure(profile.is_none(), "profile", NO_PROFILES)?;
        interface.check()?;
        for (index, route) in routes.iter().enumerate() {
            route.check(&format!("routes[{index}]"))?;
        }
        for (index, rule) in rules.iter().enumerate() {
            rule.check(&format!("rules[{index}]"))?;
        }
        rdma.map_or(Ok(()), RdmaConfig::check)?;
        virtual_function.map_or(Ok(()), VirtualFunctionConfig::check)?;
        let vrf_with_rules = interface.vrf.is_some() && !rules.is_empty();
        ensure(!vrf_with_rules, "rules", "cannot go with `interface.vrf`, which routes by itself")
    }

    /// Checks that no field needs an interface, for a device without one. The error names the
    /// field.
    pub fn check_rdma_only(&self) -> Check {
        let Self { interface, routes, rules, neighbors, ethtool, .. } = self;
        let none = "is set, but the device has RDMA only and no network interface";
        ensure(*interface == InterfaceConfig::default(), "interface", none)?;
        ensure(routes.is_empty(), "routes", none)?;
        ensure(rules.is_empty(), "rules", none)?;
        ensure(neighbors.is_empty(), "neighbors", none)?;
        ensure(ethtool.is_none(), "ethtool", none)
    }
}

impl RdmaConfig {
    fn check(self) -> Check {
        let version = self.roce_version.is_none_or(|version| matches!(version, 1 | 2));
        ensure(version, "rdma.roceVersion", "must be 1 or 2")?;
        let both = self.roce_version.is_some() && self.gid_index.is_some();
        ensure(
            !both,
            "rdma.roceVersion",
            "cannot go with `rdma.gidIndex`, which selects the version",
        )?;
        let level = self.service_level.is_none_or(|level| level <= SERVICE_LEVEL_MAX);
        ensure(level, "rdma.serviceLevel", format!("must be 0 to {SERVICE_LEVEL_MAX}"))
    }
}

impl VirtualFunctionConfig {
    fn check(self) -> Check {
        let vlan = self.vlan.unwrap_or_default();
        let problem = format!("must be at most {VLAN_MAX}");
        ensure(vlan <= VLAN_MAX, "virtualFunction.vlan", problem)?;
        let qos = self.vlan_qos.unwrap_or_default();
        let problem = format!("must be at most {VLAN_QOS_MAX}");
        ensure(qos <= VLAN_QOS_MAX, "virtualFunction.vlanQos", problem)?;
        let problem = "needs `virtualFunction.vlan`, in which it is the priority";
        ensure(self.vlan_qos.is_none() || vlan != 0, "virtualFunction.vlanQos", problem)?;
        let problem = "needs `virtualFunction.vlan`, whose tags have it";
        ensure(self.vlan_proto.is_none() || vlan != 0, "virtualFunction.vlanProto", problem)?;
        let rates = self.min_tx_rate.zip(self.max_tx_rate);
        let in_order = rates.is_none_or(|(min, max)| max == 0 || min <= max);
        let problem = "is above `virtualFunction.maxTxRate`";
        ensure(in_order, "virtualFunction.minTxRate", problem)
    }
}

impl InterfaceConfig {
    /// Checks that what says where addresses come from agrees with the addresses.
    fn check_addressing(&self) -> Check {
        let field = "interface.addressing";
        let is_static =
            !self.addresses.is_empty() || self.address_range.is_some() || self.pool.is_some();
        let is_unnumbered = self.unnumbered == Some(true);
        ensure(
            !is_unnumbered || matches!(self.addressing, None | Some(Addressing::Unnumbered)),
            "interface.unnumbered",
            "cannot go with another `interface.addressing`",
        )?;
        let short = is_unnumbered.then_some(Addressing::Unnumbered);
        let addressing = self.addressing.or(short);
        match addressing {
            None => Ok(()),
            Some(Addressing::Static) => {
                let problem = "`static` needs `interface.addresses`, `addressRange` or `pool`";
                ensure(is_static && self.dhcp != Some(true), field, problem)
            }
            Some(Addressing::Dhcp) => ensure(
                self.dhcp == Some(true),
                field,
                "`dhcp` cannot go with `interface.dhcp` false",
            ),
            Some(Addressing::Unnumbered) => {
                let problem = "`unnumbered` cannot go with addresses or DHCP";
                ensure(!is_static && self.dhcp != Some(true), field, problem)?;
                let is_new = !matches!(self.kind, None | Some(InterfaceKind::Passthrough));
                let problem = "`unnumbered` needs an `interface.type` that creates an interface: \
                               `macvlan`, `ipvlan` or `ipoib`";
                ensure(is_new, field, problem)
            }
        }
    }

    fn check_ipvlan(&self) -> Check {
        let Some(IpvlanConfig { mode, flag }) = &self.ipvlan else { return Ok(()) };
        let is_it = self.kind == Some(InterfaceKind::IpVlan);
        ensure(is_it, "interface.ipvlan", "needs `interface.type` `ipvlan`")?;
        let is_l2 = is_unset_or(mode.as_deref(), "l2");
        ensure(is_l2, "interface.ipvlan.mode", "must be `l2`")?;
        let is_bridge = is_unset_or(flag.as_deref(), "bridge");
        ensure(is_bridge, "interface.ipvlan.flag", "must be `bridge`")
    }

    fn check(&self) -> Check {
        for address in &self.addresses {
            let problem = format!("has `{address}`, which no interface can have in a network");
            ensure(address.is_of_a_host(), "interface.addresses", problem)?;
        }
        let dhcp_and_addresses = self.dhcp == Some(true) && !self.addresses.is_empty();
        ensure(!dhcp_and_addresses, "interface.dhcp", "cannot go with `interface.addresses`")?;
        ensure(
            self.dhcp != Some(true) || self.kind != Some(InterfaceKind::IpVlan),
            "interface.dhcp",
            "cannot go with `interface.type` `ipvlan`, whose pods share one hardware address, by \
             which DHCP servers identify clients",
        )?;
        let named = self.dhcp == Some(true) || !self.addresses.is_empty();
        ensure(
            !named || self.address_range.is_none(),
            "interface.addressRange",
            "cannot go with `interface.addresses` or `interface.dhcp`",
        )?;
        ensure(
            self.pool.is_none() || !named && self.address_range.is_none(),
            "interface.pool",
            "cannot go with `interface.addresses`, `interface.addressRange` or `interface.dhcp`",
        )?;
        ensure(
            self.mtu.is_none_or(|mtu| mtu >= MTU_MIN && i32::try_from(mtu).is_ok()),
            "interface.mtu",
            format!("must be at least {MTU_MIN}"),
        )?;
        for (field, size) in [
            ("interface.gsoMaxSize", self.gso_max_size),
            ("interface.groMaxSize", self.gro_max_size),
            ("interface.gsoIPv4MaxSize", self.gso_ipv4_max_size),
            ("interface.groIPv4MaxSize", self.gro_ipv4_max_size),
        ] {
            let in_range = size.is_none_or(|size| size > 0 && i32::try_from(size).is_ok());
            ensure(in_range, field, "must be above 0")?;
        }
        let ignore = self.arp_ignore.is_none_or(|value| matches!(value, 0..=3 | 8));
        ensure(ignore, "interface.arpIgnore", "must be one of 0, 1, 2, 3, 8")?;
        let announce = self.arp_announce.is_none_or(|value| value <= 2);
        ensure(announce, "interface.arpAnnounce", "must be one of 0, 1, 2")?;
        ensure(
            self.kind != Some(InterfaceKind::IpVlan) || self.hardware_addr.is_none(),
            "interface.hardwareAddr",
            "cannot go with `interface.type` `ipvlan`, which uses the NIC's address",
        )?;
        ensure(
            self.kind == Some(InterfaceKind::MacVlan) || self.macvlan_mode.is_none(),
            "interface.macvlanMode",
            "needs `interface.type` `macvlan`",
        )?;
        self.check_infiniband()?;
        self.check_addressing()?;
        self.check_ipvlan()?;
        self.vrf.as_ref().map_or(Ok(()), VrfConfig::check)
    }

    fn check_infiniband(&self) -> Check {
        let is_ipoib = self.kind == Some(InterfaceKind::IpoIb);
        ensure(
            is_ipoib || self.pkey.is_none(),
            "interface.pkey",
            "needs `interface.type` `ipoib`, the interface that is in the partition",
        )?;
        ensure(
            !is_ipoib || self.hardware_addr.is_none(),
            "interface.hardwareAddr",
            "cannot go with `interface.type` `ipoib`, whose address names its queue pair",
        )?;
        ensure(
            !is_ipoib || self.dhcp != Some(true),
            "interface.dhcp",
            "cannot go with `interface.type` `ipoib`: it is for Ethernet",
        )
    }
}

impl VrfConfig {
    fn check(&self) -> Check {
        let free = self.table.is_none_or(|table| table > 0 && !RESERVED_TABLES.contains(&table));
        ensure(free, "interface.vrf.table", "must be above 0 and not 253, 254 or 255")
    }
}

impl RouteConfig {
    fn check(&self, at: &str) -> Check {
        let scope = SCOPES.contains(&self.scope);
        ensure(scope, &format!("{at}.scope"), "must be 0 (universe) or 253 (link)")?;
        let reachable = self.scope != 0 || self.gateway.is_some();
        ensure(reachable, &format!("{at}.gateway"), "is missing; a route of scope 0 needs one")?;
        for (field, address) in [("gateway", self.gateway), ("source", self.source)] {
            let same = address.is_none_or(|address| same_family(address, self.destination.address));
            ensure(same, &format!("{at}.{field}"), "is not of the destination's address family")?;
        }
        Ok(())
    }
}

impl RuleConfig {
    fn check(&self, at: &str) -> Check {
        let priority = format!("must be at most {RULE_PRIORITY_MAX}");
        ensure(self.priority <= RULE_PRIORITY_MAX, &format!("{at}.priority"), priority)?;
        let both = self.source.zip(self.destination);
        let same = both.is_none_or(|(from, to)| same_family(from.address, to.address));
        ensure(same, &format!("{at}.destination"), "is not of the source's address family")?;
        let selects = self.source.is_some() || self.destination.is_some();
        ensure(selects, at, "names neither a source nor a destination")
    }
}

fn same_family(a: IpAddr, b: IpAddr) -> bool {
    a.is_ipv4() == b.is_ipv4()
}
