//! Replays of jobs of two priorities: results computed by hand, and laws of every replay.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use std::sync::{Arc, LazyLock};

use clap::Parser as _;
use proptest::prelude::*;
use simulator::args::PreemptionArgs;
use simulator::claims::{Alignment, Claims, Placer};
use simulator::compare::{NoLimit, Scene, claims, machines};
use simulator::priorities::{Who, compare_priorities};
use simulator::replay::Record;
use simulator::report::priorities::table;
use simulator::trace::Trace;
use simulator::workload::{HIGH, Workload};

/// Claims for pods of any number of GPUs.
static CLAIMS: LazyLock<Arc<Claims>> = LazyLock::new(|| {
    let rows: Vec<String> = (1..=8).map(|gpus| format!("j{gpus},0,1,{gpus}\n")).collect();
    let machines = machines(&args("1").scene.machine).unwrap();
    Arc::new(claims(machines, &trace(&rows.concat()), Alignment::Preferred).unwrap())
});

fn trace(rows: &str) -> Trace {
    let head = "job_id,submission_time,duration,num_gpu\n";
    Trace::parse(format!("{head}{rows}").as_bytes()).unwrap()
}

fn args(nodes: &str) -> PreemptionArgs {
    let line = ["preemption", "--trace", "unused", "--nodes", nodes, "--fabric-nodes", "4"];
    PreemptionArgs::try_parse_from(line.into_iter().chain(["--repeats", "1"])).unwrap()
}

/// The jobs of a trace, of which some have high priority, and what happens to them.
fn run(
    rows: &str,
    nodes: &str,
    high: &[usize],
    who: Who,
    checkpoint: Option<u64>,
) -> (Workload, Record) {
    let scene = Scene::new(&args(nodes).scene, &trace(rows), &CLAIMS, None).unwrap();
    let mut workload = scene.workloads[0].clone();
    for job in high {
        workload.tasks[*job].priority = HIGH;
    }
    let mut placer = Placer::new(Arc::clone(&CLAIMS));
    let record = who.replay(&scene, &workload, (1, checkpoint), &mut placer).unwrap();
    (workload, record)
}

/// Waits and run times in seconds, the number of evictions, and lost GPU seconds.
fn told(record: &Record) -> String {
    let runs = record.runs.iter().map(|run| format!("{}+{}", run.waited / 1000, run.ran / 1000));
    let runs = runs.collect::<Vec<_>>().join(" ");
    format!("{runs}, {} evicted, {} lost", record.evictions, record.lost / 1000)
}

#[test]
fn a_job_of_high_priority_takes_the_place_of_another() {
    let rows = "low,0,100,8\nhigh,10,20,8\nlast,95,1,8\n";
    for (who, checkpoint, expected) in [
        (Who::Nobody, None, "0+100 90+20 25+1, 0 evicted, 0 lost"),
        (Who::KubeScheduler, None, "20+110 0+20 35+1, 1 evicted, 80 lost"),
        (Who::Preemptor, None, "20+110 0+20 35+1, 1 evicted, 80 lost"),
        (Who::Preemptor, Some(4_000), "20+102 0+20 27+1, 1 evicted, 16 lost"),
        // The other job ends within an hour.
        (Who::Oracle, None, "0+100 90+20 25+1, 0 evicted, 0 lost"),
    ] {
        let (_, record) = run(rows, "1", &[1], who, checkpoint);
        assert_eq!(told(&record), expected, "{who:?} {checkpoint:?}");
    }
}

#[test]
fn a_job_of_high_priority_is_ahead_in_the_queue() {
    let rows = "a,0,100,8\nb,10,10,8\nhigh,20,5,8\n";
    let (_, record) = run(rows, "1", &[2], Who::Nobody, None);
    assert_eq!(told(&record), "0+100 95+10 80+5, 0 evicted, 0 lost");
}

/// kube-scheduler takes the pod that started last, and with it a job of two machines.
#[test]
fn preemptor_spares_gangs() {
    let rows = "single,0,9000,8\ngang,5,9000,16\nhigh,10,10,8\n";
    for (who, expected) in [
        (Who::KubeScheduler, "0+9000 10+9005 0+10, 1 evicted, 80 lost"),
        (Who::Preemptor, "10+9010 0+9000 0+10, 1 evicted, 80 lost"),
        (Who::Oracle, "10+9010 0+9000 0+10, 1 evicted, 80 lost"),
    ] {
        let (_, record) = run(rows, "3", &[2], who, None);
        assert_eq!(told(&record), expected, "{who:?}");
    }
}

/// A job of two machines needs two jobs to leave, and gets both or none.
#[test]
fn a_gang_gets_room_for_all_pods_or_nobody_leaves() {
    let rows = "a,0,9000,8\nb,1,9000,8\nfirst,2,9000,8\ngang,5,10,16\n";
    for (nodes, high, expected) in [
        ("3", &[2, 3][..], "10+9005 10+9004 0+9000 0+10, 2 evicted, 72 lost"),
        ("2", &[1, 3], "0+9000 0+9000 9009+9000 8996+10, 0 evicted, 0 lost"),
    ] {
        for who in [Who::KubeScheduler, Who::Preemptor] {
            let (_, record) = run(rows, nodes, high, who, None);
            assert_eq!(told(&record), expected, "{who:?} {nodes}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Everybody runs in the end, what is lost is what was run twice, jobs of high priority are not
    /// evicted, and preemptor evicts nobody in vain.
    #[test]
    fn nothing_is_lost_but_what_runs_again(
        jobs in proptest::collection::vec((0..60_u64, 1..100_u64, 0..6_usize), 1..40),
        share in 0.0..1.0_f64,
        seed in 0..1000_u64,
        checkpoint in proptest::option::of(1_000..20_000_u64),
    ) {
        let sizes = [1, 2, 4, 8, 16, 20];
        let rows = jobs.iter().enumerate().map(|(job, (at, duration, size))| {
            format!("j{job},{at},{duration},{}\n", sizes[*size])
        });
        let trace = trace(&rows.collect::<String>());
        let mut args = args("4");
        args.scene.communication_share = 0.0;
        let scene = Scene::new(&args.scene, &trace, &CLAIMS, None).unwrap();
        let workload = scene.workloads[0].clone().with_high_priority(share, seed);
        for who in Who::ALL {
            let mut placer = Placer::new(Arc::clone(&CLAIMS));
            let record = who.replay(&scene, &workload, (seed, checkpoint), &mut placer).unwrap();
            prop_assert_eq!(record.runs.len(), workload.tasks.len());
            let mut again = 0;
            for (task, run) in workload.tasks.iter().zip(&record.runs) {
                prop_assert!(run.ran >= task.duration);
                prop_assert!(task.priority == 0 || run.ran == task.duration);
                again += u128::from(task.gpus) * u128::from(run.ran - task.duration);
            }
            prop_assert_eq!(again, record.lost);
            prop_assert_eq!(record.evictions_in_vain, 0);
        }
    }
}

#[test]
fn shares_are_compared_in_a_table() {
    let mut args = args("1");
    args.high = vec![0.5];
    args.checkpoint = Some(1);
    let rows = "a,0,7000,8\nb,3000,200,8\nc,4000,9000,8\nd,6000,100,8\n";
    let compared = compare_priorities(&args, &trace(rows), &NoLimit).unwrap();
    insta::assert_snapshot!(table(&compared[0]));
}
