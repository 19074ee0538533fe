//! Runs the driver: reads facts, decides, and publishes; once, or after each change until it
//! is told to stop.

mod arrival;
mod binding;
mod steady;
mod too_old;

use crate::args::{Args, Mode};
use crate::decide::binding::Binding;
use crate::decide::look::{self, Look, Outcome, Settings};
use crate::facts::cloud::source::CloudSource;
use crate::facts::errors;
use crate::facts::held::Claims;
use crate::facts::history::HistoryFiles;
use crate::facts::host;
use crate::facts::kubelet_config::KubeletConfig;
use crate::facts::modules::KernelFacts;
use crate::facts::network::changes::Changes;
use crate::facts::network::kernel::Kernel;
use crate::facts::network::uplinks::Uplinks;
use crate::facts::node::get_node;
use crate::facts::ports::KnownPorts;
use crate::facts::rails::rails_file;
use crate::facts::watch::KnownObjects;
use crate::kernel::network::NetworkError;
use crate::kubelet::counted::Gpus;
use crate::kubelet::health::{self, DeviceHealth};
use crate::kubelet::run::{Shared, beside};
use crate::prepare::late::LateNics;
use crate::publish::publisher::{Published, Publisher};
use crate::setup;
use anyhow::Context as _;
use binding::NicBinding;
use cluster_model::names::DRIVER;
use kube::Client;
use node_files::boot;
use process::client::Server;
use publication::cloud::CloudMetadata;
use publication::decision::Decision;
use publication::history::History;
use publication::host_setup::{HostSetup, Machine, SetUp};
use publication::judge::{BindNics, Rules};
use publication::machine::{Facts, Usage};
use publication::netns_mode::NetnsMode;
use publication::network::NetworkFacts;
use publication::nic;
use publication::node::NodeIdentity;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use steady::{Operations, Surroundings};
use tokio::sync::Notify;
use tokio::sync::watch::Sender;
use topology_graph::{HostRoot, PciAddress, Snapshot, Topology};

/// Runs the program to its end.
pub async fn run(args: Args) -> anyhow::Result<()> {
    process::logging::init(&args.log)?;
    cluster_model::drivers::use_file(args.drivers.as_deref())?;
    for counted in &args.plugin.counted {
        counted
            .driver()
            .with_context(|| format!("--counted {}={}", counted.class, counted.resource))?;
    }
    let host = host_root(&args);
    // A root without sysfs is a wrong flag. Report it before contacting the cluster.
    host.check()?;
    let (client, server) = process::client::connect_to(&args.kube).await?;
    if args.cleanup || args.once {
        let node = get_node(&client, &args.node_name).await?;
        let uplinks = Uplinks::new(&host, args.nics.host_nics.clone());
        let shared = &Shared { uplinks, ..Shared::default() };
        let (args, host, client, server) = (&args, &host, &client, &server);
        return Start { args, host, client, server, shared, node }.once().await;
    }
    let uplinks = Uplinks::new(&host, args.nics.host_nics.clone());
    let shared = Shared { uplinks, loading: setup::LOADING, ..Shared::default() };
    let operations = Operations::start(&args, &shared)?;
    let readiness = operations.readiness.clone();
    // The order matters: the plugin's requirements are waited for before anything is published.
    let node = (&client, args.node_name.as_str());
    let plugin = beside(&args.plugin, node, &host, &shared, &readiness);
    let publication = publish_steadily(&args, &host, &client, (&server, &shared), operations);
    tokio::try_join!(plugin, publication)?;
    Ok(())
}

/// Publishes until told to stop. Waits first until the API server answers.
async fn publish_steadily(
    args: &Args,
    host: &HostRoot,
    client: &Client,
    (server, shared): (&Server, &Shared),
    mut operations: Operations,
) -> anyhow::Result<()> {
    let node = arrival::node(client, &args.node_name, &operations.stop).await?;
    if let Some(node) = node {
        let start = Start { args, host, client, server, shared, node };
        let (driver, surroundings) = start.driver().await?;
        Box::pin(steady::run(driver, surroundings, &mut operations, args)).await;
    }
    operations.end().await
}

/// Everything needed to start the driver.
struct Start<'a> {
    args: &'a Args,
    host: &'a HostRoot,
    client: &'a Client,
    server: &'a Server,
    shared: &'a Shared,
    node: NodeIdentity,
}

