//! Pods that share NICs, with the real scheduler. They never take more of a NIC than it has; a pod
//! that does not fit goes elsewhere or waits; and a shared NIC is never allocated exclusively.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context;
use dra_allocator::Quantity;
use k8s_openapi::api::{
    core::v1::Pod,
    resource::v1::{DeviceRequestAllocationResult, ResourceClaim, ResourceSlice},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::{Value, json};
use tests::{ControlPlane, Scope, installation::Installation, suite::Test, with_scope};

const SOON: Duration = Duration::from_mins(2);

/// The flags that the operator sets.
const FLAGS: [&str; 2] = ["--sharing=bandwidth", "--rdma-hca-max=3"];

/// The capacity of a GB300 NIC with these flags: bits per second, and claims.
const WHOLE: (i64, i64) = (800_000_000_000, 3);

/// The only NIC of each node that the pods may have; it is near two of its GPUs.
const NIC: &str = "0101:00:00.0";

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![pods_share_nics_and_never_take_more_than_they_have];
    all.into_iter().map(Test::alone).collect()
}

async fn pods_share_nics_and_never_take_more_than_they_have(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        for name in ["one", "two"] {
            let node = installation.gb300_by(name, &FLAGS).await?;
            is_published(scope, &node).await?;
        }
        scope.apply(serde_json::from_value(class())?).await?;
        installation.start_admission().await?;
        installation.start_extender().await?;

        let half = [("nic-sharing", "shared"), ("nic-bandwidth", "500G")];
        let rest = [("nic-sharing", "shared"), ("nic-bandwidth", "300G")];
        create(scope, "a", &half).await?;
        create(scope, "b", &half).await?;
        let [a, b] = [node(scope, "a").await?, node(scope, "b").await?];
        assert_ne!(a, b, "500 and 500 Gbit/s do not fit on one NIC");
        create(scope, "c", &half).await?;
        scope.unschedulable("c", SOON).await?;

        create(scope, "d", &rest).await?;
        let d = node(scope, "d").await?;
        let used = used(scope).await?;
        assert_eq!(used.get(&d), Some(&(WHOLE.0, 2)), "{used:?}");

        // A share without bandwidth fits on either NIC, even if all of the bandwidth is taken.
        create(scope, "e", &[("nic-sharing", "shared")]).await?;
        let e = node(scope, "e").await?;
        let used = self::used(scope).await?;
        assert_eq!(used.values().map(|(_, shares)| shares).sum::<i64>(), 4, "{used:?} on {e}");

        // A pod that does not share waits for an unused NIC.
        create(scope, "alone", &[]).await?;
        scope.unschedulable("alone", SOON).await?;

        for name in ["d", "e"] {
            scope.delete_pod(name).await?;
        }
        let (freed, pod) = if a == d { (b, "b") } else { (a, "a") };
        scope.delete_pod(pod).await?;
        // Either pod may be tried first: it gets the whole NIC, or its half.
        let waiting = ["c", "alone"];
        let got = tokio::select! {
            pod = scope.bound(waiting[0], SOON) => pod?,
            pod = scope.bound(waiting[1], SOON) => pod?,
        };
        let got = got.metadata.name.context("a pod has a name")?;
        let used = self::used(scope).await?;
        let taken = if got == "alone" { WHOLE } else { (500_000_000_000, 1) };
        assert_eq!(used.get(&freed), Some(&taken), "{got}: {used:?}");

        let denial = denied(scope, &[("nic-sharing", "shared"), ("nic-bandwidth", "801G")]).await?;
        assert!(denial.contains("no NIC that pods can share here has more than 800G"), "{denial}");
        Ok(())
    })
    .await
}

/// Checks that the API server has kept what the driver wrote.
async fn is_published(scope: &Scope, node: &str) -> anyhow::Result<()> {
    let slices: Api<ResourceSlice> = Api::all(scope.client());
    let of_node = format!("spec.nodeName={node},spec.driver=dra.net");
    let slices = slices.list(&ListParams::default().fields(&of_node)).await?;
    let devices = slices.items.into_iter().flat_map(|slice| slice.spec.devices.unwrap_or_default());
    let devices: Vec<_> = devices.collect();
    assert_eq!(devices.len(), 4);
    for device in devices {
        assert_eq!(device.allow_multiple_allocations, Some(true));
        let capacity = device.capacity.context("capacities")?;
        let text = |name: &str| capacity.get(name).map(|it| it.value.0.as_str());
        assert_eq!(text("dranet.io/bandwidth"), Some("800G"));
        assert_eq!(text("dranet.io/shares"), Some("3"));
        assert!(capacity["dranet.io/shares"].request_policy.is_some());
    }
    Ok(())
}

fn class() -> Value {
    let expression = format!(
        r#"device.driver == "dra.net" && device.attributes["resource.kubernetes.io"].pciBusID == "{NIC}""#
    );
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "one-nic"},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    })
}

fn pod(name: &str, annotations: &[(&str, &str)]) -> Value {
    let all = [("aligned-nics", "1"), ("alignment", "numa"), ("nic-class", "one-nic")];
    let all = all.iter().chain(annotations);
    let all: BTreeMap<_, _> =
        all.map(|(key, value)| (format!("dranet.io/{key}"), *value)).collect();
    json!({
        "metadata": {"name": name, "annotations": all},
        "spec": {"containers": [{
            "name": "nccl", "image": "nccl", "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }]},
    })
}

async fn create(scope: &Scope, name: &str, annotations: &[(&str, &str)]) -> anyhow::Result<()> {
    let pod = serde_json::from_value(pod(name, annotations))?;
    scope.api::<Pod>().create(&PostParams::default(), &pod).await?;
    Ok(())
}

async fn denied(scope: &Scope, annotations: &[(&str, &str)]) -> anyhow::Result<String> {
    let created = create(scope, "denied", annotations).await;
    Ok(format!("{:#}", created.err().context("the pod is denied")?))
}

/// The node that a pod gets.
async fn node(scope: &Scope, pod: &str) -> anyhow::Result<String> {
    let pod = scope.bound(pod, SOON).await?;
    pod.spec.and_then(|spec| spec.node_name).context("a bound pod has a node")
}

/// What claims take of the NIC of each node. Fails if it is more than the NIC has.
async fn used(scope: &Scope) -> anyhow::Result<BTreeMap<String, (i64, i64)>> {
    let mut used: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    for claim in scope.api::<ResourceClaim>().list(&ListParams::default()).await? {
        let allocation = claim.status.and_then(|status| status.allocation);
        let results = allocation.and_then(|it| it.devices?.results).unwrap_or_default();
        for result in results.iter().filter(|result| result.driver == "dra.net") {
            let used = used.entry(result.pool.clone()).or_default();
            used.0 += amount(result, "dranet.io/bandwidth")?;
            used.1 += amount(result, "dranet.io/shares")?;
            anyhow::ensure!(used.0 <= WHOLE.0 && used.1 <= WHOLE.1, "{used:?} of {}", result.pool);
        }
    }
    Ok(used)
}

fn amount(result: &DeviceRequestAllocationResult, name: &str) -> anyhow::Result<i64> {
    let consumed = result.consumed_capacity.as_ref().and_then(|all| all.get(name));
    Ok(consumed.context("the scheduler counts it")?.0.parse::<Quantity>()?.value())
}
