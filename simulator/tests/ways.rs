//! The ways to give pods GPUs and NICs: what a pod gets from each.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use clap::Parser as _;
use simulator::args::AlignmentArgs;
use simulator::compare::NoLimit;
use simulator::report::ways::table;
use simulator::trace::Trace;
use simulator::ways::{Way, Ways, compare_ways};

const HEAD: &str = "job_id,submission_time,duration,num_gpu\n";

fn compared(machine: &str, rows: &str, more: &[&str]) -> Ways {
    let trace = Trace::parse(format!("{HEAD}{rows}").as_bytes()).unwrap();
    let line = ["alignment", "--trace", "unused"].iter().chain(more);
    let args = AlignmentArgs::try_parse_from(line).unwrap().scene;
    compare_ways(&args, machine, &trace, &NoLimit).unwrap().remove(0)
}

/// Jobs of one and two GPUs, of which many run at the same time.
fn small_jobs() -> String {
    let row = |job: u32| format!("j{job},{},{},{}\n", job * 9, 100 + job * 37 % 400, 1 + job % 2);
    (0..200).map(row).collect()
}

fn near(ways: &Ways, way: Way) -> f64 {
    let index = Way::ALL.iter().position(|it| *it == way).unwrap();
    ["PIX", "PXB", "PHB", "NODE"].iter().filter_map(|path| ways.ways[index].pairs.get(*path)).sum()
}

fn never(ways: &Ways, way: Way) -> f64 {
    ways.never_start[Way::ALL.iter().position(|it| *it == way).unwrap()]
}

#[test]
fn only_constraints_keep_pairs_near() {
    let ways = compared("azure-gb300", &small_jobs(), &["--nodes", "20", "--repeats", "2"]);
    for way in [Way::NumaTemplates, Way::Aligned, Way::AlignedUnranked] {
        assert!((near(&ways, way) - 1.0).abs() < 1e-9, "{way:?}: {ways:?}");
    }
    // Half of the NICs are on the other NUMA node.
    for way in [Way::DevicePlugins, Way::Unconstrained] {
        assert!((0.3..0.9).contains(&near(&ways, way)), "{way:?}: {ways:?}");
    }
    assert!(near(&ways, Way::DevicePluginsBestEffort) > near(&ways, Way::DevicePlugins));
    // On Azure NICs have no PCIe root in common with GPUs.
    assert!((never(&ways, Way::RailWebhook) - 1.0).abs() < 1e-9);
    let text = table(&ways);
    let row = text.lines().find(|line| line.starts_with("| rail webhook |")).unwrap();
    assert!(row.ends_with("| – | 100.0 |"), "{row}");
}

#[test]
fn far_pairs_make_jobs_longer_by_the_published_bandwidths() {
    let ways = compared("azure-mi300x", &small_jobs(), &["--nodes", "10", "--repeats", "2"]);
    let of = |way: Way| &ways.ways[Way::ALL.iter().position(|it| *it == way).unwrap()];
    let (plain, ours) = (of(Way::DevicePlugins), of(Way::Aligned));
    // At most all of them: 0.77 + 0.23 × 42.5 / 6.1.
    let ratio = plain.part_job_mean_s / ours.part_job_mean_s;
    assert!((1.2..2.38).contains(&ratio), "{ratio}");
    assert!((ours.gpu_hours * 3600.0 / 200.0 / ours.part_job_mean_s - 1.5).abs() < 0.1);
}

#[test]
fn whole_machines_are_near_in_every_way() {
    let rows = "a,0,100,8\nb,5,100,8\nc,9,100,16\n";
    let ways = compared("dgx-h100", rows, &["--nodes", "4", "--repeats", "2"]);
    for way in Way::ALL {
        assert!((near(&ways, way) - 1.0).abs() < 1e-9, "{way:?}: {ways:?}");
        assert!(never(&ways, way).abs() < 1e-9, "{way:?}");
    }
}

#[test]
fn the_rail_webhook_denies_some_numbers_of_pairs() {
    let rows = "a,0,100,1\nb,5,100,4\nc,9,100,6\nd,9,100,8\n";
    let ways = compared("dgx-h100", rows, &["--nodes", "4", "--repeats", "2"]);
    assert!((never(&ways, Way::RailWebhook) - 0.25).abs() < 1e-9, "{ways:?}");
    assert!((near(&ways, Way::RailWebhook) - 1.0).abs() < 1e-9);
}

/// A pod that is pinned to a NUMA node waits although the other one is free.
#[test]
fn a_template_per_numa_node_makes_pods_wait() {
    // Users take the templates in turn: the first and the third job want the same NUMA node.
    let rows = "a,0,1000,2\nb,1,10,1\nc,20,100,2\n";
    let ways = compared("azure-gb300", rows, &["--nodes", "1", "--repeats", "1"]);
    let wait = |way: Way| ways.ways[Way::ALL.iter().position(|it| *it == way).unwrap()].wait_mean_s;
    assert!(wait(Way::Aligned).abs() < 1e-9, "{ways:?}");
    assert!((wait(Way::NumaTemplates) - 980.0 / 3.0).abs() < 1e-6, "{ways:?}");
}
