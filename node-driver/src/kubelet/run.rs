//! Runs the plugin beside the publication of devices, in one process.

use crate::claims::preparer::Preparer;
use crate::facts::network::server::ApiServers;
use crate::facts::network::uplinks::Uplinks;
use crate::facts::ports::KnownPorts;
use crate::kernel::attach::dhcp::keeper::Keepers;
use crate::kernel::attach::namespaces::Namespaces;
use crate::kernel::attach::node_network::KernelNetwork;
use crate::kubelet::args::PluginArgs;
use crate::kubelet::counted::Gpus;
use crate::kubelet::health::DeviceHealth;
use crate::kubelet::{Awaited, Plugin, capabilities};
use crate::prepare::Abandoned;
use crate::prepare::cdi;
use crate::prepare::effects::Effects;
use crate::prepare::late::LateNics;
use crate::prepare::local::{Ended, LoadingDriver, LocalPreparer};
use crate::prepare::metrics::PluginMetrics;
use crate::prepare::notices::Notices;
use anyhow::Context;
use cluster_model::names::DRIVER;
use kube::Client;
use node_files::paths::Paths;
use serve::readiness::Readiness;
use std::sync::Arc;
use tokio::sync::watch::Sender;
use topology_graph::HostRoot;

/// State that the plugin and the publication share.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// Metrics of the plugin.
    pub metrics: PluginMetrics,
    /// The API servers, whose route must stay with the host.
    pub servers: ApiServers,
    /// Interfaces that were uplinks in this boot, and the operator's choice.
    pub uplinks: Uplinks,
    /// The ports of RDMA devices that do not answer.
    pub ports: KnownPorts,
    /// The devices' health, as publication observes it.
    pub health: Sender<Vec<DeviceHealth>>,
    /// Whether a vendor's driver is being loaded.
    pub loading: LoadingDriver,
    /// The NICs that are bound late, as publication sees them.
    pub late: LateNics,
    /// The GPUs of the machine.
    pub gpus: Sender<Gpus>,
}

/// Serves the kubelet until a signal; does nothing if no kubelet is configured.
pub async fn beside(
    args: &PluginArgs,
    (client, name): (&Client, &str),
    host: &HostRoot,
    shared: &Shared,
    readiness: &Readiness,
) -> anyhow::Result<()> {
    let Some(paths) = args.paths(DRIVER) else { return Ok(()) };
    let nri = args.nri();
    let awaited = Awaited::new(readiness, nri.is_some());
    capabilities::check().context("failed to read this process's capabilities")?;
    let stop = process::run::stop_on_signal()?;
    let node = Arc::new(node(args, host.clone(), paths.clone(), shared));
    let health = shared.health.subscribe();
    let preparer = Preparer::new(client.clone(), name, Arc::clone(&node));
    let instance = args.instance.clone();
    let counts = args.counted.iter().map(|counted| (counted.clone(), shared.gpus.subscribe()));
    let counts = counts.collect();
    Plugin { paths, instance, nri, node, preparer, health, counts, awaited }.serve(stop).await?;
    Ok(())
}

/// Builds the machine's part of preparation from the flags.
fn node(args: &PluginArgs, host: HostRoot, paths: Paths, shared: &Shared) -> LocalPreparer {
    let environment = cdi::Environment {
        nccl_ib_hca: args.nccl_ib_hca,
        ucx_net_devices: args.ucx_net_devices,
        vllm_nic_mapping: args.vllm_nic_mapping,
        nvshmem_nic_mapping: args.nvshmem_nic_mapping,
        nccl_topo_file: args.container_nccl_topo_file,
        devices_file: args.devices_file,
        device_metadata: args.device_metadata,
    };
    let faults = args.faults();
    let namespaces = Arc::new(Namespaces::new(&paths.netns));
    let (runtime_root, attach) = (args.runtime_root.clone(), args.attach);
    let locked_memory = args.locked_memory;
    let settings = cdi::SpecSettings { runtime_root, attach, environment, locked_memory };
    let leases = Keepers::default();
    let notices = Notices::default();
    let network = Box::new(KernelNetwork);
    let effects = Effects { paths, settings, network, namespaces, leases, notices, faults };
    let Shared { metrics, servers, uplinks, ports, loading, late, .. } = shared.clone();
    let network_namespaces = args.network_namespaces.clone();
    let (policy, ended, abandoned) = (args.policy, Ended::default(), Abandoned::default());
    LocalPreparer {
        host,
        ports,
        servers,
        uplinks,
        loading,
        policy,
        network_namespaces,
        effects,
        metrics,
        ended,
        abandoned,
        late,
    }
}
