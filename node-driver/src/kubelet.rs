//! The kubelet plugin: registration, the DRA services and the health streams, by gRPC
//! over Unix sockets.
//!
//! Follows `k8s.io/dynamic-resource-allocation/kubeletplugin` where the kubelet depends
//! on it: the service is up before the registration socket appears, both sockets appear
//! by rename, and an instance with its own suffix runs beside the one that it replaces.

pub mod args;
mod authority;
mod capabilities;
pub mod counted;
mod dra;
pub mod health;
mod hooks;
mod leases;
mod notices;
mod registration;
pub mod run;
pub(crate) mod socket;
mod upkeep;
pub mod wire;

use crate::claims::preparer::Preparer;
use crate::kubelet::counted::{CountService, Gpus};
use crate::kubelet::dra::DraService;
use crate::kubelet::health::{HealthService, Watched};
use crate::kubelet::registration::RegistrationService;
use crate::kubelet::socket::{PublishedSocket, Socket, name, remove_dead};
use crate::kubelet::wire::device_plugin_v1beta1::device_plugin_server::DevicePluginServer;
use crate::kubelet::wire::{dra_v1, health_v1, health_v1alpha1, registration_v1};
use crate::prepare::error::PrepareError;
use crate::prepare::local::LocalPreparer;
use crate::runtime::nri;
use cluster_model::counted::Counted;
use node_files::paths::Paths;
use process::chain::Chain;
use serve::readiness::{Readiness, Wait};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

pub use capabilities::{NEEDED, Needed};
pub use registration::Registered;
pub use socket::SocketError;

