//! Nodes whose GPUs a device plugin offers: pods that take all of them keep their limits and get the
//! NICs by a claim. The real scheduler serves both.

use std::{collections::BTreeMap, ops::Range, sync::Arc, time::Duration};

use anyhow::{Context, ensure};
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tests::{
    Check, ControlPlane, Extender, SchedulerConfig, Scope, eventually, installation::Installation,
    machine::H100, suite::Test, with_scope,
};
use topology_graph::{HostRoot, NicRole, Topology, read};

use super::churn::create;

const SOON: Duration = Duration::from_secs(30);
const GPU: &str = "nvidia.com/gpu";
/// What the chart adds to the rights of scheduler-ext where nodes bind NICs late.
const READS_PODS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dranet-scheduler-ext-pods}
rules: [{apiGroups: [''], resources: [pods], verbs: [list, watch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dranet-scheduler-ext-pods}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dranet-scheduler-ext-pods}
subjects: [{kind: ServiceAccount, name: scheduler-ext, namespace: dranet-system}]
";
const NUMA: &str = "resource.kubernetes.io/numaNode";

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        pods_with_gpus_of_a_device_plugin_get_nics_by_claim,
        a_pool_with_a_device_plugin_scaled_to_zero_denies_no_pod,
        pods_with_a_part_of_the_gpus_get_places,
        late_nodes_are_ranked_by_the_nics_that_are_left,
    ];
    all.into_iter().map(Test::alone).collect()
}

async fn pods_with_gpus_of_a_device_plugin_get_nics_by_claim(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        for name in ["one", "two"] {
            installation.plugin_machine(name, H100, 8).await?;
        }
        installation.start_admission().await?;
        let mut nodes = Vec::new();
        for (name, nics) in [("all", 8), ("half", 4)] {
            create(scope, &pod(name, 8, nics)?).await?;
            let bound = scope.bound(name, SOON).await?;
            nodes.push(bound.spec.as_ref().and_then(|spec| spec.node_name.clone()));
            assert_eq!(limit(&bound).as_deref(), Some("8"), "{name}");
            let plan = &bound.annotations()["dranet.io/plan"];
            assert!(plan.contains("the GPUs by the limit on nvidia.com/gpu"), "{plan}");
            let of_cells = nics_by_numa_node(scope, name).await?;
            let each = nics / 2;
            assert_eq!(of_cells, BTreeMap::from([(0, each), (1, each)]), "{name}");
        }
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), 2, "each pod takes a whole node: {nodes:?}");

        // No GPU is left, although NICs are.
        create(scope, &pod("third", 8, 4)?).await?;
        let why = scope.unschedulable("third", SOON).await?;
        assert!(why.contains("Insufficient nvidia.com/gpu"), "{why}");

        let denied = scope.api::<Pod>().create(&PostParams::default(), &pod("part", 2, 2)?).await;
        let denied = denied.err().context("a part of a node is denied")?.to_string();
        assert!(denied.contains("set a limit of 8, or install the DRA driver"), "{denied}");
        Ok(())
    })
    .await
}

/// Where NICs are bound late, the scheduler counts them, and no pod of a claim by name gets one.
async fn pods_with_a_part_of_the_gpus_get_places(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let node = installation.late_machine("late", H100, 8).await?;
        installation.start_admission().await?;
        for name in ["a", "b", "c", "d"] {
            create(scope, &pod(name, 2, 2)?).await?;
            let bound = scope.bound(name, SOON).await?;
            assert_eq!(bound.spec.as_ref().and_then(|it| it.node_name.clone()), Some(node.clone()));
            assert_eq!(limit(&bound).as_deref(), Some("2"), "{name}");
            let plan = &bound.annotations()["dranet.io/plan"];
            assert!(plan.contains("chosen at the start of the pod"), "{plan}");
            let devices = devices(scope, name).await?;
            let are_places = devices.iter().all(|(_, device)| device.starts_with("late-"));
            assert!(devices.len() == 2 && are_places, "{name}: {devices:?}");
        }
        create(scope, &pod("e", 2, 2)?).await?;
        let why = scope.unschedulable("e", SOON).await?;
        assert!(why.contains("Insufficient nvidia.com/gpu"), "{why}");
        Ok(())
    })
    .await
}

/// On two nodes that bind NICs late, a pod has four and five GPUs. On `far` it has the NICs near the other
/// GPUs, and one more pod, without a claim, has a GPU there. By counts alone, `far` would be used first,
/// since it is fuller.
async fn late_nodes_are_ranked_by_the_nics_that_are_left(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let outcome = with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        scope.apply_yaml(READS_PODS).await?;
        let near = installation.late_machine("near", H100, 8).await?;
        let far = installation.late_machine("far", H100, 8).await?;
        installation.start_admission().await?;
        let address = installation.start_plain_extender(&["--watch-pods"]).await?;
        let extender = Extender::new(&format!("http://{address}"), "");
        plane.restart_scheduler(&SchedulerConfig::with_extenders(vec![extender])).await?;
        for (name, node, count, nics) in [("near-0", &near, 4, 0..4), ("far-0", &far, 5, 3..8)] {
            let mut first = pod(name, u32::try_from(count)?, count)?;
            let spec = first.spec.get_or_insert_default();
            let selector = ("kubernetes.io/hostname".to_owned(), node.clone());
            spec.node_selector = Some(BTreeMap::from([selector]));
            create(scope, &first).await?;
            scope.bound(name, SOON).await?;
            choose_nics(scope, name, (0..count, nics)).await?;
        }
        let mut blind = pod("blind", 1, 1)?;
        blind.metadata.annotations = None;
        blind.spec.get_or_insert_default().node_name = Some(far.clone());
        create(scope, &blind).await?;
        for name in ["one", "two", "three"] {
            create(scope, &pod(name, 1, 1)?).await?;
            let bound = scope.bound(name, SOON).await?;
            let node = bound.spec.and_then(|spec| spec.node_name);
            let log = installation.extender_log();
            ensure!(node.as_deref() == Some(&*near), "{name} is on {node:?}: {log}");
        }
        let metrics = installation.extender()?.metrics().await?;
        let scored = metrics.get("dranet_scheduler_ext_nodes_scored_total{score=\"Predicted\"}");
        ensure!(scored.is_some_and(|scored| *scored > 0.0), "{metrics:?}");
        Ok(())
    })
    .await;
    let restarted = plane.restart_scheduler(&SchedulerConfig::default()).await;
    outcome.and(restarted)
}

