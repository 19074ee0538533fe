//! How the real scheduler and the real claim controller handle slices and templates, without any of
//! our programs. The other tests build on this.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use k8s_openapi::api::resource::v1::{DeviceRequestAllocationResult, ResourceClaim};
use kube::{Api, ResourceExt, api::ListParams};
use tests::{ControlPlane, Scope, gb300, suite::Test, with_scope};

const SOON: Duration = Duration::from_secs(30);

pub(crate) fn tests() -> Vec<Test> {
    // Templates name device classes, which are cluster-scoped.
    let all = tests::tests![upstreams_templates_get_the_devices_that_they_name];
    all.into_iter().map(Test::alone).collect()
}

/// One node, upstream's own two slices, upstream's own templates.
async fn upstreams_templates_get_the_devices_that_they_name(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let cases = [
        ("1nic-aligned", "gpu: gpu-0, nic: pci-0101-00-00-0"),
        ("1nic-unaligned", "gpu: gpu-0, nic: pci-0103-00-00-0"),
        ("2nic-aligned", "gpu: gpu-0, nic: pci-0101-00-00-0, nic: pci-0102-00-00-0"),
        ("ib-same-fabric", "nic: pci-0101-00-00-0"),
    ];
    with_scope(plane.client(), async |scope| {
        let node = scope.node("gb300").await?.name_any();
        scope.apply_file(&gb300::file("device-classes.yaml")).await?;
        scope.apply_file(&gb300::file("resource-claim-template.yaml")).await?;
        scope.apply_all([gb300::gpu_slice(&node)?, gb300::nic_slice(&node)?]).await?;
        for (template, expected) in cases {
            scope.apply_yaml(&pod(template)).await?;
            let pod = scope.bound(template, SOON).await?;
            assert_eq!(pod.spec.and_then(|spec| spec.node_name).as_deref(), Some(&*node));
            assert_eq!(devices(scope, template).await?, expected, "{template}");
            scope.delete_pod(template).await?;
        }
        Ok(())
    })
    .await
}

/// A pod with one claim, both named as the template.
fn pod(template: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata:
  name: {template}
spec:
  containers:
  - name: worker
    image: none
    resources:
      claims:
      - name: devices
  resourceClaims:
  - name: devices
    resourceClaimTemplateName: {template}
"
    )
}

/// The devices of a pod's claim, `request: device` in the allocation's order.
async fn devices(scope: &Scope, pod: &str) -> anyhow::Result<String> {
    let claims: Api<ResourceClaim> = scope.api();
    let all = claims.list(&ListParams::default()).await?;
    let claim = all.items.into_iter().find(|claim| claim.name_any().starts_with(pod));
    let status = claim.context("the pod has a claim")?.status.context("it has a status")?;
    let results = status.allocation.and_then(|allocation| allocation.devices?.results);
    let text =
        |result: &DeviceRequestAllocationResult| format!("{}: {}", result.request, result.device);
    Ok(results.unwrap_or_default().iter().map(text).collect::<Vec<_>>().join(", "))
}
