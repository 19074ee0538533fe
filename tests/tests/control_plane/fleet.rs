//! Many drivers at once, each with the token of its node. Machines change, drivers are killed,
//! other clients overwrite slices, and the API server restarts. In the end every slice matches its
//! machine, and no pool's generation has ever decreased.
//!
//! `DRANET_DRIVERS` sets the number of drivers (8).

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::TryStreamExt;
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    runtime::{WatchStreamExt, watcher},
};
use serde_json::json;
use tempfile::TempDir;
use tests::{
    Check, ControlPlane, Process, Scope, eventually,
    figures::memory,
    installation::{Installation, gb300_machine},
    setting,
    suite::Test,
    with_scope,
};
use tokio::task::JoinSet;

/// The longest time until all slices are correct, on a busy machine.
const SOON: Duration = Duration::from_mins(3);
const ROUNDS: usize = 3;
/// NICs of a GB300 machine.
const NICS: usize = 4;

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![slices_converge_whatever_happens].into_iter().map(Test::alone).collect()
}

async fn slices_converge_whatever_happens(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let mut fleet = Fleet::start(&plane, &installation, scope).await?;
        fleet.converges("at first").await?;
        let pools = Pools::watch(&plane.client());
        for round in 0..ROUNDS {
            fleet.change_machines(round)?;
            fleet.restart_some(round)?;
            fleet.write_over_some(round).await?;
            if round == 1 {
                plane.restart_apiserver().await?;
            }
            fleet.converges(&format!("after round {round}")).await?;
        }
        pools.never_went_back()
    })
    .await
}

/// The drivers and their machines.
struct Fleet<'a> {
    plane: &'a ControlPlane,
    nodes: Vec<Node>,
}

struct Node {
    name: String,
    machine: TempDir,
    kubeconfig: PathBuf,
    driver: Option<Process>,
    /// The number of its ports that are down.
    down: usize,
}

impl<'a> Fleet<'a> {
    async fn start(
        plane: &'a ControlPlane,
        installation: &Installation<'_>,
        scope: &Scope,
    ) -> anyhow::Result<Self> {
        let mut nodes = Vec::new();
        for index in 0..setting("DRANET_DRIVERS", 8)? {
            let name = scope.node(&format!("fleet-{index}")).await?.name_any();
            let kubeconfig = installation.node_kubeconfig("node-driver", &name).await?;
            let machine = gb300_machine(&name)?;
            nodes.push(Node { name, machine, kubeconfig, driver: None, down: 0 });
        }
        let mut fleet = Self { plane, nodes };
        for index in 0..fleet.nodes.len() {
            fleet.launch(index)?;
        }
        Ok(fleet)
    }

    fn launch(&mut self, index: usize) -> anyhow::Result<()> {
        let node = &mut self.nodes[index];
        let program = self.plane.program("node-driver")?.named(&node.name);
        let root = node.machine.path().display().to_string();
        node.driver = None;
        node.driver = Some(
            program
                .args(["--node-name", &node.name, "--root", &root, "--cloud", "none"])
                .args(["--operations-listen", "127.0.0.1:0", "--rescan-seconds", "3600"])
                .args(["--kubeconfig".to_owned(), node.kubeconfig.display().to_string()])
                .spawn()?,
        );
        Ok(())
    }

