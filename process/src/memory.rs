//! Keeps the heap of a mostly idle process small, such as the driver on every node. glibc optimizes
//! for speed: it has a heap per thread and keeps freed memory. Other C libraries are left
//! unchanged.

use std::time::Duration;

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

/// Returns freed memory at intervals, forever. A server that follows a large cluster frees the old
/// state of each changed object, and glibc would keep that memory.
pub async fn keep_small() {
    let mut tick = tokio::time::interval(PERIOD);
    loop {
        tick.tick().await;
        give_back();
    }
}
