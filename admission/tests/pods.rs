//! Pods as users and controllers write them, and the result for each: the claim and the containers'
//! parts of it, or the denial.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "plans/cluster.rs"]
mod cluster;
#[path = "pods/containers.rs"]
mod containers;
#[path = "pods/groups.rs"]
mod groups;

use admission::admit::{AdmitError, Verdict, admit};
use admission::fabric::FabricPlacement;
use admission::plan::Policy;
use cluster::{GB300, Gpus, H100, MI300X, classes, cluster, pod};
use cluster_model::view::{ClusterView, Index};
use dra_allocator::{AllocatedState, AttributeValue, Claim, ClaimName, Limits, Outcome, allocate};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A pod with one GPU and two NICs, modified.
fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut pod = pod("nvidia.com/gpu", 1, &[("aligned-nics", "2")]);
    change(&mut pod);
    pod
}

fn annotated(annotations: &[(&str, &str)]) -> Value {
    pod("nvidia.com/gpu", 1, annotations)
}

fn container(name: &str, gpus: u32) -> Value {
    let gpus = gpus.to_string();
    json!({ "name": name, "resources": { "limits": { "nvidia.com/gpu": gpus } },
        "securityContext": { "capabilities": { "add": ["IPC_LOCK"] } } })
}

fn report(name: &str, pod: &Value, view: &ClusterView, policy: &Policy) -> String {
    let mut text = format!("{name}\n");
    match admit(pod, view, policy) {
        Ok(verdict) => text.push_str(&describe(pod, &verdict)),
        Err(AdmitError::Denied(denial)) => writeln!(text, "    denied: {denial}").unwrap(),
        Err(error) => writeln!(text, "    error: {error}").unwrap(),
    }
    text
}

fn describe(before: &Value, verdict: &Verdict) -> String {
    let mut text = String::new();
    let Some(planned) = &verdict.planned else {
        let same = if verdict.pod == *before { "as it is" } else { "without limits" };
        writeln!(text, "    no new claim; the pod is {same}").unwrap();
        return text + &warnings(verdict);
    };
    let note = planned.plan.note("…");
    writeln!(text, "    {}", note.split("; template").next().unwrap()).unwrap();
    for request in planned.plan.claim.devices.as_ref().unwrap().requests.as_ref().unwrap() {
        let exactly = request.exactly.as_ref();
        let tier = request.first_available.iter().flatten().next();
        let class = exactly.map(|ask| (&ask.device_class_name, ask.count));
        let (class, count) =
            class.or_else(|| tier.map(|ask| (&ask.device_class_name, ask.count))).unwrap();
        writeln!(text, "    request {}: {} of {class}", request.name, count.unwrap()).unwrap();
    }
    for list in ["initContainers", "containers"] {
        for container in verdict.pod["spec"][list].as_array().into_iter().flatten() {
            let resources = &container["resources"];
            writeln!(text, "    {list} {}: {resources}", container["name"]).unwrap();
        }
    }
    for field in ["resourceClaims", "schedulingGates", "affinity", "tolerations"] {
        let value = &verdict.pod["spec"][field];
        if !value.is_null() && (field != "resourceClaims" || value.as_array().unwrap().len() > 1) {
            let value = value.to_string().replace(template(verdict), "dranet-…");
            writeln!(text, "    {field}: {value}").unwrap();
        }
    }
    let labels = &verdict.pod["metadata"]["labels"];
    if !labels.is_null() {
        writeln!(text, "    labels: {labels}").unwrap();
    }
    text + &warnings(verdict)
}

fn template(verdict: &Verdict) -> &str {
    verdict.planned.as_ref().unwrap().template.metadata.name.as_deref().unwrap()
}

fn warnings(verdict: &Verdict) -> String {
    let line = |text: String, warning| text + "    warning: " + warning + "\n";
    verdict.warnings.iter().fold(String::new(), |text, warning| line(text, warning.as_str()))
}

