//! Verdicts besides the plan: copies, quotas, unknown machines.

use crate::cluster::{GB300, H100, P4D, cluster, pod};
use admission::admit::{AdmitError, Verdict, admit};
use admission::nearness::Nearness;
use admission::plan::{Policy, QuotaEscape};
use cluster_model::nic_pool::NicPool;
use cluster_model::view::{ClusterView, Index};
use dra_allocator::{MinorVersion, Settings};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use serde_json::{Value, json};

const GPU: &str = "nvidia.com/gpu";

fn decide(pod: &Value, view: &ClusterView) -> Verdict {
    admit(pod, view, &Policy::default()).unwrap()
}

/// The template of a verdict, as stored in a namespace.
fn template(verdict: &Verdict, namespace: &str) -> ResourceClaimTemplate {
    let mut template = verdict.planned.as_ref().unwrap().template.clone();
    template.metadata.namespace = Some(namespace.to_owned());
    template
}

#[test]
fn a_copy_in_another_namespace_is_planned_again() {
    let mut view = cluster(&[GB300]);
    let first = decide(&pod(GPU, 1, &[("aligned-nics", "2")]), &view);
    view.apply(template(&first, "default")).unwrap();
    let again = decide(&first.pod, &view);
    assert_eq!((&again.pod, again.planned.is_none()), (&first.pod, true));

    let mut copy = first.pod.clone();
    copy["metadata"]["namespace"] = "other".into();
    let copied = decide(&copy, &view);
    assert_eq!(copied.pod, copy, "the same claim, by the same words");
    assert_eq!(copied.template.as_ref().unwrap().namespace, "other");
    assert_eq!(template(&copied, "other").spec, template(&first, "other").spec);

    view.apply(template(&copied, "other")).unwrap();
    assert!(decide(&copy, &view).planned.is_none());
}

#[test]
fn a_copy_that_this_cluster_cannot_serve_is_denied() {
    let there = decide(&pod(GPU, 1, &[("aligned-nics", "2")]), &cluster(&[GB300]));
    let denied = admit(&there.pod, &cluster(&[]), &Policy::default()).unwrap_err();
    assert!(matches!(denied, AdmitError::Denied(_)), "{denied}");
}

/// If a plan exceeds the budget, a coarser form is used; if there is none, the denial
/// says what is too large.
#[test]
fn a_plan_stays_within_the_operators_budget() {
    let view = cluster(&[H100]);
    let wanted = pod(GPU, 6, &[("aligned-nics", "per-gpu")]);
    let decide = |max_steps| admit(&wanted, &view, &Policy { max_steps, ..Policy::default() });
    let planned = |max_steps| {
        let plan = decide(max_steps).unwrap().planned.unwrap().plan;
        assert!(plan.steps <= max_steps, "{} of {max_steps}", plan.steps);
        (plan.join, plan.nearness)
    };
    let near = planned(Policy::default().max_steps);
    assert_eq!(near, ("partner", Nearness::Partner));
    let steps = decide(Policy::default().max_steps).unwrap().planned.unwrap().plan.steps;
    let coarser = planned(steps - 1);
    assert!(coarser.1 > near.1, "{coarser:?} where {near:?} takes {steps}");
    let denied = decide(5).unwrap_err().to_string();
    for part in
        ["more than 5 search steps", "1 NIC for each of 6 GPUs is the part that is too large"]
    {
        assert!(denied.contains(part), "`{part}` is missing in: {denied}");
    }
}

fn quota(namespace: &str, resource: &str) -> ResourceQuota {
    serde_json::from_value(json!({
        "metadata": { "namespace": namespace, "name": "gpus" },
        "spec": { "hard": { resource: "8" } },
    }))
    .unwrap()
}

#[test]
fn quotas_that_the_claim_escapes_are_named() {
    let limited = "requests.nvidia.com/gpu";
    for (quota, standing, expected) in [
        (quota("default", limited), false, true),
        (quota("default", limited), true, false),
        (quota("default", "requests.amd.com/gpu"), false, false),
        (quota("other", limited), false, false),
    ] {
        let mut view = cluster(&[GB300]);
        let what = format!("{quota:?} {standing}");
        view.apply(quota).unwrap();
        if standing {
            let class: DeviceClass = serde_json::from_value(json!({
                "metadata": { "name": "gpu.nvidia.com" },
                "spec": {
                    "extendedResourceName": GPU,
                    "selectors": [{ "cel": { "expression": "device.driver == \"gpu.nvidia.com\"" } }],
                },
            }))
            .unwrap();
            view.apply(class).unwrap();
        }
        let warn = Policy { quota_escape: QuotaEscape::Warn, ..Policy::default() };
        let wanted = pod(GPU, 1, &[("aligned-nics", "1")]);
        let warnings = admit(&wanted, &view, &warn).unwrap().warnings;
        let is_denied = admit(&wanted, &view, &Policy::default()).is_err();
        assert_eq!(is_denied, expected, "{what}");
        assert_eq!(warnings.iter().any(|text| text.contains("quota `gpus`")), expected, "{what}");
    }
}

/// A quota on the devices of the class, or on the extended resource with the class's own name, counts
/// the claim.
#[test]
fn quotas_that_count_the_claim_are_enough() {
    let own = "requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com";
    let devices = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices";
    for (counted, version, is_admitted) in [
        (devices, MinorVersion::V1_34, true),
        (devices, MinorVersion::V1_37, true),
        (own, MinorVersion::V1_37, true),
        // Not yet counted by the API server.
        (own, MinorVersion::V1_34, false),
        ("requests.deviceclass.resource.kubernetes.io/other", MinorVersion::V1_37, false),
    ] {
        let mut view = cluster(&[GB300]);
        view.set_settings(Settings::defaults_of(version));
        let quota: ResourceQuota = serde_json::from_value(json!({
            "metadata": { "namespace": "default", "name": "gpus" },
            "spec": { "hard": { "requests.nvidia.com/gpu": "8", counted: "8" } },
        }))
        .unwrap();
        view.apply(quota).unwrap();
        let asked = pod(GPU, 1, &[("aligned-nics", "1")]);
        let admitted = admit(&asked, &view, &Policy::default());
        assert_eq!(admitted.is_ok(), is_admitted, "{counted} {version:?}");
    }
}

