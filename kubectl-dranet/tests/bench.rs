//! The pods that `bench` would create.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;

fn bench(more: &[&str]) -> String {
    let args = ["kubectl-dranet", "bench", "--dry-run"].iter().chain(more);
    match kubectl_dranet::run(&Args::try_parse_from(args).unwrap()) {
        Ok(output) => output.text,
        Err(error) => format!("error: {}", process::exit::one_line(&error)),
    }
}

#[test]
fn the_pods_of_a_measurement() {
    insta::assert_snapshot!(bench(&[]));
}

#[test]
fn flags_go_into_the_pods() {
    let text = bench(&[
        "--nodes=a,b",
        "--gpu-memory",
        "--image=example.com/perftest:1",
        "--bytes=65536",
        "--seconds=3",
        "--timeout=30",
        "--scheduler=dranet",
        "--toleration=sku",
    ]);
    for (line, times) in [
        ("kubernetes.io/hostname: a", 1),
        ("kubernetes.io/hostname: b", 1),
        ("--use_cuda=0", 2),
        ("image: example.com/perftest:1", 2),
        ("value: \"65536\"", 2),
        ("activeDeadlineSeconds: 90", 2),
        ("schedulerName: dranet", 2),
        ("key: sku", 2),
    ] {
        assert_eq!(text.matches(line).count(), times, "`{line}` in {text}");
    }
    let three = bench(&["--nodes=a,b,c"]);
    assert_eq!(three, "error: invalid value of `--nodes`: name two nodes at most");
}

#[test]
fn the_pods_of_an_nccl_test() {
    insta::assert_snapshot!(bench(&["--nccl", "--gpus=8", "--nics=8", "--", "-n", "50"]));
}

#[test]
fn conflicting_flags_are_rejected() {
    for flags in [
        &["--gpus=8"][..],
        &["--nics=8"],
        &["--nccl", "--gpus=0"],
        &["--nccl", "--gpu-memory"],
        &["--nccl", "--seconds=3"],
        &["--against", "unaligned", "--nics=2"],
        &["--against", "unaligned", "--dry-run"],
        &["--against", "nothing"],
    ] {
        let args = ["kubectl-dranet", "bench"].iter().chain(flags);
        assert!(Args::try_parse_from(args).is_err(), "{flags:?}");
    }
}
