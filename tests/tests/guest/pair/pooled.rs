//! The usual first deployment: a pod on each of two machines, and addresses of a `NicPool`. Pods
//! with one and with two NICs that they share, and pods that have as many for themselves, all on
//! the same machines at a time. The two pods of a kind reach each other by ping and RDMA, in both
//! directions and over each NIC.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use anyhow::Context;
use cluster_model::nic_pool::NicAddress;
use futures::future::try_join_all;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceSlice};
use kube::{Api, ResourceExt, api::ListParams};
use serde::Deserialize;
use serde_json::{Value, json};
use tests::{Check, Scope, eventually, guest::node::GuestNode, node::pods};

use super::{WORKED, pod};

/// On a network of its own: the first addresses belong to others, as on a real one.
const POOL: &str = "
apiVersion: topology.dranet.io/v1alpha1
kind: NicPool
metadata:
  name: rails
spec:
  ranges:
  - cidr: 192.168.60.0/24
    gateway: 192.168.60.1
    first: 192.168.60.100
";

/// Whether pods share their NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nics {
    Shared,
    Whole,
}

/// Two pods of a kind, one on each machine, that run.
#[derive(Debug)]
struct Peers {
    name: String,
    nics: Nics,
    ends: [End; 2],
}

/// One of the two.
#[derive(Debug)]
struct End {
    container: String,
    nics: Vec<Nic>,
}

/// A NIC as its pod sees it.
#[derive(Debug)]
struct Nic {
    interface: String,
    address: String,
    rdma: String,
    /// The index of the GID that is the address.
    gid: usize,
}

pub(super) async fn on_shared_and_whole_nics(
    scope: &Scope,
    pair: &[GuestNode; 2],
) -> anyhow::Result<()> {
    let begin = Instant::now();
    shareable(scope, pair).await?;
    scope.apply_yaml(POOL).await?;
    for node in pair {
        node.guest.run("modprobe macvlan").await?;
    }
    let kinds = [(Nics::Shared, 1), (Nics::Shared, 2), (Nics::Whole, 2)];
    let started = start(scope, pair, &kinds).await?;
    have_addresses_of_their_own(scope, &started).await?;
    reach_each_other(pair, &started).await?;
    let [.., whole] = &started[..] else { anyhow::bail!("no pods") };
    delete(scope, whole).await?;

    let one = start(scope, pair, &[(Nics::Whole, 1)]).await?;
    reach_each_other(pair, &one).await?;
    let left = started.iter().filter(|it| it.name != whole.name).chain(&one);
    try_join_all(left.map(|peers| delete(scope, peers))).await?;
    addresses_are_free(scope).await?;
    report(&format!("pools took {:.0?}", begin.elapsed()));
    Ok(())
}

/// Waits until both drivers have published NICs that claims can share.
async fn shareable(scope: &Scope, pair: &[GuestNode; 2]) -> anyhow::Result<()> {
    let slices: Api<ResourceSlice> = Api::all(scope.client());
    for node in pair {
        let fields = format!("spec.nodeName={},spec.driver=dra.net", node.name);
        let own = ListParams::default().fields(&fields);
        eventually(pods::POD, async || {
            let slices = slices.list(&own).await?.items.into_iter();
            let devices: Vec<_> =
                slices.flat_map(|it| it.spec.devices.unwrap_or_default()).collect();
            let is_shareable = !devices.is_empty()
                && devices.iter().all(|it| it.allow_multiple_allocations == Some(true));
            Ok(Check::that(is_shareable, || format!("node {} has {devices:?}", node.name)))
        })
        .await?;
    }
    Ok(())
}