impl Start<'_> {
    /// Publishes once, or removes what was published.
    async fn once(self) -> anyhow::Result<()> {
        if self.args.cleanup {
            let removed = Publisher::new(self.client, self.node).remove().await?;
            tracing::info!(writes = removed.writes, "Removed");
            return Ok(());
        }
        let (mut driver, _) = self.driver().await?;
        let decision = driver.look().await?;
        driver.publish(&decision).await?;
        Ok(())
    }

    async fn driver(self) -> Result<(Driver, Surroundings), NetworkError> {
        let Self { args, host, client, server, shared, node } = self;
        let Shared { servers, uplinks, ports, health, late, gpus, .. } = shared.clone();
        let (kernel, changes) = open_kernel(host)?.unzip();
        let wake = Arc::new(Notify::new());
        let is_this_machine = kernel.is_some();
        let setup =
            setup::SetupStart { args, client, host, ports: &ports, is_this_machine, wake: &wake };
        let setup = setup::start(setup).await;
        servers.look(client, server).await;
        let kernel = kernel.map(|it| it.reaching(servers.clone()).remembering(uplinks));
        let source = CloudSource::new(args.cloud.provider(), args.imds_url.clone(), host);
        // With --once there is no later publication that could correct this one.
        let (cloud, cloud_answered) =
            if args.once { source.read().await } else { source.recall().await };
        let files = HistoryFiles::new(host, args.plugin.paths(DRIVER).map(|paths| paths.rails()));
        let driver = Driver {
            host: host.clone(),
            kernel,
            cloud,
            ports,
            device_health: health,
            gpus,
            history: files.load(),
            files,
            setup,
            claims: Claims::new(args.plugin.paths(DRIVER).map(|paths| paths.checkpoint())),
            binding: NicBinding::new(args, &node),
            late,
            kubelet_config: KubeletConfig::at(args.kubelet_config.clone()),
            settings: Settings::from(args),
            mode: args.mode,
            run_dir: args.plugin.run_dir.clone(),
            publisher: Publisher::new(client, node),
        };
        let following = servers.clone().follow(client.clone(), server.clone());
        let surroundings = Surroundings {
            wake,
            changes,
            client: client.clone(),
            cloud: source,
            cloud_answered,
            following: Box::pin(following),
        };
        Ok((driver, surroundings))
    }
}

impl From<&Args> for Settings {
    fn from(args: &Args) -> Self {
        Self {
            rules: Rules {
                sharing: args.sharing.clone(),
                taints: Some(args.taints),
                ..args.nics.rules()
            },
            locked_memory: (args.mode == Mode::Full).then_some(args.plugin.locked_memory),
        }
    }
}

fn host_root(args: &Args) -> HostRoot {
    let host = HostRoot::at(&args.root);
    match &args.nccl_topo_file {
        Some(path) => host.with_nccl_file(path),
        None => host,
    }
}

/// Opens the kernel's sockets if the root is the machine that this process runs on; a
/// recorded machine has no kernel to ask.
fn open_kernel(host: &HostRoot) -> Result<Option<(Kernel, Changes)>, NetworkError> {
    if boot::is_this_machine(host) {
        return Kernel::open().map(Some);
    }
    tracing::info!("The root is not this machine; continuing without network interfaces");
    Ok(None)
}

/// One node's driver.
#[derive(Debug)]
struct Driver {
    host: HostRoot,
    kernel: Option<Kernel>,
    cloud: CloudMetadata,
    ports: KnownPorts,
    /// Device health for the kubelet.
    device_health: Sender<Vec<DeviceHealth>>,
    /// The GPUs, for the kubelet.
    gpus: Sender<Gpus>,
    /// What the looks so far have left.
    history: History,
    /// Where these are kept.
    files: HistoryFiles,
    /// What prepares the host.
    setup: Option<Box<dyn HostSetup>>,
    claims: Claims,
    binding: NicBinding,
    /// The NICs that are bound late.
    late: LateNics,
    /// How the kubelet chooses the GPUs of device plugins.
    kubelet_config: KubeletConfig,
    settings: Settings,
    mode: Mode,
    /// The directory with the init container's report on modules.
    run_dir: PathBuf,
    publisher: Publisher,
}

/// What is read of the machine at each look.
#[derive(Debug)]
struct Reading {
    snapshot: Snapshot,
    /// The mode of its RDMA subsystem.
    namespaces: Option<NetnsMode>,
    /// Corrected errors of the NICs' PCIe links.
    link_errors: BTreeMap<PciAddress, u64>,
}

impl Driver {
    /// Reads the machine, decides what to publish, and keeps what follows for other parts and for the
    /// next look.
    async fn look(&mut self) -> anyhow::Result<Decision> {
        let look = self.read().await?;
        self.tell_health(&look);
        let outcome = look::decide(look, &self.settings, &self.history);
        self.count_gpus(&outcome.decision);
        Ok(self.keep(outcome))
    }

