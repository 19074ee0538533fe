//! Measures the preparation of a claim with eight NICs: requested on the plugin's own socket and
//! moved by the hook in its CDI spec. The kernel's own time for the same moves is measured too. Then a
//! claim with an address of a range, and one for places, whose NICs the driver chooses.

#[path = "../../../node-driver/tests/late/kubelet.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "it is the kubelet of a test")]
mod kubelet;

use std::{
    collections::BTreeSet,
    fs::File,
    net::Ipv4Addr,
    os::fd::AsRawFd,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::Parser;
use futures::TryStreamExt;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use kubelet::Listed;
use node_driver::kubelet::wire::dra_v1::Claim;
use rtnetlink::LinkUnspec;
use serde_json::json;
use tests::{
    Check, ControlPlane, Options, Scope, eventually,
    figures::{cpu_time, megabytes, memory, refuse, say},
    installation::Installation,
    node::{
        Machine, Nic,
        device_plugin::RESOURCE,
        isolated,
        links::shell,
        plugin::{self, Hook, Sandbox},
        pods,
    },
    simulated_node, with_scope,
};
use topology_graph::{HostRoot, Topology};

const NODE: &str = "bench";
const SOON: Duration = Duration::from_secs(10);
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

/// Measure the preparation of a claim with eight NICs. Needs root: it creates interfaces in a
/// separate network namespace.
#[derive(Clone, Copy, Debug, Parser)]
struct Args {
    /// Number of times that the claim is prepared.
    #[arg(long, default_value_t = 100)]
    times: usize,
    /// Number of claims with an address from the range that another claim uses.
    #[arg(long, default_value_t = 1000)]
    pods: u32,
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
        Installation::install(&plane, scope).await?;
        let mut machine = Machine::alone(&plane, NODE, &NICS)?.with_this_kernel()?;
        // Also publishes the pairs of links that act as NICs.
        machine.spawn_driver(&["--filter="])?;
        anyhow::ensure!(machine.listens().await?, "the driver ended");
        // Interfaces without a PCI device are published by their names.
        let devices = NICS.map(|nic| nic.link);
        are_published(scope, &devices).await?;
        let claim = plugin::claim_of(scope, "eight", NODE, &devices).await?;
        measure(scope, &machine, &claim, args.times).await?;
        ranges(scope, &machine, args).await?;
        places(scope, &mut machine, args.times).await
    })
    .await
}

/// Waits until these devices are in the node's slices.
async fn are_published(scope: &Scope, wanted: &[&str]) -> anyhow::Result<()> {
    let slices: Api<ResourceSlice> = Api::all(scope.client());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={NODE}"));
    eventually(SOON, async || {
        let slices = slices.list(&of_node).await?.items;
        let devices = slices.into_iter().filter_map(|slice| slice.spec.devices).flatten();
        let names: BTreeSet<_> = devices.map(|device| device.name).collect();
        let lacking = wanted.iter().find(|name| !names.contains(**name));
        Ok(Check::that(lacking.is_none(), || format!("{lacking:?} is not published")))
    })
    .await
}

/// Waits until the driver has nothing to do: it looks at the machine some time after each move.
async fn rests(machine: &Machine) -> anyhow::Result<()> {
    let pid = machine.driver().context("the driver runs")?.pid();
    let mut before = None;
    eventually(SOON, async || {
        let now = Some(cpu_time(pid)?);
        let worked = std::mem::replace(&mut before, now) != now;
        Ok(Check::that(!worked, || "the driver works".to_owned()))
    })
    .await
}

/// The measurements in each life of the claim, in this order.
const WHAT: [&str; 6] = [
    "prepare, as the kubelet requests it",
    "  of which the API server's two responses, one after the other",
    "attach hook, first container",
    "  of which the kernel: the same moves in a bare loop",
    "attach hook, second container",
    "unprepare, with the moves back",
];

