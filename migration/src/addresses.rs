//! Address management of a CNI network, as fields of our network configuration.

use cluster_model::network_config::IpPrefix;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What pods of a network get.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Addresses {
    /// Fields of `interface`: `addressRange`, `addresses` or `dhcp`.
    pub(crate) interface: Map<String, Value>,
    /// `routes`.
    pub(crate) routes: Vec<Value>,
    /// What has no counterpart.
    pub(crate) notes: Vec<String>,
}

/// Subnets of nvidia-k8s-ipam's pools, by the pool's name.
pub(crate) fn pools(objects: &[Value]) -> BTreeMap<String, String> {
    let subnet = |object: &Value| {
        let spec = &object["spec"];
        let subnet = match object["kind"].as_str()? {
            "IPPool" => spec["subnet"].as_str(),
            "CIDRPool" => spec["cidr"].as_str(),
            _ => None,
        }?;
        Some((object["metadata"]["name"].as_str()?.to_owned(), subnet.to_owned()))
    };
    objects.iter().filter_map(subnet).collect()
}

/// Reads the `ipam` of a network.
pub(crate) fn read(ipam: &Value, pools: &BTreeMap<String, String>) -> Addresses {
    let mut found = Addresses::default();
    match ipam["type"].as_str() {
        None => found.notes.push("no address management: the pods get no address by it".to_owned()),
        Some("whereabouts") => found.whereabouts(ipam),
        Some("static") => found.fixed(ipam),
        Some("host-local") => found.host_local(ipam),
        Some("dhcp") => {
            found.interface.insert("dhcp".to_owned(), Value::Bool(true));
        }
        Some("nv-ipam") => found.pool(ipam, pools),
        Some(other) => found.notes.push(format!(
            "addresses by `{other}` have no counterpart; set `interface.addressRange` or \
             `interface.addresses`"
        )),
    }
    found.routes(ipam);
    found
}

impl Addresses {
    /// Whether the operator has to allow it in the namespace.
    pub(crate) fn is_guarded(&self) -> bool {
        !self.interface.is_empty()
    }

    fn whereabouts(&mut self, ipam: &Value) {
        let several = ipam["ipRanges"].as_array().into_iter().flatten();
        let mut ranges = several.chain([ipam]).filter_map(|it| it["range"].as_str());
        match ranges.next() {
            Some(range) => self.range(range),
            None => self.notes.push("whereabouts without a range: no address is given".to_owned()),
        }
        let more: Vec<_> = ranges.collect();
        if !more.is_empty() {
            self.notes.push(format!(
                "a claim takes an address of one range; these are left out: {}",
                more.join(", ")
            ));
        }
        let excluded: Vec<_> =
            ipam["exclude"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if !excluded.is_empty() {
            self.notes.push(format!(
                "ranges have no exclusions: narrow `interface.addressRange` so that it does not \
                 hold {}",
                excluded.join(", ")
            ));
        }
        if ipam["range_start"].is_string() || ipam["range_end"].is_string() {
            self.notes.push(
                "ranges have no first and last address: narrow `interface.addressRange`".to_owned(),
            );
        }
        if let Some(gateway) = ipam["gateway"].as_str() {
            self.notes.push(format!(
                "the gateway {gateway} makes no default route here: for one, add \
                 {{\"destination\": \"0.0.0.0/0\", \"gateway\": \"{gateway}\"}} to `routes`"
            ));
        }
    }

    fn fixed(&mut self, ipam: &Value) {
        let addresses: Vec<_> = ipam["addresses"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|it| it["address"].as_str())
            .collect();
        if addresses.is_empty() {
            self.notes.push(
                "each pod names its address; add `interface.addresses` to its `nic-config`"
                    .to_owned(),
            );
        } else {
            self.interface.insert("addresses".to_owned(), json!(addresses));
        }
    }

    fn host_local(&mut self, ipam: &Value) {
        let of_ranges = ipam["ranges"].as_array().into_iter().flatten();
        let of_ranges = of_ranges.flat_map(|it| it.as_array().into_iter().flatten());
        let subnet = of_ranges.chain([ipam]).find_map(|it| it["subnet"].as_str());
        match subnet {
            Some(subnet) => {
                self.range(subnet);
                self.notes.push(
                    "host-local gives addresses node by node; `addressRange` gives each once in \
                     the cluster"
                        .to_owned(),
                );
            }
            None => self.notes.push("host-local without a subnet: no address is given".to_owned()),
        }
    }

    fn pool(&mut self, ipam: &Value, pools: &BTreeMap<String, String>) {
        let name = ipam["poolName"].as_str().unwrap_or_default();
        match pools.get(name) {
            Some(subnet) => self.range(subnet),
            None => self.notes.push(format!(
                "the pool `{name}` is not among the objects; add its IPPool or CIDRPool, or set \
                 `interface.addressRange`"
            )),
        }
    }

    fn range(&mut self, range: &str) {
        // Whereabouts also takes FIRST-LAST/LENGTH.
        let (first, rest) = range.split_once('-').unwrap_or((range, ""));
        let text = match rest.split_once('/') {
            Some((_, length)) => format!("{first}/{length}"),
            None => range.to_owned(),
        };
        let Ok(prefix) = text.parse::<IpPrefix>() else {
            self.notes.push(format!("`{range}` is no range of addresses; none is set"));
            return;
        };
        let network = network(prefix);
        if network != text || text != range {
            self.notes.push(format!(
                "of `{range}` the whole network {network} is taken; narrow it if other hosts have \
                 addresses in it"
            ));
        }
        self.interface.insert("addressRange".to_owned(), Value::String(network));
    }

    fn routes(&mut self, ipam: &Value) {
        for route in ipam["routes"].as_array().into_iter().flatten() {
            let Some(destination) = route["dst"].as_str() else { continue };
            let mut ours = json!({"destination": destination});
            if let Some(gateway) = route["gw"].as_str() {
                ours["gateway"] = gateway.into();
            }
            self.routes.push(ours);
        }
    }
}

/// The network of an address, as text.
fn network(prefix: IpPrefix) -> String {
    let length = u32::from(prefix.prefix_len);
    let address = match prefix.address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    };
    format!("{address}/{length}")
}
