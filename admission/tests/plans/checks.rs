//! Single decisions: denials, warnings, and which pods wait.

use crate::cluster::*;
use admission::admit::{AdmitError, Verdict, admit};
use admission::nearness::Nearness;
use admission::plan::{Policy, QuotaEscape};
use cluster_model::node_devices::NodeDevices;
use cluster_model::view::{ClusterView, Index};
use dra_allocator::{AllocatedState, Claim, ClaimName, Limits, Outcome, allocate};
use k8s_openapi::api::core::v1::{LimitRange, ResourceQuota};
use k8s_openapi::api::resource::v1::DeviceClass;
use serde_json::{Value, json};
use std::time::Instant;
use topology_graph::{Level, PciAddress};

fn denial(pod: &Value, view: &ClusterView, policy: &Policy) -> String {
    match admit(pod, view, policy) {
        Err(AdmitError::Denied(denial)) => denial.to_string(),
        other => unreachable!("not denied: {other:?}"),
    }
}

fn admitted(pod: &Value, view: &ClusterView) -> Verdict {
    admit(pod, view, &Policy::default()).unwrap()
}

fn one_gpu() -> Value {
    pod("nvidia.com/gpu", 1, &[("aligned-nics", "1")])
}

#[test]
fn pods_that_bypass_their_claim_are_denied() {
    let view = cluster(&[GB300]);
    let mut on_node = one_gpu();
    on_node["spec"]["nodeName"] = "node-0".into();
    let text = denial(&on_node, &view, &Policy::default());
    assert!(text.contains("spec.nodeName is \"node-0\""), "{text}");
    for name in ["rdma/hca", "rdma/rdma_shared_device_a", "vpc.amazonaws.com/efa"] {
        let mut two_owners = one_gpu();
        two_owners["spec"]["containers"][0]["resources"]["limits"][name] = "1".into();
        let text = denial(&two_owners, &view, &Policy::default());
        assert!(text.contains(&format!("limit {name}")), "{text}");
        two_owners["spec"]["containers"][0]["resources"]["limits"][name] = "0".into();
        admitted(&two_owners, &view);
    }
}

/// Names of resources are configured, so a name alone denies nothing.
#[test]
fn limits_that_look_like_nics_get_a_warning() {
    let view = cluster(&[GB300]);
    for (name, is_warned) in [
        ("nvidia.com/sriov_rdma_vf", true),
        ("openshift.io/mlnx_roce", true),
        ("amd.com/vnic", true),
        ("example.com/licences", false),
    ] {
        let mut pod = one_gpu();
        pod["spec"]["containers"][0]["resources"]["limits"][name] = "1".into();
        let warnings = admitted(&pod, &view).warnings;
        let is_named = warnings.iter().any(|it| it.contains("looks like NICs of a device plugin"));
        assert_eq!(is_named, is_warned, "{name}: {warnings:?}");
    }
}

#[test]
fn other_schedulers_get_a_warning() {
    let view = cluster(&[GB300]);
    let policy =
        Policy { scheduler_name: Some("dranet-scheduler".to_owned()), ..Policy::default() };
    for (name, is_known) in
        [("", true), ("default-scheduler", true), ("dranet-scheduler", true), ("volcano", false)]
    {
        let mut pod = one_gpu();
        pod["spec"]["schedulerName"] = name.into();
        let warnings = admit(&pod, &view, &policy).unwrap().warnings;
        assert_eq!(warnings.iter().any(|it| it.contains("schedulerName")), !is_known, "{name}");
    }
}

/// A `LimitRange` that bounds GPUs demands a limit, which the claim replaces.
#[test]
fn a_limit_range_that_refuses_the_pod_is_named() {
    for (namespace, is_refused) in [("default", true), ("other", false)] {
        let mut view = cluster(&[GB300]);
        let bound: LimitRange = serde_json::from_value(json!({
            "metadata": {"name": "gpus", "namespace": namespace},
            "spec": {"limits": [{"type": "Container", "max": {"nvidia.com/gpu": "8"}}]},
        }))
        .unwrap();
        view.apply(bound).unwrap();
        let warnings = admitted(&one_gpu(), &view).warnings;
        let is_named =
            warnings.iter().any(|it| it.contains("LimitRange `gpus` bounds nvidia.com/gpu"));
        assert_eq!(is_named, is_refused, "{warnings:?}");
    }
}

