#![no_main]

#[path = "../layouts.rs"]
mod layouts;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for text in [layouts::DETAILS, layouts::PATHS] {
        let _ = layouts::listing_holds(text, bytes);
    }
});
