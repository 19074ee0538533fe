//! `pools`: the addresses of `NicPool`s, and the claims that hold them.

use crate::Output;
use crate::args::{ListForm, PoolsArgs};
use crate::kinds::{NIC_ADDRESSES, NIC_POOLS};
use crate::snapshot;
use crate::source::{Seen, Source};
use crate::text::{self, counted, table};
use cluster_model::nic_pool::{NicAddress, NicPool, NicPoolStatus};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::net::IpAddr;

/// A pool and its addresses in use.
struct Pool {
    name: String,
    object: NicPool,
    status: NicPoolStatus,
    /// Sorted by address.
    addresses: Vec<NicAddress>,
}

pub(crate) fn run(args: &PoolsArgs) -> anyhow::Result<Output> {
    let source = Source::open(&args.source)?;
    let seen = source.read(&snapshot::pools(), &[NIC_POOLS.name, NIC_ADDRESSES.name])?;
    let mut pools = pools(&seen)?;
    pools.retain(|pool| args.pools.is_empty() || args.pools.contains(&pool.name));
    let absent = args.pools.iter().find(|name| pools.iter().all(|pool| pool.name != **name));
    if let Some(name) = absent {
        anyhow::bail!("found no NicPool `{name}`");
    }
    let text = match args.output {
        ListForm::Text => person(&pools, !args.pools.is_empty())?,
        ListForm::Wide => person(&pools, true)?,
        ListForm::Name => text::lines(
            pools.iter().map(|pool| format!("nicpool.topology.dranet.io/{}", pool.name)),
        ),
        ListForm::Json => text::document(&program(&pools), false)?,
        ListForm::Yaml => text::document(&program(&pools), true)?,
    };
    Ok(Output { notes: seen.notes, ..Output::from(text) })
}

fn pools(seen: &Seen) -> anyhow::Result<Vec<Pool>> {
    let addresses = seen.of_kind(NIC_ADDRESSES.name).map(NicAddress::deserialize);
    let addresses: Vec<NicAddress> = addresses.collect::<Result<_, _>>()?;
    let mut pools: Vec<_> = seen
        .of_kind(NIC_POOLS.name)
        .map(|object| {
            let object = NicPool::deserialize(object)?;
            let name = object.metadata.name.clone().unwrap_or_default();
            let own = addresses.iter().filter(|address| address.spec.pool == name);
            let mut addresses: Vec<_> = own.cloned().collect();
            addresses.sort_by_key(|address| address.spec.address);
            let taken: Vec<_> = addresses.iter().map(|address| address.spec.address).collect();
            let status = object.spec.status(&taken);
            anyhow::Ok(Pool { name, object, status, addresses })
        })
        .collect::<Result<_, _>>()?;
    pools.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(pools)
}

fn person(pools: &[Pool], with_addresses: bool) -> anyhow::Result<String> {
    if pools.is_empty() {
        return Ok("the cluster has no NicPool\n".to_owned());
    }
    let row = |pool: &Pool| {
        let NicPoolStatus { size, used, mut free } = pool.status;
        if pool.object.spec.check().is_err() {
            free = 0;
        }
        let namespaces = pool.object.spec.namespaces.as_ref();
        let mut row = vec![pool.name.clone()];
        row.extend([size, used, free].map(|number| number.to_string()));
        row.push(ranges(pool).join(", "));
        row.push(namespaces.map_or_else(|| "all".to_owned(), |names| names.join(", ")));
        row
    };
    let rows: Vec<_> = pools.iter().map(row).collect();
    let heading = ["POOL", "SIZE", "USED", "FREE", "RANGES", "NAMESPACES"];
    let mut text = table(&heading, &rows);
    for pool in pools {
        if let Err(error) = pool.object.spec.check() {
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
            .map(|address| {
                let spec = &address.spec;
                let claim = format!("{}/{}", spec.claim.namespace, spec.claim.name);
                vec![spec.address.to_string(), claim, spec.node.clone(), spec.device.clone()]
            })
            .collect();
        if !rows.is_empty() {
            text += &table(&["ADDRESS", "CLAIM", "NODE", "DEVICE"], &rows);
        }
    }
    Ok(text)
}

fn ranges(pool: &Pool) -> Vec<String> {
    pool.object
        .spec
        .ranges
        .iter()
        .map(|range| match (range.first, range.last) {
            (None, None) => range.cidr.to_string(),
            (first, last) => {
                let end = |it: Option<IpAddr>| it.map(|it| it.to_string()).unwrap_or_default();
                format!("{} ({}-{})", range.cidr, end(first), end(last))
            }
        })
        .collect()
}

fn program(pools: &[Pool]) -> Value {
    let address = |address: &NicAddress| {
        let spec = &address.spec;
        json!({
            "address": spec.address,
            "namespace": spec.claim.namespace,
            "claim": spec.claim.name,
            "node": spec.node,
            "device": spec.device,
        })
    };
    let pool = |pool: &Pool| {
        let NicPoolStatus { size, used, free } = pool.status;
        json!({
            "name": pool.name,
            "size": size,
            "used": used,
            "free": free,
            "ranges": ranges(pool),
            "namespaces": pool.object.spec.namespaces,
            "type": pool.object.spec.interface.kind,
            "invalid": pool.object.spec.check().err().map(|error| error.to_string()),
            "addresses": pool.addresses.iter().map(address).collect::<Vec<_>>(),
        })
    };
    json!({ "pools": pools.iter().map(pool).collect::<Vec<_>>() })
}
