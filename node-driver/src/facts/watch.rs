//! Everything that makes the driver read the machine again: changes of the machine and of
//! the API server's objects. Each source is a task that wakes the main loop; many changes
//! at once wake it once.

use crate::facts::held::Claims;
use crate::facts::network::changes::Changes;
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
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use topology_graph::NodeTopology;

/// This node's objects on the server, as last received.
#[derive(Clone, Debug)]
pub(crate) struct KnownObjects {
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
) -> KnownObjects {
    let of_node = format!("spec.driver={DRIVER},spec.nodeName={node}");
    let named = format!("metadata.name={node}");
    KnownObjects {
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

/// How long a listener rests after an event. Changes come in bursts, and the machine is read
/// once for all of them.
const REST: Duration = Duration::from_millis(20);

/// How long a listener waits before it opens its socket again.
const REOPENED_AFTER: Duration = Duration::from_secs(5);

/// A socket on which the kernel announces changes.
trait Listener: Sized + Send + 'static {
    /// What it announces.
    const EVENTS: &'static str;

    /// Opens the socket; `None` if this kernel never announces anything on it.
    fn open() -> io::Result<Option<Self>>;

    /// Waits for an announcement.
    fn next(&mut self) -> impl Future<Output = io::Result<()>> + Send;

    /// Discards pending announcements.
    fn forget(&mut self) {}
}

impl Listener for Changes {
    const EVENTS: &'static str = "interface changes";

    fn open() -> io::Result<Option<Self>> {
        Self::open().map(Some)
    }

    async fn next(&mut self) -> io::Result<()> {
        self.next().await
    }

    fn forget(&mut self) {
        self.forget();
    }
}

impl Listener for Uevents {
    const EVENTS: &'static str = "device events";

    fn open() -> io::Result<Option<Self>> {
        Self::open().map(Some)
    }

    async fn next(&mut self) -> io::Result<()> {
        let subsystem = self.next().await?;
        tracing::debug!(subsystem, "Device event");
        Ok(())
    }
}

/// Port interface changes cause no uevent. Changes of the devices themselves also arrive as
/// uevents, on every kernel.
impl Listener for Monitor {
    const EVENTS: &'static str = "RDMA notifications";

    fn open() -> io::Result<Option<Self>> {
        Self::open()
    }

    async fn next(&mut self) -> io::Result<()> {
        self.next().await?;
        tracing::debug!("RDMA notification");
        Ok(())
    }
}

/// Starts listening to this machine's kernel.
pub(crate) fn kernel(tasks: &mut JoinSet<()>, changes: Changes, wake: &Arc<Notify>) {
    tasks.spawn(listen(Ok(Some(changes)), Arc::clone(wake)));
    tasks.spawn(listen(<Uevents as Listener>::open(), Arc::clone(wake)));
    tasks.spawn(listen(<Monitor as Listener>::open(), Arc::clone(wake)));
}

/// Wakes the main loop at every announcement. A socket that fails is opened again.
async fn listen<L: Listener>(mut opened: io::Result<Option<L>>, wake: Arc<Notify>) {
    loop {
        let error = match opened {
            Ok(Some(listener)) => announce(listener, &wake).await,
            Ok(None) => {
                tracing::debug!(events = L::EVENTS, "The kernel does not send these");
                return;
            }
            Err(error) => error,
        };
        tracing::warn!(events = L::EVENTS, %error, "Events lost; listening again");
        sleep(REOPENED_AFTER).await;
        opened = L::open();
        // Whatever changed in between was not announced.
        wake.notify_one();
    }
}

async fn announce<L: Listener>(mut listener: L, wake: &Notify) -> io::Error {
    loop {
        if let Err(error) = listener.next().await {
            return error;
        }
        wake.notify_one();
        sleep(REST).await;
        listener.forget();
    }
}

/// Starts polling facts without change events: the ports of RDMA devices, which devices pods
/// have, and what prepares the host.
pub(crate) fn polled(
    tasks: &mut JoinSet<()>,
    mut ports: Ports,
    claims: Claims,
    setup: Option<Box<dyn Fn() -> Option<SystemTime> + Send>>,
    wake: &Arc<Notify>,
) {
    let stamps = move || (claims.stamp(), setup.as_ref().and_then(|stamp| stamp()));
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
