//! What preparing a claim costs: eight NICs, asked for on the plugin's own socket and
//! moved by the hook that its CDI spec names, beside the kernel's own time for the same
//! moves.

use std::{
    fs,
    io::Write,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Parser;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::{Api, api::ListParams};
use node_driver::plugin::wire::dra_v1::Claim;
use tests::{
    ControlPlane, Options, Scope, gb300,
    node::{
        Machine, Nic, isolated,
        links::shell,
        plugin::{self, Call, Hook, Sandbox},
    },
    simulated_node, with_scope,
};

const NODE: &str = "bench";
const NICS: [Nic; 8] = [
    Nic { address: "0201:00:00.0", link: "rail0" },
    Nic { address: "0202:00:00.0", link: "rail1" },
    Nic { address: "0203:00:00.0", link: "rail2" },
    Nic { address: "0204:00:00.0", link: "rail3" },
    Nic { address: "0205:00:00.0", link: "rail4" },
    Nic { address: "0206:00:00.0", link: "rail5" },
    Nic { address: "0207:00:00.0", link: "rail6" },
    Nic { address: "0208:00:00.0", link: "rail7" },
];

/// Measure the preparation of a claim with eight NICs. Needs root: it makes interfaces,
/// in a network of its own.
#[derive(Clone, Copy, Debug, Parser)]
struct Args {
    /// Lives of the claim.
    #[arg(long, default_value_t = 50)]
    times: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
    isolated(|| match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    })
}

#[tokio::main]
async fn run(args: Args) -> anyhow::Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    for (number, Nic { link, .. }) in NICS.iter().enumerate() {
        shell(&format!("ip link add {link} type veth peer name {link}-peer"))?;
        shell(&format!("ip addr add 10.7{number}.0.1/24 dev {link}"))?;
        shell(&format!("ip link set {link} up"))?;
        shell(&format!("ip link set {link}-peer up"))?;
    }
    with_scope(plane.client(), async |scope| {
        simulated_node::apply(&plane.client(), NODE).await?;
        scope.apply_file(&gb300::file("device-classes.yaml")).await?;
        let mut machine = Machine::alone(&plane, NODE, &NICS)?;
        machine.spawn_driver(&[])?;
        anyhow::ensure!(plugin::listens(&machine).await?, "the driver ended");
        let devices = NICS.map(|nic| nic.device());
        let devices = devices.each_ref().map(String::as_str);
        let claim = plugin::claim_of(scope, "eight", NODE, &devices).await?;
        measure(scope, &machine, &claim, args.times).await
    })
    .await
}

async fn measure(
    scope: &Scope,
    machine: &Machine,
    claim: &Claim,
    times: usize,
) -> anyhow::Result<()> {
    let mut took: [Vec<Duration>; 6] = Default::default();
    let [server, prepare, hook, again, unprepare, kernel] = &mut took;
    for round in 0..times {
        server.push(asked(scope, claim).await?);
        let begin = Instant::now();
        done(plugin::prepare(machine, claim).await)?;
        prepare.push(begin.elapsed());
        let sandbox = Sandbox::open(&format!("bench-{round}"))?;
        for took in [&mut *hook, &mut *again] {
            let begin = Instant::now();
            let started = plugin::start_container(machine, claim, &sandbox, None).await?;
            took.push(begin.elapsed());
            anyhow::ensure!(started == Hook::Attached, "{started:?}");
        }
        let begin = Instant::now();
        done(plugin::unprepare(machine, claim).await)?;
        unprepare.push(begin.elapsed());
        kernel.push(moves(&format!("bench-{round}"))?);
        sandbox.close()?;
    }
    for (what, took) in [
        ("prepare, as the kubelet asks", prepare),
        ("  of it the API server's two answers", server),
        ("attach hook, first container", hook),
        ("attach hook, second container", again),
        ("unprepare", unprepare),
        ("the kernel's own: down, move and rename, by `ip`", kernel),
    ] {
        say(&format!("{what}: {}", spread(took)));
    }
    let pid = machine.driver().context("the driver runs")?.pid();
    say(&format!(
        "driver's memory: {:.1} MB resident, {:.1} MB at most",
        memory(pid, "VmRSS")?,
        memory(pid, "VmHWM")?
    ));
    Ok(())
}

/// The time in which the API server answers what the driver asks it for a claim.
async fn asked(scope: &Scope, claim: &Claim) -> anyhow::Result<Duration> {
    let claims: Api<ResourceClaim> = scope.api();
    let slices: Api<ResourceSlice> = Api::all(scope.client());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={NODE}"));
    let begin = Instant::now();
    claims.get(&claim.name).await?;
    slices.list(&of_node).await?;
    Ok(begin.elapsed())
}

/// The moves alone, into a namespace, by one `ip` that has started already; and back.
fn moves(namespace: &str) -> anyhow::Result<Duration> {
    let there: String = NICS
        .iter()
        .flat_map(|Nic { link, .. }| {
            [
                format!("link set {link} down\n"),
                format!("link set {link} netns {namespace} name {link}\n"),
            ]
        })
        .collect();
    let empty = batch(&[], "")?;
    let took = batch(&[], &there)?;
    let back = NICS.iter().map(|Nic { link, .. }| format!("link set {link} netns 1\n"));
    batch(&["-n", namespace], &back.collect::<String>())?;
    for (number, Nic { link, .. }) in NICS.iter().enumerate() {
        shell(&format!("ip link set {link} up"))?;
        shell(&format!("ip addr replace 10.7{number}.0.1/24 dev {link}"))?;
    }
    Ok(took.saturating_sub(empty))
}

fn batch(arguments: &[&str], lines: &str) -> anyhow::Result<Duration> {
    let begin = Instant::now();
    let mut ip = Command::new("ip")
        .args(arguments)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .context("failed to start `ip`")?;
    ip.stdin.take().context("it is piped")?.write_all(lines.as_bytes())?;
    anyhow::ensure!(ip.wait()?.success(), "`ip -batch` failed");
    Ok(begin.elapsed())
}

fn done<T>(call: Call<T>) -> anyhow::Result<T> {
    match call {
        Call::Done(value) => Ok(value),
        Call::Refused(error) => anyhow::bail!("refused: {error}"),
        Call::Lost => anyhow::bail!("the driver did not answer"),
    }
}

/// A line of `/proc/PID/status`, in megabytes.
fn memory(pid: u32, name: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kilobytes: f64 = line.context("it has memory")?.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}

fn spread(took: &mut [Duration]) -> String {
    took.sort();
    let at = |index: usize| took.get(index).copied().unwrap_or_default();
    let (median, last) = (at(took.len() / 2), at(took.len().saturating_sub(1)));
    format!("min {:.1?}, median {median:.1?}, max {last:.1?} of {}", at(0), took.len())
}

#[expect(clippy::print_stdout, reason = "the figures")]
fn say(line: &str) {
    println!("{line}");
}

#[expect(clippy::print_stderr, reason = "why there are none")]
fn refuse(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
