//! Replays of small traces: results computed by hand, and laws of every replay.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use clap::Parser as _;
use proptest::prelude::*;
use simulator::args::Args;
use simulator::claims::{ClaimError, Claims, Placer};
use simulator::cluster::Cluster;
use simulator::compare::{NoLimit, Observer, Scene, claims, compare, machines};
use simulator::machine::Devices;
use simulator::measures::{Comparison, Measures};
use simulator::policies::PolicyKind;
use simulator::policy::{Candidate, Pod, Policy};
use simulator::replay::{Draw, Record, replay};
use simulator::trace::{Job, Trace};

const HEAD: &str = "job_id,submission_time,duration,num_gpu\n";

/// Claims for pods of any number of GPUs.
static CLAIMS: LazyLock<Arc<Claims>> = LazyLock::new(|| {
    let rows: Vec<String> = (1..=8).map(|gpus| format!("j{gpus},0,1,{gpus}\n")).collect();
    let trace = trace(&rows.concat());
    let args = args(&[]);
    Arc::new(claims(machines(&args.scene.machine).unwrap(), &trace, args.alignment).unwrap())
});

fn trace(rows: &str) -> Trace {
    Trace::parse(format!("{HEAD}{rows}").as_bytes()).unwrap()
}

fn args(more: &[&str]) -> Args {
    let all = ["worth", "--trace", "unused"].iter().chain(more);
    Args::try_parse_from(all).unwrap()
}

fn scene(trace: &Trace, nodes: &str) -> Scene {
    let args = args(&["--nodes", nodes, "--fabric-nodes", "4", "--repeats", "1"]);
    Scene::new(&args.scene, trace, &CLAIMS, None).unwrap()
}

fn measures(scene: &Scene, kind: PolicyKind) -> Measures {
    let workload = &scene.workloads[0];
    let mut placer = Placer::new(Arc::clone(&scene.claims));
    let record = scene.replay(workload, kind, 1, &mut placer).unwrap();
    Measures::new(kind.name(), workload, &record, scene.cluster.domains() > 0)
}

