//! Predictions equal what the scheduler does. Random pods with random claims are scheduled on
//! random nodes. Each device that kube-scheduler writes into a claim's status must be the one
//! predicted for the chosen node.

mod draw;
#[path = "../../../dra-allocator/tests/differential/random.rs"]
mod random;
mod vector;

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use dra_allocator::{Attempt, Claim, Inventory, Limits, MinorVersion, Outcome, Settings, survey};
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::{AllocationResult, DeviceClass, ResourceClaim, ResourceSlice},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use serde::de::DeserializeOwned;
use tests::{ControlPlane, Scope, suite::Test, with_scope};

use self::draw::Draw;

const SOON: Duration = Duration::from_mins(1);
const NODES: usize = 20;
/// Pods of each seed: 300 in all.
const PODS: usize = 100;
/// Random claims need some hundreds at most.
const MAX_STEPS: u64 = 1_000_000;

pub(crate) fn tests() -> Vec<Test> {
    // Every node of the cluster counts, and device classes are cluster-scoped.
    let all = tests::tests![the_scheduler_allocates_what_is_predicted];
    all.into_iter().map(Test::alone).collect()
}

async fn the_scheduler_allocates_what_is_predicted(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    for seed in [1, 2, 3] {
        with_scope(plane.client(), async |scope| {
            let mut cluster = Cluster::make(scope, seed).await?;
            let mut bound = 0;
            for number in 0..PODS {
                let fits = cluster.schedule(number).await;
                let fits = fits.with_context(|| format!("seed {seed}, pod {number}"))?;
                bound += usize::from(fits);
            }
            // Pods that always fit, or never, would prove little.
            assert!((PODS / 4..PODS).contains(&bound), "seed {seed}: {bound} pods were bound");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// Nodes with random devices, as the API server holds them, and our index of them.
struct Cluster<'s> {
    scope: &'s Scope,
    draw: Draw,
    inventory: Inventory,
    nodes: Vec<Node>,
    slices: Vec<ResourceSlice>,
    classes: Vec<DeviceClass>,
    /// The allocated claims.
    claims: Vec<ResourceClaim>,
}

impl<'s> Cluster<'s> {
    async fn make(scope: &'s Scope, seed: u64) -> anyhow::Result<Self> {
        let mut draw = Draw::new(seed);
        let mut nodes = Vec::new();
        for number in 0..NODES {
            nodes.push(scope.node(&format!("random-{number}")).await?);
        }
        for class in Draw::classes() {
            scope.apply(serde_json::from_value(class)?).await?;
        }
        for node in &nodes {
            for slice in draw.slices(&node.name_any()) {
                scope.apply(serde_json::from_value(slice)?).await?;
            }
        }
        let mut cluster = Self {
            scope,
            draw,
            inventory: Inventory::new(),
            slices: all(scope.client()).await?,
            classes: all(scope.client()).await?,
            nodes,
            claims: Vec::new(),
        };
        cluster.index()?;
        cluster.wait_until_seen().await?;
        Ok(cluster)
    }

    fn index(&mut self) -> anyhow::Result<()> {
        self.nodes.iter().try_for_each(|node| self.inventory.apply_node(node))?;
        self.classes.iter().try_for_each(|class| self.inventory.apply_class(class))?;
        self.slices.iter().try_for_each(|slice| self.inventory.apply_slice(slice))?;
        Ok(())
    }

    /// The scheduler receives slices in the order of their creation. Once it allocates the device
    /// of the last one, it knows all.
    async fn wait_until_seen(&mut self) -> anyhow::Result<()> {
        let node = self.nodes.last().context("there are nodes")?.name_any();
        self.scope.apply(serde_json::from_value(draw::canary(&node))?).await?;
        let claim = self.create_claim("canary", draw::canary_claim()).await?;
        let pod = self.create_pod("canary", &[claim]).await?;
        self.scope.bound(&pod, SOON).await?;
        Ok(())
    }

    async fn create_claim(
        &self,
        name: &str,
        devices: serde_json::Value,
    ) -> anyhow::Result<ResourceClaim> {
        let claim = serde_json::from_value(serde_json::json!({
            "metadata": {"name": name}, "spec": {"devices": devices},
        }))?;
        let claims: Api<ResourceClaim> = self.scope.api();
        claims
            .create(&PostParams::default(), &claim)
            .await
            .with_context(|| format!("the API server refuses {devices}"))
    }

    async fn create_pod(&self, name: &str, claims: &[ResourceClaim]) -> anyhow::Result<String> {
        let pods: Api<Pod> = self.scope.api();
        let pod = serde_json::from_value(draw::pod(name, claims))?;
        pods.create(&PostParams::default(), &pod).await?;
        Ok(name.to_owned())
    }

    /// Creates a pod with claims and compares its allocation. Returns true if it was bound.
    async fn schedule(&mut self, number: usize) -> anyhow::Result<bool> {
        let mut claims = Vec::new();
        for (index, devices) in self.draw.claims().into_iter().enumerate() {
            claims.push(self.create_claim(&format!("claim-{number}-{index}"), devices).await?);
        }
        let predicted = self.predict(&claims)?;
        let name = self.create_pod(&format!("pod-{number}"), &claims).await?;
        if !can_be_scheduled(&predicted) {
            self.scope.unschedulable(&name, SOON).await?;
            self.remove(&name, &claims).await?;
            return Ok(false);
        }
        let pod = self.scope.bound(&name, SOON).await?;
        let node = pod.spec.and_then(|spec| spec.node_name).context("a bound pod has a node")?;
        let allocated = self.allocated(&claims).await?;
        let attempt = predicted.iter().find(|(known, _)| *known == node);
        let attempt = &attempt.context("the scheduler chose a node that is not ours")?.1;
        self.compare(&node, &claims, attempt, &allocated)?;
        for claim in allocated {
            self.inventory.apply_claim(&claim)?;
            self.claims.push(claim);
        }
        Ok(true)
    }

    /// The prediction for every node.
    fn predict(&self, claims: &[ResourceClaim]) -> anyhow::Result<Vec<(String, Attempt)>> {
        let claims = claims.iter().map(Claim::try_from).collect::<Result<Vec<_>, _>>()?;
        let names: Vec<_> = self.nodes.iter().map(ResourceExt::name_any).collect();
        let settings = Settings::defaults_of(MinorVersion::V1_37);
        let (inventory, limits) = (&self.inventory, Limits::steps(MAX_STEPS));
        let nodes = names.iter().map(String::as_str);
        let answers = survey(inventory, nodes, &claims, inventory.state(), &settings, limits);
        Ok(answers.attempts().map(|(node, attempt)| (node.to_owned(), attempt)).collect())
    }

    async fn allocated(&self, claims: &[ResourceClaim]) -> anyhow::Result<Vec<ResourceClaim>> {
        let api: Api<ResourceClaim> = self.scope.api();
        let mut allocated = Vec::new();
        for claim in claims {
            allocated.push(api.get(&claim.name_any()).await?);
        }
        Ok(allocated)
    }

    /// Removes what cannot be scheduled, since the scheduler would try it again and again.
    async fn remove(&self, pod: &str, claims: &[ResourceClaim]) -> anyhow::Result<()> {
        self.scope.delete_pod(pod).await?;
        let api: Api<ResourceClaim> = self.scope.api();
        for claim in claims {
            api.delete(&claim.name_any(), &DeleteParams::default()).await?;
        }
        Ok(())
    }

    fn compare(
        &self,
        node: &str,
        claims: &[ResourceClaim],
        predicted: &Attempt,
        allocated: &[ResourceClaim],
    ) -> anyhow::Result<()> {
        let written: Vec<_> = allocated.iter().map(allocation).collect();
        let ours = match &predicted.outcome {
            Outcome::Allocated(ours) => ours.iter().map(vector::allocation).collect(),
            _ => Vec::new(),
        };
        if written == ours {
            return Ok(());
        }
        let node = self.nodes.iter().find(|known| known.name_any() == node);
        let vector = vector::Vector {
            node: node.context("the node is ours")?,
            slices: &self.slices,
            classes: &self.classes,
            claims,
            in_use: &self.claims,
            results: &written,
        };
        anyhow::bail!("predicted {:?}; as a vector:\n{}", predicted.outcome, vector.line())
    }
}

/// Returns true if some node has room and none fails, which would end the attempt on all nodes.
fn can_be_scheduled(predicted: &[(String, Attempt)]) -> bool {
    let mut outcomes = predicted.iter().map(|(_, attempt)| &attempt.outcome);
    let failed = outcomes.clone().any(|outcome| matches!(outcome, Outcome::Failed(_)));
    !failed && outcomes.any(|outcome| matches!(outcome, Outcome::Allocated(_)))
}

/// The allocation that the scheduler wrote, without times and random IDs.
fn allocation(claim: &ResourceClaim) -> AllocationResult {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.clone());
    let mut allocation = allocation.unwrap_or_default();
    allocation.allocation_timestamp = None;
    let devices = allocation.devices.iter_mut();
    for result in devices.flat_map(|devices| devices.results.iter_mut().flatten()) {
        result.share_id = result.share_id.as_ref().map(|_| vector::SHARE.to_owned());
    }
    allocation
}

/// All objects of a kind.
async fn all<K>(client: Client) -> anyhow::Result<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    Ok(Api::all(client).list(&ListParams::default()).await?.items)
}
