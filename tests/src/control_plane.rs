//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler, as they are
//! released, on free ports of the loopback interface, all with TLS.
//!
//! What differs from a production cluster, and why:
//! - no node-lifecycle-controller, and no taint on new nodes for it to take
//!   away: the nodes are simulated, nobody renews their leases;
//! - no service account tokens in pods, unless they are asked for: nothing runs in most;
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
use tempfile::TempDir;

pub use self::scheduler_config::{Extender, SchedulerConfig};
use crate::{
    binaries,
    certificates::Authority,
    process::{Process, Program},
    readiness::Probe,
};

/// What may differ from one control plane to another.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The scheduler's configuration at start.
    pub scheduler: SchedulerConfig,
    /// More flags for kube-apiserver.
    pub apiserver_args: Vec<String>,
    /// Feature gates of all components, `GenericWorkload=true`.
    pub feature_gates: Vec<String>,
    /// Pods of programs that talk to the API server run: each gets a token of its service
    /// account.
    pub tokens: bool,
}

/// A running control plane. Dropping it ends its processes and removes its files.
pub struct ControlPlane {
    // In the order in which they end.
    /// Empty while it restarts.
    scheduler: Mutex<Option<Process>>,
    controller_manager: Process,
    /// The URL of the controllers' health.
    controllers: String,
    /// Empty while it restarts.
    apiserver: Mutex<Option<Process>>,
    apiserver_args: Vec<String>,
    etcd: Process,
    site: Site,
    client: Client,
    started_in: Duration,
    // Last: the others have their files in it.
    _state: TempDir,
}

impl ControlPlane {
    /// Starts one and waits until all of it is ready.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        let Options { scheduler, apiserver_args, feature_gates, tokens } = options;
        let begin = Instant::now();
        let state = state::directory()?;
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
            etcd,
            site,
            client,
            started_in: begin.elapsed(),
            _state: state,
        })
    }

    /// A client that may do everything.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The kubeconfig of [`Self::client`], for programs.
    pub fn kubeconfig(&self) -> PathBuf {
        self.site.kubeconfig()
    }

    /// Where kube-apiserver listens, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        self.site.apiserver_url()
    }

    /// The authority that signed the certificates of all servers here. Sign those
    /// of webhooks and extenders with it as well.
    pub fn authority(&self) -> &Authority {
        self.site.authority()
    }

    /// A directory that lasts as long as this value, for files of the programs beside.
    pub fn directory(&self) -> &Path {
        self.site.directory()
    }

    /// How long the start took.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// Ends the scheduler and starts one with another configuration; returns when it is ready.
    pub async fn restart_scheduler(&self, config: &SchedulerConfig) -> anyhow::Result<()> {
        // Never two at a time: each would give away devices that the other has in flight.
        drop(self.scheduler().take());
        let new = self.site.scheduler(config).await?;
        *self.scheduler() = Some(new);
        Ok(())
    }

    /// Kills kube-apiserver and starts it again where it was; returns when it is ready.
    pub async fn restart_apiserver(&self) -> anyhow::Result<()> {
        drop(held(&self.apiserver).take());
        let new = self.site.apiserver_again(&self.apiserver_args).await?;
        *held(&self.apiserver) = Some(new);
        Ok(())
    }

    /// The names of the controllers that run.
    pub async fn controllers(&self) -> anyhow::Result<Vec<String>> {
        let probe = Probe::new(&format!("{}?verbose", self.controllers))?;
        let health = probe.look().await.map_err(anyhow::Error::msg)?;
        let name = |line: &str| Some(line.strip_prefix("[+]")?.split(' ').next()?.to_owned());
        Ok(health.lines().filter_map(name).collect())
    }

    /// The ids of its processes.
    pub fn pids(&self) -> Vec<u32> {
        let (apiserver, scheduler) = (held(&self.apiserver), self.scheduler());
        let all = [Some(&self.etcd), apiserver.as_ref(), Some(&self.controller_manager)];
        all.into_iter().chain([scheduler.as_ref()]).flatten().map(Process::pid).collect()
    }

    /// One of this workspace's binaries, to be started beside: `node-driver`. Its
    /// log goes to the others.
    pub fn program(&self, name: &str) -> anyhow::Result<Program> {
        Ok(Program::new(binaries::ours(name)?, self.logs()))
    }

    /// The logs' directory, for programs that run beside.
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

/// A client for what a kubeconfig file names.
pub async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("failed to read `{}`", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