#[test]
fn containers_and_their_shares() {
    let view = cluster(&[GB300]);
    let with = |init: Value, main: Value| {
        changed(|pod| {
            pod["spec"]["initContainers"] = init;
            pod["spec"]["containers"] = main;
        })
    };
    let sidecar = |gpus| {
        let mut sidecar = container("side", gpus);
        sidecar["restartPolicy"] = "Always".into();
        sidecar
    };
    let mut named = with(json!([]), json!([container("a", 1), { "name": "b" }]));
    named["metadata"]["annotations"]["dranet.io/containers"] = "a,b".into();
    let mut gpus = with(json!([]), json!([{ "name": "a" }, { "name": "b" }]));
    gpus["metadata"]["annotations"]["dranet.io/gpus"] = "2".into();
    let mut per_gpu = with(json!([]), json!([container("a", 1), container("b", 2)]));
    per_gpu["metadata"]["annotations"]["dranet.io/aligned-nics"] = "per-gpu".into();
    let cases = [
        ("one container", with(json!([]), json!([container("a", 1)]))),
        ("two with a GPU each", with(json!([]), json!([container("a", 1), container("b", 1)]))),
        ("two with pairs of their own", per_gpu),
        ("init container before it", with(json!([container("i", 2)]), json!([container("a", 1)]))),
        ("sidecar beside it", with(json!([sidecar(1)]), json!([container("a", 1)]))),
        ("named ones", named),
        ("GPUs by annotation", gpus),
    ];
    let text: String =
        cases.iter().map(|(name, pod)| report(name, pod, &view, &Policy::default())).collect();
    insta::assert_snapshot!(text);
}

#[test]
fn pods_with_their_own_claims_and_selectors() {
    let mut view = cluster(&[GB300, H100]);
    let theirs = json!({ "metadata": { "name": "gpus", "namespace": "default" }, "spec": { "spec": {
        "devices": { "requests": [
            { "name": "gpu", "exactly": { "deviceClassName": "gpu.nvidia.com", "count": 1 } },
        ] },
    } } });
    view.apply(serde_json::from_value::<ResourceClaimTemplate>(theirs).unwrap()).unwrap();
    let claims = |name: &str, template: &str| json!([{ "name": name, "resourceClaimTemplateName": template }]);
    let node_affinity = |key: &str, value: &str| {
        json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }] },
            ],
        } } })
    };
    let three = |change: &dyn Fn(&mut Value)| {
        changed(|pod| {
            pod["metadata"]["annotations"]["dranet.io/aligned-nics"] = "3".into();
            change(pod);
        })
    };
    let cases = [
        (
            "GPUs in a claim of its own",
            changed(|it| it["spec"]["resourceClaims"] = claims("g", "gpus")),
        ),
        (
            "a claim of other things",
            changed(|it| it["spec"]["resourceClaims"] = claims("g", "disks")),
        ),
        (
            "a claim named as ours",
            changed(|it| it["spec"]["resourceClaims"] = claims("dranet", "disks")),
        ),
        (
            "a copy of a rewritten pod, its limit back by a default",
            changed(|it| {
                it["spec"]["resourceClaims"] = claims("dranet", "dranet-0123456789abcdef");
            }),
        ),
        ("three NICs, anywhere", three(&|_| {})),
        (
            "three NICs on nodes that have two",
            three(&|it| {
                it["spec"]["nodeSelector"] = json!({ "machine": "azure-gb300" });
            }),
        ),
        (
            "three NICs by affinity to nodes that have two",
            three(&|it| {
                it["spec"]["affinity"] = node_affinity("machine", "azure-gb300");
            }),
        ),
        (
            "three NICs by affinity to nodes that have four",
            three(&|it| {
                it["spec"]["affinity"] = node_affinity("machine", "azure-ndh100v5");
            }),
        ),
        (
            "on nodes that are not there",
            changed(|it| {
                it["spec"]["nodeSelector"] = json!({ "machine": "none" });
            }),
        ),
        (
            "no memory to lock",
            changed(|it| {
                it["spec"]["containers"][0]["securityContext"] = Value::Null;
            }),
        ),
        (
            "generateName, no namespace",
            changed(|it| {
                it["metadata"] =
                    json!({ "generateName": "a-", "annotations": it["metadata"]["annotations"] });
            }),
        ),
        ("no trigger", changed(|it| it["metadata"] = json!({ "name": "a" }))),
        ("a typing error", annotated(&[("aligned-nic", "2")])),
    ];
    let text: String =
        cases.iter().map(|(name, pod)| report(name, pod, &view, &Policy::default())).collect();
    insta::assert_snapshot!(text);
}

