#![no_main]

#[path = "../frames.rs"]
mod frames;
#[path = "../server.rs"]
mod server;

use server::Server;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// After so many connections, a client that behaves must be answered.
const OTHERS: usize = 64;

// Any frames on a connection are answered or end the connection, and keep nobody out.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    SERVER.send(&frames::of(bytes));
    if RUNS.fetch_add(1, Ordering::Relaxed).is_multiple_of(OTHERS) {
        SERVER.answers_others();
    }
});
