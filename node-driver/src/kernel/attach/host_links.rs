//! Reads the host's interfaces completely: the input of a pod's plan, and the state to
//! restore on the host later. Follows `rtnetlink(7)`.

use crate::kernel::attach::identity::{at_home, has_foreign_parent, identity, name_of};
use crate::kernel::attach::link::all;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::setting::{Found, Sources};
use crate::kernel::attach::{AttachError, settings};
use crate::kernel::dump::{self, dump};
use crate::kernel::network::Dump;
use crate::model::host_link::{HostLink, HostRule};
use cluster_model::network_config::IpPrefix;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::neighbour::NeighbourMessage;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::tc::{TcAttribute, TcMessage};
use publication::network::{NetworkFacts, is_upper};
use rtnetlink::Handle;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// `RT_TABLE_DEFAULT`, `RT_TABLE_MAIN`, `RT_TABLE_LOCAL`: the tables of the kernel's own
/// rules.
const KERNEL_TABLES: [u32; 3] = [253, 254, 255];

/// The kernel's view of the host's namespace at one moment.
#[derive(Debug)]
pub struct HostNetwork {
    dump: Dump,
    rules: Vec<HostRule>,
    neighbors: Vec<NeighbourMessage>,
    disciplines: Vec<TcMessage>,
}

impl HostNetwork {
    /// Reads the host's namespace. `servers` are the API servers, whose route must stay
    /// with the host.
    pub fn read(host: &NetNs, servers: &BTreeSet<IpAddr>) -> Result<Self, AttachError> {
        host.run(async move |handle| {
            let dump = Dump::read(servers).await?;
            let rules = dump.rules.iter().filter_map(host_rule).filter(is_set_for_some).collect();
            let neighbors = neighbors(&handle).await?;
            let disciplines = disciplines(&handle).await?;
            Ok(Self { dump, rules, neighbors, disciplines })
        })
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
        let Self { dump, rules, neighbors, disciplines } = self;
        let index = link.header.index;
        let mut host = HostLink {
            parent: identity(link).parent,
            lower: lower(link, &dump.links).map(|lower| name_of(lower).to_owned()),
            identity: identity(link),
            disciplines: disciplines.iter().filter_map(|it| configured(it, index)).collect(),
            ..HostLink::default()
        };
        settings::read(&Found { link, dump, neighbors, sources }, &mut host);
        let rules = rules.iter();
        let rules = rules.filter(|rule| host.routes.iter().any(|route| route.table == rule.table));
        host.rules = rules.cloned().collect();
        host
    }
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

/// Rules of the thread's namespace that a pod's configuration can express.
pub(super) async fn rules(handle: &Handle) -> Result<Vec<HostRule>, AttachError> {
    let found = dump::rules(handle).await;
    let found =
        found.map_err(|source| AttachError::netlink("any", "read the routing rules", source))?;
    Ok(found.iter().filter_map(host_rule).collect())
}

fn host_rule(message: &RuleMessage) -> Option<HostRule> {
    let header = &message.header;
    if header.action != RuleAction::ToTable || header.tos != 0 {
        return None;
    }
    let mut rule =
        HostRule { priority: 0, source: None, destination: None, table: header.table.into() };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Table(table) => rule.table = *table,
            RuleAttribute::Source(address) => {
                rule.source = Some(IpPrefix { address: *address, prefix_len: header.src_len });
            }
            RuleAttribute::Destination(address) => {
                rule.destination = Some(IpPrefix { address: *address, prefix_len: header.dst_len });
            }
            // Rules that match interfaces, marks or ports cannot be expressed; without
            // the match they would apply elsewhere.
            RuleAttribute::Iifname(_)
            | RuleAttribute::Oifname(_)
            | RuleAttribute::FwMark(_)
            | RuleAttribute::IpProtocol(_)
            | RuleAttribute::SourcePortRange(_)
            | RuleAttribute::DestinationPortRange(_)
            | RuleAttribute::TunId(_)
            | RuleAttribute::UidRange(_) => return None,
            _ => {}
        }
    }
    Some(rule)
}

/// Whether the rule was configured and matches only some packets.
fn is_set_for_some(rule: &HostRule) -> bool {
    let is_for_some = rule.source.is_some() || rule.destination.is_some();
    is_for_some && !KERNEL_TABLES.contains(&rule.table)
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
