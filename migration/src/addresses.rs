//! Converts the address management of a CNI network into fields of our network configuration.

use crate::names::object_name;
use cluster_model::network_config::IpPrefix;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that pods of a network get.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Addresses {
    /// Fields of `interface`: `pool`, `addresses` or `dhcp`.
    pub(crate) interface: Map<String, Value>,
    /// `routes` for addresses that do not come from a pool.
    pub(crate) routes: Vec<Value>,
    /// Notes on settings without a counterpart.
    pub(crate) notes: Vec<String>,
}

/// The `NicPool`s that networks need. Networks with equal ranges share one, so that no address is
/// given twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    /// The pools of nvidia-k8s-ipam, by name.
    existing: BTreeMap<String, Value>,
    /// Addresses that whereabouts has given to pods, by network.
    in_use: BTreeMap<String, BTreeSet<IpAddr>>,
    made: Vec<(String, Value)>,
}

impl Pools {
    /// Reads the pools of nvidia-k8s-ipam, and the addresses that whereabouts has given away.
    pub(crate) fn read(objects: &[Value]) -> Self {
        let mut in_use: BTreeMap<String, BTreeSet<IpAddr>> = BTreeMap::new();
        for (network, addresses) in objects.iter().filter_map(whereabouts_pool) {
            in_use.entry(network).or_default().extend(addresses);
        }
        Self { existing: objects.iter().filter_map(nv_pool).collect(), in_use, made: Vec::new() }
    }

    /// The addresses of these ranges that pods have, as networks, and how many there are.
    fn in_use(&self, ranges: &[Value]) -> (Vec<String>, usize) {
        let networks = ranges.iter().filter_map(|range| range["cidr"].as_str());
        let addresses: BTreeSet<IpAddr> =
            networks.filter_map(|network| self.in_use.get(network)).flatten().copied().collect();
        (covering(&addresses), addresses.len())
    }

    /// The pools as Kubernetes objects.
    pub(crate) fn documents(&self) -> impl Iterator<Item = Value> {
        self.made.iter().map(|(name, spec)| {
            json!({
                "apiVersion": "topology.dranet.io/v1alpha1",
                "kind": "NicPool",
                "metadata": {"name": name},
                "spec": spec,
            })
        })
    }

    /// The name of the pool with these ranges; creates one if there is none.
    fn name(&mut self, wanted: &str, spec: Value, notes: &mut Vec<String>) -> String {
        let same = self.made.iter().find(|(_, made)| made["ranges"] == spec["ranges"]);
        if let Some((name, made)) = same {
            if *made != spec {
                notes.push(format!(
                    "NicPool `{name}` already has this range; it keeps the exclusions and routes \
                     of the network that it was created from"
                ));
            }
            return name.clone();
        }
        let wanted = object_name(wanted);
        let numbered = (2..).map(|number| format!("{wanted}-{number}"));
        let mut names = std::iter::once(wanted.clone()).chain(numbered);
        let free = names.find(|name| self.made.iter().all(|(made, _)| made != name));
        let name = free.unwrap_or(wanted);
        self.made.push((name.clone(), spec));
        name
    }
}

/// The pool of nvidia-k8s-ipam that an object is, by name, as a `NicPool`.
fn nv_pool(object: &Value) -> Option<(String, Value)> {
    let spec = &object["spec"];
    let (cidr, gateway) = match object["kind"].as_str()? {
        "IPPool" => (&spec["subnet"], &spec["gateway"]),
        "CIDRPool" => (&spec["cidr"], &Value::Null),
        _ => return None,
    };
    let range = range(cidr.as_str()?, &json!({"gateway": gateway}))?;
    let excluded = spec["exclusions"].as_array().into_iter().flatten();
    let excluded = excluded.filter_map(|it| Some((v4(&it["startIP"])?, v4(&it["endIP"])?)));
    let excluded: Vec<_> = excluded.flat_map(|(first, last)| between(first, last)).collect();
    Some((object["metadata"]["name"].as_str()?.to_owned(), pool(&[range], excluded, routes(spec))))
}

fn v4(value: &Value) -> Option<Ipv4Addr> {
    value.as_str()?.parse().ok()
}

/// The spec of a `NicPool`.
fn pool(ranges: &[Value], excluded: Vec<String>, routes: Vec<Value>) -> Value {
    let mut spec = json!({"ranges": ranges});
    if !excluded.is_empty() {
        spec["exclude"] = excluded.into();
    }
    if !routes.is_empty() {
        spec["routes"] = routes.into();
    }
    spec
}

