//! `NicPool`, a pool of addresses for the NICs of pods, and `NicAddress`, an address held by a
//! claim (`topology.dranet.io/v1alpha1`, both cluster-scoped).
//!
//! A `NicAddress` is named after its pool and address, so the API server itself rejects a second
//! claim for the same address, and drivers need no coordination. It lives as long as its claim.

mod addresses;
mod object;

pub use addresses::Addresses;
pub use object::{NicAddress, NicPool};

use crate::network_config::{InterfaceKind, IpPrefix, NetworkConfig, RouteConfig};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The maximum length of a pool's name, which is also a label value.
pub const POOL_NAME_MAX: usize = 63;

/// The addresses of a pool, and the routes and interface settings that go with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NicPoolSpec {
    /// The address ranges. A NIC gets one address of each IP family that they contain. If a range
    /// is removed or shrunk, claims keep their addresses.
    #[cfg_attr(feature = "crd", schemars(length(min = 1, max = 64)))]
    pub ranges: Vec<NicRange>,
    /// Addresses (`192.168.2.7/32`) and networks that no NIC gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "crd", schemars(with = "Vec<PrefixSchema>", length(max = 256)))]
    pub exclude: Vec<IpPrefix>,
    /// Routes in the pod that go through the NIC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "crd", schemars(length(max = 64)))]
    pub routes: Vec<NicRoute>,
    /// The namespaces whose claims may take addresses; all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(length(max = 256)))]
    pub namespaces: Option<Vec<String>>,
    /// Interface settings for claims that do not set them.
    #[serde(default, skip_serializing_if = "NicInterface::is_default")]
    pub interface: NicInterface,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
// An error about an absent field is none, since the other operand decides then.
#[cfg_attr(feature = "crd", schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "cidr(self.cidr).containsIP(self.gateway) || !has(self.gateway)",
        "message": "gateway must be an address of cidr",
    },
    {
        "rule": "cidr(self.cidr).containsIP(self.first) || !has(self.first)",
        "message": "first must be an address of cidr",
    },
    {
        "rule": "cidr(self.cidr).containsIP(self.last) || !has(self.last)",
        "message": "last must be an address of cidr",
    },
])))]
#[serde(rename_all = "camelCase")]
pub struct NicRange {
    /// The network, `192.168.2.0/24`. Addresses get its prefix length.
    #[cfg_attr(feature = "crd", schemars(with = "PrefixSchema"))]
    pub cidr: IpPrefix,
    /// The first address to assign; defaults to the network's first host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(with = "Option<AddressSchema>"))]
    pub first: Option<IpAddr>,
    /// The last address to assign; defaults to the network's last host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(with = "Option<AddressSchema>"))]
    pub last: Option<IpAddr>,
    /// The router of the network. No NIC gets its address. It is the next hop of routes that set
    /// no gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(with = "Option<AddressSchema>"))]
    pub gateway: Option<IpAddr>,
}

/// A route in the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NicRoute {
    /// The destination network.
    #[cfg_attr(feature = "crd", schemars(with = "PrefixSchema"))]
    pub destination: IpPrefix,
    /// Next hop; defaults to the gateway of the address's range, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(with = "Option<AddressSchema>"))]
    pub gateway: Option<IpAddr>,
}

/// Interface settings of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NicInterface {
    /// How the pod gets the interface: `interface.type` of a claim's configuration.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<InterfaceKind>,
    /// Maximum transmission unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(range(min = 68, max = 65535)))]
    pub mtu: Option<u32>,
}

/// The usage of a pool, in NICs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NicPoolStatus {
    /// NICs that the pool has addresses for.
    pub size: i64,
    /// NICs that have addresses from the pool.
    pub used: i64,
    /// NICs that can still get addresses.
    pub free: i64,
}

/// An address held by a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "crd", schemars(extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf", "message": "spec is immutable; an address stays with its claim"}
])))]
#[serde(rename_all = "camelCase")]
pub struct NicAddressSpec {
    /// Name of the pool.
    pub pool: String,
    /// The address, with the length of its network.
    #[cfg_attr(feature = "crd", schemars(with = "PrefixSchema"))]
    pub address: IpPrefix,
    /// The claim.
    pub claim: NicAddressClaim,
    /// The node whose driver took it.
    pub node: String,
    /// The device that it was taken for.
    pub device: String,
}

/// The claim that holds an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub struct NicAddressClaim {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// UID of the claim; a new claim with the same name has another UID.
    pub uid: String,
}

/// The spec of a pool is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NicPoolError {
    /// An address of a range is outside its network, or of another IP family.
    #[error("`spec.ranges[{index}].{field}` is not an address of `{cidr}`")]
    Outside {
        /// The index of the range.
        index: usize,
        /// `first`, `last` or `gateway`.
        field: &'static str,
        /// The network of the range.
        cidr: IpPrefix,
    },
    /// The first address of a range is above its last.
    #[error("`spec.ranges[{index}]`: `first` comes after `last`")]
    Backwards {
        /// The index of the range.
        index: usize,
    },
    /// The next hop of a route is of another IP family than its destination.
    #[error("`spec.routes[{index}]` has a destination and a gateway of different IP families")]
    Route {
        /// The index of the route.
        index: usize,
    },
    /// There are no ranges.
    #[error("`spec.ranges` is empty; add at least one range")]
    NoRange,
}

