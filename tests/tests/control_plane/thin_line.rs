//! An annotated pod gets aligned devices from the real scheduler: two GB300
//! nodes, GPUs as published live, NICs published by our driver.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    ControlPlane, SchedulerConfig, Scope, binaries, gb300, installation::Installation, suite::Test,
    with_scope,
};

const SOON: Duration = Duration::from_secs(30);

/// GPU and NIC of the same index are partners; 0 and 1 are on NUMA node 0, 2
/// and 3 on NUMA node 1 (Azure's document of the size).
const GPUS: [&str; 4] = ["gpu-0", "gpu-1", "gpu-2", "gpu-3"];
const NICS: [&str; 4] =
    ["pci-0101-00-00-0", "pci-0102-00-00-0", "pci-0103-00-00-0", "pci-0104-00-00-0"];

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        four_pods_get_two_nics_of_their_numa_node_each,
        eight_pods_get_their_partner_nic_each,
        hand_written_templates_work_unchanged,
        unsatisfiable_requests_are_denied_with_a_reason,
        other_pods_never_reach_the_webhook,
        pods_are_aligned_without_the_extender,
        the_extender_leads_a_pod_to_the_broken_cell,
        a_dry_run_creates_nothing,
        the_driver_publishes_what_upstream_does_and_nothing_twice,
        kubectl_shows_the_live_cluster,
    ];
    all.into_iter().map(Test::alone).collect()
}

/// Runs a test with our programs and two GB300 nodes.
pub(crate) async fn with_installation<T>(
    plane: Arc<ControlPlane>,
    test: impl AsyncFnOnce(&Scope, &mut Installation<'_>, [String; 2]) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let outcome = with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let nodes = [installation.gb300("one").await?, installation.gb300("two").await?];
        installation.start_admission().await?;
        installation.start_extender().await?;
        test(scope, &mut installation, nodes).await
    })
    .await;
    plane.restart_scheduler(&SchedulerConfig::default()).await?;
    outcome
}

async fn four_pods_get_two_nics_of_their_numa_node_each(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_installation(plane, async |scope, _, nodes| {
        for device in four_pods_take_all_nics(scope).await? {
            assert!(nodes.contains(&device.node), "{device:?}");
        }
        create(scope, pod("e", Some("2"))).await?;
        let reason = scope.unschedulable("e", SOON).await?;
        assert!(reason.contains("cannot allocate all claims"), "{reason}");

        let freed: BTreeSet<_> = devices(scope, "b").await?.into_iter().collect();
        scope.delete_pod("b").await?;
        let got: BTreeSet<_> = devices(scope, "e").await?.into_iter().collect();
        assert_eq!(got, freed);
        Ok(())
    })
    .await
}

/// Four pods take all NICs of two nodes, two of a NUMA node each. Returns the devices of all.
pub(crate) async fn four_pods_take_all_nics(scope: &Scope) -> anyhow::Result<BTreeSet<Device>> {
    let mut taken = BTreeSet::new();
    for name in ["a", "b", "c", "d"] {
        create(scope, pod(name, Some("2"))).await?;
        let devices = devices(scope, name).await?;
        assert_aligned(&devices, 2);
        for device in devices {
            assert!(taken.insert(device.clone()), "{device:?} twice");
        }
    }
    Ok(taken)
}

async fn eight_pods_get_their_partner_nic_each(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(plane, async |scope, _, _| {
        let mut taken = BTreeSet::new();
        for index in 0..8 {
            let name = format!("p{index}");
            create(scope, pod(&name, Some("1"))).await?;
            let devices = devices(scope, &name).await?;
            let (gpus, nics) = indices(&devices);
            assert_eq!(gpus.len(), 1);
            assert_eq!(gpus, nics, "{devices:?}");
            for device in devices {
                assert!(taken.insert(device.clone()), "{device:?} twice");
            }
        }
        Ok(())
    })
    .await
}

async fn hand_written_templates_work_unchanged(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(plane, async |scope, _, _| {
        scope.apply_file(&gb300::file("resource-claim-template.yaml")).await?;
        for (template, gpus, nics) in [
            ("1nic-aligned", vec![0], vec![0]),
            ("1nic-unaligned", vec![0], vec![2]),
            ("2nic-aligned", vec![0], vec![0, 1]),
            ("ib-same-fabric", vec![], vec![0]),
        ] {
            create(scope, pod_with_template(template, template)).await?;
            let devices = devices(scope, template).await?;
            assert_eq!(indices(&devices), (gpus, nics), "{template}");
            scope.delete_pod(template).await?;
            gone(scope, template).await?;
        }
        Ok(())
    })
    .await
}