async fn measure(
    scope: &Scope,
    machine: &Machine,
    claim: &Claim,
    times: usize,
) -> anyhow::Result<()> {
    // Creating and removing a namespace keeps the kernel busy for a while, so that is done before
    // and after.
    let names = (0..=times).map(|round| format!("bench-{round}"));
    let sandboxes: Vec<_> =
        names.map(|name| Ok((Sandbox::open(&name)?, name))).collect::<anyhow::Result<_>>()?;
    let mut took: [Vec<Duration>; 6] = Default::default();
    let mut first = None;
    for (sandbox, name) in &sandboxes {
        // As when the scheduler allocates them: the moves of the last life took them off the slices.
        are_published(scope, &NICS.map(|nic| nic.link)).await?;
        rests(machine).await?;
        let life = live(scope, machine, claim, (sandbox, name)).await?;
        // The driver has just started and is still publishing.
        if first.is_none() {
            first = Some(life);
            continue;
        }
        took.iter_mut().zip(life).for_each(|(took, life)| took.push(life));
    }
    sandboxes.into_iter().try_for_each(|(sandbox, _)| sandbox.close())?;
    for (what, took) in WHAT.iter().zip(&mut took) {
        say(&format!("{what}: {}", spread(took)));
    }
    if let Some([prepare, ..]) = first {
        say(&format!("the first prepare, while the driver starts: {prepare:.1?}"));
    }
    let pid = machine.driver().context("the driver runs")?.pid();
    let [now, peak] = [memory(pid, "VmRSS")?, memory(pid, "VmHWM")?].map(megabytes);
    say(&format!("driver's memory: {now:.1} MB resident, {peak:.1} MB at most"));
    Ok(())
}

/// The rest of a share's UUID.
const SHARE: &str = "0000-4000-8000-000000000000";

/// Measures a claim that takes an address from a range in which many are taken.
async fn ranges(scope: &Scope, machine: &Machine, args: Args) -> anyhow::Result<()> {
    let Args { times, pods } = args;
    let claims: Api<ResourceClaim> = scope.api();
    let device = NICS[0].link;
    let interface = json!({"name": "net1", "addressRange": "10.8.0.0/16"});
    let parameters = json!({ "interface": interface });
    let new = async |name: &str, number: u32| {
        let share = format!("{number:08x}-{SHARE}");
        let claim = plugin::share(scope, name, [NODE, device, &share], parameters.clone());
        claim.await.map(|claim| (claim, share))
    };
    for number in 0..pods {
        let (Claim { name, .. }, share) = new(&format!("held-{number}"), number).await?;
        let ip = Ipv4Addr::from_bits(0x0a08_0001 + number);
        let entry = json!({
            "driver": "dra.net", "pool": NODE, "device": device, "shareID": share,
            "networkData": {"ips": [format!("{ip}/16")]},
        });
        let status = Patch::Merge(json!({"status": {"devices": [entry]}}));
        claims.patch_status(&name, &PatchParams::default(), &status).await?;
    }
    let mut took = Vec::new();
    for round in 0..u32::try_from(times)? {
        let (claim, _) = new(&format!("range-{round}"), pods + round).await?;
        let begin = Instant::now();
        plugin::prepare(machine, &claim).await.done()?;
        took.push(begin.elapsed());
        plugin::unprepare(machine, &claim).await.done()?;
    }
    say(&format!(
        "prepare with an address of a range, beside {pods} claims: {}",
        spread(&mut took)
    ));
    let pid = machine.driver().context("the driver runs")?.pid();
    let [now, peak] = [memory(pid, "VmRSS")?, memory(pid, "VmHWM")?].map(megabytes);
    say(&format!("driver's memory then: {now:.1} MB resident, {peak:.1} MB at most"));
    Ok(())
}