fn is(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn a_full_cluster_makes_jobs_wait_in_their_order() {
    // The third job takes the second's node at 50, the fourth the third's node at 60.
    let trace = trace("a,0,100,8\nb,0,50,8\nc,10,10,8\nd,20,5,1\n");
    let scene = scene(&trace, "2");
    for kind in PolicyKind::ALL {
        let measures = measures(&scene, kind);
        assert!(is(measures.wait_mean_s, (40.0 + 40.0) / 4.0), "{measures:?}");
        assert!(is(measures.wait_p99_s, 40.0), "{measures:?}");
        assert!(is(measures.first_try_8gpu, 2.0 / 3.0), "{measures:?}");
        assert!(is(measures.idle_gpu_share_while_waiting, 0.0), "{measures:?}");
        assert!(is(measures.job_mean_s, 165.0 / 4.0), "{measures:?}");
        assert_eq!(measures.pairs, BTreeMap::from([("PIX".to_owned(), 1.0)]));
    }
}

/// With domains, the extender that does not know them is compared too. It places as on a cluster without
/// them.
#[test]
fn domains_are_compared_with_domains_unknown() {
    let trace = trace("a,0,100,16\nb,1,30,8\nc,2,60,8\nd,5,50,16\ne,40,10,16\nf,41,10,4\n");
    let nodes = ["--nodes", "6", "--fabric-nodes", "6", "--repeats", "1"];
    let plain = [Scene::new(&args(&nodes).scene, &trace, &CLAIMS, None).unwrap()];
    let with_domains = [&nodes[..], &["--domain-nodes", "2"]].concat();
    let divided = [Scene::new(&args(&with_domains).scene, &trace, &CLAIMS, None).unwrap()];
    let names = |compared: &[Comparison]| -> Vec<String> {
        compared[0].policies.iter().map(|policy| policy.name.clone()).collect()
    };
    let (plain, divided) =
        (compare(&plain, 1, &NoLimit).unwrap(), compare(&divided, 1, &NoLimit).unwrap());
    assert_eq!(names(&divided)[..4], names(&plain)[..]);
    assert_eq!(names(&divided)[4..], ["scheduler-ext, domains unknown"]);
    let (known, unknown) = (&divided[0].policies[3], &divided[0].policies[4]);
    let same = Measures { name: known.name.clone(), gangs_in_one_domain: None, ..unknown.clone() };
    assert_eq!(same, plain[0].policies[3]);
    assert!(known.gangs_in_one_domain.unwrap() >= unknown.gangs_in_one_domain.unwrap());
}

/// Two gangs of two nodes, and between them jobs of one node: with domains, the extender leaves a whole
/// domain free for the second gang.
#[test]
fn gangs_within_one_domain_are_counted() {
    let trace = trace("gang,0,100,16\na,1,200,8\nb,2,10,8\nlater,120,100,16\n");
    let nodes = ["--nodes", "6", "--fabric-nodes", "6", "--repeats", "1"];
    let plain = Scene::new(&args(&nodes).scene, &trace, &CLAIMS, None).unwrap();
    assert_eq!(measures(&plain, PolicyKind::SchedulerExt).gangs_in_one_domain, None);
    let with_domains = [&nodes[..], &["--domain-nodes", "2"]].concat();
    let scene = Scene::new(&args(&with_domains).scene, &trace, &CLAIMS, None).unwrap();
    assert_eq!(scene.cluster.domains(), 3);
    for kind in PolicyKind::ALL {
        let of_kind = measures(&scene, kind);
        let share = of_kind.gangs_in_one_domain.unwrap();
        assert!([0.0, 0.5, 1.0].iter().any(|it| is(share, *it)), "{of_kind:?}");
        assert!(is(of_kind.wait_mean_s, measures(&plain, kind).wait_mean_s), "{of_kind:?}");
    }
}

#[test]
fn a_job_is_backfilled_if_it_delays_no_other() {
    // The gang can start at 100. The third job ends before that; the fourth does not, so
    // it waits until the gang has ended at 110.
    let trace = trace("a,0,100,1\ngang,1,10,16\nc,2,50,4\nd,3,200,4\n");
    let scene = scene(&trace, "2");
    for kind in PolicyKind::ALL {
        let measures = measures(&scene, kind);
        assert!(is(measures.wait_mean_s, (99.0 + 107.0) / 4.0), "{measures:?}");
        assert!(is(measures.wait_p99_s, 107.0), "{measures:?}");
        assert!(is(measures.first_try_8gpu, 0.0), "{measures:?}");
        // Of 16 GPUs in 3 seconds, 15 are idle from 1 to 2 and 11 from 2 to 3.
        assert!(is(measures.idle_gpu_share_while_waiting, 26.0 / 48.0), "{measures:?}");
    }
}

#[test]
fn packing_leaves_a_node_whole_and_spreading_does_not() {
    let trace = trace("a,0,100,1\nb,1,100,1\nc,2,10,8\n");
    let scene = scene(&trace, "2");
    for (kind, first) in [
        (PolicyKind::KubeScheduler, 0.0),
        (PolicyKind::MostAllocated, 1.0),
        (PolicyKind::Fgd, 1.0),
        (PolicyKind::SchedulerExt, 1.0),
    ] {
        assert!(is(measures(&scene, kind).first_try_8gpu, first), "{kind:?}");
    }
}

#[test]
fn a_gang_runs_on_one_fabric() {
    // Eight nodes on two fabrics of four. Three nodes of the first fabric are in use, so
    // no fabric has six whole nodes.
    let trace = trace("a,0,100,24\ngang,1,10,40\nb,2,1,32\n");
    let scene = scene(&trace, "8");
    assert_eq!((scene.cluster.fabrics(), scene.too_large()), (2, 1));
    let measures = measures(&scene, PolicyKind::SchedulerExt);
    assert!(is(measures.first_try_8gpu, 1.0), "{measures:?}");
}

#[test]
fn equal_seeds_give_equal_comparisons() {
    let row = |job| format!("j{job},{},{},{}\n", job * 7, 100 + job * 37 % 400, 1 << (job % 5));
    let rows = (0..120).map(row).collect::<Vec<String>>().concat();
    let args = args(&["--nodes", "3", "--load", "0.9", "--repeats", "2"]);
    let scene = || Scene::new(&args.scene, &trace(&rows), &CLAIMS, Some(0.9)).unwrap();
    let run = |seed| compare(&[scene()], seed, &NoLimit).unwrap();
    let (once, again): (Vec<Comparison>, _) = (run(1), run(1));
    assert_eq!(once, again);
    let names: Vec<_> = once[0].policies.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["kube-scheduler", "MostAllocated", "FGD", "scheduler-ext"]);
}

/// Ends a comparison after a number of replays.
struct Limit(AtomicUsize);

impl Observer for Limit {
    fn ended(&self, _: usize, _: usize) {}

    fn goes_on(&self) -> bool {
        let left = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }
}

