//! What happens to the cluster meanwhile: programs are killed, nodes die and come back, and nodes
//! change their NVLink domains.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::{SignedDuration, Timestamp},
};
use kube::{
    ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;
use tests::Scope;

use super::{
    super::{
        levels::{labelled, set_clique},
        site::{fabrics, node},
    },
    Campaign, FABRICS, Size, with_extender,
};

/// Something happens in one of this number of looks.
const RARELY: u64 = 4;
/// The scheduler may still use an old label for this time.
const LAG: SignedDuration = SignedDuration::from_secs(5);

/// Where a node is.
#[derive(Clone, Debug)]
pub(super) struct Rack {
    pub(super) fabric: String,
    /// Its NVLink domain now.
    pub(super) domain: String,
    /// Its NVLink domain at the beginning.
    home: String,
    /// When its domain last changed.
    changed: Option<Timestamp>,
}

impl Rack {
    /// Whether the node's domain has not changed since the pod was scheduled.
    pub(super) fn is_settled(&self, pod: &Pod) -> bool {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut scheduled =
            conditions.filter(|it| it.type_ == "PodScheduled" && it.status == "True");
        let at = scheduled.next().and_then(|it| it.last_transition_time.as_ref());
        match (self.changed, at) {
            (None, _) => true,
            (Some(changed), Some(Time(at))) => changed.checked_add(LAG).is_ok_and(|it| *at > it),
            (Some(_), None) => false,
        }
    }
}

/// The nodes, and what has happened to them.
#[derive(Debug, Default)]
pub(super) struct Racks {
    nodes: BTreeMap<String, Rack>,
    /// Nodes that are gone, by the name that they were created with.
    dead: BTreeSet<String>,
    pub(super) kills: usize,
    pub(super) deaths: usize,
    pub(super) moves: usize,
}

impl Racks {
    /// Labels the nodes with their domains.
    pub(super) async fn label(scope: &Scope, size: Size) -> anyhow::Result<Self> {
        let mut racks = Self::default();
        let by_node = fabrics(scope).await?;
        for fabric in 0..FABRICS {
            for number in 0..size.domains * size.nodes {
                let name = full(scope, &format!("f{fabric}-n{number}"));
                let domain = format!("f{fabric}.{}", number / size.nodes);
                set_clique(scope, &name, &domain).await?;
                let fabric = by_node.get(&name).cloned().unwrap_or_default();
                let rack = Rack { fabric, domain: domain.clone(), home: domain, changed: None };
                racks.nodes.insert(name, rack);
            }
        }
        let domains = racks.nodes.iter().map(|(name, rack)| (name.clone(), rack.domain.clone()));
        labelled(scope, &domains.collect()).await?;
        Ok(racks)
    }

    /// Where a node is.
    pub(super) fn of(&self, node: &str) -> Option<&Rack> {
        self.nodes.get(node)
    }
}

/// The name of a node in the cluster.
fn full(scope: &Scope, name: &str) -> String {
    format!("{name}-{}", scope.namespace())
}

impl Campaign<'_, '_> {
    /// Lets something happen, now and then.
    pub(super) async fn trouble(&mut self) -> anyhow::Result<()> {
        if !self.rng.one_in(RARELY) {
            return Ok(());
        }
        match self.rng.index(10) {
            0 => self.kill_controller().await,
            1 => self.kill_admission().await,
            2 => self.kill_extender().await,
            3 | 4 => self.kill_node().await,
            5..8 => self.return_node().await,
            _ => self.move_node().await,
        }
    }

    async fn kill_controller(&mut self) -> anyhow::Result<()> {
        self.racks.kills += 1;
        let leader = self.installation.leading_fabric_controller().await?;
        self.installation.kill_fabric_controller(leader);
        let flags = ["--reserve-seconds=5", "--full-fabric=evict"];
        self.installation.start_fabric_controller(10 + self.racks.kills, &flags).await
    }

    async fn kill_admission(&mut self) -> anyhow::Result<()> {
        self.racks.kills += 1;
        let leader = self.installation.leading_replica().await?;
        self.installation.kill_replica(leader).await?;
        self.installation.start_replica(10 + self.racks.kills, &["--fabric-controller"]).await
    }

    async fn kill_extender(&mut self) -> anyhow::Result<()> {
        self.racks.kills += 1;
        self.installation.kill_extender();
        let url = self.installation.start_extender_alone().await?;
        self.plane.restart_scheduler(&with_extender(self.plane, &url)).await
    }

    /// A node goes, and its pods with it, as the control plane does with the pods of a node that is
    /// gone. The first node of each placement group stays, since others are its copies.
    async fn kill_node(&mut self) -> anyhow::Result<()> {
        let Size { domains, nodes, .. } = self.size;
        if self.racks.dead.len() > nodes / 6 {
            return Ok(());
        }
        let fabric = self.rng.index(FABRICS);
        let name = format!("f{fabric}-n{}", 1 + self.rng.index(domains * nodes - 1));
        if !self.racks.dead.insert(name.clone()) {
            return Ok(());
        }
        self.racks.deaths += 1;
        let gone = full(self.scope, &name);
        self.installation.remove_node(&gone).await?;
        for pod in self.scope.api::<Pod>().list(&ListParams::default()).await? {
            if node(&pod) == Some(&gone) {
                bury(self.scope, &pod).await?;
            }
        }
        Ok(())
    }

    /// A node that was gone is there again, in its first domain.
    async fn return_node(&mut self) -> anyhow::Result<()> {
        let Some(name) = self.racks.dead.pop_first() else { return Ok(()) };
        let (fabric, _) = name.split_once('-').unwrap_or_default();
        let first = full(self.scope, &format!("{fabric}-n0"));
        let full = self.installation.add_copy(&first, &name).await?;
        if let Some(rack) = self.racks.nodes.get_mut(&full) {
            rack.domain.clone_from(&rack.home);
            rack.changed = Some(Timestamp::now());
            set_clique(self.scope, &full, &rack.home).await?;
        }
        Ok(())
    }

    /// A node moves to another domain of its placement group, or back.
    async fn move_node(&mut self) -> anyhow::Result<()> {
        let Size { domains, nodes, .. } = self.size;
        let away = self.racks.nodes.iter().find(|(_, rack)| rack.domain != rack.home);
        let (name, to) = if let Some((name, rack)) = away {
            (name.clone(), rack.home.clone())
        } else {
            let fabric = self.rng.index(FABRICS);
            let name = format!("f{fabric}-n{}", self.rng.index(domains * nodes));
            let to = format!("f{fabric}.{}", self.rng.index(domains));
            (full(self.scope, &name), to)
        };
        let is_dead = self.racks.dead.iter().any(|it| full(self.scope, it) == name);
        let Some(rack) = self.racks.nodes.get_mut(&name).filter(|_| !is_dead) else {
            return Ok(());
        };
        self.racks.moves += usize::from(rack.domain != to);
        rack.domain.clone_from(&to);
        rack.changed = Some(Timestamp::now());
        set_clique(self.scope, &name, &to).await
    }
}

/// Whether a pod waits for its kubelet to end it. One that has failed waits for the Job controller.
pub(super) fn is_ending(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_some() && phase != Some("Failed")
}

/// Ends a pod as its kubelet or the garbage collector of pods does.
pub(super) async fn bury(scope: &Scope, pod: &Pod) -> anyhow::Result<()> {
    let status = Patch::Strategic(json!({"status": {
        "phase": "Failed",
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}],
    }}));
    let name = pod.name_any();
    match scope.api::<Pod>().patch_status(&name, &PatchParams::default(), &status).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        other => drop(other?),
    }
    scope.delete_pod(&name).await
}
