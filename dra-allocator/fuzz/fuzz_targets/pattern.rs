//! Compiles any text as a regular expression. It is accepted or rejected, and its search ends.
#![no_main]

#[allow(dead_code)]
#[path = "../../tests/hostile/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &str| check::pattern(input));
