//! Runs the driver: reads facts, decides, and publishes; once, or after each change until it
//! is told to stop.

mod arrival;
mod functions;
mod steady;
mod too_old;
mod vendor_driver;

use crate::args::{Args, Mode};
use crate::decide::decision::{Decision, Facts, NicExpressions, decide_with};
use crate::decide::filter::Filter;
use crate::decide::health::taint::TaintArgs;
use crate::decide::health::{Health, Problems};
use crate::decide::late::BindNics;
use crate::decide::modules;
use crate::decide::rails::KnownRails;
use crate::decide::sharing::SharingArgs;
use crate::decide::vendor_driver::VendorDriverDecision;
use crate::decide::withheld::WithheldReason;
use crate::facts::boot_file::BootFile;
use crate::facts::cloud::CloudMetadata;
use crate::facts::cloud::source::CloudSource;
use crate::facts::errors;
use crate::facts::held::Claims;
use crate::facts::host;
use crate::facts::modules::KernelFacts;
use crate::facts::network::NetworkFacts;
use crate::facts::network::changes::Changes;
use crate::facts::network::kernel::{Kernel, NetworkError};
use crate::facts::network::uplinks::Uplinks;
use crate::facts::node::NodeIdentity;
use crate::facts::ports::KnownPorts;
use crate::facts::rails::RailsFile;
use crate::facts::rdma::NetnsMode;
use crate::facts::seen::{SEEN, SEEN_VERSION, Seen};
use crate::facts::watch::Known;
use crate::kubelet;
use crate::kubelet::health::DeviceHealth;
use crate::kubelet::run::{Shared, beside};
use crate::prepare::durable;
use crate::prepare::inventory::Inventory;
use crate::prepare::late::LateNics;
use crate::publish::publisher::{Published, Publisher};
use cluster_model::names::DRIVER;
use functions::Functions;
use kube::Client;
use process::chain::Chain;
use process::client::Server;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use steady::{Operations, Surroundings};
use tokio::sync::Notify;
use tokio::sync::watch::Sender;
use topology_graph::{HostRoot, PciAddress, Snapshot};
use vendor_driver::VendorDriver;

