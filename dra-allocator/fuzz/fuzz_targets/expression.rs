//! Compiles any text as an expression. It is accepted or rejected, and its evaluation ends.
#![no_main]

#[allow(dead_code)]
#[path = "../../tests/hostile/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &str| check::expression(input));
