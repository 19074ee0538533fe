//! Late binding through the whole preparation: random pods come and go on recorded machines, a device
//! plugin gives them GPUs, and each gets the nearest free NICs, while the driver restarts.
//!
//! `$DRANET_LATE_PODS` sets the number of pods (600), `$DRANET_SEED` the seed.
#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

mod late {
    pub(crate) mod characters;
    pub(crate) mod dice;
    pub(crate) mod kubelet;
    pub(crate) mod nearest;
    pub(crate) mod stage;
}

use late::dice::Dice;
use late::kubelet::PodList;
use late::nearest;
use late::stage::{Pod, Stage};
use node_driver::model::checkpoint::{Checkpoint, Phase};
use std::collections::BTreeSet;
use std::time::Duration;
use topology_graph::Level;

#[expect(clippy::disallowed_methods, reason = "a test has no arguments")]
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

/// Pairs below switches, two GPUs and NICs per switch, and several NUMA nodes per socket.
const MACHINES: [&str; 4] = ["azure-gb300", "x86-two-per-switch", "x86-snc2", "dgx-h100"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_pods_get_the_nearest_free_nics() {
    let pods = setting("DRANET_LATE_PODS", 600).div_ceil(MACHINES.len());
    let seed = setting("DRANET_SEED", 7);
    let mut times = Vec::new();
    let (mut given, mut refused, mut restarts) = (0, 0, 0);
    for machine in MACHINES {
        let mut dice = Dice(u64::try_from(seed).unwrap() + 1);
        let mut stage = Stage::start(machine);
        let mut living: Vec<Pod> = Vec::new();
        for number in 0..pods {
            let context = format!("{machine}, seed {seed}, pod {number}");
            while !living.is_empty() && dice.below(3) == 0 {
                let ended = living.swap_remove(dice.below(living.len()));
                stage.end(&ended).await;
            }
            if dice.below(40) == 0 {
                stage.restart();
                restarts += 1;
                for pod in &living {
                    assert_eq!(stage.prepare(pod).await.unwrap(), stage.nics_of(pod), "{context}");
                }
            }
            stage.break_some(&mut dice);
            let Some(pod) = stage.admit(&mut dice, number) else { continue };
            let free = stage.free();
            let began = std::time::Instant::now();
            let prepared = stage.prepare(&pod).await;
            times.push(began.elapsed());
            let best = nearest::best(&stage.topology, &pod, &free);
            match prepared {
                Ok(nics) => {
                    given += 1;
                    assert!(nics.iter().all(|nic| free.contains(nic)), "{context}: {nics:?}");
                    let worth = nearest::most_of(&stage.topology, &pod, &nics);
                    assert!(worth.is_some(), "{context}: {nics:?} too far for {pod:?}");
                    assert_eq!(worth, best, "{context}: {nics:?} of {free:?} for {pod:?}");
                    living.push(pod);
                }
                Err(error) => {
                    refused += 1;
                    assert_eq!(best, None, "{context}: {error} of {free:?} for {pod:?}");
                    stage.end(&pod).await;
                }
            }
            stage.check_no_nic_twice(&context);
        }
        stage.stop().await;
    }
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!(
        "{given} pods have the nearest NICs, {refused} could not, {restarts} restarts; prepared in \
         p50 {:?}, p99 {:?}, max {:?}",
        at(50),
        at(99),
        at(100)
    );
    assert!(given > 10 && refused > 0 && at(50) < Duration::from_secs(1));
}

/// The kubelet repeats a preparation whose answer it did not get. Whatever the driver had done when it
/// was killed, the NICs are given out once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preparation_that_was_cut_short_is_begun_again() {
    let mut stage = Stage::start("x86-two-per-switch");
    let pod = stage.pod_on(0, &["GPU2"], 1, Some(Level::Switch));
    let nics = stage.prepare(&pod).await.unwrap();
    let path = stage.checkpoint();
    let text = std::fs::read_to_string(&path).unwrap();
    let mut checkpoint = Checkpoint::from_text(&text).unwrap();
    for record in checkpoint.claims.values_mut() {
        record.phase = Phase::Preparing;
    }
    std::fs::write(&path, checkpoint.to_text().unwrap()).unwrap();
    stage.restart();
    assert_eq!(stage.nics_of(&pod), BTreeSet::new(), "undone");
    assert_eq!(stage.prepare(&pod).await.unwrap(), nics);
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stops_a_pod_is_said() {
    let mut stage = Stage::start("x86-two-per-switch");
    let mut said = Vec::new();
    let first = stage.pod_on(0, &["GPU2", "GPU3"], 2, Some(Level::Switch));
    stage.prepare(&first).await.unwrap();

    // The NICs of its switch are in use.
    let far = stage.pod_on(1, &["GPU2"], 1, Some(Level::Switch));
    said.push(stage.prepare(&far).await.unwrap_err());
    // The kubelet gave another number of GPUs than the claim is for.
    let mut few = stage.pod_on(2, &["GPU0"], 1, None);
    few.expected = Some(2);
    said.push(stage.prepare(&few).await.unwrap_err());
    let strange = stage.pod_with(3, &[("nvidia.com/gpu", "GPU-of-another-machine")], 1);
    said.push(stage.prepare(&strange).await.unwrap_err());
    let part = stage.pod_with(4, &[("nvidia.com/mig-1g.10gb", "MIG-8c2a")], 1);
    said.push(stage.prepare(&part).await.unwrap_err());
    let many = stage.pod_on(5, &["GPU0"], 7, None);
    said.push(stage.prepare(&many).await.unwrap_err());
    let mut shared = stage.pod_on(6, &["GPU0"], 1, None);
    shared.pods = 2;
    said.push(stage.prepare(&shared).await.unwrap_err());
    stage.list.set(PodList::default());
    let unlisted = Pod { number: 7, ..first.clone() };
    said.push(stage.prepare(&unlisted).await.unwrap_err());
    let early = stage.pod_on(8, &["GPU0"], 1, None);
    stage.forget_publication();
    said.push(stage.prepare(&early).await.unwrap_err());
    stage.stop().await;
    let gone = stage.pod_on(9, &["GPU0"], 1, None);
    let error = stage.prepare(&gone).await.unwrap_err();
    said.push(error.replace(&stage.folder.path().display().to_string(), ""));
    insta::assert_snapshot!(said.join("\n"));
}

/// What the container, the claim's status and the kubelet are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_choice_is_told_to_the_container_and_in_the_status() {
    let mut stage = Stage::start("x86-two-per-switch");
    let pod = stage.pod_on(0, &["GPU2", "GPU0"], 2, Some(Level::Switch));
    stage.prepare(&pod).await.unwrap();
    insta::assert_json_snapshot!("told", stage.told(&pod));
    stage.stop().await;
}