/// Where GPUs of claims are counted by an extended resource, a pod requests it beside its claim, and quotas on it
/// are enough.
#[test]
fn counted_gpus_are_requested_beside_the_claim() {
    const COUNTED: &str = "example.org/gpus";
    let mut view = cluster(&[GB300]);
    let quota: ResourceQuota = serde_json::from_value(json!({
        "metadata": { "namespace": "default", "name": "gpus" },
        "spec": { "hard": { "requests.nvidia.com/gpu": "8", "requests.example.org/gpus": "8" } },
    }))
    .unwrap();
    view.apply(quota).unwrap();
    let counted = vec![["gpu.nvidia.com=", COUNTED].concat().parse().unwrap()];
    let policy = Policy { counted, ..Policy::default() };
    for (gpus, nics, expected) in [(2, "per-gpu", Some("2")), (4, "2", Some("4"))] {
        let asked = pod(GPU, gpus, &[("aligned-nics", nics)]);
        let mut counted = admit(&asked, &view, &policy).unwrap();
        assert_eq!(counted.warnings, [""; 0]);
        for list in ["limits", "requests"] {
            let resources = &mut counted.pod["spec"]["containers"][0]["resources"];
            let amounts = resources[list].as_object_mut().unwrap();
            assert_eq!(amounts.remove(COUNTED), expected.map(Value::from), "{list}");
            if amounts.is_empty() {
                resources.as_object_mut().unwrap().remove(list);
            }
        }
        // Nothing else differs.
        let warn = Policy { quota_escape: QuotaEscape::Warn, ..Policy::default() };
        assert_eq!(counted.pod, admit(&asked, &view, &warn).unwrap().pod);
    }
    assert!(admit(&pod(GPU, 1, &[("aligned-nics", "1")]), &view, &Policy::default()).is_err());
}

fn pool(name: &str, namespaces: Option<&[&str]>) -> NicPool {
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "ranges": [{ "cidr": "10.9.0.0/24" }], "namespaces": namespaces },
    }))
    .unwrap()
}

/// A pool may come after the pod, so nothing is denied.
#[test]
fn a_pool_without_addresses_for_the_pod_gets_a_warning() {
    let asked = |view: &ClusterView| {
        let wanted = pod(GPU, 1, &[("aligned-nics", "1"), ("nic-pool", "rdma")]);
        decide(&wanted, view).warnings
    };
    let mut view = cluster(&[P4D]);
    assert_eq!(asked(&view), [""; 0], "nobody has read the pools");
    view.apply(pool("storage", None)).unwrap();
    assert_eq!(
        asked(&view),
        [
            "there is no NicPool `rdma`; the cluster has `storage`: the pod does not start before the \
          NicPool is created"
        ]
    );
    view.apply(pool("rdma", Some(&["team-a"]))).unwrap();
    assert_eq!(
        asked(&view),
        [
            "NicPool `rdma` gives no addresses to namespace `default`: the pod does not start before \
          the NicPool's field namespaces names it"
        ]
    );
    for namespaces in [Some(&["team-a", "default"][..]), None] {
        view.apply(pool("rdma", namespaces)).unwrap();
        assert_eq!(asked(&view), [""; 0], "{namespaces:?}");
    }
}

#[test]
fn pods_can_wait_for_unknown_machines() {
    let nobody = cluster(&[]);
    let wanted = pod(GPU, 2, &[("aligned-nics", "2")]);
    let denied = admit(&wanted, &nobody, &Policy::default());
    assert!(matches!(denied, Err(AdmitError::Denied(_))));

    let admitting = Policy { admit_unknown: true, ..Policy::default() };
    let verdict = admit(&wanted, &nobody, &admitting).unwrap();
    assert!(
        verdict.warnings.iter().any(|text| text.contains("waits for such a node")),
        "{verdict:?}"
    );
    let planned = verdict.planned.unwrap();
    let devices = planned.plan.claim.devices.unwrap();
    let attributes = devices.constraints.unwrap();
    let attributes: Vec<_> = attributes.iter().map(|it| it.match_attribute.as_deref()).collect();
    let numa = attributes.iter().filter(|it| **it == Some("resource.kubernetes.io/numaNode"));
    assert_eq!(numa.count(), 2, "for each GPU");

    let known = cluster(&[GB300]);
    let name = |policy: &Policy| {
        let planned = admit(&wanted, &known, policy).unwrap().planned.unwrap();
        planned.template.metadata.name
    };
    assert_eq!(name(&admitting), name(&Policy::default()), "one machine is enough to know");
}

#[test]
fn copies_of_static_pods_stay_as_they_are() {
    let mut copy = pod(GPU, 2, &[("aligned-nics", "2")]);
    copy["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("f5b1c2");
    copy["spec"]["nodeName"] = json!("node-0");
    for view in [cluster(&[GB300]), cluster(&[])] {
        let verdict = admit(&copy, &view, &Policy::default()).unwrap();
        assert_eq!(verdict.pod, copy);
        assert!(verdict.planned.is_none());
        assert!(verdict.warnings[0].starts_with("a static pod"), "{verdict:?}");
    }
}
