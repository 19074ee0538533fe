//! Cached plans.

use crate::cluster::*;
use admission::intent::{self, GpuResources, Intent};
use admission::plan::Policy;
use admission::server::Plans;
use cluster_model::placement::Placement;
use cluster_model::view::{ClusterView, Index};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::json;
use std::sync::Arc;

fn intent(nics: &str) -> Intent {
    let pod = pod("nvidia.com/gpu", 1, &[("aligned-nics", nics)]);
    let pod: Pod = serde_json::from_value(pod).unwrap();
    intent::read(&pod, &GpuResources::default()).unwrap().unwrap()
}

#[test]
fn plans_depend_on_machines_but_not_on_claims() {
    let mut view = cluster(&[GB300]);
    let intent = intent("2");
    let plans = Plans::default();
    let (placement, policy) = (Placement::default(), Policy::default());
    let first = plans.make(&intent, &placement, &view, &policy).unwrap();
    assert_eq!(first.nodes, (1, 1));

    let epoch = view.epoch();
    let claim = json!({ "metadata": { "name": "a", "namespace": "b" }, "spec": {} });
    view.apply(serde_json::from_value::<ResourceClaim>(claim).unwrap()).unwrap();
    assert_eq!(view.epoch(), epoch, "claims do not count");

    add(&mut view, "another", GB300);
    let again = plans.make(&intent, &placement, &view, &policy).unwrap();
    assert_eq!(again.nodes, (2, 2));
    assert_eq!(again.claim, first.claim, "the same template serves both");
}

/// Pods of a burst do not wait while the cluster changes.
#[tokio::test]
async fn the_old_plan_is_used_until_the_next_one_is_made() {
    let (plans, renewer) = Plans::default().renewed();
    let (two, nine) = (intent("2"), intent("9"));
    let (placement, policy) = (Placement::default(), Policy::default());
    let ask = |intent: &Intent, view: &ClusterView| {
        let known = plans.known(intent, &placement, view);
        known.unwrap_or_else(|| plans.make(intent, &placement, view, &policy))
    };
    let mut view = cluster(&[GB300]);
    assert_eq!(ask(&two, &view).unwrap().nodes, (1, 1));
    let denial = ask(&nine, &view).unwrap_err();

    add(&mut view, "another", GB300);
    assert_eq!(ask(&two, &view).unwrap().nodes, (1, 1), "that of before the change");
    let now = ask(&nine, &view).unwrap_err();
    assert_ne!(now, denial, "a denial is of the cluster as it is");

    let outdated = async {
        while ask(&two, &view).unwrap().nodes != (2, 2) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = renewer.run(view.clone().into(), Arc::new(policy.clone())) => unreachable!("it never ends"),
        () = outdated => {}
    }
}
