//! What happens to nodes and programs while pods come and go: nodes leave, join and change, all our
//! programs are replaced one after another, and the API server restarts.

use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::{api::core::v1::Pod, jiff::Timestamp};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use tests::{
    ControlPlane, SchedulerConfig, SeededRng, installation::Installation, proxy::Proxy,
    simulated_node, suite::report,
};
use tokio::time::sleep_until;

use super::{
    kubelets::lasting,
    lines::Lines,
    size::Size,
    whole::{ADMISSION, CONTROLLER},
};

/// Equal parts of the time, with something at the end of each.
const STEPS: u32 = 20;
/// The steps at which programs are replaced and the API server restarts: both before the second half,
/// in which nothing may grow.
const ROLLOUT: u32 = 4;
const RESTART: u32 = 7;
/// The longest that a program takes to end.
const END_MAX: Duration = Duration::from_secs(40);

/// The nodes, and what changes them.
pub(crate) struct Course<'a, 'p> {
    pub(crate) plane: &'p ControlPlane,
    pub(crate) installation: &'a mut Installation<'p>,
    pub(crate) kinds: Vec<String>,
    /// The nodes that are copies of a kind.
    pub(crate) copies: Vec<String>,
    /// The number of the next copy.
    pub(crate) next: usize,
    /// The number of the last replica that was started.
    pub(crate) next_replica: usize,
    /// The connections of the programs that were started here.
    pub(crate) lines: Lines,
    /// What kube-scheduler runs with.
    pub(crate) scheduler: SchedulerConfig,
    pub(crate) random: SeededRng,
}

impl Course<'_, '_> {
    /// Runs for the time of the load. Returns when the API server went away.
    pub(crate) async fn run(&mut self, size: Size) -> anyhow::Result<Timestamp> {
        let begin = Instant::now();
        let mut away = Timestamp::now();
        for step in 1..STEPS {
            sleep_until((begin + size.load / STEPS * step).into()).await;
            match step {
                ROLLOUT => self.replace_programs().await.context("the rollout")?,
                RESTART => {
                    away = Timestamp::now();
                    self.plane.restart_apiserver().await?;
                }
                _ if step % 3 == 0 => {
                    self.leave().await.context("a node leaves")?;
                    self.join().await.context("a node joins")?;
                }
                _ => self.change().await.context("a node changes")?,
            }
        }
        Ok(away)
    }

    /// A node is drained and removed with what was published for it.
    async fn leave(&mut self) -> anyhow::Result<()> {
        if self.copies.is_empty() {
            return Ok(());
        }
        let node = self.copies.swap_remove(self.random.index(self.copies.len()));
        self.delete_pods_of(&node).await?;
        self.installation.remove_node(&node).await
    }

    pub(super) async fn delete_pods_of(&self, node: &str) -> anyhow::Result<()> {
        let pods: Api<Pod> = Api::all(self.plane.client());
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        for pod in pods.list(&on_node).await? {
            let of_namespace: Api<Pod> =
                Api::namespaced(self.plane.client(), &pod.namespace().unwrap_or_default());
            let now = DeleteParams::default().grace_period(0);
            let name = pod.name_any();
            lasting(|| of_namespace.delete(&name, &now)).await?;
        }
        Ok(())
    }

    pub(super) async fn join(&mut self) -> anyhow::Result<()> {
        let kind = self.next % self.kinds.len();
        self.installation.copies(&self.kinds, self.next..self.next + 1).await?;
        self.copies.push(format!("{}-{}", self.kinds[kind], self.next));
        self.next += 1;
        Ok(())
    }

    /// The port of a node's first NIC goes down or comes up: the driver taints it and publishes the pool
    /// again.
    async fn change(&mut self) -> anyhow::Result<()> {
        if self.copies.is_empty() {
            return Ok(());
        }
        let node = self.random.pick(&self.copies).clone();
        let client = self.plane.client();
        lasting(|| simulated_node::toggle_port(&client, &node)).await.map(drop)
    }

    /// Replaces each replica as a Deployment does: a new one, then an old one less.
    async fn replace_programs(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        for _ in 0..2 {
            self.start_admission().await?;
            self.installation.replicas()[0].process().terminate(END_MAX).await?;
            self.installation.kill_replica(0).await?;
        }
        for _ in 0..2 {
            self.start_fabric_controller().await?;
            self.installation.fabric_controllers()[0].process().terminate(END_MAX).await?;
            self.installation.kill_fabric_controller(0);
        }
        self.start_preemptor().await?;
        self.installation.preemptors()[0].process().terminate(END_MAX).await?;
        self.installation.kill_preemptor(0);
        self.installation.restart_plain_extender(&CONTROLLER).await?;
        report(&format!("all programs are replaced after {:.1?}", begin.elapsed()));
        Ok(())
    }

    /// Kills a replica of admission and starts another one.
    pub(super) async fn replace_admission(&mut self, one: usize) -> anyhow::Result<()> {
        self.lines.forget(self.installation.replicas()[one].process().pid());
        self.installation.kill_replica(one).await?;
        self.start_admission().await
    }

    /// Kills a replica of fabric-controller and starts another one.
    pub(super) async fn replace_fabric_controller(&mut self, one: usize) -> anyhow::Result<()> {
        self.lines.forget(self.installation.fabric_controllers()[one].process().pid());
        self.installation.kill_fabric_controller(one);
        self.start_fabric_controller().await
    }

    /// Kills preemptor and starts it again.
    pub(super) async fn replace_preemptor(&mut self) -> anyhow::Result<()> {
        self.lines.forget(self.installation.preemptors()[0].process().pid());
        self.installation.kill_preemptor(0);
        self.start_preemptor().await
    }

    async fn start_admission(&mut self) -> anyhow::Result<()> {
        let (index, line) = self.next_line().await?;
        self.installation.start_replica(index, &ADMISSION).await?;
        let started = self.installation.replicas().last().context("it was started")?;
        self.lines.keep(started.process().pid(), line);
        Ok(())
    }

    async fn start_fabric_controller(&mut self) -> anyhow::Result<()> {
        let (index, line) = self.next_line().await?;
        self.installation.start_fabric_controller(index, &CONTROLLER).await?;
        let started = self.installation.fabric_controllers().last().context("it was started")?;
        self.lines.keep(started.process().pid(), line);
        Ok(())
    }

    async fn start_preemptor(&mut self) -> anyhow::Result<()> {
        let (index, line) = self.next_line().await?;
        self.installation.start_preemptor(index, &CONTROLLER).await?;
        let started = self.installation.preemptors().last().context("it was started")?;
        self.lines.keep(started.process().pid(), line);
        Ok(())
    }

    /// The number of the next program, and the line that it will have to the API server.
    async fn next_line(&mut self) -> anyhow::Result<(usize, Proxy)> {
        let line = self.lines.draw().await?;
        self.installation.reach_api_by(format!("https://{}", line.address()));
        self.next_replica += 1;
        Ok((self.next_replica, line))
    }
}