/// The network of an `IPPool` of whereabouts, and the addresses that pods have: each is named by its
/// distance from the network's first address (`pkg/storage/kubernetes/ipam.go`).
fn whereabouts_pool(object: &Value) -> Option<(String, Vec<IpAddr>)> {
    let is_of_whereabouts = object["apiVersion"].as_str()?.starts_with("whereabouts.cni.cncf.io/");
    if !is_of_whereabouts || object["kind"] != "IPPool" {
        return None;
    }
    let network = network(object["spec"]["range"].as_str()?.parse().ok()?);
    let first: IpAddr = network.split_once('/')?.0.parse().ok()?;
    let allocations = object["spec"]["allocations"].as_object()?;
    let taken = allocations.keys().filter_map(|offset| {
        let offset: u128 = offset.parse().ok()?;
        match first {
            IpAddr::V4(first) => {
                let offset = u32::try_from(offset).ok()?;
                Some(IpAddr::V4(Ipv4Addr::from_bits(first.to_bits().checked_add(offset)?)))
            }
            IpAddr::V6(first) => {
                Some(IpAddr::V6(Ipv6Addr::from_bits(first.to_bits().checked_add(offset)?)))
            }
        }
    });
    Some((network, taken.collect()))
}

/// Converts the `ipam` section of this network.
pub(crate) fn read(network: &str, ipam: &Value, pools: &mut Pools) -> Addresses {
    let mut found = Addresses::default();
    match ipam["type"].as_str() {
        None => {
            found
                .notes
                .push("no `ipam` settings: pods get no address from this network".to_owned());
        }
        Some("whereabouts") => found.whereabouts(network, ipam, pools),
        Some("static") => found.fixed(ipam),
        Some("host-local") => found.host_local(network, ipam, pools),
        Some("dhcp") => {
            found.interface.insert("dhcp".to_owned(), Value::Bool(true));
        }
        Some("nv-ipam") => found.nv_ipam(ipam, pools),
        Some(other) => found.notes.push(format!(
            "IPAM plugin `{other}` has no counterpart; create a NicPool and set `interface.pool`"
        )),
    }
    // A pool has its own routes.
    if !found.interface.contains_key("pool") {
        found.routes = routes(ipam);
    }
    found
}

impl Addresses {
    /// Returns true if the operator must allow these settings in the namespace.
    pub(crate) fn is_guarded(&self) -> bool {
        !self.interface.keys().all(|key| key == "pool") || !self.routes.is_empty()
    }

    fn whereabouts(&mut self, network: &str, ipam: &Value, pools: &mut Pools) {
        let several = ipam["ipRanges"].as_array().into_iter().flatten();
        let parts: Vec<&Value> =
            several.chain([ipam]).filter(|part| part["range"].is_string()).collect();
        if parts.is_empty() {
            self.notes.push("whereabouts has no range: pods get no address".to_owned());
            return;
        }
        let gateway = &ipam["gateway"];
        let mut ranges = Vec::new();
        for part in &parts {
            let text = part["range"].as_str().unwrap_or_default();
            let ends = json!({
                "first": part["range_start"], "last": part["range_end"], "gateway": gateway,
            });
            match range(text, &ends) {
                Some(range) => ranges.push(range),
                None => self.notes.push(format!("invalid address range `{text}`: no range is set")),
            }
        }
        let excluded =
            parts.iter().flat_map(|part| part["exclude"].as_array().into_iter().flatten());
        let excluded: Vec<&Value> = excluded.collect();
        self.pool(network, &ranges, &excluded, routes(ipam), pools);
        if let Some(gateway) = gateway.as_str() {
            self.notes.push(format!(
                "the gateway {gateway} does not create a default route here; to create one, add \
                 {{\"destination\": \"0.0.0.0/0\", \"gateway\": \"{gateway}\"}} to \
                 `spec.routes` of the NicPool"
            ));
        }
    }

