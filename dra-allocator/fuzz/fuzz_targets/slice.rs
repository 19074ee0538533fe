//! Any JSON is a slice or an error, and a search over it ends.
#![no_main]

#[allow(dead_code)]
#[path = "../../tests/hostile/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::slice(input));
