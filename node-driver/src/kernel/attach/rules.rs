//! Routing rules. Follows `rtnetlink(7)`.

use crate::kernel::attach::AttachError;
use crate::kernel::dump;
use crate::model::host_link::{HostRule, TABLE_MAIN};
use cluster_model::network_config::{IpPrefix, RuleConfig};
use netlink_packet_route::AddressFamily;
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use rtnetlink::Handle;
use std::fmt;

/// `RT_TABLE_DEFAULT`, `RT_TABLE_MAIN`, `RT_TABLE_LOCAL`: the tables of the kernel's own
/// rules.
const KERNEL_TABLES: [u32; 3] = [253, 254, 255];
/// `EEXIST`.
const EXISTS: i32 = 17;
/// `ENOENT`.
const NO_RULE: i32 = 2;
/// The value of an attribute that suppresses nothing.
const NEVER: u32 = u32::MAX;

/// A rule that was read: it selects a table, for packets that a pod's configuration can name or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundRule {
    pub(super) rule: HostRule,
    /// What else it matches or does, which a pod's configuration cannot say.
    pub(super) more: Vec<&'static str>,
}

impl FoundRule {
    fn new(message: &RuleMessage) -> Option<Self> {
        let header = &message.header;
        if header.action != RuleAction::ToTable {
            return None;
        }
        let table = header.table.into();
        let mut rule = HostRule { priority: 0, source: None, destination: None, table };
        let is_inverted = header.flags.contains(RuleFlags::Invert);
        let of_header = [is_inverted.then_some("not"), (header.tos != 0).then_some("tos")];
        let mut more: Vec<_> = of_header.into_iter().flatten().collect();
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Table(table) => rule.table = *table,
                RuleAttribute::Source(address) => {
                    rule.source = Some(IpPrefix { address: *address, prefix_len: header.src_len });
                }
                RuleAttribute::Destination(address) => {
                    let prefix_len = header.dst_len;
                    rule.destination = Some(IpPrefix { address: *address, prefix_len });
                }
                // It says who added the rule.
                RuleAttribute::Protocol(_)
                | RuleAttribute::SuppressIfGroup(NEVER)
                | RuleAttribute::SuppressPrefixLen(NEVER) => {}
                other => more.push(word(other)),
            }
        }
        Some(Self { rule, more })
    }

    /// Whether it was configured for a table of its own.
    pub(super) fn is_configured(&self) -> bool {
        !KERNEL_TABLES.contains(&self.rule.table)
    }

    /// Whether a pod's configuration can say all of it.
    pub(super) fn is_expressible(&self) -> bool {
        let HostRule { source, destination, .. } = &self.rule;
        self.more.is_empty() && (source.is_some() || destination.is_some())
    }
}

impl fmt::Display for FoundRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule: HostRule { priority, table, .. }, more } = self;
        let why = if more.is_empty() { "from all".to_owned() } else { more.join(", ") };
        write!(f, "the routing rule {priority} to table {table}, because of `{why}`")
    }
}

/// The word by which `ip rule` names what an attribute matches or does.
fn word(attribute: &RuleAttribute) -> &'static str {
    match attribute {
        RuleAttribute::Iifname(_) => "iif",
        RuleAttribute::Oifname(_) => "oif",
        RuleAttribute::FwMark(_) | RuleAttribute::FwMask(_) => "fwmark",
        RuleAttribute::IpProtocol(_) => "ipproto",
        RuleAttribute::SourcePortRange(_) => "sport",
        RuleAttribute::DestinationPortRange(_) => "dport",
        RuleAttribute::TunId(_) => "tun_id",
        RuleAttribute::UidRange(_) => "uidrange",
        RuleAttribute::SuppressPrefixLen(_) => "suppress_prefixlength",
        RuleAttribute::SuppressIfGroup(_) => "suppress_ifgroup",
        RuleAttribute::Realm(_) => "realms",
        RuleAttribute::L3MDev(_) => "l3mdev",
        _ => "an attribute that this driver does not know",
    }
}

/// The rules that select a table.
pub(super) fn found(messages: &[RuleMessage]) -> impl Iterator<Item = FoundRule> {
    messages.iter().filter_map(FoundRule::new)
}

/// Adds each rule only once: the kernel would otherwise give a rule without a priority
/// another one each time.
pub(super) async fn add_rules(
    handle: &Handle,
    name: &str,
    rules: &[RuleConfig],
) -> Result<(), AttachError> {
    if rules.is_empty() {
        return Ok(());
    }
    let there = dump::rules(handle).await;
    let there =
        there.map_err(|source| AttachError::netlink("any", "read the routing rules", source))?;
    let there: Vec<_> = found(&there).filter(FoundRule::is_expressible).collect();
    for rule in rules {
        let asked = (rule.source, rule.destination, table_of(rule));
        let is_there = there
            .iter()
            .any(|FoundRule { rule: it, .. }| (it.source, it.destination, it.table) == asked);
        if rule.priority != 0 || !is_there {
            add_rule(handle, name, rule).await?;
        }
    }
    Ok(())
}

fn table_of(rule: &RuleConfig) -> u32 {
    if rule.table == 0 { TABLE_MAIN } else { rule.table }
}

async fn add_rule(handle: &Handle, name: &str, rule: &RuleConfig) -> Result<(), AttachError> {
    let mut request = handle.rule().add();
    *request.message_mut() = message(rule);
    match request.execute().await {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == EXISTS => Ok(()),
        other => other.map_err(|source| AttachError::netlink(name, "add a rule", source)),
    }
}

/// Removes a rule, if it is there.
pub(super) async fn del_rule(
    handle: &Handle,
    name: &str,
    rule: &RuleConfig,
) -> Result<(), AttachError> {
    match handle.rule().del(message(rule)).execute().await {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == NO_RULE => Ok(()),
        other => other.map_err(|source| AttachError::netlink(name, "remove a rule", source)),
    }
}

fn message(rule: &RuleConfig) -> RuleMessage {
    let RuleConfig { priority, source, destination, table: _ } = rule;
    let is_v4 = source.or(*destination).is_none_or(|prefix| prefix.address.is_ipv4());
    let mut message = RuleMessage::default();
    message.header.family = if is_v4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.src_len = source.map_or(0, |prefix| prefix.prefix_len);
    message.header.dst_len = destination.map_or(0, |prefix| prefix.prefix_len);
    message.header.action = RuleAction::ToTable;
    let attributes = [
        Some(RuleAttribute::Table(table_of(rule))),
        (*priority != 0).then_some(RuleAttribute::Priority(*priority)),
        source.map(|prefix| RuleAttribute::Source(prefix.address)),
        destination.map(|prefix| RuleAttribute::Destination(prefix.address)),
    ];
    message.attributes.extend(attributes.into_iter().flatten());
    message
}