impl NicPoolSpec {
    /// Checks relations between fields. The API server checks the schema.
    pub fn check(&self) -> Result<(), NicPoolError> {
        if self.ranges.is_empty() {
            return Err(NicPoolError::NoRange);
        }
        for (index, range) in self.ranges.iter().enumerate() {
            for (field, address) in
                [("first", range.first), ("last", range.last), ("gateway", range.gateway)]
            {
                if address.is_some_and(|address| !range.cidr.contains(address)) {
                    return Err(NicPoolError::Outside { index, field, cidr: range.cidr });
                }
            }
            if range.first.zip(range.last).is_some_and(|(first, last)| first > last) {
                return Err(NicPoolError::Backwards { index });
            }
        }
        let mixed = self.routes.iter().position(|route| {
            let is_v4 = route.destination.address.is_ipv4();
            route.gateway.is_some_and(|gateway| gateway.is_ipv4() != is_v4)
        });
        match mixed {
            Some(index) => Err(NicPoolError::Route { index }),
            None => Ok(()),
        }
    }

    /// Returns true if claims of this namespace may take addresses.
    pub fn allows(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|names| names.iter().any(|name| name == namespace))
    }

    /// The addresses that NICs can get, for each IP family of the ranges.
    pub fn addresses(&self) -> Vec<Addresses> {
        [true, false]
            .into_iter()
            .map(|is_v4| Addresses::new(self, is_v4))
            .filter(Addresses::has_ranges)
            .collect()
    }

    /// Completes a claim's configuration: adds addresses and routes, and the interface's type and
    /// MTU if the claim does not set them.
    #[must_use]
    pub fn complete(&self, mut config: NetworkConfig, addresses: Vec<IpPrefix>) -> NetworkConfig {
        let routes = self.routes.iter().filter(|it| {
            let is_v4 = it.destination.address.is_ipv4();
            addresses.iter().any(|own| own.address.is_ipv4() == is_v4)
        });
        let routes = routes.map(|route| {
            let is_v4 = route.destination.address.is_ipv4();
            let gateway = route.gateway.or_else(|| self.gateway(is_v4, &addresses));
            let scope = if gateway.is_some() { 0 } else { SCOPE_LINK };
            RouteConfig { destination: route.destination, gateway, source: None, scope, table: 0 }
        });
        config.routes = routes.chain(config.routes).collect();
        let interface = &mut config.interface;
        interface.pool = None;
        interface.kind = interface.kind.or(self.interface.kind);
        interface.mtu = interface.mtu.or(self.interface.mtu);
        interface.addresses = addresses;
        config
    }

    /// The router of the networks of these addresses in an IP family.
    fn gateway(&self, is_v4: bool, addresses: &[IpPrefix]) -> Option<IpAddr> {
        let mut ranges = self.ranges.iter().filter(|range| {
            range.cidr.address.is_ipv4() == is_v4
                && addresses.iter().any(|own| range.cidr.contains(own.address))
        });
        ranges.find_map(|range| range.gateway)
    }

    /// The status of the pool while these addresses are taken.
    pub fn status(&self, taken: &[IpPrefix]) -> NicPoolStatus {
        let families = self.addresses();
        let all: Vec<_> = families
            .iter()
            .map(|family| {
                let own = taken.iter().filter(|it| it.address.is_ipv4() == family.is_v4());
                let inside = own.clone().filter(|it| family.contains(it.address)).count();
                let free = family.count().saturating_sub(inside as u128);
                (saturated(family.count()), saturated(own.count() as u128), saturated(free))
            })
            .collect();
        NicPoolStatus {
            size: all.iter().map(|it| it.0).min().unwrap_or_default(),
            used: all.iter().map(|it| it.1).max().unwrap_or_default(),
            free: all.iter().map(|it| it.2).min().unwrap_or_default(),
        }
    }
}

fn saturated(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl NicAddressSpec {
    /// The name that the object must have. The API server can refuse a second claim for an address
    /// only if both objects have the same name.
    pub fn name(&self) -> String {
        address_name(&self.pool, self.address.address)
    }
}

impl NicInterface {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `RT_SCOPE_LINK`: the scope of a route without a gateway.
pub const SCOPE_LINK: u8 = 253;

/// The name of the `NicAddress` for an address of a pool. It is unique: the pool's name ends at the
/// last dot.
pub fn address_name(pool: &str, address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("{pool}.{}", address.to_string().replace('.', "-")),
        // Without `::`, since a name must not begin or end with a dash.
        IpAddr::V6(address) => {
            let parts = address.segments().map(|segment| format!("{segment:04x}"));
            format!("{pool}.{}", parts.join("-"))
        }
    }
}

/// An address with the length of its network.
#[cfg(feature = "crd")]
#[derive(schemars::JsonSchema)]
#[schemars(transparent)]
#[expect(dead_code, reason = "only its schema is used")]
struct PrefixSchema(
    #[schemars(length(max = 43), extend("x-kubernetes-validations" = [
        {"rule": "isCIDR(self)", "message": "must be an address and a prefix length, as 192.168.2.0/24"}
    ]))]
    String,
);

/// An address.
#[cfg(feature = "crd")]
#[derive(schemars::JsonSchema)]
#[schemars(transparent)]
#[expect(dead_code, reason = "only its schema is used")]
struct AddressSchema(
    #[schemars(length(max = 39), extend("x-kubernetes-validations" = [
        {"rule": "isIP(self)", "message": "must be an IPv4 or IPv6 address"}
    ]))]
    String,
);

#[cfg(test)]
mod tests;