async fn unsatisfiable_requests_are_denied_with_a_reason(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_installation(plane, async |scope, _, _| {
        let three = denial(scope, pod("three", Some("3"))).await?;
        for part in [
            "dranet.io/aligned-nics: \"3\"",
            "asks for 3 NICs on one NUMA node with 1 GPU",
            "no machine in this cluster has more than 2",
            "2 nodes of Standard_ND128isr_GB300_v6",
        ] {
            assert!(three.contains(part), "`{part}` is missing in: {three}");
        }
        let two = denial(scope, pod("two", Some("two"))).await?;
        for part in ["dranet.io/aligned-nics: \"two\"", "whole number from 1 to 32"] {
            assert!(two.contains(part), "`{part}` is missing in: {two}");
        }
        Ok(())
    })
    .await
}

async fn other_pods_never_reach_the_webhook(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(plane, async |scope, installation, _| {
        installation.kill_admission();
        create(scope, pod("plain", None)).await?;
        let error = create(scope, pod("annotated", Some("2"))).await.unwrap_err();
        assert!(format!("{error:#}").contains("failed calling webhook"), "{error:#}");
        Ok(())
    })
    .await
}

async fn pods_are_aligned_without_the_extender(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(plane, async |scope, installation, _| {
        installation.kill_extender();
        for name in ["a", "b"] {
            create(scope, pod(name, Some("2"))).await?;
            assert_aligned(&devices(scope, name).await?, 2);
        }
        Ok(())
    })
    .await
}

/// A pod of one NIC breaks a cell. The second of its kind must go to the other
/// half of that cell, on whichever node it is, and leave three cells whole.
async fn the_extender_leads_a_pod_to_the_broken_cell(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_installation(plane, async |scope, installation, _| {
        let mut last = None;
        for index in 0..8 {
            let name = format!("p{index}");
            create(scope, pod(&name, Some("1"))).await?;
            let devices = devices(scope, &name).await?;
            let cell = (devices[0].node.clone(), indices(&devices).0[0] / 2);
            if index % 2 == 1 {
                assert_eq!(
                    Some(&cell),
                    last.as_ref(),
                    "pod {index}; {}",
                    installation.extender_log()
                );
            }
            last = Some(cell);
        }
        Ok(())
    })
    .await
}

async fn a_dry_run_creates_nothing(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(plane, async |scope, _, _| {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let pod = scope.api::<Pod>().create(&params, &pod("dry", Some("2"))).await?;
        let claims = pod.spec.and_then(|spec| spec.resource_claims).context("it has a claim")?;
        assert!(claims[0].resource_claim_template_name.is_some());
        let templates = scope.api::<ResourceClaimTemplate>().list(&ListParams::default()).await?;
        assert_eq!(templates.items, []);
        assert_eq!(scope.api::<Pod>().list(&ListParams::default()).await?.items, []);
        Ok(())
    })
    .await
}

async fn the_driver_publishes_what_upstream_does_and_nothing_twice(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_installation(plane, async |scope, installation, [node, _]| {
        let ours = slice(scope, &node).await?;
        let upstream = gb300::nic_slice(&node)?;
        let theirs = upstream.data["spec"]["devices"].as_array().context("it has devices")?;
        assert_eq!(theirs.len(), NICS.len());
        for device in theirs {
            let name = &device["name"];
            let mine = ours["spec"]["devices"].as_array().into_iter().flatten();
            let mine = mine.clone().find(|mine| mine["name"] == *name).context("it is there")?;
            for (attribute, value) in device["attributes"].as_object().into_iter().flatten() {
                assert_eq!(mine["attributes"][attribute], *value, "{name} {attribute}");
            }
        }
        let imds = tests::imds::Imds::start(
            tests::installation::VM_SIZE,
            tests::installation::PLACEMENT_GROUP,
        );
        let imds = imds.await?;
        let machine = tests::installation::gb300_machine(&node)?;
        installation.publish(&node, machine.path(), &imds).await?;
        let again = slice(scope, &node).await?;
        assert_eq!(ours["metadata"]["resourceVersion"], again["metadata"]["resourceVersion"]);

        imds.set_placement_group("another");
        installation.publish(&node, machine.path(), &imds).await?;
        let moved = slice(scope, &node).await?;
        assert_ne!(ours["metadata"]["resourceVersion"], moved["metadata"]["resourceVersion"]);
        let group = &moved["spec"]["devices"][0]["attributes"]["azure.dra.net/placementGroupId"];
        assert_eq!(*group, json!({"string": "another"}));
        Ok(())
    })
    .await
}

async fn kubectl_shows_the_live_cluster(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |_, _, [node, other]| {
        let kubeconfig = format!("--kubeconfig={}", plane.kubeconfig().display());
        let show = async |args: &[&str]| {
            let program = plane.program("kubectl-dranet")?.args(args.iter().copied());
            program.args([kubeconfig.as_str()]).spawn()?.wait_for_success(SOON).await
        };
        let graph = show(&["graph", &node]).await?;
        let row = "GPU0  X     NV18  NV18  NV18  NODE  NODE  SYS   SYS ";
        assert!(graph.contains(row), "{graph}");

        let pod = binaries::in_tests("../deploy/examples/aks-gb300/2nic-aligned.yaml");
        let plan = show(&["plan", "-f", &pod.display().to_string()]).await?;
        let devices = "GPU0 with mlx5_0 and mlx5_1 (NODE)";
        for part in [
            "on one NUMA node (join cells); 2 of 2 nodes can serve it",
            &format!("2 nodes ({node}, {other}): {devices}"),
        ] {
            assert!(plan.contains(part), "`{part}` is missing in: {plan}");
        }
        Ok(())
    })
    .await
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Device {
    pub(crate) node: String,
    pub(crate) name: String,
}