/// Creates two pods of each kind, one kind after the other, and waits until they run.
async fn start(
    scope: &Scope,
    pair: &[GuestNode; 2],
    kinds: &[(Nics, usize)],
) -> anyhow::Result<Vec<Peers>> {
    let name = |(nics, count): (Nics, usize)| format!("{nics:?}-{count}").to_lowercase();
    for (nics, count) in kinds {
        let sharing = if *nics == Nics::Shared { "shared" } else { "exclusive" };
        let annotations = json!({
            "dranet.io/aligned-nics": count.to_string(),
            "dranet.io/nic-sharing": sharing,
            "dranet.io/nic-pool": "rails",
        });
        for node in pair {
            let name = on(&name((*nics, *count)), node);
            let pod = pod(node, &name, &annotations, "exec sleep 1d")?;
            pods::create(scope, &pod).await?;
        }
    }
    try_join_all(kinds.iter().map(async |(nics, count)| {
        let name = name((*nics, *count));
        let [one, other] = pair;
        let (one, other) = tokio::try_join!(
            end(scope, one, &name, *nics, *count),
            end(scope, other, &name, *nics, *count)
        )?;
        Ok(Peers { name, nics: *nics, ends: [one, other] })
    }))
    .await
}

/// The name of a kind's pod on a node.
fn on(name: &str, node: &GuestNode) -> String {
    format!("{name}-{}", node.name)
}

/// A pod that runs, with as many NICs as it asks for.
async fn end(
    scope: &Scope,
    node: &GuestNode,
    name: &str,
    nics: Nics,
    count: usize,
) -> anyhow::Result<End> {
    let name = on(name, node);
    let container = container(scope, &name).await?;
    let seen = eventually(pods::POD, async || {
        // The kernel adds GIDs after the addresses.
        let seen = Seen::read(&node.exec(&container, SEEN).await?)?;
        let found = seen.nics(nics);
        Ok(match found {
            Ok(nics) => Check::Done(nics),
            Err(error) => Check::NotYet(format!("{name}: {error:#}")),
        })
    })
    .await?;
    anyhow::ensure!(seen.len() == count, "{name} has {seen:?}");
    has_link(node, &seen, nics).await?;
    Ok(End { container, nics: seen })
}

/// The ID of the pod's container, once that runs.
async fn container(scope: &Scope, name: &str) -> anyhow::Result<String> {
    eventually(WORKED, async || {
        let status = scope.api::<Pod>().get(name).await?.status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default().into_iter();
        let mut running = containers.filter(|it| it.started == Some(true));
        let id = running.find_map(|it| it.container_id);
        Ok(if let Some(id) = id.as_deref().and_then(|id| id.strip_prefix("containerd://")) {
            Check::Done(id.to_owned())
        } else {
            let events = pods::events(scope, name).await?;
            Check::NotYet(format!("{name} is {:?}, events {events:?}", status.phase))
        })
    })
    .await
}

/// The machine keeps the interfaces of shared NICs, and lacks those that are a pod's own.
async fn has_link(node: &GuestNode, seen: &[Nic], nics: Nics) -> anyhow::Result<()> {
    let links = node.guest.run("ls /sys/class/net").await?;
    for nic in seen {
        let is_here = links.lines().any(|link| link == nic.interface);
        anyhow::ensure!(is_here == (nics == Nics::Shared), "{nics:?} {nic:?}; the host: {links}");
    }
    Ok(())
}

/// What a container sees: its NICs, its interfaces, and the first GIDs of RDMA devices.
const SEEN: &str = r"
tr -d '\n' </etc/dranet/devices.json; echo
/usr/bin/ip -j -d addr show | tr -d '\n'; echo
for device in /sys/class/infiniband/*; do
  index=0
  while [ $index -lt 24 ]; do
    gid=; read gid <$device/ports/1/gids/$index && echo ${device##*/} $index $gid
    index=$((index+1))
  done
done 2>/dev/null";

/// The same, taken apart.
#[derive(Debug)]
struct Seen {
    devices: Devices,
    links: Vec<Value>,
    /// The index of each GID, by device and GID.
    gids: BTreeMap<(String, String), usize>,
}

#[derive(Debug, Deserialize)]
struct Devices {
    nics: Vec<Device>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    rdma_device: String,
    interface: String,
}

impl Seen {
    fn read(text: &str) -> anyhow::Result<Self> {
        let mut rest = text.lines();
        let mut line = || rest.next().with_context(|| format!("too few lines: {text}"));
        let devices = serde_json::from_str(line()?).with_context(|| text.to_owned())?;
        let links = serde_json::from_str(line()?).with_context(|| text.to_owned())?;
        let gid = |line: &str| {
            let mut words = line.split(' ');
            let (device, index, gid) = (words.next()?, words.next()?, words.next()?);
            Some(((device.to_owned(), gid.to_owned()), index.parse().ok()?))
        };
        Ok(Self { devices, links, gids: rest.filter_map(gid).collect() })
    }

