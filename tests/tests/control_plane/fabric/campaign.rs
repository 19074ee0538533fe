//! Random gangs come and go. None is split, and all of them run.

use std::{collections::BTreeMap, env, sync::Arc, time::Instant};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use tests::{Check, ControlPlane, Scope, eventually, random::Random};

use super::site::{
    SOON, create, fabrics, is_held, node, on_fabrics, placed, pod, pods, with_fabrics,
};

/// The variable that requests the large campaign: 50 gangs on 8 fabrics of 16 nodes.
const LARGE: &str = "DRANET_FABRIC_CAMPAIGN";

/// The number of pods created in parallel.
const TOGETHER: usize = 16;

struct Campaign {
    fabrics: usize,
    nodes: usize,
    gangs: usize,
    /// The maximum number of pods of a gang; each takes a whole node.
    most: usize,
}

pub(super) async fn random_gangs_are_never_split_and_all_run(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let campaign = if env::var_os(LARGE).is_some() {
        Campaign { fabrics: 8, nodes: 16, gangs: 50, most: 16 }
    } else {
        Campaign { fabrics: 3, nodes: 4, gangs: 12, most: 4 }
    };
    let size = (campaign.fabrics, campaign.nodes);
    with_fabrics(plane, size, 1, &["--reserve-seconds=5"], async |scope, _| {
        let begun = Instant::now();
        run(scope, &campaign).await?;
        report(&format!("{} gangs in {:.1?}", campaign.gangs, begun.elapsed()));
        Ok(())
    })
    .await
}

/// 512 pods with the large campaign, and fewer without it.
pub(super) async fn the_gates_of_a_large_gang_are_removed_together(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let nodes = if env::var_os(LARGE).is_some() { 128 } else { 8 };
    let count = 4 * nodes;
    with_fabrics(plane, (1, nodes), 1, &[], async |scope, _| {
        let create_one = async |index: usize| {
            let mut pod = pod(&format!("p{index}"), "large", count, false);
            pod.metadata.labels = Some([("gang".to_owned(), "large".to_owned())].into());
            create(scope, &pod).await
        };
        let all = stream::iter(0..count).map(create_one).buffer_unordered(TOGETHER);
        all.try_collect::<Vec<()>>().await?;
        let begun = Instant::now();
        eventually(SOON, async || {
            let held = pods(scope, "gang").await?.iter().filter(|pod| is_held(pod)).count();
            Ok(Check::that(held == 0, || format!("{held} of {count} are held")))
        })
        .await?;
        report(&format!("{count} gates removed {:.1?} after the last pod", begun.elapsed()));
        placed(scope, "gang", count).await.map(drop)
    })
    .await
}

/// Creates all gangs at once. Whenever a whole gang runs, it ends and makes room for others.
async fn run(scope: &Scope, campaign: &Campaign) -> anyhow::Result<()> {
    let mut random = Random(0x0fab);
    let mut waiting: BTreeMap<String, usize> = BTreeMap::new();
    for gang in 0..campaign.gangs {
        let size = 2 + random.below(campaign.most - 1);
        let name = format!("g{gang}");
        for index in 0..size {
            let mut pod = pod(&format!("{name}-{index}"), &name, size, true);
            pod.metadata.labels = Some([("gang".to_owned(), name.clone())].into());
            create(scope, &pod).await?;
        }
        waiting.insert(name, size);
    }
    let fabrics = fabrics(scope).await?;
    while !waiting.is_empty() {
        let ended = eventually(SOON, async || {
            let by_gang = by_gang(pods(scope, "gang").await?);
            for (gang, pods) in &by_gang {
                let on = on_fabrics(pods, &fabrics);
                assert!(on.len() <= 1, "{gang} is split over {on:?}");
            }
            let whole = |(gang, pods): (&String, &Vec<Pod>)| {
                let bound = pods.iter().filter(|pod| node(pod).is_some()).count();
                (waiting.get(gang) == Some(&bound)).then(|| gang.clone())
            };
            let whole: Vec<_> = by_gang.iter().filter_map(whole).collect();
            if whole.is_empty() {
                return Ok(Check::NotYet(format!("{waiting:?} wait, and none runs")));
            }
            Ok(Check::Done(whole))
        })
        .await?;
        for gang in ended {
            let now = DeleteParams::default().grace_period(0);
            let of_gang = ListParams::default().labels(&format!("gang={gang}"));
            scope.api::<Pod>().delete_collection(&now, &of_gang).await?;
            waiting.remove(&gang);
        }
    }
    Ok(())
}

fn by_gang(pods: Vec<Pod>) -> BTreeMap<String, Vec<Pod>> {
    let mut gangs: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
    for pod in pods {
        let gang = pod.metadata.labels.as_ref().and_then(|labels| labels.get("gang")).cloned();
        gangs.entry(gang.unwrap_or_default()).or_default().push(pod);
    }
    gangs
}

#[expect(clippy::print_stderr, reason = "the time is reported, not asserted")]
fn report(line: &str) {
    eprintln!("{line}");
}