/// Services that the kubelet may use, newest first: it takes the first one of each kind
/// that it knows.
pub const SUPPORTED_VERSIONS: [&str; 3] =
    ["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

/// The plugin cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    /// A socket failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A gRPC server ended.
    #[error("failed to serve the kubelet")]
    Serve(#[from] tonic::transport::Error),
    /// The state of an earlier run could not be read, or the hook not be installed.
    #[error("failed to continue what an earlier run left")]
    Begin(#[from] PrepareError),
    /// The kubelet refused the plugin.
    #[error("the kubelet refused the registration: {0}")]
    Refused(String),
    /// A task panicked.
    #[error("a task of the plugin panicked")]
    Task(#[from] tokio::task::JoinError),
}

/// The plugin and what it serves.
#[derive(Debug)]
pub struct Plugin {
    /// The plugin's files and sockets.
    pub paths: Paths,
    /// The UID of the driver's pod, which distinguishes this instance's sockets.
    pub instance: Option<String>,
    /// The container runtime's NRI socket, if interfaces are attached by NRI.
    pub nri: Option<PathBuf>,
    /// The machine's part of preparation.
    pub node: Arc<LocalPreparer>,
    /// Prepares and unprepares claims.
    pub preparer: Preparer,
    /// The devices' health.
    pub health: Watched,
    /// The resources that count GPUs, and the GPUs.
    pub counts: Vec<(Counted, watch::Receiver<Gpus>)>,
    /// Registrations that readiness waits for.
    pub awaited: Awaited,
}

/// The registrations that are required to serve pods.
#[derive(Debug)]
pub struct Awaited {
    readiness: Readiness,
    kubelet: Wait,
    runtime: Option<Wait>,
}

impl Awaited {
    /// Makes readiness wait for the kubelet and, with NRI, for the container runtime.
    pub fn new(readiness: &Readiness, with_nri: bool) -> Self {
        Self {
            readiness: readiness.clone(),
            kubelet: readiness.wait_for("the registration with the kubelet"),
            runtime: with_nri.then(|| readiness.wait_for(nri::REGISTRATION)),
        }
    }
}

impl Plugin {
    /// Repairs what an earlier run left, then serves until told to stop.
    pub async fn serve(self, stop: CancellationToken) -> Result<(), PluginError> {
        let Self { paths, instance, nri, node, preparer, health, counts, awaited } = self;
        let Awaited { readiness, kubelet, runtime } = awaited;
        let repairing = Arc::clone(&node);
        remove_dead_sockets(&paths);
        tokio::task::spawn_blocking(move || upkeep::repair(&repairing)).await??;
        remember_interfaces(&node);
        let suffix = instance.as_deref();
        let endpoint = Socket::bind(&paths.plugin(), &name("dra", suffix))?;
        let registration = Socket::bind(&paths.registry(), &registry_name(&paths, suffix))?;
        let hooks = Socket::bind(&paths.run, "namespaces.sock")?;
        let hooked = preparer.clone();
        let registered = Registered::default();
        let info = registration::info(&paths.driver, endpoint.path());
        let registrar = RegistrationService::new(info, registered.clone());

        let mut tasks: JoinSet<Result<(), PluginError>> = JoinSet::new();
        // From now on, messages of hooks are handled; earlier ones are in the records.
        let hooks = hooks.publish()?;
        let recorded = Arc::clone(&node);
        tokio::task::spawn_blocking(move || recorded.take_over()).await??;
        // The kubelet dials the service as soon as it has seen the registration.
        let service = endpoint.publish()?;
        tasks.spawn(serve_dra(service, preparer, health, stop.clone()));
        if let Some(socket) = nri {
            let (node, preparer) = (Arc::clone(&node), hooked.clone());
            let state = nri::Registered::new(readiness, runtime);
            let served = nri::serve(socket, node, preparer, state, stop.clone());
            tasks.spawn(async {
                served.await;
                Ok(())
            });
        }
        let told = leases::serve(Arc::clone(&node), hooked.clone(), stop.clone());
        tasks.spawn(async {
            told.await;
            Ok(())
        });
        let noticed = notices::serve(Arc::clone(&node), hooked.clone(), stop.clone());
        tasks.spawn(async {
            noticed.await;
            Ok(())
        });
        let kept_up = upkeep::serve(hooked.clone(), stop.clone());
        tasks.spawn(async {
            kept_up.await;
            Ok(())
        });
        tasks.spawn(hooks::serve(hooks, node, hooked, stop.clone()));
        let registration = registration.publish()?;
        tasks.spawn(serve_registration(registration, registrar, stop.clone()));
        for (index, (counted, gpus)) in counts.into_iter().enumerate() {
            let sockets = CountSockets::publish(&paths, suffix, (index, &counted.resource))?;
            if let Some(service) = CountService::new(&counted, gpus, stop.clone()) {
                tasks.spawn(sockets.serve(service, stop.clone()));
            }
        }
        tasks.spawn(follow(registered, kubelet, stop.clone()));
        let outcome = first_failure(&mut tasks).await;
        stop.cancel();
        while tasks.join_next().await.is_some() {}
        outcome
    }
}

/// Remembers them in the background: a device that does not answer may block the reading.
fn remember_interfaces(node: &Arc<LocalPreparer>) {
    let node = Arc::clone(node);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = node.remember_interfaces() {
            tracing::warn!(error = %Chain(&error), "Failed to remember the NICs' interfaces");
        }
    });
}

/// Removes sockets of ended instances. Hidden names are left alone: such a socket may be
/// bound but not yet listening.
fn remove_dead_sockets(paths: &Paths) {
    remove_dead(&paths.plugin(), |name| has_ends(name, "dra", ".sock"));
    remove_dead(&paths.registry(), |name| has_ends(name, &paths.driver, "-reg.sock"));
    remove_dead(&paths.run, |name| has_ends(name, "probe-", ".sock"));
}

fn has_ends(name: &str, start: &str, end: &str) -> bool {
    name.starts_with(start) && name.ends_with(end)
}

/// The sockets of a resource that counts GPUs.
struct CountSockets {
    endpoint: PublishedSocket,
    registration: PublishedSocket,
    registrar: RegistrationService,
}

impl CountSockets {
    /// Listens beside the driver's own sockets. The kubelet may refuse the resource; claims are served then.
    /// Instances have the same registration socket: kubelets before 1.37 know a device plugin by its resource
    /// only, and would take the end of an instance for that of its successor.
    fn publish(
        paths: &Paths,
        instance: Option<&str>,
        (index, resource): (usize, &str),
    ) -> Result<Self, SocketError> {
        let endpoint =
            Socket::bind(&paths.plugin(), &name(&format!("dra-count-{index}"), instance))?;
        let registry = registry_name(paths, Some(&format!("count-{index}")));
        let registration = Socket::bind(&paths.registry(), &registry)?;
        let info = counted::info(resource, endpoint.path());
        let registrar = RegistrationService::new(info, Registered::default());
        let (endpoint, registration) = (endpoint.publish()?, registration.publish()?);
        Ok(Self { endpoint, registration, registrar })
    }

    async fn serve(
        self,
        service: CountService,
        stop: CancellationToken,
    ) -> Result<(), PluginError> {
        let (incoming, _removal) = self.endpoint.into_incoming();
        let incoming = incoming.map(|client| client.map(authority::readable));
        let service = DevicePluginServer::new(service);
        let server = Server::builder().add_service(service);
        let counting =
            server.serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
        let registering = serve_registration(self.registration, self.registrar, stop);
        tokio::try_join!(async { counting.await.map_err(PluginError::from) }, registering)?;
        Ok(())
    }
}

fn registry_name(paths: &Paths, instance: Option<&str>) -> String {
    let stem = instance
        .map_or_else(|| paths.driver.clone(), |instance| format!("{}-{instance}", paths.driver));
    format!("{stem}-reg.sock")
}

async fn first_failure(tasks: &mut JoinSet<Result<(), PluginError>>) -> Result<(), PluginError> {
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

async fn serve_dra(
    socket: PublishedSocket,
    preparer: Preparer,
    health: Watched,
    stop: CancellationToken,
) -> Result<(), PluginError> {
    let dra = DraService::new(preparer);
    let health = HealthService::new(health, stop.clone());
    // The kubelet dials this socket as `unix:…`; its client then sends a plain authority.
    let (incoming, _removal) = socket.into_incoming();
    Server::builder()
        .add_service(dra_v1::dra_plugin_server::DraPluginServer::new(dra))
        .add_service(health_v1::dra_resource_health_server::DraResourceHealthServer::new(
            health.clone(),
        ))
        .add_service(health_v1alpha1::dra_resource_health_server::DraResourceHealthServer::new(
            health,
        ))
        .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
        .await?;
    Ok(())
}

async fn serve_registration(
    socket: PublishedSocket,
    registrar: RegistrationService,
    stop: CancellationToken,
) -> Result<(), PluginError> {
    let (incoming, _removal) = socket.into_incoming();
    let incoming = incoming.map(|client| client.map(authority::readable));
    Server::builder()
        .add_service(registration_v1::registration_server::RegistrationServer::new(registrar))
        .serve_with_incoming_shutdown(incoming, stop.cancelled_owned())
        .await?;
    Ok(())
}

/// Becomes ready when the kubelet has registered the plugin. If the kubelet refuses, the
/// driver can serve no pod, so it ends with the reason.
async fn follow(
    registered: Registered,
    kubelet: Wait,
    stop: CancellationToken,
) -> Result<(), PluginError> {
    let refused = async {
        tokio::select! {
            () = registered.accepted() => drop(kubelet),
            reason = registered.refused() => return reason,
        }
        registered.refused().await
    };
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        reason = refused => Err(PluginError::Refused(reason)),
    }
}

#[cfg(test)]
mod tests;
