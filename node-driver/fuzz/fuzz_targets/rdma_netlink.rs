#![no_main]

#[path = "../publication_checks.rs"]
#[allow(dead_code)]
mod publication_checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| publication_checks::rdma_netlink(bytes));
