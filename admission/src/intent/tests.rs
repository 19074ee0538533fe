use super::*;
use cluster_model::names::annotation::Purpose;
use k8s_openapi::api::core::v1::Container;
use serde_json::{Value, json};
use std::ops::Range;

fn pod(annotations: &Value, containers: &Value) -> Pod {
    let mut annotations = annotations.clone();
    if annotations.get("dranet.io/aligned-nics").is_none() {
        annotations["dranet.io/aligned-nics"] = "2".into();
    }
    serde_json::from_value(json!({
        "metadata": { "annotations": annotations },
        "spec": { "containers": containers },
    }))
    .unwrap()
}

fn container(name: &str, limits: &Value) -> Value {
    json!({ "name": name, "resources": { "limits": limits } })
}

fn gpus(name: &str, count: u32) -> Value {
    container(name, &json!({ "nvidia.com/gpu": count.to_string() }))
}

fn read(pod: &Pod) -> Result<Option<Intent>, Denial> {
    super::read(pod, &GpuResources::default())
}

fn shares(pod: &Pod) -> Vec<(String, Range<u32>)> {
    let intent = read(pod).unwrap().unwrap();
    intent.shares.into_iter().map(|share| (share.container, share.gpus)).collect()
}

#[test]
fn reads_nics_gpus_and_the_container() {
    let pod = pod(&json!({}), &json!([container("log", &json!({})), gpus("nccl", 1)]));
    let intent = read(&pod).unwrap().unwrap();
    assert_eq!((intent.nics, intent.gpus), (2, 1));
    assert_eq!(intent.resource.unwrap().driver.driver, "gpu.nvidia.com");
    assert_eq!(shares(&pod), [("nccl".to_owned(), 0..1)]);
}

#[test]
fn a_pool_is_a_field_of_the_network_configuration() {
    let config = |annotations: Value| {
        let pod = pod(&annotations, &json!([gpus("nccl", 1)]));
        let config = read(&pod).unwrap().unwrap().wishes.nic_config.unwrap();
        serde_json::from_str::<Value>(config.json()).unwrap()
    };
    let alone = config(json!({ "dranet.io/nic-pool": "rdma" }));
    assert_eq!(alone, json!({ "interface": { "pool": "rdma" } }));
    let beside = json!({ "interface": { "mtu": 9000 } }).to_string();
    let beside = config(json!({ "dranet.io/nic-pool": "rdma", "dranet.io/nic-config": beside }));
    assert_eq!(beside, json!({ "interface": { "mtu": 9000, "pool": "rdma" } }));
}

/// One name cannot be that of two interfaces.
#[test]
fn several_nics_may_be_named_by_a_pattern() {
    let config = json!({ "interface": { "name": "rail%d" } }).to_string();
    let pod = pod(&json!({ "dranet.io/nic-config": config }), &json!([gpus("nccl", 1)]));
    let read = read(&pod).unwrap().unwrap().wishes.nic_config.unwrap();
    assert_eq!(read.json(), config);
}

#[test]
fn a_pod_without_the_trigger_has_no_intent() {
    assert_eq!(read(&Pod::default()), Ok(None));
}

#[test]
fn init_containers_use_the_gpus_of_main_containers() {
    let mut pod = pod(&json!({}), &json!([gpus("a", 1), gpus("b", 2), container("c", &json!({}))]));
    assert_eq!(shares(&pod), [("a".to_owned(), 0..1), ("b".to_owned(), 1..3)]);

    let init = json!([gpus("first", 4), gpus("side", 1)]);
    let mut init: Vec<Container> = serde_json::from_value(init).unwrap();
    init[1].restart_policy = Some("Always".to_owned());
    pod.spec.as_mut().unwrap().init_containers = Some(init);
    let expected =
        [("first", 0..4), ("side", 0..1), ("a", 1..2), ("b", 2..4)].map(|(n, r)| (n.to_owned(), r));
    assert_eq!(shares(&pod), expected);
    assert_eq!(read(&pod).unwrap().unwrap().gpus, 4, "it has ended when the sidecar starts");

    pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap().reverse();
    let expected =
        [("side", 0..1), ("first", 1..5), ("a", 1..2), ("b", 2..4)].map(|(n, r)| (n.to_owned(), r));
    assert_eq!(shares(&pod), expected);
    assert_eq!(read(&pod).unwrap().unwrap().gpus, 5, "it runs beside the sidecar");
}

