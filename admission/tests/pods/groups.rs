//! Pods with a `PodGroup` of their workload, and pods that ask for a `ComputeDomain`.

use super::annotated;
use super::cluster::{H100, cluster};
use admission::admit::admit;
use admission::fabric::FabricPlacement;
use admission::plan::Policy;
use cluster_model::compute_domain::ComputeDomain;
use cluster_model::view::{ClusterView, Index};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::scheduling::v1alpha3::CompositePodGroup;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use serde_json::{Value, json};

/// The constraint of a PodGroup cannot be added later. So pods that have one of their workload get
/// the gate, unless the scheduler already gives them what they ask for.
#[test]
fn pods_with_a_pod_group_of_their_workload_are_joined() {
    let constraint = |key: &str| json!({ "topology": [{ "key": key }] });
    let fabric = constraint("topology.dranet.io/fabric");
    let nvlink = constraint("topology.dranet.io/nvlink-domain");
    let zone = constraint("topology.kubernetes.io/zone");
    let none = Value::Null;
    for (own, parent, level, is_gated) in [
        (&none, None, "fabric", true),
        (&fabric, None, "fabric", false),
        (&zone, None, "fabric", true),
        (&none, Some(&fabric), "fabric", false),
        (&none, Some(&none), "fabric", true),
        // The scheduler does not know of the level.
        (&fabric, None, "nvlink", true),
        (&nvlink, None, "nvlink", false),
        (&zone, Some(&nvlink), "nvlink", false),
        (&fabric, None, "nvlink=preferred", true),
    ] {
        for placement in [FabricPlacement::Gates, FabricPlacement::PodGroups] {
            let policy = Policy { fabric: placement, ..Policy::default() };
            let view = with_groups(own, parent);
            let pod = admit(&in_pod_group("one", level), &view, &policy).unwrap().pod;
            let what = format!("{own} {parent:?} {level} {placement:?}");
            assert_eq!(pod["spec"]["schedulingGroup"]["podGroupName"], "one", "{what}");
            let gates = json!([{ "name": "dranet.io/fabric" }]);
            let expected = if is_gated { gates } else { Value::Null };
            assert_eq!(pod["spec"]["schedulingGates"], expected, "{what}");
        }
    }
}

/// A workload with several PodGroups is one job.
#[test]
fn pod_groups_of_one_workload_are_one_group() {
    let policy = Policy { fabric: FabricPlacement::PodGroups, ..Policy::default() };
    let label = |view: &ClusterView, group: &str, labels: Value| {
        let mut pod = in_pod_group(group, "fabric");
        pod["metadata"]["labels"] = labels;
        let pod = admit(&pod, view, &policy).unwrap().pod;
        pod["metadata"]["labels"]["dranet.io/fabric-group"].as_str().unwrap().to_owned()
    };
    let none = Value::Null;
    let (apart, within) = (with_groups(&none, None), with_groups(&none, Some(&none)));
    let plain = json!({});
    assert_ne!(label(&apart, "one", plain.clone()), label(&apart, "other", plain.clone()));
    assert_eq!(label(&within, "one", plain.clone()), label(&within, "other", plain));
    let set = json!({ "jobset.sigs.k8s.io/jobset-name": "train" });
    assert_eq!(label(&apart, "one", set.clone()), label(&apart, "other", set));
}

