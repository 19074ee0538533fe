//! Everything upon which the driver looks again: changes of the machine, and of
//! what the API server has. Each source is a task that wakes one sleeper; many
//! changes at once are one wake.

use crate::facts::held::Claims;
use crate::facts::network::kernel::Changes;
use crate::facts::ports::{self, Ports};
use crate::facts::rdma::monitor::Monitor;
use crate::facts::uevents::Uevents;
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

/// What this node's objects are on the server, as last heard.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) slices: Store<ResourceSlice>,
    pub(crate) topologies: Store<NodeTopology>,
}

/// Watches this node's objects, from when the token is cancelled: a watch keeps
/// its connection, and the first publication should find one that is free.
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
            // A list is over with `InitDone`; its objects come one by one before.
            Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
            Ok(_) => wake.notify_one(),
            Err(error) => tracing::debug!(error = %Chain(&error), "Watch broke off"),
        }
        futures::future::ready(())
    });
    tasks.spawn(async move {
        begin.cancelled().await;
        events.await;
    });
    store
}

/// Starts to listen to the kernel of this machine.
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

/// The interface of a port can change without an event of any device; of the
/// devices themselves uevents tell as well, on every kernel.
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
                tracing::debug!("The kernel notifies of no RDMA devices; device events tell");
                return;
            }
            Err(error) => error,
        };
        tracing::warn!(%error, "No RDMA notifications; only device events report changes");
    });
}

/// Starts to look at what nobody tells of: the ports of RDMA devices, and which
/// devices pods have.
pub(crate) fn polled(
    tasks: &mut JoinSet<()>,
    mut ports: Ports,
    claims: Claims,
    wake: &Arc<Notify>,
) {
    let (mut stamp, wake) = (claims.stamp(), Arc::clone(wake));
    tasks.spawn(async move {
        let mut tick = tokio::time::interval(ports::PERIOD);
        loop {
            tick.tick().await;
            let before = mem::replace(&mut stamp, claims.stamp());
            if ports.changed().await || stamp != before {
                wake.notify_one();
            }
        }
    });
}
