//! Addresses from a range that many claims share: no pool of one's own, but what the
//! claims' status says, over all nodes.
//!
//! Each claim chooses by its UID, so that two at once seldom choose alike, writes its
//! choice into its status, and looks again: it has the address only if no other claim
//! is seen with it then, else it chooses anew. Of two that wrote the same the later sees
//! the earlier, as each looks after it has written. An address is free again when its
//! claim is deleted.

use crate::prepare::claim::{AllocatedClaim, AllocatedDevice};
use crate::prepare::error::PrepareError;
use cluster_model::network_config::{IpPrefix, NetworkConfig};
use k8s_openapi::api::resource::v1::{AllocatedDeviceStatus, ResourceClaim};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Looks at all claims before giving up: each but the first follows a choice that
/// another claim, chosen at the same moment, has made void.
const LOOKS: u32 = 8;

/// What another claim has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Taken {
    uid: String,
    addresses: BTreeSet<IpAddr>,
}

/// Gives the claim's devices addresses where their configuration names a range.
pub(super) async fn reserve(
    client: &Client,
    driver: &str,
    claim: &mut AllocatedClaim,
) -> Result<(), PrepareError> {
    let wanted: Vec<(usize, NetworkConfig)> = wanted(claim);
    if wanted.is_empty() {
        return Ok(());
    }
    let uid = claim.claim.uid.clone();
    let wrap = |source: kube::Error| PrepareError::Addresses {
        claim: claim.claim.clone(),
        source: Box::new(source),
    };
    let all: Api<ResourceClaim> = Api::all(client.clone());
    for look in 0..LOOKS {
        let claims = all.list(&ListParams::default()).await.map_err(wrap)?.items;
        let (own, others): (Vec<_>, Vec<_>) =
            claims.iter().map(|claim| taken(claim, driver)).partition(|taken| taken.uid == uid);
        let own = own.into_iter().next().unwrap_or_default().addresses;
        let seed = format!("{uid}/{look}");
        let Some(chosen) = choose_all(&wanted, &seed, &own, &others) else {
            // Two that chose the last address would else keep it from each other.
            if !own.is_empty() {
                claim.devices.iter_mut().for_each(|device| device.address = None);
                write(client, driver, claim).await.map_err(wrap)?;
            }
            return Err(PrepareError::RangeFull { claim: claim.claim.clone() });
        };
        let is_written = chosen.iter().all(|(_, prefix)| own.contains(&prefix.address));
        for (index, prefix) in chosen {
            claim.devices[index].address = Some(prefix);
        }
        if is_written {
            return Ok(());
        }
        write(client, driver, claim).await.map_err(wrap)?;
    }
    Err(PrepareError::RangeContended { claim: claim.claim.clone() })
}

/// The devices with a range, by their place. What is malformed is refused by the plan.
fn wanted(claim: &AllocatedClaim) -> Vec<(usize, NetworkConfig)> {
    let config = |device: &AllocatedDevice| {
        let config = NetworkConfig::parse(device.parameters.as_ref()?).ok()?;
        config.interface.address_range.is_some().then_some(config)
    };
    let devices = claim.devices.iter().enumerate();
    devices.filter_map(|(index, device)| Some((index, config(device)?))).collect()
}

fn taken(claim: &ResourceClaim, driver: &str) -> Taken {
    let devices = claim.status.as_ref().and_then(|status| status.devices.as_ref());
    let ours = devices.into_iter().flatten().filter(|device| device.driver == driver);
    let ips = |device: &AllocatedDeviceStatus| {
        let data = device.network_data.as_ref()?;
        Some(data.ips.clone().unwrap_or_default())
    };
    let parse = |text: String| Some(text.parse::<IpPrefix>().ok()?.address);
    Taken {
        uid: claim.metadata.uid.clone().unwrap_or_default(),
        addresses: ours.filter_map(ips).flatten().filter_map(parse).collect(),
    }
}

