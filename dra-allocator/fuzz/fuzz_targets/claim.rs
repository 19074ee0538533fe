//! Parses any JSON as a claim. It is accepted or rejected, and its search ends.
#![no_main]

#[allow(dead_code)]
#[path = "../../tests/hostile/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::claim(input));
