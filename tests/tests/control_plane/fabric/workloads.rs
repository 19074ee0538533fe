//! `deploy/examples` on a real API server with the definitions of their kinds
//! (`fixtures/workloads`): the server accepts each object with every field, and the pods that its
//! controller makes get their devices, each group on one fabric.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::Context;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod, resource::v1::ResourceClaim};
use kube::{
    ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, PostParams, PropagationPolicy},
};
use serde_json::Value;
use tests::{Check, ControlPlane, Scope, binaries, eventually, manifest};

use super::{
    controllers::children,
    site::{SOON, fabrics, node, with_fabrics},
};

const DEFINITIONS: &str = "fixtures/workloads";
const ALIGNED: &str = "dranet.io/aligned-nics";
const FABRIC: &str = "dranet.io/fabric";
const LWS_GROUP: &str = "leaderworkerset.sigs.k8s.io/group-key";

/// The examples that run here, with the number of their pods with aligned NICs.
const EXAMPLES: [(&str, usize); 10] = [
    ("workloads/job.yaml", 2),
    ("workloads/jobset.yaml", 2),
    ("workloads/leaderworkerset.yaml", 4),
    ("workloads/pytorchjob.yaml", 2),
    ("workloads/raycluster.yaml", 2),
    ("workloads/statefulset.yaml", 2),
    ("workloads/storage.yaml", 1),
    ("workloads/trainjob.yaml", 2),
    ("workloads/vllm-prefill-decode.yaml", 2),
    ("upstream/mpijob-training.yaml", 2),
];

pub(super) async fn examples_of_workloads_run(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_fabrics(plane, (2, 2), 1, &[], async |scope, _| {
        install_definitions(scope).await?;
        let every = every_example()?;
        for path in &every {
            // The test of upstream's examples creates their pods, each on its machine.
            let is_pod = |it: &DynamicObject| it.types.as_ref().is_some_and(|it| it.kind == "Pod");
            for object in manifest::read(path)?.iter().filter(|it| !is_pod(it)) {
                let accepted = manifest::check(&scope.client(), object, scope.namespace()).await;
                accepted.with_context(|| path.display().to_string())?;
            }
        }
        let of_workloads =
            |path: &&PathBuf| path.parent().is_some_and(|it| it.ends_with("workloads"));
        anyhow::ensure!(every.iter().filter(of_workloads).count() + 1 == EXAMPLES.len());
        for (file, pods) in EXAMPLES {
            runs(scope, file, pods).await.with_context(|| file.to_owned())?;
        }
        Ok(())
    })
    .await
}

async fn install_definitions(scope: &Scope) -> anyhow::Result<()> {
    for entry in fs::read_dir(binaries::in_tests(DEFINITIONS))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "gz") {
            let objects = cluster_model::snapshot::objects(&path)?;
            let objects: Vec<DynamicObject> =
                objects.into_iter().map(serde_json::from_value).collect::<Result<_, _>>()?;
            scope.apply_all(objects).await.with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// All files of examples with objects of users. `cluster.yaml` is a snapshot of a cluster.
fn every_example() -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in fs::read_dir(examples())? {
        for file in fs::read_dir(folder?.path())? {
            files.push(file?.path());
        }
    }
    files.retain(|path| path.file_name().is_some_and(|name| name != "cluster.yaml"));
    files.sort();
    Ok(files)
}

fn examples() -> PathBuf {
    binaries::in_tests("../deploy/examples")
}

/// Creates the objects of an example and what their controllers create, and waits for its pods.
async fn runs(scope: &Scope, file: &str, count: usize) -> anyhow::Result<()> {
    let mut objects = manifest::read(&examples().join(Path::new(file)))?;
    // Those of `upstream` also have the claim that people write by hand.
    objects.retain(|it| it.types.as_ref().is_none_or(|it| it.kind != "ResourceClaimTemplate"));
    let created = scope.apply_all(objects).await?;
    let mut made: Vec<DynamicObject> = Vec::new();
    for parent in &created {
        for child in children(parent, &created)? {
            // Applying would remove the owner, by which pods of one controller are a group.
            create(scope, &child).await?;
            made.push(serde_json::from_value(child)?);
        }
    }
    let fabrics = fabrics(scope).await?;
    eventually(SOON, async || {
        let pods = aligned_pods(scope).await?;
        let bound = pods.iter().filter(|pod| node(pod).is_some()).count();
        Ok(Check::that(bound == count && pods.len() == count, || {
            format!("{bound} of {} pods are bound, of {count}: {}", pods.len(), reasons(&pods))
        }))
    })
    .await?;
    let pods = aligned_pods(scope).await?;
    are_together(&pods, &fabrics)?;
    for object in made.iter().chain(&created).rev() {
        delete(scope, object).await?;
    }
    end_pods(scope).await
}

/// Creates a Job or a Pod.
async fn create(scope: &Scope, child: &Value) -> anyhow::Result<()> {
    let params = PostParams::default();
    if child["kind"] == "Job" {
        let job: Job = serde_json::from_value(child.clone())?;
        scope.api::<Job>().create(&params, &job).await?;
    } else {
        let pod: Pod = serde_json::from_value(child.clone())?;
        scope.api::<Pod>().create(&params, &pod).await?;
    }
    Ok(())
}

async fn aligned_pods(scope: &Scope) -> anyhow::Result<Vec<Pod>> {
    let pods = scope.api::<Pod>().list(&ListParams::default()).await?.items;
    Ok(pods.into_iter().filter(|pod| pod.annotations().contains_key(ALIGNED)).collect())
}

/// Why pods have no node.
fn reasons(pods: &[Pod]) -> String {
    let conditions = pods.iter().flat_map(|pod| {
        let conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
        conditions.filter_map(|it| it.message.clone())
    });
    conditions.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("; ")
}

/// Checks that each group is on one fabric, and that each pod has a claim.
fn are_together(pods: &[Pod], fabrics: &BTreeMap<String, String>) -> anyhow::Result<()> {
    let mut groups: BTreeMap<Option<&String>, BTreeSet<&String>> = BTreeMap::new();
    for pod in pods {
        let claims = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_ref());
        anyhow::ensure!(claims.is_some(), "`{}` has no claim", pod.name_any());
        if pod.annotations().contains_key(FABRIC) {
            let fabric = node(pod).and_then(|node| fabrics.get(node)).context("it has a fabric")?;
            groups.entry(pod.labels().get(LWS_GROUP)).or_default().insert(fabric);
        }
    }
    anyhow::ensure!(groups.values().all(|fabrics| fabrics.len() == 1), "{groups:?}");
    Ok(())
}

async fn delete(scope: &Scope, object: &DynamicObject) -> anyhow::Result<()> {
    let now = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default().grace_period(0)
    };
    manifest::delete(&scope.client(), object, scope.namespace(), &now).await
}

/// Deletes the pods, and waits until their devices are free.
async fn end_pods(scope: &Scope) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let now = DeleteParams::default().grace_period(0);
        scope.api::<Pod>().delete_collection(&now, &ListParams::default()).await?;
        let pods = scope.api::<Pod>().list(&ListParams::default()).await?.items.len();
        let claims = scope.api::<ResourceClaim>().list(&ListParams::default()).await?.items.len();
        Ok(Check::that(pods + claims == 0, || format!("{pods} pods, {claims} claims are left")))
    })
    .await
}
