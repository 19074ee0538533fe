#![no_main]

#[path = "../layouts.rs"]
mod layouts;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = layouts::listing_holds(layouts::TREE, bytes);
});