    fn pool(
        &mut self,
        name: &str,
        ranges: &[Value],
        excluded: &[&Value],
        routes: Vec<Value>,
        pools: &mut Pools,
    ) {
        if ranges.is_empty() {
            return;
        }
        let v4 = ranges
            .iter()
            .filter(|range| range["cidr"].as_str().is_some_and(|cidr| cidr.contains('.')))
            .count();
        if v4 > 1 || ranges.len() - v4 > 1 {
            self.notes
                .push("a NIC gets one address per IP family here, not one per range".to_owned());
        }
        let mut excluded: Vec<String> =
            excluded.iter().filter_map(|it| prefix(it.as_str()?)).collect();
        let (in_use, count) = pools.in_use(ranges);
        if count > 0 {
            self.notes.push(format!(
                "pods have {count} addresses by whereabouts; `spec.exclude` of the NicPool has \
                 them, so that none is given twice: remove {} when these pods are gone",
                in_use.join(", ")
            ));
            excluded.extend(in_use);
        }
        let name = pools.name(name, pool(ranges, excluded, routes), &mut self.notes);
        self.interface.insert("pool".to_owned(), name.into());
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
                "each pod sets its own address; add `interface.addresses` to its `nic-config`"
                    .to_owned(),
            );
        } else {
            self.interface.insert("addresses".to_owned(), json!(addresses));
        }
    }

    fn host_local(&mut self, network: &str, ipam: &Value, pools: &mut Pools) {
        let of_ranges = ipam["ranges"].as_array().into_iter().flatten();
        let of_ranges = of_ranges.flat_map(|it| it.as_array().into_iter().flatten());
        let parts = of_ranges.chain([ipam]);
        let ranges = parts.filter_map(|part| {
            let ends = json!({
                "first": part["rangeStart"], "last": part["rangeEnd"], "gateway": part["gateway"],
            });
            range(part["subnet"].as_str()?, &ends)
        });
        let ranges: Vec<Value> = ranges.collect();
        if ranges.is_empty() {
            self.notes.push("host-local has no subnet: pods get no address".to_owned());
            return;
        }
        self.pool(network, &ranges, &[], routes(ipam), pools);
        self.notes.push(
            "host-local assigns addresses per node; a NicPool assigns each once per cluster"
                .to_owned(),
        );
    }

    fn nv_ipam(&mut self, ipam: &Value, pools: &mut Pools) {
        let name = ipam["poolName"].as_str().unwrap_or_default();
        match pools.existing.get(name).cloned() {
            Some(spec) => {
                let name = pools.name(name, spec, &mut self.notes);
                self.interface.insert("pool".to_owned(), name.into());
            }
            None => self.notes.push(format!(
                "the pool `{name}` is not in the input; add its IPPool or CIDRPool, or create a \
                 NicPool and set `interface.pool`"
            )),
        }
    }
}

fn routes(ipam: &Value) -> Vec<Value> {
    ipam["routes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|route| {
            let mut ours = json!({"destination": route["dst"].as_str()?});
            if let Some(gateway) = route["gw"].as_str() {
                ours["gateway"] = gateway.into();
            }
            Some(ours)
        })
        .collect()
}

/// Parses a range of a pool: NETWORK/LENGTH, or FIRST-LAST/LENGTH, which whereabouts also accepts.
/// Adds `first`, `last` and `gateway` from `ends` if they are in the range.
fn range(text: &str, ends: &Value) -> Option<Value> {
    let (first, rest) = text.split_once('-').unwrap_or((text, ""));
    let (cidr, last) = match rest.split_once('/') {
        Some((last, length)) => (format!("{first}/{length}"), Some(last)),
        None => (text.to_owned(), None),
    };
    let cidr = network(cidr.parse().ok()?);
    let length = cidr.split_once('/').map_or("", |(_, length)| length);
    let mut range = json!({"cidr": cidr});
    if let Some(last) = last {
        range["first"] = first.into();
        range["last"] = last.into();
    }
    for key in ["first", "last", "gateway"] {
        let end = ends[key].as_str().filter(|end| {
            let prefix = format!("{end}/{length}").parse::<IpPrefix>();
            prefix.is_ok_and(|prefix| network(prefix) == cidr)
        });
        if let Some(end) = end {
            range[key] = end.into();
        }
    }
    Some(range)
}

/// Parses an address or a network; returns it as a network.
fn prefix(text: &str) -> Option<String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(format!("{address}/{}", if address.is_ipv4() { 32 } else { 128 }));
    }
    text.parse().ok().map(network)
}

/// The networks that together cover these addresses, and no other.
fn covering(addresses: &BTreeSet<IpAddr>) -> Vec<String> {
    let mut networks = Vec::new();
    let mut run: Option<(Ipv4Addr, Ipv4Addr)> = None;
    for address in addresses {
        match (address, &mut run) {
            (IpAddr::V4(address), Some((_, last)))
                if last.to_bits().checked_add(1) == Some(address.to_bits()) =>
            {
                *last = *address;
            }
            (IpAddr::V4(address), run) => {
                if let Some((first, last)) = run.replace((*address, *address)) {
                    networks.extend(between(first, last));
                }
            }
            // IPv6 addresses come after those of IPv4.
            (IpAddr::V6(address), _) => networks.push(format!("{address}/128")),
        }
    }
    if let Some((first, last)) = run {
        networks.extend(between(first, last));
    }
    networks
}

