//! `NicPool`, the addresses that NICs of pods get, and `NicAddress`, one of them that a claim
//! has (`topology.dranet.io/v1alpha1`, both cluster-scoped).
//!
//! A `NicAddress` is named by its pool and its address, so the API server itself refuses the
//! second claim that takes it: no driver needs to know what the others do. It lives as long as
//! its claim.

mod addresses;
mod object;

pub use addresses::Addresses;
pub use object::{NicAddress, NicPool};

use crate::network_config::{InterfaceKind, IpPrefix, NetworkConfig, RouteConfig};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Characters of a pool's name: it is the value of a label.
pub const POOL_NAME_MAX: usize = 63;

/// Where addresses come from, and what goes with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NicPoolSpec {
    /// The ranges. A NIC gets one address of each IP family that they have. A range that is
    /// taken away or made smaller leaves the addresses that claims have.
    #[cfg_attr(feature = "crd", schemars(length(min = 1, max = 64)))]
    pub ranges: Vec<NicRange>,
    /// What no NIC gets: addresses (`192.168.2.7/32`) and networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "crd", schemars(with = "Vec<PrefixSchema>", length(max = 256)))]
    pub exclude: Vec<IpPrefix>,
    /// Routes in the pod that go through the NIC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "crd", schemars(length(max = 64)))]
    pub routes: Vec<NicRoute>,
    /// The namespaces whose claims may take addresses; all where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(length(max = 256)))]
    pub namespaces: Option<Vec<String>>,
    /// The interface that goes with an address, where the claim does not say.
    #[serde(default, skip_serializing_if = "NicInterface::is_default")]
    pub interface: NicInterface,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NicRange {
    /// The network, `192.168.2.0/24`. Its length is that of the addresses.
    #[cfg_attr(feature = "crd", schemars(with = "PrefixSchema"))]
    pub cidr: IpPrefix,
    /// The first address that is given; the network's first host where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(with = "Option<AddressSchema>"))]
    pub first: Option<IpAddr>,
    /// The last address that is given; the network's last host where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(with = "Option<AddressSchema>"))]
    pub last: Option<IpAddr>,
    /// The router of the network: no NIC gets its address, and routes without a gateway of their
    /// own go by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(with = "Option<AddressSchema>"))]
    pub gateway: Option<IpAddr>,
}

/// A route in the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NicRoute {
    /// Where to.
    #[cfg_attr(feature = "crd", schemars(with = "PrefixSchema"))]
    pub destination: IpPrefix,
    /// Next hop; the gateway of the address's range where absent, and none where that has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(with = "Option<AddressSchema>"))]
    pub gateway: Option<IpAddr>,
}

/// The interface that goes with an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NicInterface {
    /// How the pod gets it, as `interface.type` of a claim's configuration.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<InterfaceKind>,
    /// Maximum transmission unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "crd", schemars(range(min = 68, max = 65535)))]
    pub mtu: Option<u32>,
}

/// How much of a pool is taken, in NICs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct NicPoolStatus {
    /// NICs that it has addresses for.
    pub size: i64,
    /// NICs that have addresses of it.
    pub used: i64,
    /// NICs that can get addresses still.
    pub free: i64,
}

/// An address that a claim has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "crd", schemars(extend("x-kubernetes-validations" = [
    {"rule": "self == oldSelf", "message": "an address is taken by one claim, as long as that lives"}
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

/// Whose an address is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "crd", derive(schemars::JsonSchema))]
pub struct NicAddressClaim {
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// Its UID: a claim made again under the same name is another.
    pub uid: String,
}

/// A pool is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NicPoolError {
    /// A range names addresses of two families, or outside of its network.
    #[error("`spec.ranges[{index}].{field}` is not an address of `{cidr}`")]
    Outside {
        /// The range's place.
        index: usize,
        /// `first`, `last` or `gateway`.
        field: &'static str,
        /// Its network.
        cidr: IpPrefix,
    },
    /// A range ends before it begins.
    #[error("`spec.ranges[{index}]`: `first` comes after `last`")]
    Backwards {
        /// The range's place.
        index: usize,
    },
    /// A route's next hop is of another family.
    #[error("`spec.routes[{index}]` has a destination and a gateway of different IP families")]
    Route {
        /// The route's place.
        index: usize,
    },
    /// It has nothing to give.
    #[error("`spec.ranges` names no range")]
    NoRange,
}

impl NicPoolSpec {
    /// Whether what it says makes sense. The API server has checked the form.
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
        let mixed = |route: &NicRoute| {
            let is_v4 = route.destination.address.is_ipv4();
            route.gateway.is_some_and(|gateway| gateway.is_ipv4() != is_v4)
        };
        match self.routes.iter().position(mixed) {
            Some(index) => Err(NicPoolError::Route { index }),
            None => Ok(()),
        }
    }

    /// Whether claims of this namespace may take addresses.
    pub fn allows(&self, namespace: &str) -> bool {
        self.namespaces.as_ref().is_none_or(|names| names.iter().any(|name| name == namespace))
    }

    /// The addresses that NICs can get, for each IP family that the ranges have.
    pub fn addresses(&self) -> Vec<Addresses> {
        let family = |is_v4| Addresses::of(self, is_v4);
        [true, false].into_iter().map(family).filter(Addresses::has_ranges).collect()
    }

    /// A claim's configuration with what the pool adds to it: addresses and routes, and the
    /// interface's type and MTU where the claim does not say.
    #[must_use]
    pub fn complete(&self, mut config: NetworkConfig, addresses: Vec<IpPrefix>) -> NetworkConfig {
        let gateway = |is_v4: bool| {
            let has = |range: &&NicRange| {
                range.cidr.address.is_ipv4() == is_v4
                    && addresses.iter().any(|own| range.cidr.contains(own.address))
            };
            self.ranges.iter().filter(has).find_map(|range| range.gateway)
        };
        let has_family = |is_v4: bool| addresses.iter().any(|own| own.address.is_ipv4() == is_v4);
        let routes = self.routes.iter().filter(|it| has_family(it.destination.address.is_ipv4()));
        let routes = routes.map(|route| {
            let gateway = route.gateway.or_else(|| gateway(route.destination.address.is_ipv4()));
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

    /// How much of it these addresses take.
    pub fn status(&self, taken: &[IpPrefix]) -> NicPoolStatus {
        let families = self.addresses();
        let number = |count: u128| i64::try_from(count).unwrap_or(i64::MAX);
        let of_family = |family: &Addresses| {
            let own = taken.iter().filter(|it| it.address.is_ipv4() == family.is_v4());
            let inside = own.clone().filter(|it| family.contains(it.address)).count();
            let free = family.count().saturating_sub(inside as u128);
            (number(family.count()), number(own.count() as u128), number(free))
        };
        let all: Vec<_> = families.iter().map(of_family).collect();
        NicPoolStatus {
            size: all.iter().map(|it| it.0).min().unwrap_or_default(),
            used: all.iter().map(|it| it.1).max().unwrap_or_default(),
            free: all.iter().map(|it| it.2).min().unwrap_or_default(),
        }
    }
}

impl NicInterface {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// `RT_SCOPE_LINK`: the scope of a route without a gateway.
pub const SCOPE_LINK: u8 = 253;

/// The name of the object that stands for an address of a pool. One for each address: the
/// pool's name is before the last dot.
pub fn address_name(pool: &str, address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("{pool}.{}", address.to_string().replace('.', "-")),
        // In full, as a name may not begin or end with a dash.
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