    /// Its NICs; an error where an address or its GID is missing, or where an interface is of
    /// another kind.
    fn nics(&self, nics: Nics) -> anyhow::Result<Vec<Nic>> {
        self.devices.nics.iter().map(|device| self.nic(device, nics)).collect()
    }

    fn nic(&self, device: &Device, nics: Nics) -> anyhow::Result<Nic> {
        let (rdma, interface) = (device.rdma_device.clone(), device.interface.clone());
        let link = self.links.iter().find(|link| link["ifname"] == interface.as_str());
        let link = link.with_context(|| format!("no {interface} in {:?}", self.links))?;
        let is_macvlan = link["linkinfo"]["info_kind"] == "macvlan";
        anyhow::ensure!(is_macvlan == (nics == Nics::Shared), "{nics:?} {interface} is {link}");
        let addresses = link["addr_info"].as_array().into_iter().flatten();
        let own: Vec<_> = addresses
            .filter(|it| it["family"] == "inet")
            .filter_map(|it| it["local"].as_str())
            .collect();
        let [address] = own[..] else { anyhow::bail!("{interface} has addresses {own:?}") };
        let gid = self.gids.get(&(rdma.clone(), gid_of(address)?));
        let gid = *gid.with_context(|| format!("{rdma} has no GID {address}: {:?}", self.gids))?;
        Ok(Nic { interface, address: address.to_owned(), rdma, gid })
    }
}

/// The GID of an IPv4 address, as sysfs has it.
fn gid_of(address: &str) -> anyhow::Result<String> {
    let [a, b, c, d] = address.parse::<std::net::Ipv4Addr>()?.octets();
    Ok(format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}"))
}

/// All are of the pool, and none is given twice: what pods have is what is recorded.
async fn have_addresses_of_their_own(scope: &Scope, started: &[Peers]) -> anyhow::Result<()> {
    let nics = started.iter().flat_map(|it| &it.ends).flat_map(|it| &it.nics);
    let given: Vec<_> = nics.map(|nic| nic.address.clone()).collect();
    let different: BTreeSet<_> = given.iter().cloned().collect();
    assert_eq!(different.len(), given.len(), "{given:?}");
    let recorded: BTreeSet<_> = recorded(scope).await?.into_iter().collect();
    assert_eq!(different, recorded);
    for address in &given {
        let host = address.strip_prefix("192.168.60.").and_then(|host| host.parse::<u8>().ok());
        assert!(host.is_some_and(|host| host >= 100), "{address}");
    }
    Ok(())
}

/// The addresses of all `NicAddress`es.
async fn recorded(scope: &Scope) -> anyhow::Result<Vec<String>> {
    let addresses: Api<NicAddress> = Api::all(scope.client());
    let all = addresses.list(&ListParams::default()).await?.items.into_iter();
    let of_pool = all.filter(|it| it.spec.pool == "rails");
    Ok(of_pool.map(|it| it.spec.address.address.to_string()).collect())
}

/// The fabric controller deletes the addresses of claims that are gone.
async fn addresses_are_free(scope: &Scope) -> anyhow::Result<()> {
    eventually(pods::POD, async || {
        let left = recorded(scope).await?;
        Ok(Check::that(left.is_empty(), || format!("{left:?} are not free")))
    })
    .await
}

