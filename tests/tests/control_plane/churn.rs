//! Known demands on known machines, separate and mixed, and pods that come and go at random. Bound
//! pods are aligned, no device is allocated twice, and no pod waits while there is room.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceSlice};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tests::{
    Check, ControlPlane, SchedulerConfig, Scope,
    allocation::{Places, allocations, disjoint},
    eventually,
    installation::Installation,
    machine::{AMD_CLASS, H100, MI300X},
    random::Random,
    suite::Test,
    with_scope,
};

const SOON: Duration = Duration::from_mins(1);
/// The total number of pods of one run.
const PODS: usize = 500;
/// The number of pods at a time.
const TOGETHER: usize = 20;
/// The number of pods between two full checks.
const BETWEEN_LOOKS: usize = 100;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        known_demands_on_gb300,
        known_demands_on_mi300x,
        known_demands_on_machines_of_three_kinds,
        pods_that_come_and_go_are_aligned_and_none_is_stuck,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// The request of a pod: GPUs and NICs of one NUMA node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    resource: &'static str,
    gpus: usize,
    nics: usize,
}

pub(crate) const fn nvidia(gpus: usize, nics: usize) -> Demand {
    Demand { resource: "nvidia.com/gpu", gpus, nics }
}

pub(crate) const fn amd(gpus: usize, nics: usize) -> Demand {
    Demand { resource: "amd.com/gpu", gpus, nics }
}

impl Demand {
    fn driver(self) -> &'static str {
        if self.resource == "amd.com/gpu" { "gpu.amd.com" } else { "gpu.nvidia.com" }
    }

    pub(crate) fn pod(self, name: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {
                "dranet.io/aligned-nics": self.nics.to_string(),
                "dranet.io/alignment": "numa",
                "dranet.io/pairing": "group",
            }},
            "spec": {"containers": [{
                "name": "nccl",
                "image": "nccl",
                "resources": {"limits": {self.resource: self.gpus.to_string()}},
            }]},
        }))
        .unwrap()
    }
}

/// Runs a test with admission and nodes, and a scheduler with a short backoff.
async fn with_machines(
    plane: Arc<ControlPlane>,
    machines: &[&str],
    test: impl AsyncFnOnce(&Scope, &Places) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut scheduler = SchedulerConfig::default();
    scheduler.more.insert("podMaxBackoffSeconds".into(), json!(1));
    plane.restart_scheduler(&scheduler).await?;
    let outcome = with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        scope.apply_yaml(AMD_CLASS).await?;
        for (index, machine) in machines.iter().enumerate() {
            let name = format!("{machine}-{index}");
            match *machine {
                "gb300" => installation.gb300(&name).await?,
                "mi300x" => installation.machine(&name, MI300X).await?,
                _ => installation.machine(&name, H100).await?,
            };
        }
        installation.start_admission().await?;
        let places = Places::read(scope.client()).await?;
        test(scope, &places).await
    })
    .await;
    plane.restart_scheduler(&SchedulerConfig::default()).await?;
    outcome
}

async fn known_demands_on_gb300(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_machines(plane, &["gb300"], async |scope, places| {
        bound(scope, places, &[nvidia(1, 1), nvidia(1, 2)]).await?;
        denied(scope, &[(nvidia(4, 4), "4 NICs"), (nvidia(8, 8), "8 NICs")]).await
    })
    .await
}

async fn known_demands_on_mi300x(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_machines(plane, &["mi300x"], async |scope, places| {
        bound(scope, places, &[amd(1, 1), amd(1, 2), amd(4, 4)]).await?;
        denied(scope, &[(amd(8, 8), "8 NICs")]).await?;
        whole_node(scope, "amd.com/gpu").await
    })
    .await
}

async fn known_demands_on_machines_of_three_kinds(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_machines(plane, &["gb300", "mi300x", "h100"], async |scope, places| {
        let demands = [nvidia(1, 1), nvidia(1, 2), nvidia(4, 4), amd(1, 1), amd(1, 2), amd(4, 4)];
        bound(scope, places, &demands).await?;
        denied(scope, &[(nvidia(8, 8), "8 NICs"), (amd(8, 8), "8 NICs")]).await?;
        whole_node(scope, "nvidia.com/gpu").await
    })
    .await
}

/// Creates a pod of each demand, one after another, and checks its devices.
async fn bound(scope: &Scope, places: &Places, demands: &[Demand]) -> anyhow::Result<()> {
    for (index, demand) in demands.iter().enumerate() {
        let name = format!("known-{index}");
        create(scope, &demand.pod(&name)).await?;
        scope.bound(&name, SOON).await.with_context(|| format!("{demand:?}"))?;
        let all = allocations(scope.client(), scope.namespace()).await?;
        aligned(places, &name, *demand, &all)?;
        scope.delete_pod(&name).await?;
        freed(scope).await?;
    }
    Ok(())
}

async fn denied(scope: &Scope, cases: &[(Demand, &str)]) -> anyhow::Result<()> {
    for (demand, part) in cases {
        let denial = create(scope, &demand.pod("denied")).await.unwrap_err().to_string();
        for part in [part, "dranet.io/aligned-nics", "no "] {
            assert!(denial.contains(part), "{demand:?}: `{part}` is not in: {denial}");
        }
    }
    Ok(())
}