/// An address for each device: the one that the claim has already where no other claim
/// has it too, else a free one. None where a range is full.
fn choose_all(
    wanted: &[(usize, NetworkConfig)],
    seed: &str,
    own: &BTreeSet<IpAddr>,
    others: &[Taken],
) -> Option<Vec<(usize, IpPrefix)>> {
    let mut used: BTreeSet<IpAddr> = BTreeSet::new();
    let mut chosen = Vec::new();
    for (index, config) in wanted {
        let range = config.interface.address_range?;
        let is_lost =
            |address: &IpAddr| others.iter().any(|other| other.addresses.contains(address));
        let kept = own.iter().find(|address| {
            is_host(range, **address) && !used.contains(*address) && !is_lost(address)
        });
        let prefix = if let Some(address) = kept {
            IpPrefix { address: *address, prefix_len: range.prefix_len }
        } else {
            let mut taken = used.clone();
            taken.extend(others.iter().flat_map(|other| &other.addresses));
            taken.extend(config.routes.iter().filter_map(|route| route.gateway));
            choose(range, &taken, &format!("{seed}/{index}"))?
        };
        used.insert(prefix.address);
        chosen.push((*index, prefix));
    }
    Some(chosen)
}

/// A host's address in the range that is not taken: the first from a place that the
/// seed says.
fn choose(range: IpPrefix, taken: &BTreeSet<IpAddr>, seed: &str) -> Option<IpPrefix> {
    let (first, count) = hosts(range)?;
    let digest = Sha256::digest(seed);
    let start = digest.iter().take(8).fold(0_u128, |sum, byte| (sum << 8) | u128::from(*byte));
    // Of one candidate more than are taken one is free.
    let tries = u128::try_from(taken.len()).unwrap_or(u128::MAX).saturating_add(1).min(count);
    let candidate = |step| {
        let number = first + (start % count + step) % count;
        if range.address.is_ipv4() {
            u32::try_from(number).ok().map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)))
        } else {
            Some(IpAddr::V6(Ipv6Addr::from_bits(number)))
        }
    };
    let free = (0..tries).filter_map(candidate).find(|address| !taken.contains(address));
    free.map(|address| IpPrefix { address, prefix_len: range.prefix_len })
}

fn is_host(range: IpPrefix, address: IpAddr) -> bool {
    let same = range.address.is_ipv4() == address.is_ipv4();
    hosts(range)
        .is_some_and(|(first, count)| same && (first..first + count).contains(&bits(address)))
}