/// Runs the program to its end.
pub async fn run(args: Args) -> anyhow::Result<()> {
    process::logging::init(&args.log)?;
    cluster_model::drivers::use_file(args.drivers.as_deref())?;
    let host = host_root(&args);
    // A root without sysfs is a wrong flag. Report it before contacting the cluster.
    host.check()?;
    let (client, server) = process::client::connect_to(&args.kube).await?;
    if args.cleanup || args.once {
        let node = NodeIdentity::get(&client, &args.node_name).await?;
        let uplinks = Uplinks::of(&host, args.host_nics.clone());
        let shared = &Shared { uplinks, ..Shared::default() };
        let (args, host, client, server) = (&args, &host, &client, &server);
        return Start { args, host, client, server, shared, node }.once().await;
    }
    let uplinks = Uplinks::of(&host, args.host_nics.clone());
    let shared = Shared { uplinks, ..Shared::default() };
    let operations = Operations::start(&args, &shared)?;
    let readiness = operations.readiness.clone();
    // The order matters: the plugin's requirements are waited for before anything is published.
    let plugin = beside(&args, &client, &host, &shared, &readiness);
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
        let Shared { servers, uplinks, ports, health, late, .. } = shared.clone();
        let (kernel, changes) = open_kernel(host)?.unzip();
        let wake = Arc::new(Notify::new());
        // Of a recorded machine it is unknown which interfaces the host needs.
        let functions = kernel.as_ref().and_then(|_| Functions::of(args, client, &ports, &wake));
        let vendor =
            VendorDriver::start(&args.vendor_driver, (client, &node.name), host, &wake).await;
        servers.look(client, server).await;
        let kernel = kernel.map(|it| it.reaching(servers.clone()).remembering(uplinks));
        let source = CloudSource::new(args, host);
        // With --once there is no later publication that could correct this one.
        let (cloud, cloud_answered) =
            if args.once { source.read().await } else { source.recall().await };
        let driver = Driver {
            host: host.clone(),
            kernel,
            cloud,
            ports,
            device_health: health,
            health: Health::default(),
            problems: Problems::default(),
            pcie_errors: BTreeMap::new(),
            memory: Memory::of(host, args.plugin.paths(DRIVER).map(|paths| paths.rails())),
            functions,
            vendor,
            claims: Claims::of(args.plugin.paths(DRIVER).map(|paths| paths.checkpoint())),
            late,
            settings: Settings::from(args),
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
    if host::is_this_machine(host) {
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
    health: Health,
    /// The problems at the last look.
    problems: Problems,
    /// Corrected errors of the NICs' PCIe links at the last look.
    pcie_errors: BTreeMap<PciAddress, u64>,
    memory: Memory,
    /// Virtual functions, if there are policies for them.
    functions: Option<Functions>,
    /// A vendor's driver of the NICs, where the operator has said that a container loads one.
    vendor: Option<VendorDriver>,
    claims: Claims,
    /// The NICs that are bound late.
    late: LateNics,
    settings: Settings,
    publisher: Publisher,
}

/// NICs as they were before pods got them, which survives restarts of the driver, and the NICs that
/// the machine has had, which survives reboots.
#[derive(Debug, Default)]
struct Memory {
    seen: Seen,
    file: Option<BootFile<Seen>>,
    rails: KnownRails,
    rails_file: Option<PathBuf>,
}

impl Memory {
    fn of(host: &HostRoot, rails_file: Option<PathBuf>) -> Self {
        let file = BootFile::of(host, SEEN, SEEN_VERSION);
        let seen = file.as_ref().and_then(BootFile::load).unwrap_or_default();
        let rails = rails_file.as_ref().and_then(|file| fs::read(file).ok());
        // An unreadable file is the same as none: the NICs are counted as they are.
        let rails = rails.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { seen, file, rails, rails_file }
    }

    /// Replaces the NICs that rails are counted over, and stores them if they changed.
    fn set_rails(&mut self, rails: &KnownRails) {
        if *rails == self.rails {
            return;
        }
        self.rails.clone_from(rails);
        let Some(file) = &self.rails_file else { return };
        let stored = file.parent().map_or(Ok(()), durable::create_dir);
        if let Err(error) = stored.and_then(|()| durable::write_json(file, rails)) {
            tracing::warn!(error = %Chain(&error), "Rails not saved for a reboot");
        }
    }

    /// Replaces the value and stores it if it changed.
    fn set(&mut self, seen: Seen) {
        if seen == self.seen {
            return;
        }
        self.seen = seen;
        if let Some(Err(error)) = self.file.as_ref().map(|file| file.store(&self.seen)) {
            let error = Chain(&error);
            tracing::warn!(%error, "State of NICs not saved for a restart");
        }
    }
}

/// What is read of the machine at each look.
#[derive(Debug)]
struct Machine {
    snapshot: Snapshot,
    /// The mode of its RDMA subsystem.
    namespaces: Option<NetnsMode>,
    /// Corrected errors of the NICs' PCIe links.
    pcie_errors: BTreeMap<PciAddress, u64>,
}

/// The administrator's settings.
#[derive(Clone, Debug)]
struct Settings {
    mode: Mode,
    filter: Filter,
    nic_role: Filter,
    nic_rail: Filter,
    sharing: SharingArgs,
    bind_nics: BindNics,
    taints: TaintArgs,
    /// Whether containers with RDMA devices may lock all of their memory.
    locked_memory: bool,
    /// The directory with the init container's report on modules.
    run_dir: PathBuf,
}

impl From<&Args> for Settings {
    fn from(args: &Args) -> Self {
        Self {
            mode: args.mode,
            filter: args.filter.clone(),
            nic_role: args.nic_role.clone(),
            nic_rail: args.nic_rail.clone(),
            sharing: args.sharing.clone(),
            bind_nics: args.bind_nics,
            taints: args.taints,
            locked_memory: args.plugin.locked_memory,
            run_dir: args.plugin.run_dir.clone(),
        }
    }
}

impl Driver {
    /// Reads the machine and decides what to publish.
    async fn look(&mut self) -> anyhow::Result<Decision> {
        let Machine { snapshot, namespaces, pcie_errors } = self.machine().await?;
        self.pcie_errors = pcie_errors;
        let network = self.network().await?;
        let withheld = match &mut self.functions {
            Some(functions) => {
                functions.look(&snapshot, &network, &self.memory.seen, Instant::now()).await
            }
            None => BTreeSet::new(),
        };
        Ok(self.decide(snapshot, network, namespaces, &withheld))
    }

    /// Reads the machine on a separate thread, because that blocks.
    async fn machine(&self) -> anyhow::Result<Machine> {
        let (host, ports) = (self.host.clone(), self.ports.clone());
        tokio::task::spawn_blocking(move || {
            let snapshot = host::snapshot(&host, &ports)?;
            let namespaces = host::rdma_namespaces(&host);
            let pcie_errors = errors::of_links(&host.sys(), &snapshot);
            Ok(Machine { snapshot, namespaces, pcie_errors })
        })
        .await?
    }

    /// Decides what to publish. `withheld` are the devices that are not ready.
    fn decide(
        &mut self,
        snapshot: Snapshot,
        network: NetworkFacts,
        namespaces: Option<NetnsMode>,
        withheld: &BTreeSet<String>,
    ) -> Decision {
        let unresponsive = self.ports.unresponsive();
        self.tell_health(&snapshot, &unresponsive);
        let cloud = self.cloud.clone();
        let Settings { nic_role, nic_rail, run_dir, .. } = &self.settings;
        let mut facts = Facts { snapshot, network, cloud, rails: RailsFile::read(run_dir) };
        let held = self.claims.held();
        self.memory.seen.complete(&mut facts, &held);
        let expressions = NicExpressions { role: nic_role, rail: nic_rail };
        let decision = decide_with(&facts, expressions, &self.memory.rails)
            .without(withheld, &WithheldReason::NotReady)
            .with_rdma_namespaces(namespaces, &facts.snapshot);
        self.memory.set_rails(&decision.rails);
        for anomaly in &decision.anomalies {
            tracing::debug!(%anomaly, "Machine data is inconsistent");
        }
        let gone = self.memory.seen.gone(&facts.snapshot, &held);
        let mut seen = self.memory.seen.clone();
        seen.remember(&decision.devices, &facts, &held);
        self.memory.set(seen);
        let Settings { mode, filter, sharing, run_dir, locked_memory, .. } = &self.settings;
        let locked_memory = (*mode == Mode::Full).then_some(*locked_memory);
        let decision = decision.with_unresponsive(&unresponsive, &facts.snapshot).with_errors(
            &self.ports.errors(),
            &self.pcie_errors,
            &facts.snapshot,
        );
        let wanted = decision.with_gone(gone).filtered(filter);
        let wanted = wanted
            .with_something_to_give(&facts.snapshot, &held)
            .one_function_per_port(&facts.snapshot, &held)
            .shared(sharing);
        let host = modules::conditions(&KernelFacts::read(&self.host, run_dir));
        let wanted = wanted.with_host(host).with_locked_memory(locked_memory);
        let wanted = self.judge(wanted, Instant::now());
        let wanted = self.heed_vendor_driver(wanted, &facts.snapshot, !held.is_empty());
        self.bind(wanted.with_nic_conditions(&self.problems))
    }

    /// Publishes places instead of NICs where these are bound late, and tells preparation the NICs.
    fn bind(&self, decision: Decision) -> Decision {
        if self.settings.bind_nics == BindNics::Named {
            return decision;
        }
        let taken = self.claims.held().into_keys().collect();
        let (decision, nics) = decision.bound_late(&self.claims.places(), &taken);
        self.late.set(nics);
        decision
    }

    /// Withholds NICs whose driver is being loaded, and has pods evicted that it waits for.
    fn heed_vendor_driver(
        &mut self,
        mut decision: Decision,
        snapshot: &Snapshot,
        has_claims: bool,
    ) -> Decision {
        let Some(vendor) = &mut self.vendor else { return decision };
        let VendorDriverDecision { withholds, evicts, condition, .. } = vendor.look(has_claims);
        let devices = vendor.devices(snapshot);
        decision.host.extend(condition);
        if withholds {
            decision = decision.without(&devices, &WithheldReason::VendorDriver);
        }
        if evicts {
            decision = decision.evicting(&devices);
        }
        decision
    }

    /// Reports each device's health to the kubelet.
    fn tell_health(&self, snapshot: &Snapshot, unresponsive: &BTreeSet<String>) {
        let inventory = Inventory::with(snapshot, &self.host);
        let pool = &self.publisher.node().name;
        let list = kubelet::health::of(&inventory, unresponsive, pool, SystemTime::now());
        let list = kubelet::health::with_places(list, &self.claims.places());
        self.device_health.send_replace(list);
    }

    /// Determines the NICs' problems and taints the NICs accordingly.
    fn judge(&mut self, decision: Decision, now: Instant) -> Decision {
        self.health.observe(&decision.vitals, now);
        self.problems = self.health.problems(now);
        decision.tainted(&self.problems, self.settings.taints)
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
    fn is_published(&self, decision: &Decision, known: &Known) -> bool {
        let topologies = known.topologies.state();
        let slices: Vec<_> = known.slices.state().iter().map(|slice| (**slice).clone()).collect();
        let topology = topologies.first();
        topology.is_some_and(|there| {
            self.publisher.topology_says(there, &decision.topology, &decision.host)
        }) && (self.settings.mode == Mode::Topology
            || self.publisher.slices_say(&slices, &decision.devices))
    }

    /// Records that the server has the result of the last look.
    fn said(&mut self) {
        if let Some(functions) = &mut self.functions {
            functions.published(Instant::now());
        }
    }

    /// Publishes the NICs first, because pods wait for them, then the topology. If one fails,
    /// the other is still published.
    async fn publish(&mut self, decision: &Decision) -> anyhow::Result<Published> {
        let slices = match self.settings.mode {
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
