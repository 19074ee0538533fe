//! eBPF programs on an interface, as a host's own agents attach them. Each drops every frame, with
//! two instructions. `bpf(2)` is called with the structures of `include/uapi/linux/bpf.h`.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd},
};

use tests::node::links::shell;

/// `BPF_PROG_LOAD`, `BPF_PROG_ATTACH`, `BPF_PROG_QUERY`, `BPF_LINK_CREATE`.
const LOAD: u32 = 5;
const ATTACH: u32 = 8;
const QUERY: u32 = 16;
const LINK: u32 = 28;
/// `BPF_PROG_TYPE_SCHED_CLS`, `BPF_PROG_TYPE_XDP`.
const CLASSIFIER: u32 = 3;
const EXPRESS: u32 = 6;
/// `BPF_XDP`, `BPF_TCX_INGRESS`, `BPF_TCX_EGRESS`.
const XDP: u32 = 37;
const INGRESS: u32 = 46;
const EGRESS: u32 = 47;
/// `XDP_DROP`, `TCX_DROP`.
const XDP_DROP: i32 = 1;
const TCX_DROP: i32 = 2;

/// Programs that are attached by a link, which ends with this value.
pub(crate) struct Links {
    _held: Vec<File>,
}

/// Attaches programs that drop everything: TCX on the way in by itself and on the
/// way out by a link, and XDP by a link.
pub(crate) fn attach(link: &str) -> anyhow::Result<Links> {
    let index = index(link)?;
    let (express, classifier) = (load(EXPRESS, XDP, XDP_DROP)?, load(CLASSIFIER, 0, TCX_DROP)?);
    call(ATTACH, &words(&[index, number(&classifier), INGRESS, 0]))?;
    let egress = open(LINK, &words(&[number(&classifier), index, EGRESS, 0]))?;
    let express = open(LINK, &words(&[number(&express), index, XDP, 0]))?;
    Ok(Links { _held: vec![egress, express] })
}

/// The number of TCX programs on an interface.
pub(crate) fn count(link: &str) -> anyhow::Result<u32> {
    let index = index(link)?;
    let count = |hook| {
        // The kernel writes the count in place; there is no room for the programs.
        let mut query = words(&[index, hook, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        call_on(QUERY, &mut query)?;
        Ok::<_, io::Error>(u32::from_ne_bytes([query[24], query[25], query[26], query[27]]))
    };
    Ok(count(INGRESS)? + count(EGRESS)?)
}

fn index(link: &str) -> anyhow::Result<u32> {
    let told = shell(&format!("ip -o link show {link}"))?;
    Ok(told.split(':').next().unwrap_or_default().parse()?)
}

/// `r0 = outcome; exit`.
fn load(kind: u32, expected_attach: u32, outcome: i32) -> io::Result<File> {
    let mut code = [0_u8; 16];
    code[0] = 0xb7;
    code[4..8].copy_from_slice(&outcome.to_ne_bytes());
    code[8] = 0x95;
    let licence = c"GPL";
    let mut attributes = words(&[kind, 2]);
    attributes.extend((code.as_ptr() as u64).to_ne_bytes());
    attributes.extend((licence.as_ptr() as u64).to_ne_bytes());
    // Log, version, flags, name and index: none.
    attributes.extend([0; 16 + 8 + 16 + 4]);
    attributes.extend(expected_attach.to_ne_bytes());
    open(LOAD, &attributes)
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn number(file: &File) -> u32 {
    file.as_raw_fd().unsigned_abs()
}

#[expect(unsafe_code, reason = "the kernel made the descriptor for this process")]
fn open(command: u32, attributes: &[u8]) -> io::Result<File> {
    let fd = call(command, attributes)?;
    // SAFETY: these commands return a new descriptor, which no other code owns.
    Ok(unsafe { File::from_raw_fd(fd) })
}

fn call(command: u32, attributes: &[u8]) -> io::Result<i32> {
    call_on(command, &mut attributes.to_vec())
}

#[expect(unsafe_code, reason = "no crate has this system call alone")]
fn call_on(command: u32, attributes: &mut [u8]) -> io::Result<i32> {
    // SAFETY: the kernel reads and writes as many bytes as the length says, and the pointers among
    // them are to arrays that outlive the call.
    let outcome =
        unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), attributes.len()) };
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(outcome).map_err(io::Error::other)
}
