//! Plans that were made before.

use crate::cluster::*;
use admission::intent::{self, GpuResources};
use admission::plan::Policy;
use admission::server::Plans;
use cluster_model::placement::Placement;
use cluster_model::view::Index;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::json;

#[test]
fn a_plan_is_made_again_for_another_inventory_and_not_for_what_is_in_use() {
    let mut view = cluster(&[GB300]);
    let pod = pod("nvidia.com/gpu", 1, &[("aligned-nics", "2")]);
    let pod: Pod = serde_json::from_value(pod).unwrap();
    let intent = intent::read(&pod, &GpuResources::default()).unwrap().unwrap();
    let plans = Plans::default();
    let (placement, policy) = (Placement::default(), Policy::default());
    let first = plans.plan(&intent, &placement, &view, &policy).unwrap();
    assert_eq!(first.nodes, (1, 1));

    let epoch = view.epoch();
    let claim = json!({ "metadata": { "name": "a", "namespace": "b" }, "spec": {} });
    view.apply(serde_json::from_value::<ResourceClaim>(claim).unwrap()).unwrap();
    assert_eq!(view.epoch(), epoch, "claims do not count");

    add(&mut view, "another", GB300);
    let again = plans.plan(&intent, &placement, &view, &policy).unwrap();
    assert_eq!(again.nodes, (2, 2));
    assert_eq!(again.claim, first.claim, "the same template serves both");
}
