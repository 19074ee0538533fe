#![no_main]

#[path = "../layouts.rs"]
mod layouts;

use std::sync::LazyLock;

use layouts::WholeListing;

static LISTINGS: LazyLock<[WholeListing; 2]> =
    LazyLock::new(|| [layouts::DETAILS, layouts::PATHS].map(WholeListing::new));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for listing in &*LISTINGS {
        let _ = listing.holds(bytes);
    }
});
