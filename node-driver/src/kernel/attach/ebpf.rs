//! Detaches the host's eBPF programs from an interface before a pod gets it, if the pod asks for that,
//! and those that a pod left on an interface: XDP, and TCX, which `tc` uses since Linux 6.6. Filters
//! of the `clsact` and `ingress` queueing disciplines need no action: they end when an interface leaves its namespace
//! (`__dev_change_net_namespace` in `net/core/dev.c`).
//!
//! Programs that a pod asked to detach are not restored with the interface. Whoever attached them must
//! attach them again; their links (`bpf_link`) stay, detached. An XDP program that a pod has replaced
//! or detached without asking is attached again if it still exists, because whoever loaded it holds it
//! or has pinned it.

mod bpf;

use crate::kernel::attach::AttachError;
use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::model::host_link::{HostLink, XdpProgram};
use bpf::{TcxHook, XDP_LINK};
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp};
use rtnetlink::{Handle, LinkUnspec};
use rustix::fd::{AsRawFd, OwnedFd};
use std::collections::BTreeSet;
use std::io;

/// `XDP_FLAGS_UPDATE_IF_NOEXIST`.
const IF_NONE: u32 = 1;
/// `XDP_FLAGS_SKB_MODE`, `XDP_FLAGS_DRV_MODE`, `XDP_FLAGS_HW_MODE`.
const SKB: u32 = 1 << 1;
const DRIVER: u32 = 1 << 2;
const HARDWARE: u32 = 1 << 3;
/// The places of TCX programs.
const HOOKS: [TcxHook; 2] = [TcxHook::Ingress, TcxHook::Egress];
/// `EBUSY`: a link holds the program there.
const BUSY: i32 = 16;

/// Detaches all programs from an interface of the calling thread's namespace.
pub(super) async fn detach_all(
    handle: &Handle,
    name: &str,
    found: &LinkMessage,
) -> Result<(), AttachError> {
    detach_others(handle, name, found, &BTreeSet::new()).await
}

/// The IDs of the programs of an interface of the calling thread's namespace; `None` if the kernel does
/// not tell this process.
fn programs(found: &LinkMessage) -> Option<BTreeSet<u32>> {
    let mut programs: BTreeSet<u32> = xdp_programs(found).iter().map(|xdp| xdp.id).collect();
    for hook in HOOKS {
        let tcx = bpf::query(found.header.index, hook).ok()?;
        programs.extend(tcx.into_iter().map(|(program, _)| program));
    }
    Some(programs)
}

/// Detaches all programs but these.
pub(super) async fn detach_others(
    handle: &Handle,
    name: &str,
    found: &LinkMessage,
    kept: &BTreeSet<u32>,
) -> Result<(), AttachError> {
    let index = found.header.index;
    for program in xdp_programs(found).into_iter().filter(|xdp| !kept.contains(&xdp.id)) {
        detach_xdp(handle, name, index, program).await?;
    }
    for hook in HOOKS {
        bpf::detach_tcx(index, hook, kept).map_err(|source| {
            AttachError::system(format!("detach TCX programs from interface `{name}`"), source)
        })?;
    }
    Ok(())
}

/// The programs of an interface.
pub(super) struct Programs;

impl Setting for Programs {
    fn name(&self) -> &'static str {
        "eBPF programs"
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        host.carried.programs = programs(found.link);
        host.carried.xdp = xdp_programs(found.link);
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(restore(home))
    }
}

/// Attaches the host's XDP programs again that a pod has replaced or detached without asking. Returns the
/// result of each, and an error that names the programs that the host does not have any more.
///
/// A pod's programs were detached before the interface left it. If the kernel has returned the interface by
/// itself, nobody knows whether a new program is the pod's or the host's own.
async fn restore(home: &Home<'_>) -> Vec<Result<(), AttachError>> {
    let former = &home.former().carried;
    let (Some(before), Some(after)) = (&former.programs, programs(home.found)) else {
        return Vec::new();
    };
    let link = home.name().to_owned();
    if !after.is_subset(before) {
        return vec![Err(AttachError::NewPrograms { link })];
    }
    if home.link.config.interface.disable_ebpf_programs == Some(true) {
        return Vec::new();
    }
    let mut lost: BTreeSet<u32> = before.difference(&after).copied().collect();
    let mut outcomes = Vec::new();
    for xdp in &former.xdp {
        let program = bpf::program(xdp.id).ok().filter(|_| lost.remove(&xdp.id));
        if let Some(program) = program {
            outcomes.push(attach_xdp(home, xdp.mode, &program).await);
        }
    }
    if !lost.is_empty() {
        let ids = lost.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        outcomes.push(Err(AttachError::LostPrograms { link, ids }));
    }
    outcomes
}

/// Attaches a program where there is none.
async fn attach_xdp(home: &Home<'_>, mode: u32, program: &OwnedFd) -> Result<(), AttachError> {
    let flags = LinkXdp::Flags(mode | IF_NONE);
    let xdp = LinkAttribute::Xdp(vec![LinkXdp::Fd(program.as_raw_fd()), flags]);
    let message = LinkUnspec::new_with_index(home.index()).append_extra_attribute(xdp).build();
    home.set(message, "attach its XDP program again").await
}

/// The XDP programs of an interface.
fn xdp_programs(link: &LinkMessage) -> Vec<XdpProgram> {
    let xdp = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Xdp(xdp) => Some(xdp.as_slice()),
        _ => None,
    });
    xdp.unwrap_or_default()
        .iter()
        .filter_map(|attribute| match attribute {
            LinkXdp::SkbProgId(id) => Some(XdpProgram { mode: SKB, id: *id }),
            LinkXdp::DrvProgId(id) => Some(XdpProgram { mode: DRIVER, id: *id }),
            LinkXdp::HwProgId(id) => Some(XdpProgram { mode: HARDWARE, id: *id }),
            _ => None,
        })
        .collect()
}

async fn detach_xdp(
    handle: &Handle,
    name: &str,
    index: u32,
    XdpProgram { mode, id }: XdpProgram,
) -> Result<(), AttachError> {
    let none = LinkAttribute::Xdp(vec![LinkXdp::Fd(-1), LinkXdp::Flags(mode)]);
    let message = LinkUnspec::new_with_index(index).append_extra_attribute(none).build();
    match handle.link().set(message).execute().await {
        Err(rtnetlink::Error::NetlinkError(error)) if error.raw_code().abs() == BUSY => {
            let detached = bpf::detach_links(XDP_LINK, id, index);
            let at_all = detached.and_then(|count| {
                if count == 0 { Err(io::Error::other("the link is not found")) } else { Ok(()) }
            });
            at_all.map_err(|source| {
                AttachError::system(
                    format!("detach the XDP program of a link from interface `{name}`"),
                    source,
                )
            })
        }
        other => {
            other.map_err(|source| AttachError::netlink(name, "detach its XDP program", source))
        }
    }
}