#[test]
fn an_early_end_compares_only_common_replays() {
    let trace = trace("a,0,100,8\nb,5,10,1\nc,20,50,8\nd,30,5,4\n");
    let args = args(&["--nodes", "1", "--repeats", "8"]);
    let scenes = [0.5, 0.9].map(|it| Scene::new(&args.scene, &trace, &CLAIMS, Some(it)).unwrap());
    let whole = compare(&scenes, 1, &NoLimit).unwrap();
    // The first round is eight replays in any case; 20 more are two rounds and a half.
    for (limit, replays) in [(0, vec![0]), (20, vec![0, 2, 4]), (1000, (0..8).collect())] {
        let some = compare(&scenes, 1, &Limit(limit.into())).unwrap();
        for (some, whole) in some.iter().zip(&whole) {
            for (some, whole) in some.replays.iter().zip(&whole.replays) {
                let expected: Vec<_> = replays.iter().map(|it| whole[*it].clone()).collect();
                assert_eq!(*some, expected, "{limit}");
            }
        }
    }
}

#[test]
fn the_json_has_the_fields_that_are_promised() {
    let trace = trace("a,0,100,8\nb,5,10,1\n");
    let scene = scene(&trace, "1");
    let json = serde_json::to_value(measures(&scene, PolicyKind::SchedulerExt)).unwrap();
    let mut names: Vec<_> = json.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    let mut promised = [
        "name",
        "wait_mean_s",
        "wait_p99_s",
        "first_try_8gpu",
        "pairs",
        "idle_gpu_share_while_waiting",
        "job_mean_s",
        "part_job_mean_s",
        "gpu_hours",
    ];
    promised.sort_unstable();
    assert_eq!(names, promised);
}

/// Records which pod holds which device, and fails if a device has two holders.
struct Books {
    inner: Box<dyn Policy>,
    held: BTreeMap<u64, (usize, Devices)>,
    pods: usize,
}

impl Policy for Books {
    fn scores(&mut self, pod: Pod, candidates: &[Candidate], cluster: &Cluster) -> Vec<i64> {
        self.inner.scores(pod, candidates, cluster)
    }

    fn bound(&mut self, pod: Pod, chosen: &Candidate) -> Result<(), ClaimError> {
        let devices = chosen.placement.devices;
        assert_eq!(devices.count_ones(), 2 * pod.gpus, "as many NICs as GPUs");
        let other =
            self.held.values().find(|(node, held)| *node == chosen.node && held & devices != 0);
        assert_eq!(other, None, "a device has two holders");
        self.held.insert(pod.uid, (chosen.node, devices));
        self.pods += 1;
        self.inner.bound(pod, chosen)
    }

    fn ended(&mut self, pod: Pod) {
        assert!(self.held.remove(&pod.uid).is_some(), "a pod ends that was not bound");
        self.inner.ended(pod);
    }
}

fn jobs() -> impl Strategy<Value = Vec<Job>> {
    let job = (
        0u32..400,
        1u32..200,
        prop_oneof![Just(1), Just(2), Just(3), Just(4), Just(8), Just(12), Just(16), Just(24)],
    );
    let jobs = prop::collection::vec(job, 1..40);
    jobs.prop_map(|jobs| {
        let job = |(index, (submitted, duration, gpus)): (usize, (u32, u32, u32))| Job {
            id: format!("j{index}"),
            submitted: f64::from(submitted),
            duration: f64::from(duration),
            gpus,
        };
        let mut jobs: Vec<_> = jobs.into_iter().enumerate().map(job).collect();
        jobs.sort_by(|a, b| a.submitted.total_cmp(&b.submitted));
        jobs
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_job_runs_once_and_no_device_is_held_twice(jobs in jobs(), nodes in 3usize..7, seed: u64) {
        let trace = Trace { jobs, without_gpu: 0 };
        let scene = scene(&trace, &nodes.to_string());
        let workload = &scene.workloads[0];
        for kind in PolicyKind::ALL {
            let mut books = Books { inner: scene.policy(kind), held: BTreeMap::new(), pods: 0 };
            let mut placer = Placer::new(Arc::clone(&scene.claims));
            let record: Record = replay(
                workload, scene.cluster.clone(), &mut books, &mut Draw::new(seed), &mut placer,
                scene.communication, None,
            ).unwrap();
            prop_assert!(books.held.is_empty());
            prop_assert_eq!(record.runs.len(), workload.tasks.len());
            prop_assert!(books.pods >= workload.pods().count());
            let gpus: u64 = workload.pods().map(u64::from).sum();
            prop_assert_eq!(record.pairs.values().sum::<u64>(), gpus);
            for (task, run) in workload.tasks.iter().zip(&record.runs) {
                prop_assert!(run.ran >= task.duration);
                prop_assert_eq!(run.at_first_try, run.waited == 0);
            }
        }
    }
}