#[test]
fn a_pod_gets_the_channel_of_its_compute_domain() {
    let policy = Policy { fabric: FabricPlacement::Gates, ..Policy::default() };
    let asking = |value| {
        annotated(&[("aligned-nics", "1"), ("fabric", "training"), ("compute-domain", value)])
    };
    let mut view = cluster(&[H100]);
    let denied =
        |pod: &Value, view: &ClusterView| admit(pod, view, &policy).unwrap_err().to_string();
    let text = denied(&asking("auto"), &view);
    assert!(text.contains("the API server has no ComputeDomains"), "{text}");
    Index::<ComputeDomain>::served(&mut view);
    let text = denied(&asking("own"), &view);
    assert!(text.contains("invalid value"), "{text}");

    let verdict = admit(&asking("auto"), &view, &policy).unwrap();
    let pod = &verdict.pod;
    let group = pod["metadata"]["labels"]["dranet.io/fabric-group"].as_str().unwrap();
    let template = format!("dranet-compute-domain-{group}-channel");
    let claims = &pod["spec"]["resourceClaims"];
    assert_eq!(claims[1]["name"], "dranet-compute-domain");
    assert_eq!(claims[1]["resourceClaimTemplateName"], *template);
    let of_container = &pod["spec"]["containers"][0]["resources"]["claims"];
    assert_eq!(of_container[1], json!({ "name": "dranet-compute-domain" }));
    let [warning] = verdict.warnings.as_slice() else { unreachable!("{:?}", verdict.warnings) };
    assert!(warning.contains("has no dranet.io/fabric-size"), "{warning}");
    let channel = verdict.planned.unwrap().channel.unwrap();
    assert_eq!(channel.metadata.name, Some(template));
    assert_eq!(admit(pod, &view, &policy).unwrap().pod, *pod, "decided anew it is the same");

    // A node has one channel.
    let mut own = asking("auto");
    let mut made = channel;
    made.metadata.name = Some("mine".to_owned());
    made.metadata.namespace = own["metadata"]["namespace"].as_str().map(str::to_owned);
    view.apply(made).unwrap();
    own["spec"]["resourceClaims"] =
        json!([{ "name": "imex", "resourceClaimTemplateName": "mine" }]);
    let text = denied(&own, &view);
    assert!(text.contains("claim `imex` of the pod asks for the channel"), "{text}");

    let mut alone = asking("auto");
    alone["metadata"]["annotations"]["dranet.io/fabric"].take();
    alone["metadata"]["annotations"].as_object_mut().unwrap().remove("dranet.io/fabric");
    let text = denied(&alone, &view);
    assert!(text.contains("so no other pod shares its ComputeDomain"), "{text}");
}

/// Nobody but the pods says how many pods a named group has.
#[test]
fn a_named_group_without_size_is_warned_about() {
    let view = with_groups(&Value::Null, None);
    let policy = Policy { fabric: FabricPlacement::Gates, ..Policy::default() };
    let sized = ("fabric-size", "4");
    for (annotations, expected) in [
        (&[("aligned-nics", "1"), ("fabric", "true")][..], true),
        (&[("aligned-nics", "1"), ("fabric", "true"), sized], false),
    ] {
        let warnings = admit(&annotated(annotations), &view, &policy).unwrap().warnings;
        let is_warned = warnings.iter().any(|it| it.contains("are placed one by one"));
        assert_eq!(is_warned, expected, "{warnings:?}");
    }
}

/// A view with the `PodGroup`s `one` and `other` with these constraints, in a `CompositePodGroup` if
/// there are constraints for it, in turn in another one without any.
fn with_groups(constraints: &Value, parent: Option<&Value>) -> ClusterView {
    let mut view = cluster(&[H100]);
    let nodes = ["topology.dranet.io/nvlink-domain", "topology.dranet.io/fabric"];
    let labels: Value = nodes.iter().map(|key| ((*key).to_owned(), json!("x"))).collect();
    let name = view.inventory().node_names().next().unwrap().to_string();
    let node = json!({ "metadata": { "name": name, "labels": labels } });
    view.apply(serde_json::from_value::<Node>(node).unwrap()).unwrap();
    Index::<PodGroup>::served(&mut view);
    let group = |name: &str, constraints: &Value, parent: Option<&str>| {
        json!({
            "metadata": { "name": name, "namespace": "training" },
            "spec": {
                "schedulingPolicy": { "gang": { "minCount": 2 } },
                "schedulingConstraints": constraints,
                "parentCompositePodGroupName": parent,
                "workloadRef": { "workloadName": "w", "templateName": "t" },
            },
        })
    };
    for name in ["one", "other"] {
        let group = group(name, constraints, parent.map(|_| "inner"));
        view.apply(serde_json::from_value::<PodGroup>(group).unwrap()).unwrap();
    }
    for (name, constraints, parent) in parent
        .into_iter()
        .flat_map(|it| [("inner", it, Some("outer")), ("outer", &Value::Null, None)])
    {
        let mut group = group(name, constraints, parent);
        group["spec"]["schedulingPolicy"] = json!({ "basic": {} });
        view.apply(serde_json::from_value::<CompositePodGroup>(group).unwrap()).unwrap();
    }
    view
}

/// A pod of its job with a PodGroup.
fn in_pod_group(group: &str, level: &str) -> Value {
    let mut pod = annotated(&[("aligned-nics", "1"), ("fabric", "same"), ("fabric-level", level)]);
    pod["metadata"]["namespace"] = "training".into();
    pod["spec"]["schedulingGroup"] = json!({ "podGroupName": group });
    pod
}
