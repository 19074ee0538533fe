//! Kernel settings of the host's interfaces, which the kernel forgets when an interface
//! leaves its namespace: reads them before and restores them afterwards.
//!
//! All are read from the interface's netlink message (`IFLA_INET_CONF`,
//! `net/ipv4/devinet.c`; `IFLA_INET6_CONF`, `net/ipv6/addrconf.c`): a file for each setting
//! would cost a hundred reads for a claim of eight NICs. IPv4 settings are restored by
//! rtnetlink too. The kernel accepts IPv6 settings only by the files of `/proc/sys/net`,
//! which belong to the calling thread's namespace wherever they are mounted
//! (`net_ctl_set`, `net/sysctl_net.c`).

use crate::kernel::attach::AttachError;
use crate::kernel::attach::link::by_index;
use crate::kernel::attach::pod_settings::PodSettings;
use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::model::host_link::{HostLink, LinkSettings};
use netlink_packet_core::{DefaultNla, Emitable, Nla};
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, LinkAttribute, LinkMessage,
};
use rtnetlink::{Handle, LinkUnspec};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// `IFLA_AF_SPEC`.
const AF_SPEC: u16 = 26;
/// `AF_INET`.
const INET: u16 = 2;
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
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(restore(home))
    }
}

fn read(link: &LinkMessage) -> LinkSettings {
    LinkSettings { ipv4: ipv4(link), ipv6: ipv6(link) }
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
    let mut outcomes: Vec<_> = former
        .ipv6
        .iter()
        .filter(|(name, value)| now.ipv6.get(*name) != Some(value))
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

/// The IPv6 settings that administrators change, by the names of their files. None if the
/// interface has no IPv6.
fn ipv6(link: &LinkMessage) -> BTreeMap<String, String> {
    let inet6 = specs(link).filter_map(|spec| match spec {
        AfSpecUnspec::Inet6(inet6) => Some(inet6),
        _ => None,
    });
    let conf = inet6.flatten().find_map(|inet6| match inet6 {
        AfSpecInet6::DevConf(conf) => Some(conf),
        _ => None,
    });
    let Some(conf) = conf else { return BTreeMap::new() };
    let values = [
        ("accept_dad", conf.accept_dad),
        ("accept_ra", conf.accept_ra),
        ("accept_ra_defrtr", conf.accept_ra_defrtr),
        ("accept_ra_pinfo", conf.accept_ra_pinfo),
        ("accept_ra_rt_info_max_plen", conf.accept_ra_rt_info_max_plen),
        ("accept_redirects", conf.accept_redirects),
        ("addr_gen_mode", conf.addr_gen_mode),
        ("autoconf", conf.autoconf),
        ("dad_transmits", conf.dad_transmits),
        ("disable_ipv6", conf.disable_ipv6),
        ("forwarding", conf.forwarding),
        ("keep_addr_on_down", conf.keep_addr_on_down),
        ("proxy_ndp", conf.proxy_ndp),
        ("use_tempaddr", conf.use_tempaddr),
    ];
    values.map(|(name, value)| (name.to_owned(), value.to_string())).into()
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
    let inet = DefaultNla::new(INET_CONF, bytes(&conf));
    let family = DefaultNla::new(INET, bytes(&[inet]));
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
