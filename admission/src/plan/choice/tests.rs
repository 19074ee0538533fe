//! The chosen claim is the cheapest of all that could be written.

use super::*;
use crate::cluster::{self, A3, GB300, Gpus, H100, HGX, MI300X, Machine, P4D};
use crate::intent::{self, GpuResources};
use crate::join;
use crate::join::form::WAYS_MAX;
use crate::plan::among::Among;
use crate::plan::gpus;
use crate::promise::Levels;
use cluster_model::placement::Placement;
use k8s_openapi::api::core::v1::Pod;

type Case = (&'static [Machine], &'static str, u32, &'static [(&'static str, &'static str)]);

const NVIDIA: &str = "nvidia.com/gpu";
const OLD_H100: Machine = H100.with(Gpus::Nvidia);

const CASES: &[Case] = &[
    (&[GB300], NVIDIA, 1, &[("aligned-nics", "2")]),
    (&[H100], NVIDIA, 1, &[("aligned-nics", "2")]),
    (&[H100], NVIDIA, 4, &[("aligned-nics", "per-gpu"), ("alignment", "numa")]),
    (&[H100], NVIDIA, 4, &[("aligned-nics", "per-gpu"), ("alignment", "switch")]),
    (&[H100], NVIDIA, 6, &[("aligned-nics", "per-gpu")]),
    (&[OLD_H100], NVIDIA, 3, &[("aligned-nics", "per-gpu"), ("alignment", "numa")]),
    (&[H100, OLD_H100], NVIDIA, 2, &[("aligned-nics", "2"), ("pairing", "group")]),
    (&[HGX], NVIDIA, 4, &[("aligned-nics", "per-gpu")]),
    (&[HGX], NVIDIA, 8, &[("aligned-nics", "per-gpu")]),
    (&[A3], NVIDIA, 2, &[("aligned-nics", "per-gpu"), ("alignment", "root")]),
    (&[P4D], NVIDIA, 2, &[("aligned-nics", "1")]),
    (&[MI300X], "amd.com/gpu", 4, &[("aligned-nics", "4"), ("pairing", "group")]),
    (&[GB300, H100], NVIDIA, 2, &[("aligned-nics", "per-gpu")]),
];

/// The possible claims of a case: the steps of each form and order, in the order in which they are
/// tried, and the chosen one.
struct Measured {
    all: Vec<(&'static str, Order, u64)>,
    chosen: (&'static str, u64),
}

fn measure((kinds, resource, gpus, annotations): &Case) -> Measured {
    let view = cluster::cluster(kinds);
    let pod: Pod = serde_json::from_value(cluster::pod(resource, *gpus, annotations)).unwrap();
    let intent = intent::read(&pod, &GpuResources::default()).unwrap().unwrap();
    let policy = Policy::default();
    let anywhere = Placement::default();
    let trials = Trials::default();
    let among = Among::all(&view, &anywhere, &trials);
    let found = gpus::find(&intent, &among, &policy).unwrap();
    let servable = found.servable(found.machines.clone(), &view).unwrap();
    let fleet = servable.fleet();
    let machines = fleet.machines;
    let chooser = Chooser { fleet, view: &view, policy: &policy, trials: &trials };
    let chosen = chooser.choose(&intent).unwrap().best;
    let mut levels = Levels::default();
    for machine in machines {
        levels.set(machine, chosen.candidate.promises.on(machine).nearness());
    }
    let mut candidates = join::required(fleet, &levels, WAYS_MAX);
    candidates.extend(join::whole(fleet, &levels));
    chooser.with_together(&mut candidates);
    let as_many = chosen.candidate.nodes(machines);
    candidates.retain(|candidate| candidate.nodes(machines) == as_many);
    // Lists of shapes are a last resort.
    candidates.retain(|it| it.lists_shapes() == chosen.candidate.lists_shapes());
    let mut all = Vec::new();
    for candidate in &candidates {
        for order in Order::all(&candidate.demand, &candidate.form, GpuSource::Claim) {
            let (_, written) = chooser.write(candidate, order);
            let trial = chooser.trial(candidate, &written.claim());
            let steps = trial.map_or(u64::MAX, |trial| trial.steps);
            all.push((candidate.join, order, steps));
        }
    }
    Measured { all, chosen: (chosen.candidate.join, chosen.steps) }
}

#[test]
fn no_other_form_or_order_takes_fewer_steps() {
    let (mut other_join, mut other_order) = (0, 0);
    for case in CASES {
        let Measured { all, chosen } = measure(case);
        let least = all.iter().map(|(.., steps)| *steps).min().unwrap();
        assert_eq!(chosen.1, least, "{case:?}: {all:?}");
        // A fixed choice of the first join, or of its first order, would cost more.
        let of_first = || all.iter().filter(|(join, ..)| *join == all[0].0);
        let first = of_first().map(|(.., steps)| *steps).min().unwrap();
        other_join += u32::from(least < first);
        let of_chosen = all.iter().find(|(join, ..)| *join == chosen.0).unwrap();
        other_order += u32::from(least < of_chosen.2);
    }
    assert!(other_join > 0, "measuring joins made no difference in any case");
    assert!(other_order > 0, "measuring orders made no difference in any case");
}