/// Measures a claim for places: the driver asks the kubelet which GPUs the pod has, and chooses the
/// nearest NICs. The test acts as the kubelet.
async fn places(scope: &Scope, machine: &mut Machine, times: usize) -> anyhow::Result<()> {
    let (topology, _) =
        Topology::build(&topology_graph::read(&HostRoot::at(machine.root()))?, None);
    let gpus: Vec<_> = topology.gpus().iter().map(|gpu| gpu.address.to_string()).collect();
    let count = gpus.len();
    let list = Listed::new(scope.namespace());
    let serving = list.serve(&machine.kubelet_dir());
    list.add("places".to_owned(), gpus.into_iter().map(|id| (RESOURCE.to_owned(), id)).collect());
    machine.kill_driver();
    machine.spawn_driver(&["--filter=", "--bind-nics=late"])?;
    anyhow::ensure!(machine.listens().await?, "the driver ended");
    let names: Vec<String> = (0..count).map(|number| format!("late-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    are_published(scope, &names).await?;
    let wanted = json!({"lateBinding": {"gpus": count, "within": "numa"}});
    pods::allocated_devices(scope, "places", NODE, &names, Some(wanted)).await?;
    let pod = pods::pod("places", NODE, json!({"resourceClaimName": "places"}))?;
    pods::create_bound(scope, pod, NODE).await?;
    let claim = plugin::reference(scope, "places").await?;
    let mut took = Vec::new();
    for _ in 0..times {
        let begin = Instant::now();
        plugin::prepare(machine, &claim).await.done()?;
        took.push(begin.elapsed());
        plugin::unprepare(machine, &claim).await.done()?;
    }
    serving.abort();
    say(&format!("prepare {count} places, late binding: {}", spread(&mut took)));
    Ok(())
}

/// Runs the whole life of a claim.
async fn live(
    scope: &Scope,
    machine: &Machine,
    claim: &Claim,
    (sandbox, name): (&Sandbox, &str),
) -> anyhow::Result<[Duration; 6]> {
    let server = asked(scope, claim).await?;
    let begin = Instant::now();
    plugin::prepare(machine, claim).await.done()?;
    let prepare = begin.elapsed();
    let mut hooks = [Duration::ZERO; 2];
    for took in &mut hooks {
        let begin = Instant::now();
        let started = plugin::start_container(machine, claim, sandbox, None).await?;
        *took = begin.elapsed();
        anyhow::ensure!(started == Hook::Attached, "{started:?}");
    }
    let begin = Instant::now();
    plugin::unprepare(machine, claim).await.done()?;
    let unprepare = begin.elapsed();
    let kernel = moves(name).await?;
    let [first, second] = hooks;
    Ok([prepare, server, first, kernel, second, unprepare])
}

/// The time that the API server takes for the driver's requests about a claim.
async fn asked(scope: &Scope, claim: &Claim) -> anyhow::Result<Duration> {
    let claims: Api<ResourceClaim> = scope.api();
    let slices: Api<ResourceSlice> = Api::all(scope.client());
    let of_node = ListParams::default().fields(&format!("spec.nodeName={NODE}"));
    let begin = Instant::now();
    claims.get(&claim.name).await?;
    slices.list(&of_node).await?;
    Ok(begin.elapsed())
}

/// The netlink requests that move the interfaces into a namespace, without anything else; then
/// back.
async fn moves(namespace: &str) -> anyhow::Result<Duration> {
    let (connection, handle, _) = rtnetlink::new_connection()?;
    let connection = tokio::spawn(connection);
    let there = File::open(format!("/run/netns/{namespace}"))?;
    let mut links = Vec::new();
    for Nic { link, .. } in &NICS {
        let found = handle.link().get().match_name((*link).to_owned()).execute().try_next().await?;
        let index = found.context("it is there")?.header.index;
        links.push(LinkUnspec::new_with_index(index).setns_by_fd(there.as_raw_fd()).name(*link));
    }
    let begin = Instant::now();
    for link in links {
        handle.link().set(link.build()).execute().await?;
    }
    let took = begin.elapsed();
    connection.abort();
    for (number, Nic { link, .. }) in NICS.iter().enumerate() {
        shell(&format!("ip -n {namespace} link set {link} netns 1"))?;
        shell(&format!("ip link set {link} up"))?;
        shell(&format!("ip addr replace 10.7{number}.0.1/24 dev {link}"))?;
    }
    Ok(took)
}

fn spread(took: &mut [Duration]) -> String {
    took.sort();
    let at = |index: usize| took.get(index).copied().unwrap_or_default();
    let [p50, p99, max] =
        [50, 99, 100].map(|percent| at((took.len() * percent).div_ceil(100).saturating_sub(1)));
    format!("p50 {p50:.1?}, p99 {p99:.1?}, max {max:.1?} of {}", took.len())
}
