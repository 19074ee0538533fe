//! Runs the driver while interfaces are created, deleted and changed at random. At each
//! quiet moment it must have published what a fresh discovery finds.
//!
//! The real program runs in a network namespace of the test, against an in-process API
//! server. Only kernel notifications can wake it, because its rescan interval is an hour.
//! Number of rounds: `DRANET_CAMPAIGN_ROUNDS` (16); seed: `DRANET_CAMPAIGN_SEED` (1).

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "../src/fake_server.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod fake_server;
#[path = "campaign/links.rs"]
mod links;

use fake_server::{FakeServer, SLICES};
use libtest_mimic::{Arguments, Failed, Trial};
use links::Links;
use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::runtime::Builder;

const NODE: &str = "n1";
/// The most changes per round.
const CHANGES: u64 = 12;
/// Longest time from the last change to the server's slice, on a busy machine.
const QUIET: Duration = Duration::from_mins(1);

fn main() -> ExitCode {
    let own = CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET;
    if let Err(error) = unshare(own).or_else(|_| unshare(CloneFlags::CLONE_NEWNET)) {
        return refuse(&format!("failed to create a network namespace (needs root): {error}"));
    }
    let trial = Trial::test("the_driver_publishes_what_a_fresh_discovery_finds", || {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Failed::from)?;
        runtime.block_on(the_driver_publishes_what_a_fresh_discovery_finds());
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

#[expect(clippy::print_stderr, reason = "a test program")]
fn refuse(text: &str) -> ExitCode {
    eprintln!("error: {text}");
    ExitCode::FAILURE
}

#[expect(clippy::print_stderr, reason = "prints the campaign's report")]
fn report(text: &str) {
    eprintln!("{text}");
}

async fn the_driver_publishes_what_a_fresh_discovery_finds() {
    let (rounds, seed) = (number("DRANET_CAMPAIGN_ROUNDS", 16), number("DRANET_CAMPAIGN_SEED", 1));
    let mut links = Links::open(seed).await;
    let folder = tempfile::tempdir().unwrap();
    let (server, fresh) = (FakeServer::with_node(NODE), FakeServer::with_node(NODE));
    let watched = driver(&server, &folder.path().join("watched")).await;
    let fresh_config = kubeconfig(&fresh, &folder.path().join("fresh")).await;
    let running = Running { child: watched, begin: Instant::now() };
    for round in 0..rounds {
        for _ in 0..=links.draw(CHANGES) {
            links.change().await;
        }
        settle(round, &server, &fresh, &fresh_config, &links).await;
    }
    running.report(&server, &links);
    assert!(links.changes() > rounds, "something changed");
}

/// Waits until the driver has published what an independent driver discovers from
/// scratch.
async fn settle(round: u64, server: &FakeServer, fresh: &FakeServer, config: &Path, links: &Links) {
    let begin = Instant::now();
    loop {
        let status = command(config).arg("--once").status().await.unwrap();
        assert!(status.success(), "round {round}: a fresh discovery failed");
        let (published, found) = (devices(server), devices(fresh));
        if published == found {
            return;
        }
        assert!(
            begin.elapsed() < QUIET,
            "round {round}: published {published:#}\nbut found {found:#}\nafter {links:#?}"
        );
    }
}

/// The devices in the server's slices.
fn devices(server: &FakeServer) -> Value {
    let slices = server.objects(SLICES);
    let devices = slices.iter().filter_map(|slice| slice["spec"]["devices"].as_array()).flatten();
    devices.cloned().collect()
}

/// A driver that runs until it is dropped.
async fn driver(server: &FakeServer, folder: &Path) -> Child {
    let config = kubeconfig(server, folder).await;
    let child = command(&config)
        .args(["--rescan-seconds", "3600", "--operations-listen", "127.0.0.1:0"])
        .spawn()
        .unwrap();
    server.until(SLICES, |slices| !slices.is_empty()).await;
    child
}

fn command(config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_node-driver"));
    command
        .args(["--node-name", NODE, "--cloud", "none", "--filter=", "--kubeconfig"])
        .arg(config)
        .env("DRANET_LOG", "error")
        .kill_on_drop(true);
    command
}

/// Serves on a port of this namespace, and writes a kubeconfig with it.
async fn kubeconfig(server: &FakeServer, folder: &Path) -> std::path::PathBuf {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = server.router();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "users": [{"name": "it", "user": {}}],
        "clusters": [{"name": "it", "cluster": {"server": url}}],
    });
    fs::create_dir_all(folder).unwrap();
    let path = folder.join("kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    path
}

struct Running {
    child: Child,
    begin: Instant,
}

impl Running {
    /// Prints what the driver did, and its cost.
    fn report(&self, server: &FakeServer, links: &Links) {
        let writes = server.take_writes().len();
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id().unwrap())).unwrap();
        // `proc_pid_stat(5)`: after the name, fields 12 and 13 are times in hundredths of
        // a second.
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks: u64 = fields[11..13].iter().map(|text| text.parse::<u64>().unwrap()).sum();
        report(&format!(
            "{} changes ({} refused by the kernel), {writes} writes, {} ms of CPU in {:.1?}",
            links.changes(),
            links.refused(),
            ticks * 10,
            self.begin.elapsed()
        ));
    }
}

/// A number from the environment.
#[expect(clippy::disallowed_methods, reason = "this program's settings")]
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}
