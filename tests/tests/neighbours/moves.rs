//! Kueue: jobs with claims that lose their quota, get it back, and run in part; and groups that wait for
//! Kueue and for a fabric.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Node, Pod},
    resource::v1::ResourceClaim,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, eventually,
    kueue::{Claims, Kueue},
    suite::Test,
    with_last_scope,
};

use super::{
    kinds::{counted_job, member},
    kueue::{COUNTED, FABRIC, counted, object},
    outcome::nodes,
};

const SOON: Duration = Duration::from_mins(1);
const COHORT: &str = "both";

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![jobs_with_claims_lose_and_regain_their_quota]
}

async fn jobs_with_claims_lose_and_regain_their_quota(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let plane = &*plane;
    with_last_scope(plane.client(), async |scope| {
        let _installation = counted(plane, scope).await?;
        let _kueue = Kueue::start(plane, scope, &json!({}), Claims::Ignored).await?;
        apply(scope, [object("ResourceFlavor", "gb300", &json!({}))]).await?;
        for queue in ["lender", "borrower", "part", "fabric"] {
            apply(scope, queues(queue)).await?;
        }
        preemption_in_a_cohort(scope).await?;
        partial_admission(scope).await?;
        gates_of_both(scope).await
    })
    .await
}

/// A job on borrowed quota gives its devices back when their owner wants them, and runs again afterwards.
async fn preemption_in_a_cohort(scope: &Scope) -> anyhow::Result<()> {
    apply(scope, [job("borrower", "borrower", (2, 4), json!({}))]).await?;
    run_with_devices(scope, "job-name=borrower", 2).await?;
    apply(scope, [job("owner", "lender", (1, 4), json!({}))]).await?;
    run_with_devices(scope, "job-name=owner", 1).await?;
    eventually(SOON, async || {
        let pods = pods(scope, "job-name=borrower").await?;
        let claims = scope.api::<ResourceClaim>().list(&ListParams::default()).await?.items;
        Ok(Check::that(pods.is_empty() && claims.len() == 1, || {
            format!("{} pods and {} claims are left", pods.len(), claims.len())
        }))
    })
    .await?;
    scope.api::<Job>().delete("owner", &DeleteParams::background()).await?;
    run_with_devices(scope, "job-name=borrower", 2).await?;
    scope.api::<Job>().delete("borrower", &DeleteParams::background()).await?;
    Ok(())
}

/// Of four pods two fit the quota; the job says that it can run so.
async fn partial_admission(scope: &Scope) -> anyhow::Result<()> {
    let least = json!({"kueue.x-k8s.io/job-min-parallelism": "1"});
    apply(scope, [job("part", "part", (4, 2), least)]).await?;
    run_with_devices(scope, "job-name=part", 2).await?;
    let part = scope.api::<Job>().get("part").await?;
    assert_eq!(part.spec.and_then(|spec| spec.parallelism), Some(2));
    Ok(())
}

/// Kueue admits a group of pods first, then fabric-controller chooses.
async fn gates_of_both(scope: &Scope) -> anyhow::Result<()> {
    for index in 0..2 {
        apply(scope, [member("fabric", index, (2, 2))]).await?;
    }
    let bound = run_with_devices(scope, "kueue.x-k8s.io/pod-group-name=fabric", 2).await?;
    let all: Api<Node> = Api::all(scope.client());
    let mut fabrics = BTreeSet::new();
    for node in &bound {
        fabrics.insert(all.get(node).await?.labels()[FABRIC].clone());
    }
    assert_eq!(fabrics.len(), 1, "{bound:?}");
    Ok(())
}

/// Waits until so many pods have a node, and each a claim with devices; returns the nodes.
async fn run_with_devices(
    scope: &Scope,
    labels: &str,
    count: usize,
) -> anyhow::Result<Vec<String>> {
    eventually(SOON, async || {
        let (bound, waiting) = nodes(scope, labels).await?;
        let names: BTreeSet<String> =
            pods(scope, labels).await?.iter().map(ResourceExt::name_any).collect();
        let claims = scope.api::<ResourceClaim>().list(&ListParams::default()).await?.items;
        let with_devices = claims.iter().filter(|claim| {
            let status = claim.status.as_ref().filter(|status| status.allocation.is_some());
            let users = status.into_iter().flat_map(|status| status.reserved_for.iter().flatten());
            users.into_iter().any(|user| names.contains(&user.name))
        });
        if bound.len() == count && waiting.is_empty() && with_devices.count() == count {
            return Ok(Check::Done(bound));
        }
        Ok(Check::NotYet(format!("{labels}: bound to {bound:?}; {waiting:?}")))
    })
    .await
}

async fn pods(scope: &Scope, labels: &str) -> anyhow::Result<Vec<Pod>> {
    Ok(scope.api::<Pod>().list(&ListParams::default().labels(labels)).await?.items)
}

async fn apply(scope: &Scope, objects: impl IntoIterator<Item = Value>) -> anyhow::Result<()> {
    for object in objects {
        scope.apply(serde_json::from_value(object)?).await?;
    }
    Ok(())
}

/// A queue with a quota of four GPUs. The first two lend them to each other.
fn queues(name: &str) -> [Value; 2] {
    let quotas = [("cpu", "100"), ("memory", "1Ti"), (COUNTED, "4")];
    let covered = quotas.map(|(name, _)| name);
    let quotas = quotas.map(|(name, quota)| json!({"name": name, "nominalQuota": quota}));
    let mut spec = json!({
        "namespaceSelector": {},
        "preemption": {"reclaimWithinCohort": "Any"},
        "resourceGroups": [{
            "coveredResources": covered,
            "flavors": [{"name": "gb300", "resources": quotas}],
        }],
    });
    if ["lender", "borrower"].contains(&name) {
        spec["cohortName"] = COHORT.into();
    }
    [
        object("ClusterQueue", name, &spec),
        object("LocalQueue", name, &json!({ "clusterQueue": name })),
    ]
}

fn job(name: &str, queue: &str, (pods, gpus): (u32, u32), annotations: Value) -> Value {
    let mut job = counted_job(name, queue, gpus);
    job["metadata"]["annotations"] = annotations;
    job["spec"]["parallelism"] = pods.into();
    job["spec"]["completions"] = pods.into();
    // No kubelet ends them.
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0.into();
    job
}
