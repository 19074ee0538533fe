//! The heap of a process that is small between short pieces of work, as on every node
//! the driver is. glibc's is made for speed: a heap for each thread, and what is freed is
//! kept. Other C libraries are left as they are.

use std::time::Duration;

/// How often a server gives back what it has freed.
const PERIOD: Duration = Duration::from_secs(30);

/// Lets all threads have one heap. Called before there is a second thread.
pub(crate) fn share_heap() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "no crate has this call alone")]
    // SAFETY: no other thread is in the allocator, as there is none yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives the kernel back what work that is over has left free.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    #[expect(unsafe_code, reason = "no crate has this call alone")]
    // SAFETY: it takes the allocator's own locks and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives back what is free, now and then, for ever: a server that follows a large cluster frees
/// the old state of each object that changes, and glibc keeps it.
pub async fn keep_small() {
    let mut tick = tokio::time::interval(PERIOD);
    loop {
        tick.tick().await;
        give_back();
    }
}