    /// Reads everything that the decision depends on.
    async fn read(&mut self) -> anyhow::Result<Look> {
        let Reading { snapshot, namespaces, link_errors } = self.machine().await?;
        let network = self.network().await?;
        let now = Instant::now();
        let held = self.claims.held();
        let setup = match &mut self.setup {
            Some(setup) => {
                let (snapshot, network, seen) = (&snapshot, &network, &self.history.seen);
                let (is_known, has_claims) = (&|device: &str| seen.has(device), !held.is_empty());
                setup.look(Machine { snapshot, network, is_known, has_claims, now }).await
            }
            None => SetUp::default(),
        };
        let (cloud, rails) = (self.cloud.clone(), rails_file(&self.run_dir));
        Ok(Look {
            machine: Facts { snapshot, network, cloud, rails },
            usage: Usage {
                held,
                not_ready: setup.not_ready.clone(),
                unresponsive: self.ports.unresponsive(),
                port_errors: self.ports.errors(),
                link_errors,
            },
            namespaces,
            kernel: KernelFacts::read(&self.host),
            given: self.claims.given(),
            bind_nics: self.binding.wanted(),
            topology_policy: self.kubelet_config.topology_policy(),
            setup,
            now: Instant::now(),
        })
    }

    /// Passes on and stores what was decided; returns what is to be published.
    fn keep(&mut self, outcome: Outcome) -> Decision {
        let Outcome { decision, history, binding } = outcome;
        for anomaly in &decision.anomalies {
            tracing::debug!(%anomaly, "Machine data is inconsistent");
        }
        if self.history.binding != history.binding {
            let Binding { now: nics, wanted: set_to } = binding;
            tracing::info!(?nics, ?set_to, "How NICs are bound");
        }
        self.files.store(&self.history, &history);
        self.history = history;
        match binding.now {
            BindNics::Late => self.late.set(decision.late.clone()),
            BindNics::Named => self.late.set_named(),
        }
        decision
    }

    /// Reads the machine on a separate thread, because that blocks.
    async fn machine(&self) -> anyhow::Result<Reading> {
        let (host, ports) = (self.host.clone(), self.ports.clone());
        tokio::task::spawn_blocking(move || {
            let snapshot = host::snapshot(&host, &ports)?;
            let namespaces = host::rdma_namespaces(&host);
            let link_errors = errors::of_links(&host.sys(), &snapshot);
            Ok(Reading { snapshot, namespaces, link_errors })
        })
        .await?
    }

    /// Reports the health of each NIC that the host has to the kubelet.
    fn tell_health(&self, look: &Look) {
        let nics = nic::nics(&look.machine.snapshot, &look.machine.network);
        let pool = &self.publisher.node().name;
        let list = health::device_health(&nics, &look.usage.unresponsive, pool, SystemTime::now());
        let places = look.given.iter().flat_map(|given| &given.places);
        self.device_health.send_replace(health::with_places(list, places));
    }

    /// Counts the GPUs for the kubelet, if it is to know them.
    fn count_gpus(&self, decision: &Decision) {
        if self.gpus.receiver_count() == 0 {
            return;
        }
        let Ok(topology) = Topology::from_spec(&decision.topology) else { return };
        let mut counts = BTreeMap::new();
        for gpu in topology.gpus() {
            *counts.entry(gpu.vendor).or_insert(0) += 1;
        }
        self.gpus.send_replace(Some(counts));
    }

    /// Reads the interfaces; a recorded machine has none, because its kernel cannot be asked.
    /// An error stops the decision: otherwise the node's own uplink would look like any NIC.
    async fn network(&self) -> Result<NetworkFacts, NetworkError> {
        match &self.kernel {
            Some(kernel) => kernel.read().await,
            None => Ok(NetworkFacts::default()),
        }
    }

    /// Whether the server already has this decision, as far as is known.
    fn is_published(&self, decision: &Decision, known: &KnownObjects) -> bool {
        let topologies = known.topologies.state();
        let slices: Vec<_> = known.slices.state().iter().map(|slice| (**slice).clone()).collect();
        let topology = topologies.first();
        topology.is_some_and(|there| {
            self.publisher.topology_says(there, &decision.topology, &decision.host)
        }) && (self.mode == Mode::Topology || self.publisher.slices_say(&slices, &decision.devices))
    }

    /// Records that the server has the result of the last look.
    fn said(&mut self) {
        if let Some(setup) = &mut self.setup {
            setup.published(Instant::now());
        }
    }

    /// Publishes the NICs first, because pods wait for them, then the topology. If one fails,
    /// the other is still published.
    async fn publish(&mut self, decision: &Decision) -> anyhow::Result<Published> {
        let slices = match self.mode {
            Mode::Full => self.publisher.slices(&decision.devices).await,
            Mode::Topology => Ok(Published::default()),
        };
        let topology = self.publisher.topology(&decision.topology, &decision.host).await;
        let slices = slices?;
        let writes = slices.writes + topology.as_ref().map_or(0, |published| published.writes);
        let (devices, anomalies) = (decision.devices.len(), decision.anomalies.len());
        if writes > 0 {
            tracing::info!(devices, writes, anomalies, "Published");
        } else {
            tracing::info!(devices, anomalies, "Nothing to write");
        }
        topology?;
        Ok(Published { writes })
    }
}

#[cfg(test)]
mod tests;