#[test]
fn drivers_and_classes() {
    let quota: DeviceClass = {
        let mut class = classes().remove(0);
        class.metadata.name = Some("counted-gpus".to_owned());
        class.spec.as_mut().unwrap().extended_resource_name = Some("nvidia.com/gpu".to_owned());
        class
    };
    let mut counted = cluster(&[GB300]);
    counted.apply(quota).unwrap();
    let two = || annotated(&[("aligned-nics", "2")]);
    let bare = changed(|pod| {
        pod["spec"]["containers"] = json!([{ "name": "a" }]);
        pod["metadata"]["annotations"]["dranet.io/gpus"] = "1".into();
    });
    let host = changed(|pod| pod["spec"]["hostNetwork"] = true.into());
    let plugin = GB300.with(Gpus::Plugin);
    let cases = vec![
        ("a class that stands for the limit is preferred", counted, two()),
        ("GPUs by a device plugin only", cluster(&[plugin]), two()),
        ("GPUs by a device plugin on some nodes", cluster(&[plugin, GB300]), two()),
        ("no nodes", cluster(&[]), two()),
        ("limits of a vendor that is not there", cluster(&[MI300X]), two()),
        ("GPUs of two vendors, none named", cluster(&[GB300, MI300X]), bare.clone()),
        ("GPUs of one vendor, none named", cluster(&[MI300X]), bare),
        (
            "no such class",
            cluster(&[GB300]),
            annotated(&[("aligned-nics", "2"), ("gpu-class", "big")]),
        ),
        (
            "a class of NICs for GPUs",
            cluster(&[GB300]),
            annotated(&[("aligned-nics", "2"), ("gpu-class", "dranet.net")]),
        ),
        (
            "a class of GPUs for NICs",
            cluster(&[GB300]),
            annotated(&[("aligned-nics", "2"), ("nic-class", "gpu.nvidia.com")]),
        ),
        ("the host's network, InfiniBand without interfaces", cluster(&[GB300]), host),
    ];
    let text: String =
        cases.iter().map(|(name, view, pod)| report(name, pod, view, &Policy::default())).collect();
    insta::assert_snapshot!(text);
}

const ROUTES: &str = r#"{"routes":[{"destination":"10.0.0.0/8","gateway":"10.1.0.1"}]}"#;

