//! Kernel settings of the host's interfaces, which the kernel forgets when an interface
//! leaves its namespace: reads them before and restores them afterwards.
//!
//! All are read from the interface's netlink message (`IFLA_INET_CONF`,
//! `net/ipv4/devinet.c`; `IFLA_INET6_CONF`, `net/ipv6/addrconf.c`): a file for each setting
//! would cost a hundred reads for a claim of eight NICs. IPv4 settings are restored by
//! rtnetlink too. The kernel accepts IPv6 settings only by the files of `/proc/sys/net`,
//! which belong to the calling thread's namespace wherever they are mounted
//! (`net_ctl_set`, `net/sysctl_net.c`).

use crate::kernel::attach::link::by_index;
use crate::kernel::attach::pod_settings::PodSettings;
use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::kernel::attach::{AttachError, SYSCTL};
use crate::model::host_link::{HostLink, LinkSettings};
use netlink_packet_core::{DefaultNla, Emitable, Nla};
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, LinkAttribute, LinkMessage,
};
use rtnetlink::{Handle, LinkUnspec};
use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

/// `IFLA_AF_SPEC`.
const AF_SPEC: u16 = 26;
/// `AF_INET`.
const INET: u16 = 2;
/// `AF_INET6`.
const INET6: u16 = 10;
/// `IFLA_INET6_TOKEN`.
const INET6_TOKEN: u16 = 7;
/// The file of the secret of which an interface makes addresses.
const STABLE_SECRET: &str = "stable_secret";
/// `IFLA_INET_CONF`.
const INET_CONF: u16 = 1;

/// The settings of an interface's IP addresses.
pub(super) struct IpSettings;

impl Setting for IpSettings {
    fn name(&self) -> &'static str {
        "IPv4 and IPv6 settings"
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        host.settings = read(found.link);
        let secret = path(Path::new(SYSCTL), found.name(), STABLE_SECRET);
        // The kernel has no message for it. It cannot be read before it is set.
        if let Ok(secret) = fs::read_to_string(secret) {
            host.settings.ipv6.insert(STABLE_SECRET.to_owned(), secret.trim().to_owned());
        }
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(restore(home))
    }
}

/// What the addresses end with that routers give an interface.
pub(super) struct Token;

impl Setting for Token {
    fn name(&self) -> &'static str {
        "IPv6 token"
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(async {
            let Some(token) = home.former().settings.token else { return Vec::new() };
            let token = DefaultNla::new(INET6_TOKEN, token.octets().to_vec());
            let message = LinkUnspec::new_with_index(home.index());
            let message = message.append_extra_attribute(in_family(INET6, &token)).build();
            vec![home.set(message, "set its IPv6 token").await]
        })
    }
}

fn read(link: &LinkMessage) -> LinkSettings {
    LinkSettings { ipv4: ipv4(link), ipv6: ipv6(link), token: token(link) }
}

/// Restores the settings that differ, by files in `sysctl` and by netlink.
async fn restore(home: &Home<'_>) -> Vec<Result<(), AttachError>> {
    // What was restored before may have changed some: the message that was found is older.
    let now = match by_index(home.handle, home.index()).await {
        Ok(Some(link)) => read(&link),
        Ok(None) => return Vec::new(),
        Err(error) => return vec![Err(error)],
    };
    let former = &home.former().settings;
    let (secret, others): (Vec<_>, Vec<_>) =
        former.ipv6.iter().partition(|(name, _)| *name == STABLE_SECRET);
    let has_secret = !secret.is_empty();
    let others = others.into_iter().filter(|(name, value)| {
        // The kernel makes addresses of a secret as soon as it has one.
        now.ipv6.get(*name) != Some(*value) || *name == "addr_gen_mode" && has_secret
    });
    let mut outcomes: Vec<_> = secret
        .into_iter()
        .chain(others)
        .map(|(setting, value)| write(&path(home.sysctl, home.name(), setting), value))
        .collect();
    let changed = changed(&former.ipv4, &now.ipv4);
    outcomes.push(write_ipv4(home.handle, home.name(), home.index(), &changed).await);
    outcomes
}

