//! Interfaces through which the host routes packets of pods. Some network plugins give pods addresses
//! of a further interface of the node, which stays on the host: a rule for each address selects the
//! interface's own table (Amazon VPC CNI, Cilium's ENI mode, Terway). In a pod's namespace it would
//! take the network of these pods along.

use super::kernel::{default_of, interfaces_of};
use cluster_model::network_config::IpPrefix;
use rtnetlink::packet_route::route::RouteMessage;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// `RT_TABLE_DEFAULT`, `RT_TABLE_MAIN`, `RT_TABLE_LOCAL`.
const KERNEL_TABLES: [u32; 3] = [253, 254, 255];

/// The interfaces with a default route in a table that a rule selects for a source without an address
/// of the host. Rules for the host's own addresses are those of its NICs.
pub(super) fn of_others(
    routes: &[RouteMessage],
    rules: &[RuleMessage],
    own: &[IpAddr],
) -> BTreeSet<u32> {
    let tables: BTreeSet<u32> =
        rules.iter().filter_map(|rule| table_of_others(rule, own)).collect();
    routes
        .iter()
        .filter(|route| default_of(route).is_some_and(|table| tables.contains(&table)))
        .flat_map(interfaces_of)
        .collect()
}

/// The table that a rule selects for packets of others.
fn table_of_others(rule: &RuleMessage, own: &[IpAddr]) -> Option<u32> {
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
    let is_theirs = rule.header.action == RuleAction::ToTable
        && !KERNEL_TABLES.contains(&table)
        && !own.iter().any(|address| source.contains(*address));
    is_theirs.then_some(table)
}
