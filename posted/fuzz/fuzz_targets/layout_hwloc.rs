#![no_main]

#[path = "../layouts.rs"]
mod layouts;

use std::sync::LazyLock;

use layouts::WholeListing;

static HWLOC: LazyLock<WholeListing> = LazyLock::new(|| WholeListing::new(layouts::HWLOC));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = HWLOC.holds(bytes);
});
