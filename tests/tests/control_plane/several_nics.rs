//! Machines with several NICs for each GPU, or with a NIC behind a switch of its own: the real scheduler
//! gives each GPU the NICs of its own switch, on what the real driver publishes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::Api;
use serde_json::json;
use tests::{
    ControlPlane, Scope,
    installation::Installation,
    machine::{AMD_CLASS, Machine, P5, P5EN, POLLARA},
    suite::Test,
    with_scope,
};
use topology_graph::{HostRoot, NicRole, PathKind, PciAddress, Topology, read};

use super::{churn::create, other_nics::devices};

const SOON: Duration = Duration::from_secs(30);
const GPUS: u32 = 8;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        the_scheduler_gives_each_gpu_the_nics_of_its_own_switch,
        the_scheduler_counts_nics_that_are_chosen_late,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// Who gives out the GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Claim,
    Plugin,
}

/// Pods of one kind that take the whole machine together.
struct Case {
    machine: Machine,
    by: By,
    pods: u32,
    nics: u32,
    level: Option<&'static str>,
}

const CASES: [Case; 8] = [
    Case { machine: P5, by: By::Claim, pods: 8, nics: 4, level: None },
    Case { machine: P5, by: By::Claim, pods: 2, nics: 16, level: None },
    Case { machine: P5, by: By::Plugin, pods: 1, nics: 32, level: None },
    Case { machine: P5EN, by: By::Claim, pods: 8, nics: 2, level: None },
    Case { machine: P5EN, by: By::Claim, pods: 1, nics: 16, level: None },
    Case { machine: P5EN, by: By::Plugin, pods: 1, nics: 16, level: None },
    Case { machine: POLLARA, by: By::Claim, pods: 8, nics: 1, level: Some("switch") },
    Case { machine: POLLARA, by: By::Claim, pods: 1, nics: 8, level: Some("switch") },
];

async fn the_scheduler_gives_each_gpu_the_nics_of_its_own_switch(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    for case in &CASES {
        let ran = with_scope(plane.client(), async |scope| case.run(&plane, scope).await).await;
        let Case { machine, by, pods, nics, .. } = case;
        ran.with_context(|| format!("{}, {by:?}: {pods} pods, {nics} NICs", machine.fixture))?;
    }
    Ok(())
}

impl Case {
    async fn run(&self, plane: &ControlPlane, scope: &Scope) -> anyhow::Result<()> {
        let mut installation = Installation::install(plane, scope).await?;
        scope.apply_yaml(AMD_CLASS).await?;
        match self.by {
            By::Claim => installation.machine("one", self.machine).await?,
            By::Plugin => installation.plugin_machine("one", self.machine, GPUS).await?,
        };
        installation.start_admission().await?;
        let topology = topology(self.machine)?;
        let all: Vec<PciAddress> = topology.gpus().iter().map(|gpu| gpu.address).collect();
        let mut taken = BTreeSet::new();
        for index in 0..self.pods {
            let name = format!("pod-{index}");
            let gpus = GPUS / self.pods;
            create(scope, &pod(&name, self.machine, gpus, self.nics, self.level)?).await?;
            let bound = scope.bound(&name, SOON).await?;
            let (claimed, nics) = devices(scope, &bound, "dra.net", &topology).await?;
            let given = if self.by == By::Plugin { all.clone() } else { claimed };
            ensure!(given.len() == gpus as usize, "{name}: {given:?}");
            check_each_has_its_own(&topology, &given, &nics).context(name)?;
            taken.extend(nics);
        }
        let compute = topology.nics().iter().filter(|nic| nic.role == NicRole::Compute);
        let compute: BTreeSet<PciAddress> = compute.map(|nic| nic.address).collect();
        ensure!(taken == compute, "{taken:?} instead of {compute:?}");
        Ok(())
    }
}

/// Fails unless each GPU has its share of these NICs below its own switch, where other GPUs have theirs.
fn check_each_has_its_own(
    topology: &Topology,
    gpus: &[PciAddress],
    nics: &[PciAddress],
) -> anyhow::Result<()> {
    let is_near = |gpu: &PciAddress, nic: &PciAddress| topology.path(*gpu, *nic) == PathKind::Pix;
    for gpu in gpus {
        let own: Vec<_> = nics.iter().filter(|nic| is_near(gpu, nic)).collect();
        let sharing = gpus.iter().filter(|other| own.iter().all(|nic| is_near(other, nic))).count();
        let share = nics.len() / gpus.len();
        ensure!(own.len() == share * sharing, "{gpu} has {own:?} of {nics:?}");
    }
    Ok(())
}

/// All of a node, one GPU with its four EFA adapters, and three GPUs.
async fn the_scheduler_counts_nics_that_are_chosen_late(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        for name in ["one", "two"] {
            installation.late_machine(name, P5, GPUS).await?;
        }
        installation.start_admission().await?;
        for (name, gpus, nics) in [("whole", 8, 32), ("single", 1, 4), ("three", 3, 12)] {
            create(scope, &pod(name, P5, gpus, nics, None)?).await?;
            let bound = scope.bound(name, SOON).await?;
            let places = places(scope, &bound).await?;
            ensure!(places == nics as usize, "{name} has {places} places");
        }
        create(scope, &pod("another", P5, 8, 32, None)?).await?;
        scope.unschedulable("another", SOON).await?;
        Ok(())
    })
    .await
}

fn topology(machine: Machine) -> anyhow::Result<Topology> {
    let folder = machine.plant()?;
    Ok(Topology::build(&read(&HostRoot::at(folder.path()))?, None).0)
}

fn pod(
    name: &str,
    machine: Machine,
    gpus: u32,
    nics: u32,
    level: Option<&str>,
) -> anyhow::Result<Pod> {
    let mut annotations = json!({"dranet.io/aligned-nics": nics.to_string()});
    if let Some(level) = level {
        annotations["dranet.io/alignment"] = level.into();
    }
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{
            "name": "nccl", "image": "nccl",
            "resources": {"limits": {machine.resource: gpus.to_string()}},
        }]},
    }))?)
}

/// The number of places that a pod's claim holds.
async fn places(scope: &Scope, pod: &Pod) -> anyhow::Result<usize> {
    let statuses = pod.status.as_ref().and_then(|it| it.resource_claim_statuses.as_ref());
    let name = statuses.into_iter().flatten().find_map(|it| it.resource_claim_name.as_ref());
    let claims: Api<ResourceClaim> = scope.api();
    let claim = claims.get(name.context("the pod has a claim")?).await?;
    let allocation = claim.status.and_then(|status| status.allocation).context("allocated")?;
    let results = allocation.devices.and_then(|devices| devices.results).unwrap_or_default();
    ensure!(results.iter().all(|it| it.device.starts_with("late-")), "{results:?}");
    Ok(results.len())
}