/// The networks that together cover the addresses from `first` to `last`.
fn between(first: Ipv4Addr, last: Ipv4Addr) -> Vec<String> {
    let (mut next, last) = (u64::from(first.to_bits()), u64::from(last.to_bits()));
    let mut networks = Vec::new();
    while next <= last {
        // The largest network that begins here and does not exceed the end.
        let bits = (0..=32)
            .rev()
            .find(|bits| next % (1 << bits) == 0 && next + (1 << bits) - 1 <= last)
            .unwrap_or_default();
        if let Ok(address) = u32::try_from(next) {
            networks.push(format!("{}/{}", Ipv4Addr::from_bits(address), 32 - bits));
        }
        next += 1 << bits;
    }
    networks
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_ranges_are_split_into_networks() {
        for (first, last, expected) in [
            ("10.0.0.0", "10.0.0.0", vec!["10.0.0.0/32"]),
            ("10.0.0.0", "10.0.0.3", vec!["10.0.0.0/30"]),
            (
                "10.0.0.1",
                "10.0.0.6",
                vec!["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"],
            ),
            ("0.0.0.0", "255.255.255.255", vec!["0.0.0.0/0"]),
            ("10.0.0.2", "10.0.0.1", vec![]),
        ] {
            let networks = between(first.parse().unwrap(), last.parse().unwrap());
            assert_eq!(networks, expected, "{first} to {last}");
        }
    }

    #[test]
    fn networks_with_one_range_share_a_pool() {
        let mut pools = Pools::default();
        let ipam = |more: Value| {
            let mut ipam = json!({"type": "whereabouts", "range": "10.1.0.0/16"});
            ipam.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            ipam
        };
        let first =
            read("net a", &ipam(json!({"exclude": ["10.1.0.0/30", "10.1.0.9"]})), &mut pools);
        assert_eq!((&first.interface["pool"], first.is_guarded()), (&json!("net-a"), false));
        let second = read("b", &ipam(json!({})), &mut pools);
        assert_eq!(second.interface["pool"], "net-a");
        assert!(second.notes[0].contains("NicPool `net-a` already has this range"));
        let other = json!({"type": "whereabouts", "range": "10.2.0.5-10.2.0.9/24"});
        assert_eq!(read("net.a", &other, &mut pools).interface["pool"], "net-a-2");
        let specs: Vec<_> = pools.documents().map(|pool| pool["spec"].clone()).collect();
        assert_eq!(specs[0]["exclude"], json!(["10.1.0.0/30", "10.1.0.9/32"]));
        let range = json!({"cidr": "10.2.0.0/24", "first": "10.2.0.5", "last": "10.2.0.9"});
        assert_eq!(specs[1]["ranges"], json!([range]));
    }

    #[test]
    fn addresses_that_pods_have_by_whereabouts_are_given_to_no_claim() {
        let pool = |range: &str, offsets: &[&str]| {
            let allocation = json!({"id": "a", "ifname": "net1", "podref": "default/a"});
            let allocations: Map<String, Value> =
                offsets.iter().map(|it| ((*it).to_owned(), allocation.clone())).collect();
            json!({
                "apiVersion": "whereabouts.cni.cncf.io/v1alpha1",
                "kind": "IPPool",
                "metadata": {"name": range.replace('/', "-"), "namespace": "kube-system"},
                "spec": {"range": range, "allocations": allocations},
            })
        };
        let objects = [
            pool("10.1.0.0/16", &["1", "2", "3", "256"]),
            pool("10.9.0.0/16", &["1"]),
            pool("fd00::/64", &["65536", "1"]),
        ];
        let mut pools = Pools::read(&objects);
        let ipam = json!({
            "type": "whereabouts", "range": "10.1.0.0/16", "exclude": ["10.1.0.128/25"],
        });
        let found = read("a", &ipam, &mut pools);
        let v6 = json!({"type": "whereabouts", "range": "fd00::/64"});
        read("b", &v6, &mut pools);
        let specs: Vec<_> = pools.documents().map(|pool| pool["spec"].clone()).collect();
        assert_eq!(
            specs[0]["exclude"],
            json!(["10.1.0.128/25", "10.1.0.1/32", "10.1.0.2/31", "10.1.1.0/32"])
        );
        assert_eq!(specs[1]["exclude"], json!(["fd00::1/128", "fd00::1:0/128"]));
        assert_eq!(
            found.notes,
            ["pods have 4 addresses by whereabouts; `spec.exclude` of the NicPool has them, so \
              that none is given twice: remove 10.1.0.1/32, 10.1.0.2/31, 10.1.1.0/32 when these \
              pods are gone"]
        );
    }
}
