//! Reads the host's interfaces completely: the input of a pod's plan, and the state to
//! restore on the host later. Follows `rtnetlink(7)`.

use crate::kernel::attach::identity::{at_home, has_foreign_parent, identity, name_of};
use crate::kernel::attach::link::all;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::rules::{self, FoundRule};
use crate::kernel::attach::setting::{Found, Sources};
use crate::kernel::attach::{AttachError, neighbor_settings, settings};
use crate::kernel::dump::dump;
use crate::kernel::network::Dump;
use crate::model::host_link::{HostLink, LinkIdentity, TABLE_MAIN};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::neighbour_table::NeighbourTableMessage;
use netlink_packet_route::tc::{TcAttribute, TcMessage};
use publication::network::{NetworkFacts, is_upper};
use rtnetlink::Handle;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// How an interface got its address: 0 if that is permanent (`NET_ADDR_PERM`).
const ASSIGNED: &str = "addr_assign_type";
/// A file that only a virtual function has.
const OF_PHYSICAL: &str = "device/physfn/sriov_numvfs";

/// The kernel's view of the host's namespace at one moment.
#[derive(Debug)]
pub struct HostNetwork {
    dump: Dump,
    servers: BTreeSet<IpAddr>,
    neighbors: Vec<NeighbourMessage>,
    tables: Vec<NeighbourTableMessage>,
    disciplines: Vec<TcMessage>,
}

impl HostNetwork {
    /// Reads the host's namespace. `servers` are the API servers, whose route must stay
    /// with the host.
    pub fn read(host: &NetNs, servers: &BTreeSet<IpAddr>) -> Result<Self, AttachError> {
        host.run(async move |handle| {
            let dump = Dump::read(servers).await?;
            let neighbors = neighbors(&handle).await?;
            let tables = neighbor_settings::tables(&handle).await?;
            let disciplines = disciplines(&handle).await?;
            Ok(Self { dump, servers: servers.clone(), neighbors, tables, disciplines })
        })
    }

    /// Of a kernel that a test plays.
    #[cfg(test)]
    pub(super) fn of_links(links: Vec<LinkMessage>) -> Self {
        Self {
            dump: Dump::of_links(links),
            servers: BTreeSet::new(),
            neighbors: Vec::new(),
            tables: Vec::new(),
            disciplines: Vec::new(),
        }
    }

    /// The facts that are published.
    pub fn facts(&self) -> NetworkFacts {
        self.dump.facts()
    }

    /// The interfaces of these names, in the state to restore.
    pub fn links(
        &self,
        host: &NetNs,
        names: &[String],
    ) -> Result<BTreeMap<String, HostLink>, AttachError> {
        host.run(async move |_| {
            let sources = Sources::default();
            let links = self
                .dump
                .links
                .iter()
                .filter(|link| names.iter().any(|name| name == name_of(link)))
                .map(|link| (name_of(link).to_owned(), self.host_link(link, &sources)));
            Ok(links.collect())
        })
    }

    /// Reads one interface. Must run on a thread in the host's namespace.
    fn host_link(&self, link: &LinkMessage, sources: &Sources) -> HostLink {
        let Self { dump, servers, neighbors, tables, disciplines } = self;
        let index = link.header.index;
        let mut host = HostLink {
            parent: identity(link).parent,
            lower: lower(link, &dump.links).map(|lower| name_of(lower).to_owned()),
            identity: lasting_identity(link, sources),
            servers: servers.clone(),
            disciplines: disciplines.iter().filter_map(|it| configured(it, index)).collect(),
            ..HostLink::default()
        };
        settings::read(&Found { link, dump, neighbors, tables, sources }, &mut host);
        let found = rules::found(&dump.rules).filter(|found| belongs_to(&host, found));
        let (rules, others): (Vec<_>, Vec<_>) = found.partition(FoundRule::is_expressible);
        host.rules = rules.into_iter().map(|found| found.rule).collect();
        host.left_out.extend(others.iter().map(ToString::to_string));
        host
    }
}