/// Writes into the status of a pod's claim what its driver would write when the pod starts: these GPUs and
/// compute NICs of the machine, by number.
async fn choose_nics(
    scope: &Scope,
    pod: &str,
    (gpus, nics): (Range<usize>, Range<usize>),
) -> anyhow::Result<()> {
    let folder = H100.plant()?;
    let (topology, _) = Topology::build(&read(&HostRoot::at(folder.path()))?, None);
    let gpus: Vec<String> = topology.gpus()[gpus].iter().map(|it| it.address.to_string()).collect();
    let compute = topology.nics().iter().filter(|nic| nic.role == NicRole::Compute);
    let compute: Vec<String> = compute.map(|nic| nic.address.to_string()).collect();
    let claims: Api<ResourceClaim> = scope.api();
    let all = claims.list(&ListParams::default()).await?.items;
    let claim = all.into_iter().find(|claim| claim.name_any().starts_with(pod));
    let claim = claim.context("the pod has a claim")?;
    let results = claim.status.as_ref().and_then(|it| it.allocation.as_ref()?.devices.as_ref());
    let results = results.and_then(|it| it.results.clone()).context("it is allocated")?;
    let chosen = results.iter().zip(&compute[nics]).map(|(result, nic)| {
        json!({
            "driver": result.driver, "pool": result.pool, "device": result.device,
            "data": { "nic": nic, "pciBusID": nic, "gpus": gpus },
        })
    });
    let status = json!({ "status": { "devices": chosen.collect::<Vec<_>>() } });
    let patch = Patch::Merge(&status);
    claims.patch_status(&claim.name_any(), &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn a_pool_with_a_device_plugin_scaled_to_zero_denies_no_pod(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let node = installation.plugin_machine("one", H100, 8).await?;
        installation.start_admission().await?;
        installation.remembered().await?;
        installation.remove_node(&node).await?;
        eventually(SOON, async || {
            let dry_run = PostParams { dry_run: true, ..PostParams::default() };
            let admitted = scope.api::<Pod>().create(&dry_run, &pod("dry", 8, 4)?).await?;
            let plan = admitted.annotations()["dranet.io/plan"].clone();
            Ok(Check::that(plan.contains("0 of 0 nodes can serve it"), || plan))
        })
        .await?;
        create(scope, &pod("waiting", 8, 4)?).await?;
        scope.unschedulable("waiting", SOON).await?;
        installation.plugin_machine("two", H100, 8).await?;
        let bound = scope.bound("waiting", SOON).await?;
        assert_eq!(limit(&bound).as_deref(), Some("8"));
        assert_eq!(nics_by_numa_node(scope, "waiting").await?, BTreeMap::from([(0, 2), (1, 2)]));
        Ok(())
    })
    .await
}

fn pod(name: &str, gpus: u32, nics: usize) -> anyhow::Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "annotations": {"dranet.io/aligned-nics": nics.to_string()}},
        "spec": {"containers": [{
            "name": "nccl", "image": "nccl", "resources": {"limits": {GPU: gpus.to_string()}},
        }]},
    }))?)
}

fn limit(pod: &Pod) -> Option<String> {
    let container = pod.spec.as_ref()?.containers.first()?;
    Some(container.resources.as_ref()?.limits.as_ref()?.get(GPU)?.0.clone())
}

/// The number of NICs that the pod's claim holds, by NUMA node.
async fn nics_by_numa_node(scope: &Scope, pod: &str) -> anyhow::Result<BTreeMap<i64, usize>> {
    let all = ListParams::default();
    let mut published = BTreeMap::new();
    for slice in Api::<ResourceSlice>::all(scope.client()).list(&all).await? {
        for device in slice.spec.devices.into_iter().flatten() {
            let numa = device.attributes.and_then(|attributes| attributes.get(NUMA)?.int);
            published.insert((slice.spec.pool.name.clone(), device.name), numa);
        }
    }
    let mut nics = BTreeMap::new();
    for device in devices(scope, pod).await? {
        let numa = published.get(&device).copied().flatten();
        *nics.entry(numa.context("the NIC has a NUMA node")?).or_default() += 1;
    }
    Ok(nics)
}

/// Pool and name of the devices that the pod's claim holds.
async fn devices(scope: &Scope, pod: &str) -> anyhow::Result<Vec<(String, String)>> {
    let claims = scope.api::<ResourceClaim>().list(&ListParams::default()).await?;
    let claim = claims.items.into_iter().find(|claim| claim.name_any().starts_with(pod));
    let status = claim.context("the pod has a claim")?.status.context("it has a status")?;
    let results = status.allocation.and_then(|allocation| allocation.devices?.results);
    let results = results.context("it is allocated")?.into_iter();
    let of_driver = results.map(|result| {
        assert_eq!(result.driver, "dra.net", "the claim is for NICs only");
        (result.pool, result.device)
    });
    Ok(of_driver.collect())
}