#[test]
fn gpus_by_annotation_go_to_the_workload() {
    let default = "kubectl.kubernetes.io/default-container";
    for (names, annotated, expected) in [
        (&["main"][..], None, Some("main")),
        (&["istio-proxy"], None, Some("istio-proxy")),
        (&["istio-proxy", "main"], None, Some("main")),
        (&["main", "linkerd-proxy", "vault-agent"], None, Some("main")),
        (&["proxy", "main"], Some("main"), Some("main")),
        (&["istio-proxy", "main"], Some("istio-proxy"), Some("istio-proxy")),
        (&["istio-proxy", "main"], Some("absent"), Some("main")),
        (&["a", "b"], None, None),
        (&["istio-proxy", "daprd"], None, None),
    ] {
        let bare: Vec<Value> = names.iter().map(|name| container(name, &json!({}))).collect();
        let mut annotations = json!({ "dranet.io/gpus": "2" });
        if let Some(name) = annotated {
            annotations[default] = name.into();
        }
        let pod = pod(&annotations, &json!(bare));
        if let Some(expected) = expected {
            assert_eq!(shares(&pod), [(expected.to_owned(), 0..2)], "{names:?}");
        } else {
            let denied = read(&pod).unwrap_err().to_string();
            let listed = format!("containers {} could get the devices", names.join(", "));
            assert!(denied.contains(&listed), "{denied}");
        }
    }
}

/// What the API server's plugin `LimitRanger` sets is not what the user asked for.
#[test]
fn defaults_of_a_limit_range_are_not_requests() {
    let listed = |text: &str| {
        let annotations = json!({ "dranet.io/gpus": "2", "kubernetes.io/limit-ranger": text });
        pod(&annotations, &json!([gpus("main", 4)]))
    };
    let set = "LimitRanger plugin set: cpu request for container main; cpu, nvidia.com/gpu limit for \
               container main";
    assert_eq!(shares(&listed(set)), [("main".to_owned(), 0..2)]);
    for other in [
        "LimitRanger plugin set: nvidia.com/gpu request for container main",
        "LimitRanger plugin set: nvidia.com/gpu limit for container other",
        "LimitRanger plugin set: nvidia.com/gpu limit for init container main",
        "nvidia.com/gpu limit for container main",
    ] {
        let denied = read(&listed(other)).unwrap_err().to_string();
        assert!(denied.contains("the limits of the containers ask for 4"), "{denied}");
    }
    let mut without = listed(set);
    without.metadata.annotations.as_mut().unwrap().remove("dranet.io/gpus");
    assert_eq!(shares(&without), [("main".to_owned(), 0..4)], "Kubernetes gives it 4");
}

#[test]
fn gpus_by_annotation_go_to_the_containers_named() {
    let bare = json!([container("a", &json!({})), container("b", &json!({}))]);
    let named = pod(&json!({ "dranet.io/gpus": "2", "dranet.io/containers": "b, a" }), &bare);
    assert_eq!(shares(&named), [("b".to_owned(), 0..2), ("a".to_owned(), 0..2)]);
    let more = pod(
        &json!({ "dranet.io/containers": "nccl,a" }),
        &json!([container("a", &json!({})), gpus("nccl", 1)]),
    );
    assert_eq!(shares(&more), [("nccl".to_owned(), 0..1), ("a".to_owned(), 0..0)]);
}

#[test]
fn pairing_by_default() {
    for (nics, count, expected) in [
        ("per-gpu", 4, Pairing::Each),
        ("8", 4, Pairing::Each),
        ("2", 1, Pairing::Group),
        ("3", 2, Pairing::Group),
        ("2", 4, Pairing::Group),
    ] {
        let pod = pod(&json!({ "dranet.io/aligned-nics": nics }), &json!([gpus("c", count)]));
        assert_eq!(read(&pod).unwrap().unwrap().pairing, expected, "{nics} for {count}");
    }
}

