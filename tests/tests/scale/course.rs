//! What happens to nodes and programs while pods come and go: nodes leave, join and change, all our
//! programs are replaced one after another, and the API server restarts.

use std::time::{Duration, Instant};

use anyhow::Context;
use k8s_openapi::{
    api::{core::v1::Pod, resource::v1::ResourceSlice},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tests::{ControlPlane, SeededRng, installation::Installation, suite::report};
use tokio::time::sleep_until;

use super::{
    kubelets::lasting,
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
    pub(crate) random: SeededRng,
}

impl Course<'_, '_> {
    /// Runs for the time of the load. Returns when the API server went away.
    pub(crate) async fn run(mut self, size: Size) -> anyhow::Result<Timestamp> {
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
        let pods: Api<Pod> = Api::all(self.plane.client());
        let on_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        for pod in pods.list(&on_node).await? {
            let of_namespace: Api<Pod> =
                Api::namespaced(self.plane.client(), &pod.namespace().unwrap_or_default());
            let now = DeleteParams::default().grace_period(0);
            let name = pod.name_any();
            lasting(|| of_namespace.delete(&name, &now)).await?;
        }
        self.installation.remove_node(&node).await
    }

    async fn join(&mut self) -> anyhow::Result<()> {
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
        set_port(&self.plane.client(), &node).await
    }

    /// Replaces each replica as a Deployment does: a new one, then an old one less.
    async fn replace_programs(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        for index in 2..4 {
            self.installation.start_replica(index, &ADMISSION).await?;
            self.installation.replicas()[0].process().terminate(END_MAX).await?;
            self.installation.kill_replica(0).await?;
        }
        for index in 2..4 {
            self.installation.start_fabric_controller(index, &CONTROLLER).await?;
            self.installation.fabric_controllers()[0].process().terminate(END_MAX).await?;
            self.installation.kill_fabric_controller(0);
        }
        self.installation.start_preemptor(1, &CONTROLLER).await?;
        self.installation.preemptors()[0].process().terminate(END_MAX).await?;
        self.installation.kill_preemptor(0);
        self.installation.restart_plain_extender(&CONTROLLER).await?;
        report(&format!("all programs are replaced after {:.1?}", begin.elapsed()));
        Ok(())
    }
}

/// Changes the taint of the first NIC of a node.
async fn set_port(client: &Client, node: &str) -> anyhow::Result<()> {
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let own = ListParams::default().fields(&format!("spec.nodeName={node},spec.driver=dra.net"));
    let Some(slice) = slices.list(&own).await?.items.into_iter().next() else { return Ok(()) };
    let devices = slice.spec.devices.as_ref().context("it has devices")?;
    let is_down = devices.first().is_some_and(|device| device.taints.is_some());
    let taints = json!([{"key": "dranet.io/port-down", "effect": "NoSchedule"}]);
    let change = if is_down {
        json!({"op": "remove", "path": "/spec/devices/0/taints"})
    } else {
        json!({"op": "add", "path": "/spec/devices/0/taints", "value": taints})
    };
    let generation = slice.spec.pool.generation + 1;
    let patch =
        json!([change, {"op": "replace", "path": "/spec/pool/generation", "value": generation}]);
    let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
    let (name, params) = (slice.name_any(), PatchParams::default());
    lasting(|| slices.patch(&name, &params, &patch)).await?;
    Ok(())
}
