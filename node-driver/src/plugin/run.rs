//! The plugin beside the publication of devices, in one process.

use crate::args::Args;
use crate::attach::dhcp::keeper::Keepers;
use crate::attach::namespaces::Namespaces;
use crate::cdi;
use crate::network::server::ApiServers;
use crate::plugin::args::PluginArgs;
use crate::plugin::health::{self, DeviceHealth};
use crate::plugin::metrics::PluginMetrics;
use crate::plugin::{Awaited, Plugin, capabilities};
use crate::prepare::effects::{Effects, Faults};
use crate::prepare::inventory::Inventory;
use crate::prepare::lacking::Lacking;
use crate::prepare::node::Node;
use crate::prepare::paths::Paths;
use crate::prepare::preparer::Preparer;
use anyhow::Context;
use cluster_model::names::DRIVER;
use kube::Client;
use process::chain::Chain;
use process::memory;
use serve::readiness::Readiness;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use topology_graph::HostRoot;

/// How often the devices' health is looked at.
const HEALTH_PERIOD: Duration = Duration::from_secs(5);

/// Serves the kubelet until a signal; nothing where no kubelet is named.
pub async fn beside(
    args: &Args,
    client: &Client,
    host: &HostRoot,
    servers: &ApiServers,
    metrics: &PluginMetrics,
    readiness: &Readiness,
) -> anyhow::Result<()> {
    let Some(paths) = args.plugin.paths(DRIVER) else { return Ok(()) };
    let nri = args.plugin.nri();
    let awaited = Awaited::new(readiness, nri.is_some());
    capabilities::check().context("failed to read this process's capabilities")?;
    let stop = process::run::stop_on_signal()?;
    let mut node = node(&args.plugin, host.clone(), paths.clone(), metrics.clone());
    node.servers = servers.clone();
    let node = Arc::new(node);
    let preparer = Preparer::new(client.clone(), &args.node_name, Arc::clone(&node));
    let (sender, health) = watch::channel(Vec::new());
    let watching = watch_health(host.clone(), args.node_name.clone(), sender, stop.clone());
    let watching = tokio::spawn(watching);
    let instance = args.plugin.instance.clone();
    Plugin { paths, instance, nri, node, preparer, health, awaited }.serve(stop).await?;
    watching.await?;
    Ok(())
}

async fn watch_health(
    host: HostRoot,
    pool: String,
    sender: watch::Sender<Vec<DeviceHealth>>,
    stop: CancellationToken,
) {
    let mut tick = tokio::time::interval(HEALTH_PERIOD);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        let host = host.clone();
        let read = tokio::task::spawn_blocking(move || Inventory::read(&host)).await;
        match read {
            Ok(Ok(inventory)) => {
                let list = health::of(&inventory, &pool, SystemTime::now());
                sender.send_if_modified(|old| {
                    let changed = !health::is_same(old, &list);
                    if changed {
                        *old = list;
                    }
                    changed
                });
            }
            Ok(Err(error)) => tracing::warn!(error = %Chain(&error), "Health not known"),
            Err(error) => tracing::warn!(%error, "Health not known"),
        }
        memory::give_back();
    }
}

/// The machine's side, as the flags say.
fn node(args: &PluginArgs, host: HostRoot, paths: Paths, metrics: PluginMetrics) -> Node {
    let environment = cdi::Environment {
        nccl_ib_hca: args.nccl_ib_hca,
        ucx_net_devices: args.ucx_net_devices,
        nccl_topo_file: args.container_nccl_topo_file,
        devices_file: args.devices_file,
        device_metadata: args.device_metadata,
    };
    #[cfg(feature = "faults")]
    let faults = Faults::kill_at(args.kill_at.clone());
    #[cfg(not(feature = "faults"))]
    let faults = Faults::default();
    let namespaces = Arc::new(Namespaces::new(&paths.netns));
    let (runtime_root, attach) = (args.runtime_root.clone(), args.attach);
    let settings = cdi::Settings { runtime_root, attach, environment };
    let leases = Keepers::default();
    let lacking = Lacking::default();
    let effects = Effects { paths, settings, namespaces, leases, lacking, faults };
    Node { host, servers: ApiServers::default(), policy: args.policy, effects, metrics }
}