#[test]
fn denials() {
    let one_gpu = || json!([gpus("nccl", 1)]);
    let cases = [
        (json!({ "aligned-nics": "two" }), one_gpu()),
        (json!({ "aligned-nics": "" }), one_gpu()),
        (json!({ "aligned-nics": "0" }), one_gpu()),
        (json!({ "aligned-nics": "-1" }), one_gpu()),
        (json!({ "aligned-nics": "+2" }), one_gpu()),
        (json!({ "aligned-nics": "2.5" }), one_gpu()),
        (json!({ "aligned-nics": "33" }), one_gpu()),
        (json!({ "aligned-nics": "99999999999" }), one_gpu()),
        (json!({ "aligned-nics": "per-gpu" }), json!([gpus("nccl", 33)])),
        (json!({}), json!([container("nccl", &json!({}))])),
        (json!({}), json!([gpus("nccl", 0)])),
        (json!({}), json!([container("nccl", &json!({ "nvidia.com/gpu": "1500m" }))])),
        (json!({}), json!([container("nccl", &json!({ "nvidia.com/mig-1g.10gb": "1" }))])),
        (json!({}), json!([container("nccl", &json!({ "nvidia.com/gpu.shared": "1" }))])),
        (json!({}), json!([gpus("a", 1), container("b", &json!({ "amd.com/gpu": "1" }))])),
        (json!({ "gpus": "2" }), one_gpu()),
        (json!({ "gpus": "many" }), json!([container("a", &json!({}))])),
        (json!({ "alignment": "rack" }), one_gpu()),
        (json!({ "alignment-policy": "soft" }), one_gpu()),
        (json!({ "pairing": "each", "aligned-nics": "3" }), json!([gpus("a", 2)])),
        (json!({ "pairing": "all" }), one_gpu()),
        (json!({ "containers": "main" }), one_gpu()),
        (json!({ "containers": "b" }), json!([gpus("a", 1), container("b", &json!({}))])),
        (json!({ "gpu-class": "My GPUs" }), one_gpu()),
        (json!({ "fabric": "" }), one_gpu()),
        (json!({ "fabric": "My job" }), one_gpu()),
        (json!({ "fabric": "same", "fabric-size": "1" }), one_gpu()),
        (json!({ "nic-config": "mtu" }), one_gpu()),
        (json!({ "nic-config": "{\"interface\":{\"mtu\":1}}" }), one_gpu()),
        (json!({ "nic-config": "{\"interface\":{\"name\":\"eth1\"}}" }), one_gpu()),
        (json!({ "nic-pool": "My pool" }), one_gpu()),
        (json!({ "nic-pool": "a", "nic-config": "{\"interface\":{\"pool\":\"b\"}}" }), one_gpu()),
        (json!({ "nic-pool": "a", "nic-config": "{\"interface\":{\"dhcp\":true}}" }), one_gpu()),
        (json!({ "nic-pool": "a", "nic-config": "[]" }), one_gpu()),
        (json!({ "nic-pool": "a", "nic-config": "{\"interface\":[]}" }), one_gpu()),
        (json!({ "fabric-size": "4" }), one_gpu()),
        (json!({ "fabric": "same", "fabric-wait": "soon" }), one_gpu()),
        (json!({ "fabric-wait": "60" }), one_gpu()),
        (json!({ "fabric": "same", "fabric-level": "spine" }), one_gpu()),
        (json!({ "fabric-level": "nvlink" }), one_gpu()),
        (json!({ "fabric": "same", "domain-size": "8" }), one_gpu()),
        (json!({ "fabric": "same", "fabric-level": "nvlink", "domain-size": "1" }), one_gpu()),
    ];
    let texts = cases.into_iter().map(|(annotations, containers)| {
        let ours = annotations.as_object().unwrap().iter();
        let ours = ours.map(|(key, value)| (format!("dranet.io/{key}"), value.clone())).collect();
        read(&pod(&Value::Object(ours), &containers)).unwrap_err().to_string()
    });
    insta::assert_snapshot!(texts.collect::<Vec<_>>().join("\n"));
}

/// Every value that is not allowed is denied, so an annotation that nothing reads is found here.
#[test]
fn every_annotation_that_asks_is_read() {
    for key in annotation::asking() {
        let pod = pod(&json!({ key: "!" }), &json!([gpus("nccl", 1)]));
        assert_eq!(read(&pod).unwrap_err().annotation(), key);
    }
}

#[test]
fn only_annotations_of_pods_are_known_on_pods() {
    for annotation in annotation::ALL {
        let pod: Pod = serde_json::from_value(
            json!({ "metadata": { "annotations": { annotation.key: "1" } } }),
        )
        .unwrap();
        let expected = match (annotation.purpose, annotation.key) {
            (Purpose::Allows | Purpose::WrittenOnPods, _) | (_, annotation::ALIGNED_NICS) => None,
            (Purpose::Asks, _) => Some("has no effect without dranet.io/aligned-nics"),
            (Purpose::WrittenOnTemplates, _) => Some("is not known"),
        };
        let warnings = warnings(&pod);
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{warnings:?}");
        assert!(
            warnings.iter().all(|it| it.contains(expected.unwrap_or_default())),
            "{warnings:?}"
        );
    }
}

#[test]
fn annotations_without_effect_are_warned_about() {
    let pod: Pod = serde_json::from_value(json!({ "metadata": { "annotations": {
        "dranet.io/alined-nics": "2", "dranet.io/colour": "red", "dranet.io/gpus": "2",
        "dranet.io/plan": "copied", "example.com/x": "y",
    } } }))
    .unwrap();
    insta::assert_snapshot!(warnings(&pod).join("\n"));
}

#[test]
fn containers_that_cannot_lock_memory_are_warned_about() {
    let containers = ["none", "able", "user", "root", "image", "privileged"].map(|it| gpus(it, 1));
    let mut pod = pod(&json!({}), &Value::from_iter(containers));
    let spec = pod.spec.as_mut().unwrap();
    spec.security_context = serde_json::from_value(json!({ "runAsNonRoot": true })).unwrap();
    let lock = json!({ "add": ["IPC_LOCK"] });
    for (container, context) in spec.containers.iter_mut().zip([
        json!({ "runAsNonRoot": false }),
        json!({ "runAsNonRoot": false, "capabilities": lock }),
        json!({ "runAsUser": 1000, "capabilities": lock }),
        json!({ "runAsUser": 0, "capabilities": lock }),
        json!({ "capabilities": lock }),
        json!({ "privileged": true }),
    ]) {
        container.security_context = serde_json::from_value(context).unwrap();
    }
    let intent = read(&pod).unwrap().unwrap();
    insta::assert_snapshot!(memlock(&pod, &intent).join("\n"));
}
