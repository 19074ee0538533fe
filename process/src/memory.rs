//! Keeps a mostly idle process small, such as the driver on every node. glibc optimizes for speed: it has
//! a heap per thread and keeps freed memory. Other C libraries are left unchanged.
//!
//! Of a static program, most resident memory is its code, and most of that ran once, at the start.

use rustix::mm::{Advice, madvise};
use std::ops::Range;
use std::time::Duration;
use std::{fs, ptr};

/// The interval at which a server returns freed memory.
const PERIOD: Duration = Duration::from_secs(30);

/// Makes all threads share one heap. Must be called before a second thread starts.
pub(crate) fn share_heap() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "no crate has this call alone")]
    // SAFETY: no other thread exists yet that could be in the allocator.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns freed memory to the kernel.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "no crate has this call alone")]
    // SAFETY: the call takes the allocator's own locks and touches only free memory.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Lets go of the program's own code: what runs again is mapped again, from the page cache, and the kernel
/// may reclaim the rest. Best effort.
pub fn give_back_code() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let Some(code) = code_in(&maps, give_back_code as fn() as usize) else { return };
    let start = ptr::with_exposed_provenance_mut(code.start);
    #[expect(unsafe_code, reason = "it is about a mapping that no Rust value owns")]
    // SAFETY: the mapping is of a file and this program writes none of it, so that each page has the same
    // content when it is mapped again (`MADV_DONTNEED`, madvise(2)). A debugger's breakpoints are lost.
    let result = unsafe { madvise(start, code.len(), Advice::LinuxDontNeed) };
    if let Err(error) = result {
        tracing::debug!(%error, "Code stays in memory");
    }
}

/// The mapping of `/proc/self/maps` with this address, if it is code of a file: readable, executable and
/// private, with an inode.
fn code_in(maps: &str, address: usize) -> Option<Range<usize>> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let range = start..usize::from_str_radix(end, 16).ok()?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let [permissions, _offset, _device, inode, ..] = *fields.as_slice() else { return None };
        (permissions == "r-xp" && inode != "0" && range.contains(&address)).then_some(range)
    })
}

/// Returns freed memory at intervals, forever. A server that follows a large cluster frees the old
/// state of each changed object, and glibc would keep that memory.
pub async fn keep_small() {
    let mut tick = tokio::time::interval(PERIOD);
    loop {
        tick.tick().await;
        give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The resident memory of the program's code, in KiB, by `/proc/self/smaps`.
    fn resident() -> u64 {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let code = code_in(&maps, give_back_code as fn() as usize).unwrap();
        let own = maps.split_once(&format!("{:x}-{:x}", code.start, code.end)).unwrap().1;
        let rss = own.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        rss.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    #[test]
    fn code_that_ran_is_given_back() {
        let before = resident();
        give_back_code();
        let after = resident();
        assert!(after < before, "{before} KiB, then {after} KiB");
    }

    #[test]
    fn only_private_code_is_found() {
        let maps = "00001000-00002000 r--p 00000000 fe:00 7 /bin/a\n\
                    00002000-00005000 r-xp 00001000 fe:00 7 /bin/a\n\
                    00005000-00006000 rw-p 00004000 fe:00 7 /bin/a\n\
                    00007000-00008000 r-xp 00000000 00:00 0\n";
        assert_eq!(code_in(maps, 0x4fff), Some(0x2000..0x5000));
        assert_eq!(code_in(maps, 0x5000), None);
        assert_eq!(code_in(maps, 0x1000), None);
        assert_eq!(code_in(maps, 0x7000), None, "its content is nowhere else");
    }
}