/// Its identity without an address that may be another one when its function is bound again. That of a virtual
/// function is the physical function's choice, if not its driver's.
fn lasting_identity(link: &LinkMessage, sources: &Sources) -> LinkIdentity {
    let mut identity = identity(link);
    let files = sources.sysfs().map(|sysfs| sysfs.read(name_of(link), &[ASSIGNED, OF_PHYSICAL]));
    identity.permanent =
        identity.permanent.filter(|_| has_lasting_address(&files.unwrap_or_default()));
    identity
}

fn has_lasting_address(files: &BTreeMap<String, u64>) -> bool {
    !files.contains_key(OF_PHYSICAL) && files.get(ASSIGNED).is_none_or(|how| *how == 0)
}

/// Whether a rule selects a table in which the interface has routes, or one of its addresses.
fn belongs_to(host: &HostLink, found: &FoundRule) -> bool {
    if found.is_configured() {
        return host.routes.iter().any(|route| route.table == found.rule.table);
    }
    let mut addresses = host.addresses.iter().filter(|address| address.is_global());
    found.rule.table == TABLE_MAIN
        && found.rule.source.is_some_and(|it| addresses.any(|own| it == own.alone()))
}

/// Whether the host's namespace has each of these interfaces, under whatever name.
pub fn are_home(host: &NetNs, links: &[&HostLink]) -> Result<Vec<bool>, AttachError> {
    host.run(async |handle| {
        let found = all(&handle).await?;
        Ok(links.iter().map(|link| at_home(&found, link).is_some()).collect())
    })
}

/// The interface below it in its namespace, without which it reaches nothing.
fn lower<'l>(link: &LinkMessage, all: &'l [LinkMessage]) -> Option<&'l LinkMessage> {
    identity(link).kind.filter(|kind| is_upper(kind))?;
    let index = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Link(index) if !has_foreign_parent(link) => Some(*index),
        _ => None,
    })?;
    all.iter().find(|lower| lower.header.index == index && index != link.header.index)
}

async fn neighbors(handle: &Handle) -> Result<Vec<NeighbourMessage>, AttachError> {
    let request = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
    let found = dump(handle, request)
        .await
        .map_err(|source| AttachError::netlink("any", "read the neighbours", source))?
        .into_iter();
    Ok(found
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewNeighbour(neighbor) => Some(neighbor),
            _ => None,
        })
        .collect())
}

async fn disciplines(handle: &Handle) -> Result<Vec<TcMessage>, AttachError> {
    let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default());
    let found = dump(handle, request)
        .await
        .map_err(|source| AttachError::netlink("any", "read the queueing disciplines", source))?
        .into_iter();
    Ok(found
        .filter_map(|message| match message {
            RouteNetlinkMessage::NewQueueDiscipline(discipline) => Some(discipline),
            _ => None,
        })
        .collect())
}

/// The kind of a queueing discipline of this interface that was configured. Those that the kernel
/// adds by itself have no number (`qdisc_create_dflt` in `net/sched/sch_generic.c`).
fn configured(message: &TcMessage, index: u32) -> Option<String> {
    if message.header.index != index.cast_signed() || message.header.handle.major == 0 {
        return None;
    }
    message.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.clone()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_virtual_functions_and_those_of_chance_do_not_last() {
        for (what, files, expected) in [
            ("a physical function", &[(ASSIGNED, 0)][..], true),
            ("an older kernel", &[], true),
            ("a virtual function", &[(ASSIGNED, 0), (OF_PHYSICAL, 8)], false),
            ("one in a virtual machine, with a random address", &[(ASSIGNED, 1)], false),
        ] {
            let files = files.iter().map(|(file, value)| ((*file).to_owned(), *value)).collect();
            assert_eq!(has_lasting_address(&files), expected, "{what}");
        }
    }
}
