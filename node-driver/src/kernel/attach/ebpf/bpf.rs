//! The part of `bpf(2)` that finds and detaches programs. Its code is unsafe,
//! because no crate offers this system call alone. Structures follow
//! `include/uapi/linux/bpf.h`.

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::collections::BTreeSet;
use std::io;

/// `BPF_LINK_TYPE_XDP`.
pub(super) const XDP_LINK: u32 = 6;

/// `enum bpf_cmd`.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Command {
    ProgDetach = 9,
    ProgGetFdById = 13,
    ObjGetInfoByFd = 15,
    ProgQuery = 16,
    LinkGetFdById = 30,
    LinkGetNextId = 31,
    LinkDetach = 34,
}

/// Where TCX programs are, `enum bpf_attach_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum TcxHook {
    /// `BPF_TCX_INGRESS`
    Ingress = 46,
    /// `BPF_TCX_EGRESS`
    Egress = 47,
}

/// `BPF_MPROG_MAX`: the most programs of one hook.
const PROGRAMS: usize = 64;
/// `E2BIG`, `EINVAL`, `ENOSYS`: the kernel is older than TCX (6.6), or has no eBPF.
const NO_TCX: [i32; 3] = [7, 22, 38];
/// `ENOENT`: it has already been removed.
const GONE: i32 = 2;

/// `union bpf_attr` of `BPF_PROG_QUERY`.
#[repr(C)]
#[derive(Default)]
struct Query {
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
    attach_flags: u32,
    prog_ids: u64,
    prog_cnt: u32,
    pad: u32,
    prog_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

/// `union bpf_attr` of `BPF_PROG_DETACH`.
#[repr(C)]
#[derive(Default)]
struct Detach {
    target_ifindex: u32,
    attach_bpf_fd: u32,
    attach_type: u32,
    attach_flags: u32,
    replace_bpf_fd: u32,
    relative_fd: u32,
    expected_revision: u64,
}

/// `union bpf_attr` of `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct GetInfo {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// `struct bpf_link_info` of an XDP link, with room for other link types.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    prog_id: u32,
    pad: u32,
    ifindex: u32,
    rest: [u32; 15],
}

/// `union bpf_attr` of commands that take an ID or a descriptor, and of
/// `BPF_LINK_GET_NEXT_ID`, whose answer is the second field.
#[repr(C)]
#[derive(Default)]
struct Numbers {
    first: u32,
    next: u32,
    flags: u32,
}

/// Detaches all programs but these from one hook of an interface of the thread's namespace.
pub(super) fn detach_tcx(index: u32, hook: TcxHook, kept: &BTreeSet<u32>) -> io::Result<()> {
    let others = query(index, hook)?.into_iter().filter(|(program, _)| !kept.contains(program));
    for (program, link) in others {
        let detached = if link == 0 {
            detach_program(index, hook, program)
        } else {
            by_id(Command::LinkGetFdById, link).and_then(|fd| detach_link(&fd))
        };
        match detached {
            Err(error) if error.raw_os_error() == Some(GONE) => {}
            other => other?,
        }
    }
    Ok(())
}

/// Detaches the links of this type that attach this program to an interface with this
/// index. Returns their number. A link does not report its interface's namespace, so the
/// same program at the same index in two namespaces is treated as one.
pub(super) fn detach_links(kind: u32, program: u32, index: u32) -> io::Result<u32> {
    let mut count = 0;
    let mut last = Numbers::default();
    loop {
        match call(Command::LinkGetNextId, &mut last) {
            Err(error) if error.raw_os_error() == Some(GONE) => return Ok(count),
            other => other?,
        };
        last.first = last.next;
        let Ok(link) = by_id(Command::LinkGetFdById, last.first) else { continue };
        let info = info(&link)?;
        if (info.kind, info.prog_id, info.ifindex) == (kind, program, index) {
            detach_link(&link)?;
            count += 1;
        }
    }
}

/// Program ID and link ID of each program; the link ID is 0 if it was attached without a
/// link.
pub(super) fn query(index: u32, hook: TcxHook) -> io::Result<Vec<(u32, u32)>> {
    let (mut programs, mut links) = ([0_u32; PROGRAMS], [0_u32; PROGRAMS]);
    let mut query = Query {
        target_ifindex: index,
        attach_type: hook as u32,
        prog_ids: programs.as_mut_ptr() as u64,
        prog_cnt: u32::try_from(PROGRAMS).unwrap_or(u32::MAX),
        link_ids: links.as_mut_ptr() as u64,
        ..Query::default()
    };
    match call(Command::ProgQuery, &mut query) {
        Err(error) if error.raw_os_error().is_some_and(|code| NO_TCX.contains(&code)) => {
            return Ok(Vec::new());
        }
        other => other?,
    };
    let count = usize::try_from(query.prog_cnt).unwrap_or(PROGRAMS);
    Ok(programs.into_iter().zip(links).take(count).collect())
}

/// A program, if the kernel still has it.
pub(super) fn program(id: u32) -> io::Result<OwnedFd> {
    by_id(Command::ProgGetFdById, id)
}

fn detach_program(index: u32, hook: TcxHook, program: u32) -> io::Result<()> {
    let program = self::program(program)?;
    let mut detach = Detach {
        target_ifindex: index,
        attach_bpf_fd: number(&program),
        attach_type: hook as u32,
        ..Detach::default()
    };
    call(Command::ProgDetach, &mut detach).map(drop)
}

fn detach_link(link: &OwnedFd) -> io::Result<()> {
    call(Command::LinkDetach, &mut Numbers { first: number(link), ..Numbers::default() }).map(drop)
}

fn info(link: &OwnedFd) -> io::Result<LinkInfo> {
    let mut info = LinkInfo::default();
    let mut get = GetInfo {
        bpf_fd: number(link),
        info_len: u32::try_from(size_of::<LinkInfo>()).unwrap_or(0),
        info: (&raw mut info) as u64,
    };
    call(Command::ObjGetInfoByFd, &mut get)?;
    Ok(info)
}

#[expect(unsafe_code, reason = "the kernel made the descriptor for this process")]
fn by_id(command: Command, id: u32) -> io::Result<OwnedFd> {
    let fd = call(command, &mut Numbers { first: id, ..Numbers::default() })?;
    // SAFETY: these commands return a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn number(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().unsigned_abs()
}

/// The system call, with its `union bpf_attr`.
#[expect(unsafe_code, reason = "no crate has this system call alone")]
fn call<T>(command: Command, attributes: &mut T) -> io::Result<RawFd> {
    // SAFETY: `T` is the command's part of the union; the kernel reads and writes no more
    // than the given size. Pointers in it refer to arrays and structures of the callers,
    // with their lengths beside them, and outlive the call.
    let outcome = unsafe {
        libc::syscall(libc::SYS_bpf, command as u32, &raw mut *attributes, size_of::<T>())
    };
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    RawFd::try_from(outcome).map_err(io::Error::other)
}
