//! Feature gates of Kubernetes 1.37 that are off by default: with each of them, and with all, annotated pods
//! get the same aligned devices as without. Alpha gates of the allocator select another implementation of
//! it for every pod (`AllocatorImplementations` in dynamic-resource-allocation/structured/allocator.go).

use std::{collections::BTreeSet, sync::Arc};

use anyhow::Context;
use tests::{ControlPlane, Options, suite::Test};

use super::thin_line::{four_pods_take_all_nics, with_installation};

/// Gates of workloads and of DRA, each with those that it needs.
const GATES: [&[&str]; 5] = [
    &["GenericWorkload", "DRAWorkloadResourceClaims"],
    &["GenericWorkload", "TopologyAwareWorkloadScheduling"],
    &["GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup"],
    &["DRADerivedAttributes", "DRAListTypeAttributes"],
    &["DRADeviceCompatibilityGroups", "DRAOptionalNodeOperations"],
];

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![pods_are_aligned_with_every_gate_of_this_version]
}

async fn pods_are_aligned_with_every_gate_of_this_version(
    _: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let all: BTreeSet<&str> = GATES.into_iter().flatten().copied().collect();
    for gates in GATES.into_iter().map(|gates| gates.iter().copied().collect()).chain([all]) {
        pods_are_aligned_with(&gates).await?;
    }
    Ok(())
}

/// On a control plane of its own.
async fn pods_are_aligned_with(gates: &BTreeSet<&str>) -> anyhow::Result<()> {
    let options = Options {
        feature_gates: gates.iter().map(|gate| format!("{gate}=true")).collect(),
        apiserver_args: vec![
            "--runtime-config=scheduling.k8s.io/v1beta1=true,scheduling.k8s.io/v1alpha3=true"
                .to_owned(),
        ],
        ..Options::default()
    };
    let plane = Arc::new(ControlPlane::start(options).await?);
    with_installation(plane, async |scope, _, _| {
        four_pods_take_all_nics(scope).await.with_context(|| format!("{gates:?}"))?;
        Ok(())
    })
    .await
}
