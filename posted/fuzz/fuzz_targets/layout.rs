#![no_main]

#[path = "../layouts.rs"]
mod layouts;

use std::sync::LazyLock;

use layouts::WholeListing;

static TREE: LazyLock<WholeListing> = LazyLock::new(|| WholeListing::new(layouts::TREE));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = TREE.holds(bytes);
});
