#![no_main]

#[path = "../layouts.rs"]
mod layouts;

use libfuzzer_sys::fuzz_target;

const TREE: &str = include_str!("../../tests/posted/tree.txt");

fuzz_target!(|bytes: &[u8]| layouts::holds(TREE, bytes));