/// Lets the interface have IPv6 addresses, which a pod's namespace may forbid. Returns false if it
/// cannot: the kernel has no IPv6, or the setting cannot be written.
/// Also lets the kernel tell neighbours its addresses when the interface is set up.
pub(super) fn enable_ipv6(name: &str, sysctl: &Path) -> bool {
    // Without it they find out later.
    let _ = fs::write(path(sysctl, name, "ndisc_notify"), "1");
    let path = path(sysctl, name, "disable_ipv6");
    match fs::read_to_string(&path) {
        Ok(text) if text.trim() == "0" => true,
        Ok(_) => fs::write(&path, "0").is_ok(),
        Err(_) => false,
    }
}

fn write(path: &Path, value: &str) -> Result<(), AttachError> {
    fs::write(path, value)
        .map_err(|source| AttachError::system(format!("write `{}`", path.display()), source))
}

/// Gives an interface in a pod the settings that differ. `sysctl` is where those of IPv6 are files.
pub(super) async fn set(
    handle: &Handle,
    name: &str,
    found: &LinkMessage,
    wanted: &PodSettings,
    sysctl: &Path,
) -> Result<(), AttachError> {
    for (setting, value) in &wanted.ipv6 {
        let path = path(sysctl, name, setting);
        // A pod's network without IPv6 has no such file, and nothing to set.
        if fs::read_to_string(&path).is_ok_and(|now| now.trim() != value) {
            write(&path, value)?;
        }
    }
    let now = ipv4(found);
    let changed: Vec<_> = wanted
        .ipv4
        .iter()
        .filter(|(number, value)| {
            now.get(usize::from(**number) - 1).is_some_and(|now| now != *value)
        })
        .map(|(number, value)| (*number, *value))
        .collect();
    write_ipv4(handle, name, found.header.index, &changed).await
}

async fn write_ipv4(
    handle: &Handle,
    name: &str,
    index: u32,
    changed: &[(u16, i32)],
) -> Result<(), AttachError> {
    if changed.is_empty() {
        return Ok(());
    }
    let message = LinkUnspec::new_with_index(index).append_extra_attribute(af_spec(changed));
    handle
        .link()
        .set(message.build())
        .execute()
        .await
        .map_err(|source| AttachError::netlink(name, "set its IPv4 settings", source))
}

/// Number and former value of the settings that differ.
fn changed(former: &[i32], now: &[i32]) -> Vec<(u16, i32)> {
    let numbered = (1u16..).zip(former.iter().zip(now));
    numbered.filter(|(_, (was, is))| was != is).map(|(number, (was, _))| (number, *was)).collect()
}

fn ipv4(link: &LinkMessage) -> Vec<i32> {
    let inet = specs(link).filter_map(|spec| match spec {
        AfSpecUnspec::Inet(inet) => Some(inet),
        _ => None,
    });
    let conf = inet.flatten().find_map(|inet| match inet {
        AfSpecInet::DevConf(conf) => Some(conf),
        _ => None,
    });
    let Some(conf) = conf else { return Vec::new() };
    let mut bytes = vec![0; conf.buffer_len()];
    conf.emit(&mut bytes);
    let values = bytes.chunks_exact(4).filter_map(|chunk| chunk.try_into().ok());
    values.map(i32::from_ne_bytes).collect()
}

