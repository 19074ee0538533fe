//! A replica dies in the middle of a burst. No pod is admitted without its claim, and only requests
//! that got an error are lost.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaimTemplate};
use kube::{
    Api, ResourceExt,
    api::{ListParams, PostParams},
};
use serde_json::json;
use tests::{
    Check, ControlPlane, Scope, eventually, installation::Installation, suite::Test, with_scope,
};

const SOON: Duration = Duration::from_secs(30);
const PODS: usize = 500;
/// The number of parallel requests.
const TOGETHER: usize = 16;
/// The number of responses after which the replica is killed.
const KILL_AFTER: usize = 150;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![no_pod_is_admitted_without_its_claim_when_a_replica_dies];
    all.into_iter().map(Test::alone).collect()
}

async fn no_pod_is_admitted_without_its_claim_when_a_replica_dies(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        installation.start_replicas(2, &[]).await?;
        let answered = AtomicUsize::new(0);
        let burst = burst(scope, &answered);
        let kill = async {
            let enough = async || {
                let count = answered.load(Ordering::Relaxed);
                Ok(Check::that(count >= KILL_AFTER, || format!("{count} answers")))
            };
            eventually(SOON, enough).await?;
            // kube-apiserver keeps a single connection. Both replicas are killed in turn, so the
            // connection is lost at least once, whichever replica it is to.
            installation.kill_replica(0).await?;
            installation.start_replica(2, &[]).await?;
            installation.kill_replica(0).await
        };
        let (created, killed) = tokio::join!(burst, kill);
        killed?;
        installation.answers().await?;
        assert!(created.len() > PODS / 2, "{} of {PODS} came in", created.len());
        check(scope, &created).await
    })
    .await
}

/// Creates the pods. Returns the names of those whose creation succeeded.
async fn burst(scope: &Scope, answered: &AtomicUsize) -> BTreeSet<String> {
    let pods: Api<Pod> = scope.api();
    let create = async |index: usize| {
        let created = pods.create(&PostParams::default(), &pod(index)).await;
        answered.fetch_add(1, Ordering::Relaxed);
        match created {
            Ok(pod) => Some(pod.name_any()),
            Err(kube::Error::Api(_)) => None,
            Err(error) => panic!("no answer: {error}"),
        }
    };
    let all = stream::iter(0..PODS).map(create).buffer_unordered(TOGETHER);
    all.filter_map(async |name| name).collect().await
}

async fn check(scope: &Scope, created: &BTreeSet<String>) -> anyhow::Result<()> {
    let there = scope.api::<Pod>().list(&ListParams::default()).await?.items;
    let names: BTreeSet<_> = there.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, *created, "what was answered is there, and nothing else");
    // The leader creates those that the killed replicas did not.
    let templates: BTreeSet<String> = eventually(SOON, async || {
        let there = scope.api::<ResourceClaimTemplate>().list(&ListParams::default()).await?;
        let there: BTreeSet<_> = there.iter().map(ResourceExt::name_any).collect();
        anyhow::ensure!(there.len() <= 2, "one for each demand: {there:?}");
        let is_all = there.len() == 2;
        Ok(if is_all { Check::Done(there) } else { Check::NotYet(format!("{there:?}")) })
    })
    .await?;
    for pod in &there {
        let spec = pod.spec.clone().unwrap_or_default();
        let claims = spec.resource_claims.unwrap_or_default();
        let refers = |name: &String| templates.contains(name);
        let aligned = claims.iter().filter_map(|claim| claim.resource_claim_template_name.as_ref());
        assert!(aligned.into_iter().any(refers), "{} has no claim", pod.name_any());
        let limits = spec.containers[0].resources.clone().and_then(|resources| resources.limits);
        assert_eq!(limits.unwrap_or_default().len(), 0, "{} keeps its limits", pod.name_any());
    }
    Ok(())
}

/// A pod with a scheduling gate, so that only admission is tested.
fn pod(index: usize) -> Pod {
    let nics = (index % 2 + 1).to_string();
    serde_json::from_value(json!({
        "metadata": {
            "name": format!("p{index}"),
            "annotations": {"dranet.io/aligned-nics": nics},
        },
        "spec": {
            "schedulingGates": [{"name": "tests/held"}],
            "containers": [
                {"name": "nccl", "image": "nccl", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
            ],
        },
    }))
    .unwrap()
}
