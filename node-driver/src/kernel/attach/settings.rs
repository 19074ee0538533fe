//! Kernel settings of the host's interfaces, which the kernel forgets when an interface
//! leaves its namespace: reads them before and restores them afterwards.
//!
//! IPv4 settings go by rtnetlink (`IFLA_INET_CONF`, `net/ipv4/devinet.c`), which needs no
//! file. IPv6 settings go by the files of `/proc/sys/net`, which belong to the calling
//! thread's namespace wherever they are mounted (`net_ctl_set`, `net/sysctl_net.c`).

use crate::kernel::attach::link::by_index;
use crate::kernel::attach::{AttachError, SYSCTL};
use crate::prepare::host_link::{HostLink, LinkSettings};
use netlink_packet_core::{DefaultNla, Emitable, Nla};
use netlink_packet_route::link::{AfSpecInet, AfSpecUnspec, LinkAttribute, LinkMessage};
use rtnetlink::{Handle, LinkUnspec};
use std::fs;
use std::path::{Path, PathBuf};

/// IPv6 settings that administrators change.
const IPV6: [&str; 14] = [
    "accept_dad",
    "accept_ra",
    "accept_ra_defrtr",
    "accept_ra_pinfo",
    "accept_ra_rt_info_max_plen",
    "accept_redirects",
    "addr_gen_mode",
    "autoconf",
    "dad_transmits",
    "disable_ipv6",
    "forwarding",
    "keep_addr_on_down",
    "proxy_ndp",
    "use_tempaddr",
];
/// `IFLA_AF_SPEC`.
const AF_SPEC: u16 = 26;
/// `AF_INET`.
const INET: u16 = 2;
/// `IFLA_INET_CONF`.
const INET_CONF: u16 = 1;

/// The settings of an interface of the calling thread's namespace.
pub(super) fn read(name: &str, link: &LinkMessage) -> LinkSettings {
    let value = |setting: &str| {
        let text = fs::read_to_string(path(Path::new(SYSCTL), name, setting)).ok()?;
        Some((setting.to_owned(), text.trim().to_owned()))
    };
    LinkSettings { ipv4: ipv4(link), ipv6: IPV6.into_iter().filter_map(value).collect() }
}

/// Restores the settings that differ, by files in `sysctl` and by netlink. Returns the
/// result of each.
pub(super) async fn restore(
    handle: &Handle,
    host: &HostLink,
    found: &LinkMessage,
    sysctl: &Path,
) -> Vec<Result<(), AttachError>> {
    let name = host.name.as_str();
    let mut outcomes = Vec::new();
    for (setting, former) in &host.settings.ipv6 {
        let path = path(sysctl, name, setting);
        let is_so = fs::read_to_string(&path).is_ok_and(|now| now.trim() == former);
        if !is_so {
            let verb = || format!("write `{}`", path.display());
            let wrap = |source| AttachError::system(verb(), source);
            outcomes.push(fs::write(&path, former).map_err(wrap));
        }
    }
    outcomes.push(restore_ipv4(handle, host, found.header.index).await);
    outcomes
}

async fn restore_ipv4(handle: &Handle, host: &HostLink, index: u32) -> Result<(), AttachError> {
    let Some(now) = by_index(handle, index).await? else { return Ok(()) };
    let changed = changed(&host.settings.ipv4, &ipv4(&now));
    if changed.is_empty() {
        return Ok(());
    }
    let message = LinkUnspec::new_with_index(index).append_extra_attribute(af_spec(&changed));
    let wrap = |source| AttachError::netlink(&host.name, "restore its IPv4 settings", source);
    handle.link().set(message.build()).execute().await.map_err(wrap)
}

/// Number and former value of the settings that differ.
fn changed(former: &[i32], now: &[i32]) -> Vec<(u16, i32)> {
    let numbered = (1u16..).zip(former.iter().zip(now));
    numbered.filter(|(_, (was, is))| was != is).map(|(number, (was, _))| (number, *was)).collect()
}

fn ipv4(link: &LinkMessage) -> Vec<i32> {
    let specs = link.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::AfSpecUnspec(specs) => Some(specs),
        _ => None,
    });
    let inet = specs.flatten().filter_map(|spec| match spec {
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

/// Encodes the values as the kernel accepts them, which is not how it reports them: each
/// value is an attribute whose type is its number.
fn af_spec(values: &[(u16, i32)]) -> LinkAttribute {
    let value =
        |(number, value): &(u16, i32)| DefaultNla::new(*number, value.to_ne_bytes().to_vec());
    let conf = values.iter().map(value).collect::<Vec<_>>();
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
