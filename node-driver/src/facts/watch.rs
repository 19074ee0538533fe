//! Everything that makes the driver read the machine again: changes of the machine and of
//! the API server's objects. Each source is a task that wakes the main loop; many changes
//! at once wake it once.

use crate::facts::boot_file::BootFile;
use crate::facts::held::Claims;
use crate::facts::network::kernel::Changes;
use crate::facts::ports::{self, Ports};
use crate::facts::rdma::monitor::Monitor;
use crate::facts::uevents::Uevents;
use crate::vendor_driver::state::VendorDriverState;
use cluster_model::names::DRIVER;
use futures::StreamExt;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use process::chain::Chain;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::mem;
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use topology_graph::NodeTopology;

/// This node's objects on the server, as last received.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) slices: Store<ResourceSlice>,
    pub(crate) topologies: Store<NodeTopology>,
}

/// Watches this node's objects once the token is cancelled. A watch occupies its
/// connection, and the first publication should find a free one.
pub(crate) fn objects(
    tasks: &mut JoinSet<()>,
    client: &Client,
    node: &str,
    wake: &Arc<Notify>,
    begin: &CancellationToken,
) -> Known {
    let of_node = format!("spec.driver={DRIVER},spec.nodeName={node}");
    let named = format!("metadata.name={node}");
    Known {
        slices: watch(tasks, Api::all(client.clone()), &of_node, wake, begin),
        topologies: watch(tasks, Api::all(client.clone()), &named, wake, begin),
    }
}

fn watch<K>(
    tasks: &mut JoinSet<()>,
    api: Api<K>,
    fields: &str,
    wake: &Arc<Notify>,
    begin: &CancellationToken,
) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let config = watcher::Config::default().fields(fields);
    let events = watcher(api, config).default_backoff().reflect(writer);
    let (wake, begin) = (Arc::clone(wake), begin.clone());
    let events = events.for_each(move |event| {
        match event {
            // A list ends with `InitDone`; its objects arrive one by one before it.
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
            Ok(_) => wake.notify_one(),
            Err(error) => tracing::debug!(error = %Chain(&error), "Watch interrupted"),
        }
        futures::future::ready(())
    });
    tasks.spawn(async move {
        begin.cancelled().await;
        events.await;
    });
    store
}

/// Starts listening to this machine's kernel.
pub(crate) fn kernel(tasks: &mut JoinSet<()>, changes: Changes, wake: &Arc<Notify>) {
    interfaces(tasks, changes, wake);
    devices(tasks, wake);
    rdma_devices(tasks, wake);
}

fn interfaces(tasks: &mut JoinSet<()>, mut changes: Changes, wake: &Arc<Notify>) {
    let waker = Arc::clone(wake);
    tasks.spawn(async move {
        while changes.next().await {
            changes.forget();
            waker.notify_one();
        }
        tracing::error!("Netlink socket ended; changes are found only by periodic reads");
    });
}

fn devices(tasks: &mut JoinSet<()>, wake: &Arc<Notify>) {
    let waker = Arc::clone(wake);
    tasks.spawn(async move {
        let error = match Uevents::open() {
            Ok(mut uevents) => loop {
                match uevents.next().await {
                    Ok(subsystem) => {
                        tracing::debug!(subsystem, "Device event");
                        waker.notify_one();
                    }
                    Err(error) => break error,
                }
            },
            Err(error) => error,
        };
        tracing::warn!(%error, "No device events; changes are found only by periodic reads");
    });
}

/// Listens for port interface changes, which cause no uevent. Changes of the devices
/// themselves also arrive as uevents, on every kernel.
fn rdma_devices(tasks: &mut JoinSet<()>, wake: &Arc<Notify>) {
    let waker = Arc::clone(wake);
    tasks.spawn(async move {
        let error = match Monitor::open() {
            Ok(Some(mut monitor)) => loop {
                match monitor.next().await {
                    Ok(()) => {
                        tracing::debug!("RDMA notification");
                        waker.notify_one();
                    }
                    Err(error) => break error,
                }
            },
            Ok(None) => {
                tracing::debug!("The kernel sends no RDMA notifications; using device events");
                return;
            }
            Err(error) => error,
        };
        tracing::warn!(%error, "No RDMA notifications; only device events report changes");
    });
}

/// Starts polling facts without change events: the ports of RDMA devices, which devices pods
/// have, and how far a vendor's driver is.
pub(crate) fn polled(
    tasks: &mut JoinSet<()>,
    mut ports: Ports,
    claims: Claims,
    vendor_driver: Option<BootFile<VendorDriverState>>,
    wake: &Arc<Notify>,
) {
    let stamps = move || (claims.stamp(), vendor_driver.as_ref().and_then(BootFile::stamp));
    let (mut last, wake) = (stamps(), Arc::clone(wake));
    tasks.spawn(async move {
        let mut tick = tokio::time::interval(ports::PERIOD);
        loop {
            tick.tick().await;
            let before = mem::replace(&mut last, stamps());
            if ports.changed().await || last != before {
                wake.notify_one();
            }
        }
    });
}
