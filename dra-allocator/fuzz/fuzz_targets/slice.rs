//! Parses any JSON as a slice. It is accepted or rejected, and a search over it ends.
#![no_main]

#[allow(dead_code)]
#[path = "../../tests/hostile/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::slice(input));
