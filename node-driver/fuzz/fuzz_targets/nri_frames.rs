#![no_main]

#[path = "../plugin_checks.rs"]
#[allow(dead_code)]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::nri_frames(bytes));
