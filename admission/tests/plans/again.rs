//! A plan does not depend on earlier plans: what is kept of them is never outdated.

use crate::cluster::*;
use crate::fleets::{MACHINES, PODS};
use admission::intent::{self, GpuResources, Intent};
use admission::plan::{Policy, plan};
use admission::server::Plans;
use cluster_model::placement::Placement;
use cluster_model::view::{ClusterView, Index as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{CELDeviceSelector, DeviceSelector};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

/// Random histories; `PROPTEST_CASES` sets another number.
const HISTORIES: u32 = 4;
/// The number that proptest takes without the variable.
const UNASKED: u32 = 256;
/// Healthy machines and those with lost devices, in the order of [`MACHINES`].
const VARIANTS: usize = 5;
/// Types of machines. With few of them, nodes change often.
const TYPES: usize = 2;

/// What changes before the next plan.
#[derive(Clone, Debug)]
enum Change {
    /// A node comes, or becomes another one of its type: devices are lost or back, or its first NICs have
    /// taints.
    Node { machine: usize, tainted: usize },
    /// Whether classes select nothing.
    Classes { select_nothing: bool },
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let node = (0..TYPES * VARIANTS, 0_usize..9)
        .prop_map(|(machine, tainted)| Change::Node { machine, tainted });
    let classes = any::<bool>().prop_map(|select_nothing| Change::Classes { select_nothing });
    prop::collection::vec(prop_oneof![8 => node, 1 => classes], 1..8)
}

impl Change {
    fn happen(&self, view: &mut ClusterView) {
        match *self {
            Self::Node { machine, tainted } => {
                let kind = machine / VARIANTS;
                let built = MACHINES[machine].clone().with_nics(|index, nic| {
                    if index < tainted {
                        taint(nic);
                    }
                });
                built.put(view, &format!("node-{kind}"), kind);
            }
            Self::Classes { select_nothing } => {
                for mut class in classes() {
                    let expression = (!select_nothing).to_string();
                    let cel = Some(CELDeviceSelector { expression });
                    class
                        .spec
                        .get_or_insert_default()
                        .selectors
                        .get_or_insert_default()
                        .push(DeviceSelector { cel });
                    view.apply(class).unwrap();
                }
            }
        }
    }
}

fn taint(nic: &mut Value) {
    nic["taints"] = json!([{"key": "dra.net/down", "effect": "NoSchedule"}]);
}

fn intents() -> Vec<Intent> {
    let asked = PODS.iter().map(|(gpus, annotations)| pod("nvidia.com/gpu", *gpus, annotations));
    let read = asked.map(|pod| {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        intent::read(&pod, &GpuResources::default()).unwrap().unwrap()
    });
    read.collect()
}

#[test]
fn a_plan_is_what_it_would_be_if_none_had_been_made_before() {
    let asked = Config::default().cases;
    let cases = if asked == UNASKED { HISTORIES } else { asked };
    let (intents, placement, policy) = (intents(), Placement::default(), Policy::default());
    let mut runner = TestRunner::new(Config { cases, ..Config::default() });
    runner
        .run(&changes(), |changes| {
            let (mut view, plans) = (cluster(&[]), Plans::default());
            for change in changes {
                change.happen(&mut view);
                for intent in &intents {
                    let again = plans.make(intent, &placement, &view, &policy);
                    let anew = plan(intent, &placement, &view, &policy);
                    prop_assert_eq!(format!("{again:?}"), format!("{anew:?}"));
                }
            }
            Ok(())
        })
        .unwrap();
}