/// The IPv6 settings that can be written, by the names of their files. None if the interface has no
/// IPv6.
fn ipv6(link: &LinkMessage) -> BTreeMap<String, String> {
    let conf = inet6(link).find_map(|inet6| match inet6 {
        AfSpecInet6::DevConf(conf) => Some(conf),
        _ => None,
    });
    let Some(conf) = conf else { return BTreeMap::new() };
    let values = [
        ("accept_dad", conf.accept_dad),
        ("accept_ra", conf.accept_ra),
        ("accept_ra_defrtr", conf.accept_ra_defrtr),
        ("accept_ra_from_local", conf.accept_ra_from_local),
        ("accept_ra_min_hop_limit", conf.accept_ra_min_hop_limit),
        ("accept_ra_mtu", conf.accept_ra_mtu),
        ("accept_ra_pinfo", conf.accept_ra_pinfo),
        ("accept_ra_rt_info_max_plen", conf.accept_ra_rt_info_max_plen),
        ("accept_ra_rt_info_min_plen", conf.accept_ra_rt_info_min_plen),
        ("accept_ra_rtr_pref", conf.accept_ra_rtr_pref),
        ("accept_redirects", conf.accept_redirects),
        ("accept_source_route", conf.accept_source_route),
        ("addr_gen_mode", conf.addr_gen_mode),
        ("autoconf", conf.autoconf),
        ("dad_transmits", conf.dad_transmits),
        ("disable_ipv6", conf.disable_ipv6),
        ("disable_policy", conf.disable_policy),
        ("drop_unicast_in_l2_multicast", conf.drop_unicast_in_l2_multicast),
        ("drop_unsolicited_na", conf.drop_unsolicited_na),
        ("enhanced_dad", conf.enhanced_dad),
        ("force_mld_version", conf.force_mld_version),
        ("force_tllao", conf.force_tllao),
        ("forwarding", conf.forwarding),
        ("hop_limit", conf.hoplimit),
        ("ignore_routes_with_linkdown", conf.ignore_routes_with_linkdown),
        ("keep_addr_on_down", conf.keep_addr_on_down),
        ("max_addresses", conf.max_addresses),
        ("max_desync_factor", conf.max_desync_factor),
        ("mldv1_unsolicited_report_interval", conf.mldv1_unsolicited_report_interval),
        ("mldv2_unsolicited_report_interval", conf.mldv2_unsolicited_report_interval),
        ("mtu", conf.mtu6),
        ("ndisc_notify", conf.ndisc_notify),
        ("ndisc_tclass", conf.ndisc_tclass),
        ("proxy_ndp", conf.proxy_ndp),
        ("regen_max_retry", conf.regen_max_retry),
        ("router_solicitations", conf.rtr_solicits),
        // In seconds; the message has milliseconds.
        ("router_solicitation_delay", conf.rtr_solicit_delay / 1000),
        ("router_solicitation_interval", conf.rtr_solicit_interval / 1000),
        ("router_solicitation_max_interval", conf.rtr_solicit_max_interval / 1000),
        ("suppress_frag_ndisc", conf.suppress_frag_ndisc),
        ("temp_prefered_lft", conf.temp_prefered_lft),
        ("temp_valid_lft", conf.temp_valid_lft),
        ("use_oif_addrs_only", conf.use_oif_addrs_only),
        ("use_tempaddr", conf.use_tempaddr),
    ];
    values.map(|(name, value)| (name.to_owned(), value.to_string())).into()
}

fn token(link: &LinkMessage) -> Option<Ipv6Addr> {
    let token = inet6(link).find_map(|inet6| match inet6 {
        AfSpecInet6::Token(token) => Some(*token),
        _ => None,
    });
    token.filter(|token| !token.is_unspecified())
}

fn inet6(link: &LinkMessage) -> impl Iterator<Item = &AfSpecInet6> {
    let inet6 = specs(link).filter_map(|spec| match spec {
        AfSpecUnspec::Inet6(inet6) => Some(inet6),
        _ => None,
    });
    inet6.flatten()
}

fn specs(link: &LinkMessage) -> impl Iterator<Item = &AfSpecUnspec> {
    let specs = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::AfSpecUnspec(specs) => Some(specs),
        _ => None,
    });
    specs.flatten()
}

/// Encodes the values as the kernel accepts them, which is not how it reports them: each
/// value is an attribute whose type is its number.
fn af_spec(values: &[(u16, i32)]) -> LinkAttribute {
    let conf = values
        .iter()
        .map(|(number, value)| DefaultNla::new(*number, value.to_ne_bytes().to_vec()))
        .collect::<Vec<_>>();
    in_family(INET, &DefaultNla::new(INET_CONF, bytes(&conf)))
}

fn in_family(family: u16, attribute: &DefaultNla) -> LinkAttribute {
    let family = DefaultNla::new(family, bytes(std::slice::from_ref(attribute)));
    LinkAttribute::Other(DefaultNla::new(AF_SPEC, bytes(&[family])))
}

fn bytes<N: Nla>(attributes: &[N]) -> Vec<u8> {
    let mut bytes = vec![0; attributes.buffer_len()];
    attributes.emit(&mut bytes);
    bytes
}

fn path(sysctl: &Path, name: &str, setting: &str) -> PathBuf {
    sysctl.join("ipv6/conf").join(name).join(setting)
}