/// Nobody wrote the limits that the denial is about.
#[test]
fn a_denial_tells_defaults_of_a_limit_range_from_limits() {
    let set = "LimitRanger plugin set: nvidia.com/gpu limit for container nccl; nvidia.com/gpu limit \
               for container istio-proxy";
    let by_default = |gpus: u32| {
        let mut pod = pod("nvidia.com/gpu", gpus, &[("aligned-nics", "per-gpu")]);
        let mut proxy = pod["spec"]["containers"][0].clone();
        proxy["name"] = "istio-proxy".into();
        pod["spec"]["containers"].as_array_mut().unwrap().push(proxy);
        pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] = set.into();
        pod
    };
    let bound: LimitRange = serde_json::from_value(json!({
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", "max": {"nvidia.com/gpu": "4"}}]},
    }))
    .unwrap();
    for (range, named) in [(None, "a LimitRange"), (Some(bound), "LimitRange `gpus`")] {
        let mut view = cluster(&[GB300]);
        if let Some(range) = range {
            view.apply(range).unwrap();
        }
        let said = format!(
            "{named} of the namespace sets the limit nvidia.com/gpu: \"4\" in `nccl`, `istio-proxy`, \
             where the pod has none"
        );
        let text = denial(&by_default(4), &view, &Policy::default());
        assert!(text.contains(&said), "{text}");
        let warnings = admitted(&by_default(1), &view).warnings.join("\n");
        assert!(warnings.contains(&said.replace('4', "1")), "{warnings}");
        let mut counted = by_default(4);
        counted["metadata"]["annotations"]["dranet.io/gpus"] = "1".into();
        let warnings = admitted(&counted, &view).warnings.join("\n");
        assert!(!warnings.contains("sets the limit"), "{warnings}");
    }
}

/// A namespace whose quota counts limits but not claims.
#[test]
fn a_claim_that_escapes_a_quota_is_denied_or_warned_about() {
    let quota = |name: &str, hard: Value| -> ResourceQuota {
        let metadata = json!({"name": name, "namespace": "default"});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"hard": hard}})).unwrap()
    };
    let mut view = cluster(&[GB300]);
    view.apply(quota("limits", json!({"requests.nvidia.com/gpu": "0"}))).unwrap();
    let text = denial(&one_gpu(), &view, &Policy::default());
    assert!(text.contains("quota `limits` limits requests.nvidia.com/gpu"), "{text}");
    let warn = Policy { quota_escape: QuotaEscape::Warn, ..Policy::default() };
    assert_eq!(admit(&one_gpu(), &view, &warn).unwrap().warnings.len(), 1);
    // Without limits, no quota on an extended resource counts the pod at all.
    let mut unlimited = one_gpu();
    unlimited["spec"]["containers"][0].as_object_mut().unwrap().remove("resources");
    unlimited["metadata"]["annotations"]["dranet.io/gpus"] = "1".into();
    let text = denial(&unlimited, &view, &Policy::default());
    assert!(text.contains("quota `limits` limits requests.nvidia.com/gpu"), "{text}");
    assert!(text.contains("the claim that gives this pod its GPUs"), "{text}");
    // Another quota of the namespace counts the claim.
    let devices = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices";
    view.apply(quota("devices", json!({devices: "4"}))).unwrap();
    assert_eq!(admitted(&one_gpu(), &view).warnings, [""; 0]);
    assert_eq!(admitted(&unlimited, &view).warnings, [""; 0]);
    // The quota is on the extended resource of another class for the same GPUs.
    let mut other = cluster(&[GB300]);
    let class: DeviceClass = serde_json::from_value(json!({
        "metadata": {"name": "company-gpu"},
        "spec": {
            "extendedResourceName": "example.com/gpu",
            "selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}],
        },
    }))
    .unwrap();
    other.apply(class).unwrap();
    other.apply(quota("company", json!({"requests.example.com/gpu": "1"}))).unwrap();
    let mut named = unlimited.clone();
    named["metadata"]["annotations"]["dranet.io/gpu-class"] = "gpu.nvidia.com".into();
    let text = denial(&named, &other, &Policy::default());
    assert!(text.contains("quota `company` limits requests.example.com/gpu"), "{text}");
}

