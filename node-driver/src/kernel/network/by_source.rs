//! Interfaces through which the host routes packets of pods. Some network plugins give pods addresses
//! of a further interface of the node, which stays on the host: a rule for each address selects the
//! interface's own table (Amazon VPC CNI, Cilium's ENI mode, Terway). In a pod's namespace it would
//! take the network of these pods along.

use super::{default_of, interfaces_of};
use cluster_model::network_config::IpPrefix;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// `RT_TABLE_DEFAULT`, `RT_TABLE_MAIN`, `RT_TABLE_LOCAL`.
const KERNEL_TABLES: [u32; 3] = [253, 254, 255];

/// A table, and whether it is one of IPv6: the families have tables of their own.
type Table = (bool, u32);

/// The interfaces with a default route in a table that rules select for sources without an address of the
/// host. Where a rule selects the table for an address of the host, it is that of its own NICs, of which
/// pods can have some.
pub(super) fn of_others(
    routes: &[RouteMessage],
    rules: &[RuleMessage],
    own: &[IpAddr],
) -> BTreeSet<u32> {
    let selected: Vec<(Table, IpPrefix)> = rules.iter().filter_map(by_source).collect();
    let (of_host, of_others): (Vec<_>, Vec<_>) = selected
        .into_iter()
        .partition(|(_, source)| own.iter().any(|address| source.contains(*address)));
    let of_host: BTreeSet<Table> = of_host.into_iter().map(|(table, _)| table).collect();
    let tables: BTreeSet<Table> =
        of_others.into_iter().map(|(table, _)| table).filter(|it| !of_host.contains(it)).collect();
    routes
        .iter()
        .filter(|route| {
            let is_v6 = route.header.address_family == AddressFamily::Inet6;
            default_of(route).is_some_and(|table| tables.contains(&(is_v6, table)))
        })
        .flat_map(interfaces_of)
        .collect()
}

/// The table that a rule selects for a source, and the source.
fn by_source(rule: &RuleMessage) -> Option<(Table, IpPrefix)> {
    let mut table = u32::from(rule.header.table);
    let mut source = None;
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Source(address) => source = Some(*address),
            _ => {}
        }
    }
    let source = IpPrefix { address: source?, prefix_len: rule.header.src_len };
    let selects = rule.header.action == RuleAction::ToTable
        && !rule.header.flags.contains(RuleFlags::Invert)
        && !KERNEL_TABLES.contains(&table);
    selects.then_some(((rule.header.family == AddressFamily::Inet6, table), source))
}
