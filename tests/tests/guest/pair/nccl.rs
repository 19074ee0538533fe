//! `kubectl dranet bench --nccl` between the machines: Open MPI starts one process in each of two
//! pods without a remote shell. No machine has a GPU, so a program that sums with MPI replaces
//! nccl-tests.

use std::{fs, process::Command};

use anyhow::Context;
use serde_json::Value;
use tests::{
    ControlPlane, Scope,
    binaries::in_tests,
    guest::{NICS, node::GuestNode},
    node::{device_name, image},
};

use super::measured;

/// Open MPI of the machine that runs the tests, the program, and a shell.
const IMAGE: &str = "localhost/nccl-tests:test";

/// Bytes that are summed: the network is emulated too.
const BYTES: &str = "65536";

pub(super) async fn by_bench(
    plane: &ControlPlane,
    scope: &Scope,
    pair: &[GuestNode; 2],
) -> anyhow::Result<()> {
    let layer = layer()?;
    for node in pair {
        image::write_layer(&node.guest.share().join("nccl.tar"), IMAGE, &layer)?;
    }
    let [one, other] = pair;
    tokio::try_join!(one.import_shared("nccl.tar"), other.import_shared("nccl.tar"))?;

    let flags = ["--nccl", "--image", IMAGE, "--bytes", BYTES];
    let answer = measured::bench(plane, scope, pair, &flags).await?;
    let text = answer.to_string();
    for (role, node) in ["server", "client"].into_iter().zip(pair) {
        assert_eq!(answer[role]["node"], node.name.as_str(), "{text}");
        assert_eq!(answer[role]["nics"][0]["name"], device_name(NICS[0].0).as_str(), "{text}");
    }
    assert_eq!(answer["messageBytes"].to_string(), BYTES, "{text}");
    let measured = answer["measuredGbps"].as_f64();
    assert!(measured.is_some_and(|measured| measured > 0.0), "{text}");
    measured::nothing_is_left(scope, pair).await?;

    // An error in only one pod ends the measurement, with the reason.
    let flags = ["--nccl", "no-such-test", "--image", IMAGE, "--bytes", BYTES];
    let error = measured::bench(plane, scope, pair, &flags).await.err().context("it fails")?;
    let error = error.to_string();
    assert!(error.contains("the server failed; the server printed: "), "{error}");
    assert!(error.contains("no-such-test"), "{error}");
    measured::nothing_is_left(scope, pair).await?;
    report(&answer);
    Ok(())
}

/// The layer of [`IMAGE`].
fn layer() -> anyhow::Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("all_reduce_perf");
    let layer = folder.path().join("layer.tar");
    let mut compile = Command::new("mpicc");
    compile.args(["-O1", "-o"]).args([&program, &in_tests("guest/all_reduce.c")]);
    let mut pack = Command::new(in_tests("guest/mpi-layer"));
    pack.args([&program, &layer]);
    for command in [&mut compile, &mut pack] {
        let output = command.output().with_context(|| format!("{command:?} does not start"))?;
        let error = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{command:?}: {}", error.trim());
    }
    Ok(fs::read(layer)?)
}

#[expect(clippy::print_stderr, reason = "what was measured is worth reading")]
fn report(answer: &Value) {
    eprintln!("bench --nccl: {} Gb/s", answer["measuredGbps"]);
}
