//! Released binaries of etcd, kube-apiserver, kube-controller-manager and kube-scheduler, on free
//! ports of the loopback interface, all with TLS.
//!
//! Differences from a production cluster:
//! - No node-lifecycle-controller, and no taint on new nodes that it would remove: the nodes are
//!   simulated, and nothing renews their leases.
//! - No service account tokens in pods unless requested: most pods run nothing.
//! - etcd does not sync to disk: nothing outlives the test.
//!
//! Flags follow `cmd/kube-*/app/options` of Kubernetes 1.37; 1.34 has the same.

mod components;
mod kubeconfig;
mod scheduler_config;
mod state;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::Context;
use components::Site;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use state::StateDirectory;

pub use self::components::WEBHOOK_CLIENT;
pub use self::scheduler_config::{Extender, SchedulerConfig};
use crate::{
    binaries,
    certificates::Authority,
    eventually::{Check, eventually},
    process::{Process, Program, pause},
    readiness::Probe,
};

/// Longest wait for kube-apiserver after etcd has restarted.
const READY_AGAIN: Duration = Duration::from_mins(1);

/// Options of a control plane.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The scheduler's configuration at start.
    pub scheduler: SchedulerConfig,
    /// Additional flags for kube-apiserver.
    pub apiserver_args: Vec<String>,
    /// Feature gates of all components, `GenericWorkload=true`.
    pub feature_gates: Vec<String>,
    /// True if pods run programs that use the API server: each then gets a token of its service
    /// account.
    pub tokens: bool,
}

/// A running control plane. Dropping it stops its processes and removes its files.
pub struct ControlPlane {
    // In the order in which they end.
    /// Empty while it restarts.
    scheduler: Mutex<Option<Process>>,
    controller_manager: Process,
    /// The health URL of the controllers.
    controllers: String,
    /// Empty while it restarts.
    apiserver: Mutex<Option<Process>>,
    apiserver_args: Vec<String>,
    etcd: Mutex<Option<Process>>,
    site: Site,
    client: Client,
    started_in: Duration,
    // The last field, since the others have their files in it.
    _state: StateDirectory,
}

impl ControlPlane {
    /// Starts a control plane and waits until all of it is ready.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let Options { scheduler, apiserver_args, feature_gates, tokens } = options;
        let begin = Instant::now();
        let state = StateDirectory::new()?;
        let mut site = Site::prepare(state.path(), feature_gates, tokens)?;
        let etcd = site.etcd().await?;
        let apiserver = site.apiserver(&apiserver_args).await?;
        let ((controller_manager, controllers), scheduler) =
            tokio::try_join!(site.controller_manager(), site.scheduler(&scheduler))?;
        let client = client(&site.kubeconfig()).await?;
        let (runs, wanted) =
            (client.apiserver_version().await?.git_version, binaries::kubernetes_version()?);
        anyhow::ensure!(runs == wanted, "kube-apiserver is {runs}, and not {wanted}");
        Ok(Self {
            scheduler: Mutex::new(Some(scheduler)),
            controller_manager,
            controllers,
            apiserver: Mutex::new(Some(apiserver)),
            apiserver_args,
            etcd: Mutex::new(Some(etcd)),
            site,
            client,
            started_in: begin.elapsed(),
            _state: state,
        })
    }

    /// A client with all permissions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The kubeconfig of [`Self::client`], for other programs.
    pub fn kubeconfig(&self) -> PathBuf {
        self.site.kubeconfig()
    }

    /// The URL of kube-apiserver, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        self.site.apiserver_url()
    }

    /// The authority that signed the certificates of all servers here. It should sign those of
    /// webhooks and extenders as well.
    pub fn authority(&self) -> &Authority {
        self.site.authority()
    }

    /// A directory that exists as long as this value, for files of other programs.
    pub fn directory(&self) -> &Path {
        self.site.directory()
    }

    /// The time that the start took.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// Stops the scheduler and starts one with another configuration; returns when it is ready.
    pub async fn restart_scheduler(&self, config: &SchedulerConfig) -> anyhow::Result<()> {
        // Two schedulers at a time would each allocate devices that the other has in flight.
        drop(self.scheduler().take());
        let new = self.site.scheduler(config).await?;
        *self.scheduler() = Some(new);
        Ok(())
    }

    /// Kills kube-apiserver and restarts it at the same address; returns when it is ready.
    pub async fn restart_apiserver(&self) -> anyhow::Result<()> {
        drop(held(&self.apiserver).take());
        let new = self.site.apiserver_again(&self.apiserver_args).await?;
        *held(&self.apiserver) = Some(new);
        Ok(())
    }

    /// Stops kube-apiserver for some time, without ending it: connections stay and are not answered.
    pub async fn freeze_apiserver(&self, time: Duration) -> anyhow::Result<()> {
        let pid = held(&self.apiserver).as_ref().map(Process::pid).context("it restarts")?;
        pause(pid, time).await
    }

    /// Kills etcd and restarts it with its data at the same address; returns when the API server
    /// reads from it.
    pub async fn restart_etcd(&self) -> anyhow::Result<()> {
        drop(held(&self.etcd).take());
        let new = self.site.etcd_again().await?;
        *held(&self.etcd) = Some(new);
        let ready = Probe::new(&format!("{}/readyz", self.url()))?;
        eventually(READY_AGAIN, async || {
            Ok(match ready.look().await {
                Ok(_) => Check::Done(()),
                Err(why) => Check::NotYet(why),
            })
        })
        .await
    }

    /// Removes all former revisions from etcd, as kube-apiserver does every five minutes: who asks for one is told
    /// that it is too old.
    pub async fn compact_etcd(&self) -> anyhow::Result<()> {
        self.site.compact_etcd().await
    }

    /// The names of the running controllers.
    pub async fn controllers(&self) -> anyhow::Result<Vec<String>> {
        let probe = Probe::new(&format!("{}?verbose", self.controllers))?;
        let health = probe.look().await.map_err(anyhow::Error::msg)?;
        Ok(health
            .lines()
            .filter_map(|line| Some(line.strip_prefix("[+]")?.split(' ').next()?.to_owned()))
            .collect())
    }

    /// The IDs of its processes.
    pub fn pids(&self) -> Vec<u32> {
        let (etcd, apiserver) = (held(&self.etcd), held(&self.apiserver));
        let scheduler = self.scheduler();
        let all = [etcd.as_ref(), apiserver.as_ref(), Some(&self.controller_manager)];
        all.into_iter().chain([scheduler.as_ref()]).flatten().map(Process::pid).collect()
    }

    /// A binary of this workspace, such as `node-driver`, to be started. Its log goes to the common
    /// directory.
    pub fn program(&self, name: &str) -> anyhow::Result<Program> {
        Ok(Program::new(binaries::ours(name)?, self.logs()))
    }

    /// The directory of logs, for other programs.
    pub fn logs(&self) -> PathBuf {
        self.site.logs()
    }
}

impl ControlPlane {
    fn scheduler(&self) -> MutexGuard<'_, Option<Process>> {
        held(&self.scheduler)
    }
}

fn held(process: &Mutex<Option<Process>>) -> MutexGuard<'_, Option<Process>> {
    process.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlPlane").field("url", &self.url()).finish_non_exhaustive()
    }
}

/// A client for the cluster in a kubeconfig file.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("failed to read `{}`", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