/// The first address of a host in the range, and how many there are: without IPv4's
/// network and broadcast addresses, and IPv6's anycast address of the routers.
fn hosts(range: IpPrefix) -> Option<(u128, u128)> {
    let width = if range.address.is_ipv4() { 32 } else { 128 };
    let free = u32::from(width - range.prefix_len.min(width));
    // Beyond 64 bits a network has more hosts than ever could be.
    let size = 1_u128 << free.min(64);
    let network = (bits(range.address) >> free.min(127)) << free.min(127);
    let (skipped, count) = match (range.address.is_ipv4(), free) {
        (_, 0) => (0, 1),
        (true, 1) => (0, 2),
        (true, _) => (1, size - 2),
        (false, _) => (1, size - 1),
    };
    (count > 0).then_some((network + skipped, count))
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The choice, before anything is done with it.
async fn write(client: &Client, driver: &str, claim: &AllocatedClaim) -> kube::Result<()> {
    let device = |device: &AllocatedDevice| {
        let mut entry = json!({"driver": driver, "pool": device.pool, "device": device.device});
        if let Some(share) = &device.share_id {
            entry["shareID"] = json!(share);
        }
        if let Some(address) = &device.address {
            entry["networkData"] = json!({"ips": [address.to_string()]});
        }
        entry
    };
    let status = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": claim.claim.namespace, "name": claim.claim.name, "uid": claim.claim.uid,
        },
        "status": {"devices": claim.devices.iter().map(device).collect::<Vec<_>>()},
    });
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), &claim.claim.namespace);
    let params = PatchParams::apply(driver).force();
    claims.patch_status(&claim.claim.name, &params, &Patch::Apply(&status)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn range(text: &str) -> IpPrefix {
        text.parse().unwrap()
    }

    fn config(text: &str) -> NetworkConfig {
        let gateway = json!({"destination": "10.0.0.0/8", "gateway": "10.9.0.1"});
        let config = json!({"interface": {"addressRange": text}, "routes": [gateway]});
        NetworkConfig::parse(&config).unwrap()
    }

    fn taken(uid: &str, addresses: &[&str]) -> Taken {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        Taken { uid: uid.to_owned(), addresses }
    }

    #[test]
    fn hosts_of_a_range() {
        for (text, first, count) in [
            ("10.9.0.0/24", "10.9.0.1", 254),
            ("10.9.0.77/30", "10.9.0.77", 2),
            ("10.9.0.2/31", "10.9.0.2", 2),
            ("10.9.0.2/32", "10.9.0.2", 1),
            ("fd00::/126", "fd00::1", 3),
            ("fd00::/8", "fd00::1", u128::from(u64::MAX)),
        ] {
            let first: IpAddr = first.parse().unwrap();
            assert_eq!(hosts(range(text)), Some((bits(first), count)), "{text}");
        }
    }

    #[test]
    fn a_claim_keeps_what_it_has_unless_another_has_it_too() {
        let wanted = [(0, config("10.9.0.0/29"))];
        let own = taken("u-2", &["10.9.0.5"]).addresses;
        let choose = |others: &[Taken]| choose_all(&wanted, "u-2", &own, others).unwrap()[0].1;
        assert_eq!(choose(&[taken("u-3", &["10.9.0.6"])]), range("10.9.0.5/29"));
        assert_ne!(choose(&[taken("u-3", &["10.9.0.5"])]), range("10.9.0.5/29"));
    }

    #[test]
    fn a_range_fills_to_the_last_address() {
        let wanted = [(0, config("10.9.0.0/29"))];
        let mut others: Vec<Taken> = Vec::new();
        // Six hosts, of which one is the gateway.
        for number in 0..5 {
            let uid = format!("u-{number}");
            let chosen = choose_all(&wanted, &uid, &BTreeSet::new(), &others).unwrap()[0].1;
            assert_ne!(chosen.address, "10.9.0.1".parse::<IpAddr>().unwrap());
            assert!(others.iter().all(|other| !other.addresses.contains(&chosen.address)));
            others.push(Taken { uid, addresses: [chosen.address].into() });
        }
        assert_eq!(choose_all(&wanted, "u-9", &BTreeSet::new(), &others), None);
    }

    /// One claim on its way: it looks, writes what it chose, looks again.
    #[derive(Clone, Debug, Default)]
    struct Walker {
        looks: u32,
        chosen: Option<IpAddr>,
        written: Option<IpAddr>,
        is_content: bool,
    }

    fn step(walkers: &mut [Walker], who: usize) {
        if walkers[who].is_content {
            return;
        }
        if let Some(chosen) = walkers[who].chosen.take() {
            walkers[who].written = Some(chosen);
            return;
        }
        let others = walkers.iter().enumerate().filter(|(other, _)| *other != who);
        let others: Vec<Taken> = others
            .map(|(other, it)| Taken {
                uid: format!("u-{other}"),
                addresses: it.written.into_iter().collect(),
            })
            .collect();
        let own: BTreeSet<IpAddr> = walkers[who].written.into_iter().collect();
        let wanted = [(0, config("10.9.0.0/28"))];
        let seed = format!("u-{who}/{}", walkers[who].looks);
        let chosen = choose_all(&wanted, &seed, &own, &others).unwrap()[0].1.address;
        walkers[who].looks += 1;
        walkers[who].is_content = own.contains(&chosen);
        walkers[who].chosen = Some(chosen);
    }

    proptest! {
        /// However their looks and writes fall between each other, claims that are
        /// content have addresses of their own, and all are in the end.
        #[test]
        fn claims_at_once_end_apart(turns in prop::collection::vec(0..4_usize, 0..60)) {
            let mut walkers = vec![Walker::default(); 4];
            for who in turns.into_iter().chain((0..4).cycle().take(200)) {
                step(&mut walkers, who);
                let content: Vec<_> =
                    walkers.iter().filter(|it| it.is_content).filter_map(|it| it.written).collect();
                let apart: BTreeSet<_> = content.iter().collect();
                prop_assert_eq!(apart.len(), content.len());
            }
            prop_assert!(walkers.iter().all(|it| it.is_content), "{:?}", walkers);
        }
    }
}