    /// Changes the number of ports that are down on each machine.
    fn change_machines(&mut self, round: usize) -> anyhow::Result<()> {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            node.down = (index + round) % (NICS + 1);
            for port in 0..NICS {
                let state = format!("sys/class/infiniband/mlx5_{port}/ports/1/state");
                let text = if port < node.down { "1: DOWN\n" } else { "4: ACTIVE\n" };
                fs::write(node.machine.path().join(state), text)?;
            }
        }
        Ok(())
    }

    fn restart_some(&mut self, round: usize) -> anyhow::Result<()> {
        (round..self.nodes.len()).step_by(3).try_for_each(|index| self.launch(index))
    }

    /// A client with all permissions deletes some slices, and empties others.
    async fn write_over_some(&self, round: usize) -> anyhow::Result<()> {
        let slices: Api<ResourceSlice> = Api::all(self.plane.client());
        for (index, node) in self.nodes.iter().enumerate().skip((round + 1) % 2).step_by(2) {
            for slice in of_node(&slices, &node.name).await? {
                let name = slice.name_any();
                if index % 4 < 2 {
                    let empty = json!({"spec": {"devices": []}});
                    let patch = Patch::Merge(empty);
                    let answer = slices.patch(&name, &PatchParams::default(), &patch).await;
                    absent_or(answer.map(drop))?;
                } else if !was_restarted(index, round) {
                    // A driver that starts knows only the generations of existing slices.
                    let answer = slices.delete(&name, &DeleteParams::default()).await;
                    absent_or(answer.map(drop))?;
                }
            }
        }
        Ok(())
    }

    /// A driver that starts while the server is unavailable waits for it.
    fn nobody_ended(&self) -> anyhow::Result<()> {
        for node in &self.nodes {
            let driver = node.driver.as_ref().context("it was started")?;
            let name = &node.name;
            anyhow::ensure!(!driver.has_ended(), "{name} ended:\n{}", driver.tail(15));
        }
        Ok(())
    }

    /// Waits until every node has one slice with all its NICs, in their state.
    async fn converges(&self, when: &str) -> anyhow::Result<()> {
        let slices: Api<ResourceSlice> = Api::all(self.plane.client());
        let begin = Instant::now();
        eventually(SOON, async || {
            self.nobody_ended()?;
            let mut wrong = Vec::new();
            for node in &self.nodes {
                let found = match of_node(&slices, &node.name).await {
                    Ok(found) => found,
                    // The server has just restarted.
                    Err(error) => return Ok(Check::NotYet(format!("{when}: {error:#}"))),
                };
                let down = found.iter().map(down).sum::<usize>();
                let devices: usize =
                    found.iter().map(|slice| slice.spec.devices.iter().flatten().count()).sum();
                if (found.len(), devices, down) != (1, NICS, node.down) {
                    let log = node.driver.as_ref().map(|driver| driver.tail(3));
                    wrong.push(format!(
                        "{}: {} slices, {devices} NICs, {down} down instead of {}: {log:?}",
                        node.name,
                        found.len(),
                        node.down
                    ));
                }
            }
            Ok(Check::that(wrong.is_empty(), || format!("{when}: {wrong:#?}")))
        })
        .await?;
        let (count, took) = (self.nodes.len(), begin.elapsed());
        let memory = self.memory()?;
        report(&format!("{when}: {count} drivers in {took:.1?}, the largest has {memory} kB"));
        Ok(())
    }

    /// Resident memory of the largest driver.
    fn memory(&self) -> anyhow::Result<u64> {
        let drivers = self.nodes.iter().filter_map(|node| node.driver.as_ref());
        let sizes = drivers.map(|driver| memory(driver.pid(), "VmRSS"));
        let sizes: Vec<u64> = sizes.collect::<anyhow::Result<_>>()?;
        Ok(sizes.into_iter().max().unwrap_or_default() / 1024)
    }
}

/// Returns true if [`Fleet::restart_some`] restarted it.
fn was_restarted(index: usize, round: usize) -> bool {
    index >= round && (index - round).is_multiple_of(3)
}

#[expect(clippy::print_stderr, reason = "how long it took is worth reading")]
fn report(line: &str) {
    eprintln!("{line}");
}

/// The number of ports that a slice reports as down.
fn down(slice: &ResourceSlice) -> usize {
    let devices = slice.spec.devices.iter().flatten();
    let is_down = |device: &&Device| {
        let attributes = device.attributes.as_ref();
        let state = attributes.and_then(|attributes| attributes.get("dranet.io/portState"));
        state.and_then(|state| state.string.as_deref()) == Some("Down")
    };
    devices.filter(is_down).count()
}

async fn of_node(slices: &Api<ResourceSlice>, node: &str) -> anyhow::Result<Vec<ResourceSlice>> {
    let own = ListParams::default().fields(&format!("spec.driver=dra.net,spec.nodeName={node}"));
    Ok(slices.list(&own).await?.items)
}

/// A driver may have written in between.
fn absent_or(answer: Result<(), kube::Error>) -> anyhow::Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => Ok(answer?),
    }
}

/// Watches the generation of each pool.
struct Pools {
    seen: Arc<Mutex<Seen>>,
    _task: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    highest: BTreeMap<String, i64>,
    events: usize,
    violations: Vec<String>,
}

impl Pools {
    fn watch(client: &Client) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let config = watcher::Config::default().fields("spec.driver=dra.net");
        let slices = watcher(Api::<ResourceSlice>::all(client.clone()), config).default_backoff();
        let told = Arc::clone(&seen);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut slices = Box::pin(slices.applied_objects());
            loop {
                match slices.try_next().await {
                    Ok(Some(slice)) => {
                        told.lock().unwrap_or_else(PoisonError::into_inner).observe(&slice);
                    }
                    Ok(None) => return,
                    // The server is unavailable; the watch reconnects.
                    Err(_) => {}
                }
            }
        });
        Self { seen, _task: tasks }
    }

    fn never_went_back(self) -> anyhow::Result<()> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow::ensure!(seen.violations.is_empty(), "{:#?}", seen.violations);
        anyhow::ensure!(seen.events > 0, "no event of a slice was seen");
        let highest = seen.highest.values().max().copied().unwrap_or_default();
        report(&format!("{} versions of slices, generations up to {highest}", seen.events));
        Ok(())
    }
}

impl Seen {
    fn observe(&mut self, slice: &ResourceSlice) {
        self.events += 1;
        let pool = &slice.spec.pool;
        let highest = self.highest.entry(pool.name.clone()).or_default();
        if pool.generation < *highest {
            let went = format!("{}: from {highest} to {}", pool.name, pool.generation);
            self.violations.push(went);
        }
        *highest = pool.generation.max(*highest);
    }
}