/// All pairs at once, each over each of its NICs.
async fn reach_each_other(pair: &[GuestNode; 2], all: &[Peers]) -> anyhow::Result<()> {
    let begin = Instant::now();
    let lines = all.iter().flat_map(|peers| {
        let [one, other] = &peers.ends;
        let lines = one.nics.iter().zip(&other.nics).enumerate();
        lines.map(move |(number, nics)| (peers, number, nics))
    });
    try_join_all(lines.map(async |(peers, number, (one, other))| {
        let port = 18500 + u32::try_from(number)?;
        let [at_one, at_other] = &peers.ends;
        let first = exchange(&pair[0], at_one, [one, other], ["serve", "ask"], port);
        let second = exchange(&pair[1], at_other, [other, one], ["ask", "serve"], port);
        let (first, second) = tokio::try_join!(first, second)
            .with_context(|| format!("{} over {one:?} and {other:?}", peers.name))?;
        check(&first, [one, other]).with_context(|| format!("{}:\n{first}", peers.name))?;
        check(&second, [other, one]).with_context(|| format!("{}:\n{second}", peers.name))
    }))
    .await?;
    let kinds: Vec<_> = all.iter().map(|peers| (peers.nics, &peers.name)).collect();
    report(&format!("{kinds:?} took {:.0?}", begin.elapsed()));
    Ok(())
}

/// Messages of one size.
const BYTES: u32 = 4096;
const TIMES: u32 = 20;

/// What one side does: it pings until the other answers, then writes and reads as the server and
/// as the client, in the other's opposite order. A client tries until its server is there.
const EXCHANGE: &str = r#"
timeout 280 /bin/sh <<'EXCHANGE' 2>&1
until ping -c 1 -W 1 -I INTERFACE PEER >/dev/null; do :; done; echo PINGED PEER
flags="-d DEVICE -x GID -F -u 20 -n TIMES -s BYTES -p PORT"
serve() { timeout 240 /usr/bin/$1 $flags; }
ask() { until timeout 240 /usr/bin/$1 $flags PEER; do sleep 0.2; done; }
for role in ROLES; do
  for tool in ib_write_bw ib_read_lat; do
    echo BEGIN $tool $role
    $role $tool
    echo END $tool $role $?
  done
done
EXCHANGE
true"#;

/// Runs it. Returns what it wrote.
async fn exchange(
    node: &GuestNode,
    end: &End,
    [own, peer]: [&Nic; 2],
    roles: [&str; 2],
    port: u32,
) -> anyhow::Result<String> {
    let script = EXCHANGE
        .replace("INTERFACE", &own.interface)
        .replace("PEER", &peer.address)
        .replace("DEVICE", &own.rdma)
        .replace("GID", &own.gid.to_string())
        .replace("TIMES", &TIMES.to_string())
        .replace("BYTES", &BYTES.to_string())
        .replace("PORT", &port.to_string())
        .replace("ROLES", &roles.join(" "));
    node.exec(&end.container, &script).await
}

/// Each tool went well in both roles, by the GIDs of both addresses.
fn check(told: &str, [own, peer]: [&Nic; 2]) -> anyhow::Result<()> {
    anyhow::ensure!(told.contains(&format!("PINGED {}", peer.address)), "no ping");
    for (tool, role) in
        ["ib_write_bw", "ib_read_lat"].into_iter().flat_map(|it| [(it, "serve"), (it, "ask")])
    {
        let (_, rest) = told.split_once(&format!("BEGIN {tool} {role}\n")).context("no begin")?;
        let (part, _) = rest
            .split_once(&format!("\nEND {tool} {role} 0"))
            .with_context(|| format!("{tool} did not end well as `{role}`"))?;
        for nic in [own, peer] {
            let gid = printed(&nic.address)?;
            anyhow::ensure!(part.contains(&gid), "{tool} {role} has not used `{gid}`");
        }
    }
    Ok(())
}

/// A GID as perftest prints it.
fn printed(address: &str) -> anyhow::Result<String> {
    let [a, b, c, d] = address.parse::<std::net::Ipv4Addr>()?.octets();
    Ok(format!("255:255:{a:02}:{b:02}:{c:02}:{d:02}"))
}

async fn delete(scope: &Scope, peers: &Peers) -> anyhow::Result<()> {
    let all = scope.api::<Pod>().list(&ListParams::default()).await?.items;
    let prefix = format!("{}-", peers.name);
    let names = all.iter().map(ResourceExt::name_any).filter(|name| name.starts_with(&prefix));
    try_join_all(names.map(async |name| pods::delete(scope, &name).await)).await?;
    Ok(())
}

#[expect(clippy::print_stderr, reason = "how long it took is worth reading")]
fn report(line: &str) {
    eprintln!("{line}");
}