/// Requests of three megabytes cost their sender nothing, but took seconds and were quoted as a
/// whole.
#[test]
fn large_pods_are_refused_at_once() {
    let view = cluster(&[GB300]);
    let begun = Instant::now();
    let mut pod = one_gpu();
    pod["metadata"]["annotations"][format!("dranet.io/{}", "a".repeat(2_500_000))] = "".into();
    let refused = admit(&pod, &view, &Policy::default());
    assert!(matches!(refused, Err(AdmitError::TooLarge(_))), "{refused:?}");
    // As large as Kubernetes allows.
    let mut pod = one_gpu();
    for number in 0..10_000 {
        pod["metadata"]["annotations"][format!("dranet.io/key-{number}")] = "".into();
    }
    let warnings = admitted(&pod, &view).warnings;
    assert!(warnings.len() < 12, "{} warnings", warnings.len());
    let long = "x,".repeat(120_000);
    for key in ["containers", "nic-config", "gpu-class", "alignment", "fabric", "nic-pool", "gpus"]
    {
        let mut pod = one_gpu();
        pod["metadata"]["annotations"][format!("dranet.io/{key}")] = long.as_str().into();
        let text = denial(&pod, &view, &Policy::default());
        assert!(text.len() < 10_000, "{key}: {} bytes", text.len());
    }
    let mut pod = one_gpu();
    let container = pod["spec"]["containers"][0].clone();
    let more = (0..20_000).map(|number| {
        let mut more = container.clone();
        more["name"] = format!("c{number}").into();
        more
    });
    pod["spec"]["containers"].as_array_mut().unwrap().extend(more);
    let text = denial(&pod, &view, &Policy::default());
    assert!(text.contains("20001 containers would get devices"), "{text}");
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

/// A copy of a rewritten pod keeps its claim, unless it asks for something else.
#[test]
fn an_edited_copy_gets_its_own_claim() {
    let mut view = cluster(&[GB300]);
    let first = admitted(&one_gpu(), &view);
    let mut template = first.planned.unwrap().template;
    template.metadata.namespace = Some("default".to_owned());
    view.apply(template).unwrap();
    let again = admitted(&first.pod, &view);
    assert!(again.planned.is_none() && again.template == first.template, "{again:?}");
    let mut edited = first.pod.clone();
    edited["metadata"]["annotations"]["dranet.io/aligned-nics"] = "2".into();
    let other = admitted(&edited, &view);
    assert_eq!(other.pod["spec"]["resourceClaims"].as_array().unwrap().len(), 1);
    assert!(other.template != first.template, "it keeps the claim of one NIC");
    let plain = admitted(&pod("nvidia.com/gpu", 1, &[("aligned-nics", "2")]), &view);
    assert_eq!(other.template, plain.template);
}

/// As `extendedresourcecache` of Kubernetes: the newest, then the first by name.
#[test]
fn the_newest_class_of_an_extended_resource_is_used() {
    let class = |name: &str, created: &str| -> DeviceClass {
        let selector = r#"device.driver == "gpu.nvidia.com""#;
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": created},
            "spec": {
                "selectors": [{"cel": {"expression": selector}}],
                "extendedResourceName": "nvidia.com/gpu",
            },
        }))
        .unwrap()
    };
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z");
    for (classes, expected) in [
        ([("a", old), ("b", new)], "b"),
        ([("a", new), ("b", old)], "a"),
        ([("b", old), ("a", old)], "a"),
    ] {
        let mut view = cluster(&[GB300]);
        for (name, created) in classes {
            view.apply(class(name, created)).unwrap();
        }
        let planned = admitted(&one_gpu(), &view).planned.unwrap();
        let claim = serde_json::to_string(&planned.plan.claim).unwrap();
        let named = format!(r#""deviceClassName":"{expected}""#);
        assert!(claim.contains(&named), "{classes:?}: {claim}");
    }
}

