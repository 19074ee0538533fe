//! `pools`: the addresses of `NicPool`s, and the claims that hold them.

use crate::Output;
use crate::answer::{Pool, PoolAddress, Pools};
use crate::args::{ListForm, PoolsArgs};
use crate::kinds::{NIC_ADDRESSES, NIC_POOLS};
use crate::snapshot;
use crate::source::{ReadCluster, Source};
use crate::text::{self, counted, table};
use cluster_model::nic_pool::{NicAddress, NicPool, NicPoolStatus};
use serde::Deserialize;
use std::fmt::Write as _;
use std::net::IpAddr;

pub(crate) fn run(args: &PoolsArgs) -> anyhow::Result<Output> {
    let source = Source::open(&args.source)?;
    let seen = source.read(&snapshot::pools(), &[NIC_POOLS.name, NIC_ADDRESSES.name])?;
    let mut pools = pools(&seen)?;
    pools.retain(|pool| args.pools.is_empty() || args.pools.contains(&pool.name));
    let absent = args.pools.iter().find(|name| pools.iter().all(|pool| pool.name != **name));
    if let Some(name) = absent {
        anyhow::bail!("found no NicPool `{name}`");
    }
    let answer = Pools { pools };
    let text = match args.output {
        ListForm::Text => person(&answer.pools, !args.pools.is_empty())?,
        ListForm::Wide => person(&answer.pools, true)?,
        ListForm::Name => text::lines(
            answer.pools.iter().map(|pool| format!("nicpool.topology.dranet.io/{}", pool.name)),
        ),
        ListForm::Json => text::answer(&answer, false)?,
        ListForm::Yaml => text::answer(&answer, true)?,
    };
    Ok(Output { notes: seen.notes, ..Output::from(text) })
}

fn pools(seen: &ReadCluster) -> anyhow::Result<Vec<Pool>> {
    let addresses = seen.of_kind(NIC_ADDRESSES.name).map(NicAddress::deserialize);
    let addresses: Vec<NicAddress> = addresses.collect::<Result<_, _>>()?;
    let pools =
        seen.of_kind(NIC_POOLS.name).map(|object| pool(&NicPool::deserialize(object)?, &addresses));
    let mut pools: Vec<Pool> = pools.collect::<anyhow::Result<_>>()?;
    pools.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(pools)
}

/// A pool, with those of these addresses that are of it, sorted.
fn pool(object: &NicPool, addresses: &[NicAddress]) -> anyhow::Result<Pool> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let own = addresses.iter().filter(|address| address.spec.pool == name);
    let mut own: Vec<&NicAddress> = own.collect();
    own.sort_by_key(|address| address.spec.address);
    let taken: Vec<_> = own.iter().map(|address| address.spec.address).collect();
    let NicPoolStatus { size, used, free } = object.spec.status(&taken);
    let kind = serde_json::to_value(object.spec.interface.kind)?;
    Ok(Pool {
        size,
        used,
        free,
        ranges: ranges(object),
        namespaces: object.spec.namespaces.clone(),
        r#type: kind.as_str().map(str::to_owned),
        invalid: object.spec.check().err().map(|error| error.to_string()),
        addresses: own.into_iter().map(address).collect(),
        name,
    })
}

fn address(address: &NicAddress) -> PoolAddress {
    let spec = &address.spec;
    PoolAddress {
        address: spec.address.to_string(),
        namespace: spec.claim.namespace.clone(),
        claim: spec.claim.name.clone(),
        node: spec.node.clone(),
        device: spec.device.clone(),
    }
}

fn person(pools: &[Pool], with_addresses: bool) -> anyhow::Result<String> {
    if pools.is_empty() {
        return Ok("the cluster has no NicPool\n".to_owned());
    }
    let rows: Vec<_> = pools.iter().map(row).collect();
    let heading = ["POOL", "SIZE", "USED", "FREE", "RANGES", "NAMESPACES"];
    let mut text = table(&heading, &rows);
    for pool in pools {
        if let Some(error) = &pool.invalid {
            writeln!(text, "\n{} is invalid and gives no addresses: {error}", pool.name)?;
        }
    }
    if !with_addresses {
        return Ok(text);
    }
    for pool in pools {
        writeln!(text, "\n{}: {} taken", pool.name, counted(pool.addresses.len(), "address"))?;
        let rows: Vec<_> = pool
            .addresses
            .iter()
            .map(|it| {
                let claim = format!("{}/{}", it.namespace, it.claim);
                vec![it.address.clone(), claim, it.node.clone(), it.device.clone()]
            })
            .collect();
        if !rows.is_empty() {
            text += &table(&["ADDRESS", "CLAIM", "NODE", "DEVICE"], &rows);
        }
    }
    Ok(text)
}

fn row(pool: &Pool) -> Vec<String> {
    let free = if pool.invalid.is_some() { 0 } else { pool.free };
    let namespaces = pool.namespaces.as_ref();
    let mut row = vec![pool.name.clone()];
    row.extend([pool.size, pool.used, free].map(|number| number.to_string()));
    row.push(pool.ranges.join(", "));
    row.push(namespaces.map_or_else(|| "all".to_owned(), |names| names.join(", ")));
    row
}

fn ranges(pool: &NicPool) -> Vec<String> {
    pool.spec
        .ranges
        .iter()
        .map(|range| match (range.first, range.last) {
            (None, None) => range.cidr.to_string(),
            (first, last) => format!("{} ({}-{})", range.cidr, end(first), end(last)),
        })
        .collect()
}

/// The first or last address of a range.
fn end(address: Option<IpAddr>) -> String {
    address.map(|address| address.to_string()).unwrap_or_default()
}