/// The devices that the real scheduler gave a pod, in the order of the results.
pub(crate) async fn devices(scope: &Scope, pod: &str) -> anyhow::Result<Vec<Device>> {
    let pod = scope.bound(pod, SOON).await?;
    let statuses = pod.status.and_then(|status| status.resource_claim_statuses);
    let claim = statuses.into_iter().flatten().find_map(|status| status.resource_claim_name);
    let claim = scope.api::<ResourceClaim>().get(&claim.context("the pod has a claim")?).await?;
    let allocation = claim.status.and_then(|status| status.allocation).context("allocated")?;
    let results = allocation.devices.and_then(|devices| devices.results).unwrap_or_default();
    Ok(results
        .into_iter()
        .map(|result| Device { node: result.pool, name: result.device })
        .collect())
}

/// Indices of the GPUs and of the NICs among devices, sorted.
fn indices(devices: &[Device]) -> (Vec<usize>, Vec<usize>) {
    let of = |names: [&str; 4]| {
        let index = |device: &Device| names.iter().position(|name| *name == device.name);
        let mut found: Vec<_> = devices.iter().filter_map(index).collect();
        found.sort_unstable();
        found
    };
    (of(GPUS), of(NICS))
}

/// One GPU and `nics` NICs, all of one NUMA node of one node.
pub(crate) fn assert_aligned(devices: &[Device], nics: usize) {
    let (gpu_indices, nic_indices) = indices(devices);
    assert_eq!((gpu_indices.len(), nic_indices.len()), (1, nics), "{devices:?}");
    let cells: BTreeSet<_> = gpu_indices.iter().chain(&nic_indices).map(|i| i / 2).collect();
    assert_eq!(cells.len(), 1, "{devices:?}");
    let nodes: BTreeSet<_> = devices.iter().map(|device| &device.node).collect();
    assert_eq!(nodes.len(), 1, "{devices:?}");
}

async fn slice(scope: &Scope, node: &str) -> anyhow::Result<Value> {
    let slices: Api<ResourceSlice> = Api::all(scope.client());
    let fields = format!("spec.driver=dra.net,spec.nodeName={node}");
    let list = slices.list(&ListParams::default().fields(&fields)).await?;
    let [slice] = list.items.as_slice() else { anyhow::bail!("{} slices", list.items.len()) };
    Ok(serde_json::to_value(slice)?)
}

pub(crate) async fn create(scope: &Scope, pod: Pod) -> anyhow::Result<Pod> {
    Ok(scope.api::<Pod>().create(&PostParams::default(), &pod).await?)
}

/// The text of the denial of a pod.
async fn denial(scope: &Scope, pod: Pod) -> anyhow::Result<String> {
    match scope.api::<Pod>().create(&PostParams::default(), &pod).await {
        Err(kube::Error::Api(status)) => Ok(status.message),
        other => anyhow::bail!("not denied: {other:?}"),
    }
}

/// Waits until the claims of a deleted pod are gone.
pub(crate) async fn gone(scope: &Scope, pod: &str) -> anyhow::Result<()> {
    tests::eventually(SOON, async || {
        let claims = scope.api::<ResourceClaim>().list(&ListParams::default()).await?;
        let left = claims.items.iter().filter_map(|claim| claim.metadata.name.as_deref());
        let left = left.filter(|name| name.starts_with(pod)).count();
        Ok(tests::Check::that(left == 0, || format!("{left} claims of `{pod}`")))
    })
    .await
}

pub(crate) fn pod(name: &str, nics: Option<&str>) -> Pod {
    let annotations = nics.map(|nics| json!({"dranet.io/aligned-nics": nics}));
    let limits = if nics.is_some() { json!({"nvidia.com/gpu": "1"}) } else { json!({}) };
    object(&json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [
            {"name": "nccl", "image": "nccl", "resources": {"limits": limits}},
        ]},
    }))
}

pub(crate) fn pod_with_template(name: &str, template: &str) -> Pod {
    object(&json!({
        "metadata": {"name": name},
        "spec": {
            "containers": [
                {"name": "nccl", "image": "nccl", "resources": {"claims": [{"name": "gpu-nic"}]}},
            ],
            "resourceClaims": [{"name": "gpu-nic", "resourceClaimTemplateName": template}],
        },
    }))
}

fn object(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}