/// A requested level that a machine does not have is the first alternative, but not the
/// only one.
#[test]
fn preferred_alignment_goes_down_from_the_named_level_to_numa() {
    for machine in [GB300, H100] {
        let view = cluster(&[machine]);
        for level in ["switch", "root-port", "root", "numa"] {
            let annotations =
                [("aligned-nics", "2"), ("alignment", level), ("alignment-policy", "preferred")];
            let plan = admitted(&pod("nvidia.com/gpu", 2, &annotations), &view).planned.unwrap();
            let plan = plan.plan;
            assert_ne!(plan.join, "any", "{level}: {}", plan.why);
            let asked = Nearness::Level(level.parse().unwrap());
            assert!(plan.nearness >= asked, "{level}: {}", plan.nearness);
            assert!(plan.nearness <= Nearness::Level(Level::Numa), "{level}: {}", plan.nearness);
        }
    }
}

/// The last resort of a group that stands for pairs has its own name: there, only the path says
/// how near the NIC of each GPU is.
#[test]
fn a_group_that_stands_for_pairs_names_its_last_resort() {
    let view = cluster(&[H100]);
    for (pairing, expected) in [(None, "any-pairs"), (Some(("pairing", "group")), "any")] {
        let mut annotations = vec![("aligned-nics", "4"), ("alignment-policy", "preferred")];
        annotations.extend(pairing);
        let plan = admitted(&pod("nvidia.com/gpu", 4, &annotations), &view).planned.unwrap().plan;
        let requests = plan.claim.devices.unwrap().requests.unwrap();
        for request in &requests {
            let last = request.first_available.as_ref().unwrap().last().unwrap();
            assert_eq!(last.name, expected, "{pairing:?}: {}", request.name);
        }
        assert_eq!(requests.len(), 2, "{pairing:?}");
    }
}

/// In every state of a machine: a pod with one GPU and one NIC gets devices if a free GPU
/// has a free NIC as near to it as any NIC.
#[test]
fn a_pod_runs_if_a_free_gpu_has_a_free_nearest_nic() {
    for machine in [GB300, GB200, H100] {
        let view = cluster(&[machine]);
        let planned = admitted(&one_gpu(), &view).planned.unwrap();
        let claim = ClaimName::new("default", "a");
        let claim = Claim::from_spec(claim, &planned.plan.claim).unwrap();
        let devices = NodeDevices::new(&view, "node-0").unwrap();
        let (gpus, nics): (Vec<_>, Vec<_>) =
            (devices.gpus.iter().take(4).collect(), devices.nics.iter().take(4).collect());
        let rest = devices.gpus.iter().skip(4).chain(devices.nics.iter().skip(4));
        let rest: Vec<_> = rest.map(|(_, device)| device.id().clone()).collect();
        let path = |gpu: &PciAddress, nic: &PciAddress| devices.topology.path(*gpu, *nic);
        for busy in 0..1_u32 << (gpus.len() + nics.len()) {
            let mut state = AllocatedState::new();
            for id in &rest {
                state.insert(id.clone());
            }
            let all = gpus.iter().chain(&nics).enumerate();
            let taken = all.filter(|(index, _)| busy >> index & 1 == 1);
            taken.for_each(|(_, (_, device))| _ = state.insert(device.id().clone()));
            let is_free = |index: usize| busy >> index & 1 == 0;
            let could = (0..gpus.len()).filter(|gpu| is_free(*gpu)).any(|gpu| {
                let gpu = gpus[gpu].0;
                let nearest = devices.nics.keys().map(|nic| path(gpu, nic)).min().unwrap();
                let free = (0..nics.len()).filter(|nic| is_free(gpus.len() + nic));
                free.into_iter().any(|nic| path(gpu, nics[nic].0) == nearest)
            });
            let (inventory, settings) = (view.inventory(), view.settings());
            let claims = std::slice::from_ref(&claim);
            let limits = Limits::steps(Policy::default().max_steps);
            let attempt = allocate(inventory, "node-0", claims, &state, settings, limits);
            let runs = matches!(attempt.outcome, Outcome::Allocated(_));
            assert_eq!(runs, could, "{}: busy {busy:b}, {}", machine.fixture, planned.plan.join);
        }
    }
}