/// Eight GPUs with a NIC each take a whole machine with eight of both.
async fn whole_node(scope: &Scope, resource: &str) -> anyhow::Result<()> {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": "whole", "annotations": {"dranet.io/aligned-nics": "per-gpu"}},
        "spec": {"containers": [
            {"name": "nccl", "image": "nccl", "resources": {"limits": {resource: "8"}}},
        ]},
    }))?;
    create(scope, &pod).await?;
    scope.bound("whole", SOON).await?;
    let all = allocations(scope.client(), scope.namespace()).await?;
    assert_eq!(all.iter().map(|(_, devices)| devices.len()).collect::<Vec<_>>(), [16]);
    Ok(())
}

async fn pods_that_come_and_go_are_aligned_and_none_is_stuck(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let demands =
        [nvidia(1, 1), nvidia(1, 2), nvidia(2, 2), nvidia(4, 4), amd(1, 2), amd(2, 3), amd(4, 4)];
    with_machines(plane, &["gb300", "gb300", "mi300x", "h100"], async |scope, places| {
        let mut random = Random(0x5eed);
        let mut alive: BTreeMap<String, Demand> = BTreeMap::new();
        for index in 0..PODS {
            let demand = demands[random.below(demands.len())];
            let name = format!("p{index}");
            create(scope, &demand.pod(&name)).await?;
            alive.insert(name, demand);
            while alive.len() > TOGETHER || random.below(4) == 0 {
                let Some(name) = alive.keys().nth(random.below(alive.len().max(1))).cloned() else {
                    break;
                };
                scope.delete_pod(&name).await?;
                alive.remove(&name);
            }
            if (index + 1) % BETWEEN_LOOKS == 0 {
                settled(scope, places, &alive).await?;
            }
        }
        Ok(())
    })
    .await
}

/// Waits until no pod waits although there is room, then checks that all bound pods are aligned.
async fn settled(
    scope: &Scope,
    places: &Places,
    alive: &BTreeMap<String, Demand>,
) -> anyhow::Result<()> {
    let mut looks = 0;
    eventually(SOON, async || {
        looks += 1;
        if looks % LOOKS_PER_NUDGE == 0 {
            nudge_scheduler(scope, looks).await?;
        }
        let pods = scope.api::<Pod>().list(&ListParams::default()).await?;
        let all = allocations(scope.client(), scope.namespace()).await?;
        let taken = disjoint(&all).map_err(|device| anyhow::anyhow!("{device:?} twice"))?;
        for pod in pods {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let Some(demand) = alive.get(&name) else { continue };
            if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
                aligned(places, &name, *demand, &all)?;
                continue;
            }
            let wanted = [(demand.driver(), demand.gpus), ("dra.net", demand.nics)];
            if places.have_room(&taken, &wanted) {
                let status = pod.status.unwrap_or_default();
                return Ok(Check::NotYet(format!(
                    "`{name}` waits for {demand:?}, and there is room; its conditions: {:?}",
                    status.conditions
                )));
            }
        }
        Ok(Check::Done(()))
    })
    .await
}

/// The number of checks between two nudges, about a second.
const LOOKS_PER_NUDGE: usize = 20;

/// Makes kube-scheduler retry the waiting pods. It misses some devices that become free, and then
/// waits for five minutes (`DefaultPodMaxInUnschedulablePodsDuration`); seen in 1.37.1 with pods
/// that are deleted while others are being tried. This test checks that claims fit, not the
/// scheduler's queue. A changed slice triggers a retry.
async fn nudge_scheduler(scope: &Scope, look: usize) -> anyhow::Result<()> {
    let slices: Api<ResourceSlice> = Api::all(scope.client());
    let slice = slices.list(&ListParams::default().limit(1)).await?.items.pop();
    let name = slice.context("there are slices")?.name_any();
    let change = json!({"metadata": {"annotations": {"tests.dranet.io/look": look.to_string()}}});
    slices.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await?;
    Ok(())
}

/// Checks that the pod has what it requested, all on one NUMA node of one node.
fn aligned(
    places: &Places,
    pod: &str,
    demand: Demand,
    all: &[(String, Vec<tests::allocation::Device>)],
) -> anyhow::Result<()> {
    let (_, devices) = all.iter().find(|(of, _)| of == pod).context("a bound pod has devices")?;
    let count = |driver: &str| devices.iter().filter(|device| device.driver == driver).count();
    assert_eq!((count(demand.driver()), count("dra.net")), (demand.gpus, demand.nics), "{pod}");
    let mut cells: Vec<_> = devices.iter().map(|device| places.cell(device)).collect();
    cells.dedup();
    assert!(cells.len() == 1 && cells[0].is_some(), "{pod}: {demand:?} has {devices:?}");
    Ok(())
}

async fn freed(scope: &Scope) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let left = allocations(scope.client(), scope.namespace()).await?.len();
        Ok(Check::that(left == 0, || format!("{left} claims hold devices")))
    })
    .await
}

pub(crate) async fn create(scope: &Scope, pod: &Pod) -> anyhow::Result<Pod> {
    Ok(scope.api::<Pod>().create(&PostParams::default(), pod).await?)
}