#[test]
fn network_configuration() {
    let view = cluster(&[cluster::P4D]);
    let config = |json: &str| annotated(&[("aligned-nics", "1"), ("nic-config", json)]);
    let open = Policy { network_namespaces: vec!["default".to_owned()], ..Policy::default() };
    let other = Policy { network_namespaces: vec!["net".to_owned()], ..Policy::default() };
    let closed = Policy::default();
    let everywhere = Policy { network_namespaces: vec!["*".to_owned()], ..Policy::default() };
    let mut text = String::new();
    for (name, policy, json) in [
        ("routes, nowhere allowed", &closed, ROUTES),
        ("routes, allowed elsewhere", &other, ROUTES),
        ("an address, not allowed", &closed, r#"{"interface":{"addresses":["10.1.0.7/24"]}}"#),
        ("one of a range, not allowed", &closed, r#"{"interface":{"addressRange":"10.1.0.0/24"}}"#),
        ("a routing domain, not allowed", &closed, r#"{"interface":{"vrf":{"name":"blue"}}}"#),
        ("no such field", &open, r#"{"interface":{"colour":"red"}}"#),
        ("an MTU of text", &open, r#"{"interface":{"mtu":"9000"}}"#),
        ("not JSON", &open, "mtu: 9000"),
    ] {
        text.push_str(&report(name, &config(json), &view, policy));
    }
    for (name, policy, json) in [
        ("routes, allowed here", &open, ROUTES),
        ("routes, allowed everywhere", &everywhere, ROUTES),
        ("an MTU, which reaches no farther than the pod", &closed, r#"{"interface":{"mtu":9000}}"#),
    ] {
        text.push_str(&report(name, &config(json), &view, policy));
        let verdict = admit(&config(json), &view, policy).unwrap();
        let claim = verdict.planned.unwrap().plan.claim;
        let parts = serde_json::to_value(claim.devices.unwrap().config).unwrap();
        writeln!(text, "    config: {parts}").unwrap();
    }
    insta::assert_snapshot!(text);
}

/// The cluster with additional attributes on its NICs; each NIC is identified by its
/// index on its node.
fn with_nics(
    mut view: ClusterView,
    change: impl Fn(usize, &mut serde_json::Map<String, Value>),
) -> ClusterView {
    let slices: Vec<_> = view.inventory().slices().map(|slice| slice.name.to_string()).collect();
    for name in slices {
        let slice = view.inventory().slice(&name).unwrap();
        if *slice.pool.driver != *"dra.net" {
            continue;
        }
        let devices = slice.devices.iter().enumerate().map(|(index, device)| {
            let values = device.attributes().map(|(name, value)| (name.to_string(), wire(value)));
            let mut attributes: serde_json::Map<_, _> = values.collect();
            change(index, &mut attributes);
            json!({ "name": device.id().device.to_string(), "attributes": attributes })
        });
        let node = slice.node_name().unwrap().to_string();
        let slice = json!({ "metadata": { "name": name }, "spec": {
            "driver": "dra.net", "nodeName": node, "devices": devices.collect::<Vec<_>>(),
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
        } });
        view.apply(serde_json::from_value::<ResourceSlice>(slice).unwrap()).unwrap();
    }
    view
}

/// A value in the format of a slice.
fn wire(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::Bool(it) => json!({ "bool": it }),
        AttributeValue::Int(it) => json!({ "int": it }),
        AttributeValue::String(it) => json!({ "string": &**it }),
        other => panic!("no NIC of ours publishes {other}"),
    }
}

/// An interface cannot be moved into a pod that uses the host's network. An InfiniBand
/// NIC without an interface can be given as character devices only.
#[test]
fn the_hosts_network() {
    let host = |nics: &str| {
        let mut pod = annotated(&[("aligned-nics", nics)]);
        pod["spec"]["hostNetwork"] = true.into();
        pod
    };
    let interface = |index: usize, attributes: &mut serde_json::Map<_, _>| {
        let name = json!({ "string": format!("rdma{index}") });
        attributes.insert("dra.net/ifName".to_owned(), name);
    };
    let all = with_nics(cluster(&[H100]), interface);
    let some = with_nics(cluster(&[H100]), |index, attributes| {
        if index % 2 == 0 {
            interface(index, attributes);
        }
    });
    let mut configured = host("1");
    configured["metadata"]["annotations"]["dranet.io/nic-config"] =
        r#"{"interface":{"mtu":9000}}"#.into();
    let policy = Policy::default();
    let cases = [
        ("every NIC has an interface", &all, host("1")),
        ("every second has one, one NIC", &some, host("1")),
        ("every second has one, two NICs", &some, host("2")),
        ("every second has one, four NICs", &some, host("4")),
        ("its own network, every NIC has an interface", &all, annotated(&[("aligned-nics", "1")])),
        ("a configuration of an interface", &some, configured),
    ];
    let text: String =
        cases.iter().map(|(name, view, pod)| report(name, pod, view, &policy)).collect();
    insta::assert_snapshot!(text);
    let planned = admit(&host("1"), &some, &policy).unwrap().planned.unwrap();
    let claim = serde_json::to_string(&planned.plan.claim).unwrap();
    assert!(claim.contains("ifName"), "the claim itself leaves interfaces out: {claim}");
}

/// The claim excludes NICs that are down or slow now, but they still count as existing.
#[test]
fn a_nic_that_is_down_or_slow_is_left_out() {
    let bad: [(&str, Value); 2] = [
        ("dranet.io/portState", json!({ "string": "Down" })),
        ("dranet.io/degraded", json!({ "bool": true })),
    ];
    for (name, value) in bad {
        let view = with_nics(cluster(&[GB300]), |index, attributes| {
            if index == 0 {
                attributes.insert(name.to_owned(), value.clone());
            }
        });
        let pod = annotated(&[("aligned-nics", "2")]);
        let planned = admit(&pod, &view, &Policy::default()).unwrap().planned.unwrap();
        let claim = Claim::from_spec(ClaimName::new("", "a"), &planned.plan.claim).unwrap();
        let free = AllocatedState::new();
        let limits = Limits::steps(planned.plan.steps);
        let (inventory, settings) = (view.inventory(), view.settings());
        let outcome = allocate(inventory, "node-0", &[claim], &free, settings, limits).outcome;
        let Outcome::Allocated(claims) = outcome else { panic!("{name}: {outcome:?}") };
        let nics = claims[0].results.iter().map(|result| &result.device);
        let nics: Vec<_> =
            nics.filter(|it| *it.driver == *"dra.net").map(|it| &*it.device).collect();
        assert_eq!(nics, ["pci-0103-00-00-0", "pci-0104-00-00-0"], "{name}");
    }
}

/// A NIC without the attribute never satisfies a constraint on it, not even alone. So the
/// constraint is added only if every NIC has the attribute.
#[test]
fn a_placement_group_is_required_only_if_every_nic_has_one() {
    let group = "azure.dra.net/placementGroupId";
    let without = |nics: usize| {
        with_nics(cluster(&[GB300]), move |index, attributes| {
            if index < nics {
                attributes.remove(group);
            }
        })
    };
    for (nics, expected) in [(0, true), (1, false), (2, false), (4, false)] {
        let pod = annotated(&[("aligned-nics", "2")]);
        let planned = admit(&pod, &without(nics), &Policy::default()).unwrap().planned.unwrap();
        let constraints = planned.plan.claim.devices.unwrap().constraints.unwrap_or_default();
        let mut of_group =
            constraints.iter().filter(|it| it.match_attribute.as_deref() == Some(group));
        assert_eq!(of_group.next().is_some(), expected, "{nics} NICs do not tell");
    }
}

#[test]
fn pods_of_one_fabric() {
    let view = cluster(&[H100]);
    let on = Policy { fabric: FabricPlacement::Gates, ..Policy::default() };
    let named = || annotated(&[("aligned-nics", "1"), ("fabric", "training")]);
    let same = || annotated(&[("aligned-nics", "1"), ("fabric", "same"), ("fabric-size", "4")]);
    let mut job = same();
    job["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "7", "controller": true },
    ]);
    job["metadata"]["labels"] = json!({ "app": "x" });
    job["spec"]["schedulingGates"] = json!([{ "name": "kueue.x-k8s.io/admission" }]);
    let level = |level, more: &[_]| {
        let own = [("aligned-nics", "1"), ("fabric", "training"), ("fabric-level", level)];
        annotated(&[&own[..], more].concat())
    };
    let pod_groups = Policy { fabric: FabricPlacement::PodGroups, ..Policy::default() };
    let mut text = String::new();
    for (name, policy, pod) in [
        ("a named group, no controller", &Policy::default(), named()),
        ("a named group", &on, named()),
        ("the pod's job", &on, job),
        ("no job", &on, same()),
        ("a size without a group", &on, annotated(&[("aligned-nics", "1"), ("fabric-size", "4")])),
        ("a level that no node has", &on, level("nvlink", &[])),
        ("a preferred level", &on, level("nvlink=preferred", &[])),
        ("slices without an index", &on, level("block", &[("domain-size", "4")])),
        ("a level with PodGroups", &pod_groups, level("block=preferred", &[])),
    ] {
        text.push_str(&report(name, &pod, &view, policy));
    }
    insta::assert_snapshot!(text);
}

/// If the API server has PodGroups, the pod gets the name of one and no gate.
#[test]
fn pods_of_one_fabric_by_a_pod_group() {
    let on = Policy { fabric: FabricPlacement::PodGroups, ..Policy::default() };
    let named = annotated(&[("aligned-nics", "1"), ("fabric", "training"), ("fabric-size", "2")]);
    let mut view = cluster(&[H100]);
    let denied = admit(&named, &view, &on).unwrap_err().to_string();
    assert!(denied.contains("this API server has no PodGroups"), "{denied}");

    Index::<PodGroup>::served(&mut view);
    let pod = admit(&named, &view, &on).unwrap().pod;
    let label = pod["metadata"]["labels"]["dranet.io/fabric-group"].as_str().unwrap();
    let group = json!({ "podGroupName": format!("dranet-{label}") });
    assert_eq!(pod["spec"]["schedulingGroup"], group);
    assert!(pod["spec"]["schedulingGates"].is_null(), "{pod}");
    assert_eq!(admit(&pod, &view, &on).unwrap().pod, pod, "decided anew it is the same");

    let mut own = named.clone();
    own["spec"]["schedulingGroup"] = json!({ "podGroupName": "mine" });
    let denied = admit(&own, &view, &on).unwrap_err().to_string();
    assert!(denied.contains("PodGroup `mine` of the pod is not known yet"), "{denied}");
}

/// Tolerations that the API server adds to pods with limits stay; a copy gets none twice.
#[test]
fn gpu_taints_are_tolerated() {
    let view = cluster(&[GB300]);
    let bare = changed(|pod| {
        pod["spec"]["containers"] = json!([{ "name": "a" }]);
        pod["metadata"]["annotations"]["dranet.io/gpus"] = "1".into();
    });
    let tolerated = json!([
        { "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" },
    ]);
    let decide = |pod: &Value| admit(pod, &view, &Policy::default()).unwrap().pod;
    let first = decide(&bare);
    assert_eq!(first["spec"]["tolerations"], tolerated);
    assert_eq!(decide(&first), first, "decided anew, as its template is not there");
    let limited = changed(|pod| pod["spec"]["tolerations"] = tolerated.clone());
    assert_eq!(decide(&limited)["spec"]["tolerations"], tolerated);
    let plain = decide(&changed(|_| {}));
    assert!(plain["spec"]["tolerations"].is_null(), "whose limits say so is the API server's own");
}

/// A remaining limit would make the scheduler allocate a second GPU by itself.
#[test]
fn limits_with_a_device_class_become_its_claim() {
    let mut view = cluster(&[GB300]);
    let mut class = classes().remove(0);
    class.metadata.name = Some("big-gpus".to_owned());
    class.spec.as_mut().unwrap().extended_resource_name = Some("example.com/gpu".to_owned());
    view.apply(class).unwrap();
    for (resource, class) in [
        ("example.com/gpu", "big-gpus"),
        ("deviceclass.resource.kubernetes.io/big-gpus", "big-gpus"),
        ("deviceclass.resource.kubernetes.io/gpu.nvidia.com", "gpu.nvidia.com"),
    ] {
        let pod = pod(resource, 1, &[("aligned-nics", "2")]);
        let Verdict { pod: first, planned, .. } = admit(&pod, &view, &Policy::default()).unwrap();
        let claim = serde_json::to_string(&planned.unwrap().plan.claim).unwrap();
        assert!(claim.contains(&format!("\"deviceClassName\":\"{class}\"")), "{claim}");
        let resources = &first["spec"]["containers"][0]["resources"];
        assert_eq!(resources, &json!({ "claims": [{ "name": "dranet" }] }));
        let again = admit(&first, &view, &Policy::default()).unwrap().pod;
        assert_eq!(again, first, "the limit was kept: {resource}");
    }
    for resource in ["deviceclass.resource.kubernetes.io/dranet.net", "example.com/disk"] {
        let pod = pod(resource, 1, &[("aligned-nics", "2")]);
        let denied = admit(&pod, &view, &Policy::default()).unwrap_err().to_string();
        assert!(denied.contains("asks for no GPU"), "{resource}: {denied}");
    }
}

/// A rewritten pod is not rewritten again, but a limit that a default has added again is
/// removed.
#[test]
fn a_limit_added_again_by_a_default_is_removed() {
    let view = cluster(&[GB300]);
    let first = admit(&annotated(&[("aligned-nics", "2")]), &view, &Policy::default()).unwrap().pod;
    let mut again = first.clone();
    again["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1".into();
    again["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1".into();
    assert_eq!(admit(&again, &view, &Policy::default()).unwrap().pod, first);
}
