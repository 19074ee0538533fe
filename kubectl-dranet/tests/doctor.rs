//! What `doctor` finds about the control plane, the project's own parts, and devices.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";
const NODE: &str = "aks-gpu-45139532-vmss000081";

/// A part of the project.
fn part(kind: &str, name: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {
            "name": name, "namespace": "dranet-system",
            "labels": { "app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "dranet" },
        },
        "spec": spec,
        "status": status,
    })
}

/// Whether a line is a check, not a finding.
fn is_check(line: &str) -> bool {
    line.starts_with(['\u{2713}', '\u{2717}', '\u{2013}'])
}

fn head(server: &str, gates: &Value) -> Value {
    json!({
        "apiVersion": "snapshot.dranet.io/v1", "kind": "Snapshot",
        "takenAt": "2026-01-01T00:00:00Z", "clientVersion": "0.1.0", "serverVersion": server,
        "featureGates": gates, "namespace": "default", "masked": false,
    })
}

fn webhook(bundle: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "admission.dranet.io" },
        "webhooks": [{ "clientConfig": {
            "caBundle": bundle,
            "service": { "name": "admission", "namespace": "dranet-system" },
        } }],
    })
}

fn endpoints(ready: &[bool]) -> Value {
    let endpoint =
        |ready: &bool| json!({ "addresses": ["10.0.0.1"], "conditions": { "ready": ready } });
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "admission-x", "namespace": "dranet-system",
            "labels": { "kubernetes.io/service-name": "admission" },
        },
        "endpoints": ready.iter().map(endpoint).collect::<Vec<_>>(),
    })
}

fn definition(version: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "nodetopologies.topology.dranet.io" },
        "spec": { "versions": [{ "name": version, "served": true }] },
    })
}

fn controllers(flags: &[&str]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "kube-controller-manager-a", "namespace": "kube-system",
            "labels": { "component": "kube-controller-manager", "tier": "control-plane" },
        },
        "spec": { "containers": [{ "name": "main", "command": flags }] },
    })
}

/// What `doctor` prints for the example with these objects, and its exit code.
fn doctor(more: Vec<Value>, change: impl Fn(&mut Value)) -> String {
    let mut objects = cluster_model::snapshot::objects(Path::new(EXAMPLE)).unwrap();
    objects.iter_mut().for_each(change);
    objects.extend(more);
    doctor_of(&objects, &[])
}

/// The same for a cluster with these objects.
fn doctor_of(objects: &[Value], flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.json");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
    fs::write(&path, list.to_string()).unwrap();
    let path = path.display().to_string();
    let args = [&["kubectl-dranet", "doctor", "--snapshot", &path], flags].concat();
    let output = kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap();
    // Each finding on one line.
    let text = output.text.replace("\n  ", " ");
    format!("{text}exit code {}\n", if output.denied { 3 } else { 0 })
}

#[test]
fn a_cluster_that_is_ready_has_no_findings() {
    let servers = json!({ "readyReplicas": 2 });
    let all = vec![
        head("v1.37.1", &json!({ "DynamicResourceAllocation": true })),
        part("Deployment", "admission", &json!({ "replicas": 2 }), &servers),
        part(
            "DaemonSet",
            "node-driver",
            &json!({}),
            &json!({
                "desiredNumberScheduled": 1, "numberReady": 1, "updatedNumberScheduled": 1,
            }),
        ),
        part("DaemonSet", "scheduler-ext", &json!({}), &json!({})),
        webhook(VALID),
        endpoints(&[true, true]),
        definition("v1alpha1"),
        controllers(&["kube-controller-manager", "--kube-api-qps=200"]),
    ];
    insta::assert_snapshot!(doctor(all, |_| {}));
}

#[test]
fn problems_are_found() {
    let all = vec![
        head("v1.33.9", &json!({ "DRAPrioritizedList": false, "DRADeviceTaints": false })),
        part("Deployment", "admission", &json!({ "replicas": 2 }), &json!({ "readyReplicas": 1 })),
        part("Deployment", "fabric-controller", &json!({ "replicas": 2 }), &json!({})),
        part(
            "DaemonSet",
            "node-driver",
            &json!({}),
            &json!({
                "desiredNumberScheduled": 5, "numberReady": 3, "updatedNumberScheduled": 5,
            }),
        ),
        webhook(""),
        endpoints(&[false, false]),
        definition("v1"),
        controllers(&["kube-controller-manager"]),
    ];
    let change = |object: &mut Value| {
        if object["kind"] == "Node" {
            object["status"] = json!({ "capacity": { "rdma/hca_shared": "63", "cpu": "128" } });
        }
        if object["kind"] == "ResourceSlice" && object["spec"]["driver"] == "dra.net" {
            let devices = object["spec"]["devices"].as_array_mut().unwrap();
            devices[0]["attributes"]["dranet.io/portState"] = json!({ "string": "Down" });
            devices[1]["attributes"]["dranet.io/degraded"] = json!({ "bool": true });
        }
    };
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE },
        "status": { "capacity": { "rdma/hca_shared": "63", "cpu": "128" } },
    });
    let mut objects = all;
    objects.push(node);
    insta::assert_snapshot!(doctor(objects, change));
}

#[test]
fn gpus_that_their_driver_does_not_publish_are_found() {
    let change = |object: &mut Value| {
        if object["spec"]["driver"] == "gpu.nvidia.com" {
            object["spec"]["devices"] = json!([]);
        }
    };
    // Without it, the cluster has no GPUs of a DRA driver at all, which is another finding.
    let other = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": { "name": "other" },
        "spec": {
            "driver": "gpu.amd.com", "nodeName": "other",
            "pool": { "name": "other", "generation": 1, "resourceSliceCount": 1 },
            "devices": [{ "name": "gpu-0" }],
        },
    });
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "other" } });
    let finding = |more: Vec<Value>| {
        let text = doctor(more, change);
        text.lines().find(|line| line.contains("does not publish")).map(str::to_owned)
    };
    assert_eq!(
        finding(vec![other, node]).unwrap(),
        format!(
            "warning: node {NODE} has GPUs that driver gpu.nvidia.com does not publish, so no claim \
             can get them; check whether that DRA driver runs there, and its log"
        )
    );
    assert_eq!(finding(Vec::new()), None);
}

#[test]
fn one_replica_an_update_and_a_newer_server_are_notes() {
    let all = vec![
        head("v1.39.0", &json!({})),
        part(
            "DaemonSet",
            "node-driver",
            &json!({}),
            &json!({
                "desiredNumberScheduled": 5, "numberReady": 5, "updatedNumberScheduled": 2,
            }),
        ),
        webhook(EXPIRED),
        endpoints(&[true]),
    ];
    let text = doctor(all, |_| {});
    let is_same = |line: &&str| !line.contains("certificates") && !is_check(line);
    let text: Vec<_> = text.lines().filter(is_same).collect();
    insta::assert_snapshot!(text[..text.len() - 1].join("\n"));
}

fn scheduler(name: &str, flags: &[&str]) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "kube-system",
            "labels": { "component": "kube-scheduler", "tier": "control-plane" },
        },
        "spec": { "containers": [{ "name": "main", "command": flags }] },
    })
}

/// Of three schedulers one has a configuration, which may name the extender.
#[test]
fn an_unregistered_extender_is_found() {
    let status = json!({
        "desiredNumberScheduled": 3, "numberReady": 2, "updatedNumberScheduled": 3,
    });
    let extender = part("DaemonSet", "scheduler-ext", &json!({}), &status);
    let schedulers = [
        scheduler("a", &["kube-scheduler", "--leader-elect=true"]),
        scheduler("b", &["kube-scheduler", "--config=/etc/kubernetes/scheduler.yaml"]),
        scheduler("c", &["kube-scheduler", "--config", "/etc/kubernetes/scheduler.yaml"]),
    ];
    let of = |objects: Vec<Value>| {
        let text = doctor(objects, |_| {});
        let about = |line: &&str| line.contains("scheduler") && !is_check(line);
        text.lines().filter(about).map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    let registered = [&[extender][..], &schedulers].concat();
    insta::assert_snapshot!(of(registered));
    assert_eq!(of(schedulers.to_vec()), "", "without the extender no scheduler has to know it");
}

#[test]
fn a_cluster_without_a_gpu_driver_is_an_error() {
    // ROCm/k8s-gpu-dra-driver 7: a driver that is installed publishes no GPU that it does not support.
    for is_installed in [false, true] {
        let text = doctor(Vec::new(), |object| {
            if object["spec"]["driver"] == "gpu.nvidia.com" {
                object["spec"]["driver"] = "gpu.example.com".into();
            }
            if object["metadata"]["name"] == "gpu.nvidia.com" && !is_installed {
                object["metadata"]["name"] = "gpu.example.com".into();
            }
        });
        let remedy = if is_installed {
            "DeviceClass gpu.nvidia.com is installed, so check whether its driver runs"
        } else {
            "install the DRA driver of your GPUs"
        };
        let expected = format!(
            "error: the cluster has NICs, but no GPUs of a DRA driver, so every annotated pod is \
             denied; {remedy}"
        );
        assert!(text.contains(&expected), "{text}");
    }
}

#[test]
fn a_missing_resource_definition_is_found() {
    let of = |objects: Vec<Value>| doctor(objects, |_| {}).contains("CRD nodetopologies");
    let driver = || part("DaemonSet", "node-driver", &json!({}), &json!({}));
    assert!(of(vec![driver()]));
    assert!(!of(vec![driver(), definition("v1alpha1")]));
    assert!(!of(Vec::new()), "nothing of the installation was read");
}

/// Of two GPUs; the paths from them to the NICs of other GPUs do not count.
#[test]
fn pairs_without_gpu_direct_are_found() {
    let verdicts = ["acs-redirect", "no-peer-memory", "ats-missing", "iommu", "ok"];
    let nodes = verdicts.map(|verdict| {
        let change = move |object: &mut Value| {
            if object["kind"] == "NodeTopology" {
                let of_gpus = json!([{ "verdict": verdict, "gpus": [0, 1] }]);
                let nic = |at| json!({ "at": at, "role": "compute", "gpuDirect": of_gpus });
                let nics = ["0101:00:00.0", "0102:00:00.0", "0103:00:00.0", "0104:00:00.0"];
                object["spec"]["nics"] = nics.iter().map(nic).collect();
            }
        };
        let text = doctor(Vec::new(), change);
        let about = |line: &&str| line.contains("GPUDirect") && !is_check(line);
        let found: Vec<_> = text.lines().filter(about).collect();
        found.join("\n")
    });
    insta::assert_snapshot!(nodes.join("\n"));
}

/// The example's node in a mode, and a second one like it in another.
#[test]
fn rdma_namespace_modes_are_shown_and_checked() {
    let of = |modes: [&str; 2], sharing: bool| {
        let mut second = Vec::new();
        for mut object in cluster_model::snapshot::objects(Path::new(EXAMPLE)).unwrap() {
            if matches!(object["kind"].as_str(), Some("Node" | "NodeTopology")) {
                object["metadata"]["name"] = "second".into();
                if object["kind"] == "NodeTopology" {
                    object["spec"]["rdmaNamespaceMode"] = modes[1].into();
                }
                second.push(object);
            }
        }
        let text = doctor(second, |object| {
            if object["kind"] == "NodeTopology" {
                object["spec"]["rdmaNamespaceMode"] = modes[0].into();
            }
            if sharing && object["spec"]["driver"] == "dra.net" {
                let devices = object["spec"]["devices"].as_array_mut().unwrap();
                for device in devices {
                    device["allowMultipleAllocations"] = true.into();
                }
            }
        });
        let about = |line: &&str| line.contains("RDMA") && !is_check(line);
        text.lines().filter(about).map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(of(["shared", "shared"], true), "RDMA namespace mode: shared on 2 nodes");
    assert_eq!(of(["exclusive", "exclusive"], false), "RDMA namespace mode: exclusive on 2 nodes");
    insta::assert_snapshot!(of(["exclusive", "shared"], true));
}

/// Kubernetes accepts an empty selector, which selects everything; no selector selects nothing.
#[test]
fn a_taint_rule_for_every_device_is_found() {
    let of = |selector: Value, effect: &str| {
        let rule = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": { "name": "bad-firmware" },
            "spec": { "deviceSelector": selector, "taint": {
                "key": "example.com/bad", "effect": effect, "timeAdded": "2026-11-20T02:14:00Z",
            } },
        });
        let text = doctor(vec![rule], |_| {});
        let mut about = text.lines().filter(|line| line.contains("selects every device"));
        about.next().map(str::to_owned)
    };
    assert_eq!(
        of(json!({}), "NoExecute").as_deref(),
        Some(
            "warning: DeviceTaintRule bad-firmware selects every device of every driver, so no new \
             pod gets a device, and pods that have some are deleted; name a driver, pool or device in \
             its spec.deviceSelector"
        )
    );
    assert!(of(json!({}), "NoSchedule").is_some());
    assert_eq!(of(json!({}), "None"), None);
    assert_eq!(of(json!({ "driver": "gpu.nvidia.com" }), "NoExecute"), None);
    assert_eq!(of(Value::Null, "NoExecute"), None);
}

/// Only builds that parse certificates report the expiry.
#[cfg(feature = "live")]
#[test]
fn an_expired_certificate_is_an_error() {
    let text = doctor(vec![webhook(EXPIRED)], |_| {});
    let expected = "error: webhook admission.dranet.io trusts only certificates that expired at \
                    2020-02-01T00:00:00Z";
    assert!(text.contains(expected), "{text}");
}

/// Self-signed, from 2020-01-01 to 2020-02-01.
const EXPIRED: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJEVENCdGFBREFnRUNBZ0VCTUFvR0NDcUdTTTQ5QkFNQ01C\
    RXhEekFOQmdOVkJBTU1CbVJ5WVc1bGREQWUKRncweU1EQXhNREV3TURBd01EQmFGdzB5TURBeU1ERXdNREF3TURC\
    YU1CRXhEekFOQmdOVkJBTU1CbVJ5WVc1bApkREJaTUJNR0J5cUdTTTQ5QWdFR0NDcUdTTTQ5QXdFSEEwSUFCTDZM\
    SzZONVZPU3lyTEZuRnlWelhMbnBEN0hZCjF5ZlFISUFBNTFrL3l3MWcwUlQrOGNtTjkzZytzN1NDTWVsZ1RhUFh0\
    RVA0ZXU3bnVTM2tUYzdqNVVRd0NnWUkKS29aSXpqMEVBd0lEUndBd1JBSWdCc0djQ25nNnpGRU9qUjFRQnF6Z0Vv\
    S1JwZVBuRTdLRERzT2hRakg2elBJQwpJRmpNUVo1RmFJM1VoZlk2cmVCVmk4VjF6OXl2dkd1M1lTb01lV2hmSDRz\
    dAotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg==";

/// The same, until 2999-01-01.
const VALID: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUJEekNCdDZBREFnRUNBZ0VCTUFvR0NDcUdTTTQ5QkFNQ01C\
    RXhEekFOQmdOVkJBTU1CbVJ5WVc1bGREQWcKRncweU1EQXhNREV3TURBd01EQmFHQTh5T1RrNU1ERXdNVEF3TURB\
    d01Gb3dFVEVQTUEwR0ExVUVBd3dHWkhKaApibVYwTUZrd0V3WUhLb1pJemowQ0FRWUlLb1pJemowREFRY0RRZ0FF\
    dm9zcm8zbFU1TEtzc1djWEpYTmN1ZWtQCnNkalhKOUFjZ0FEbldUL0xEV0RSRlA3eHlZMzNlRDZ6dElJeDZXQk5v\
    OWUwUS9oNjd1ZTVMZVJOenVQbFJEQUsKQmdncWhrak9QUVFEQWdOSEFEQkVBaUE0OFVpL3hHVHN2aEZ2c2xvQzNw\
    K29RTnZOckhpLzd0UlQwWThsWUE0aQp3d0lnY0psek9uUGJ5M1YrUmowNFcvTzlzeE51OEJBL1FRYkF1dmxGTm0r\
    VHZWUT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

/// A cluster with nodes and nothing of the project: what is not there is not checked.
#[test]
fn a_bare_cluster_passes_no_check_of_what_it_lacks() {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "bare" } });
    let objects = vec![head("v1.37.1", &json!({})), node];
    let text = doctor_of(&objects, &[]);
    assert!(
        text.starts_with("not installed: no part of the project is in this cluster; "),
        "{text}"
    );
    for (mark, check) in [
        ("\u{2713}", "nodes are there and ready"),
        ("\u{2713}", "control plane"),
        ("\u{2013}", "NICs are up"),
        ("\u{2013}", "GPUs can be allocated"),
        ("\u{2013}", "GPUDirect RDMA"),
        ("\u{2013}", "kernel modules"),
        ("\u{2013}", "every machine type serves a pod"),
        ("\u{2013}", "installation"),
    ] {
        let line = format!("{mark} {check}");
        assert!(text.lines().any(|it| it.starts_with(&line)), "{line}\n{text}");
    }
    let before = doctor_of(&objects, &["--pre"]);
    assert!(before.contains("installation: not checked, only after the installation"), "{before}");
    assert!(before.contains("\u{2713} control plane"), "{before}");
}

/// Of what the user may not read, nothing is claimed.
#[test]
fn without_rights_nothing_is_known() {
    let mut head = head("v1.37.1", &json!({}));
    head["unread"] = json!(["you may not list nodes in the whole cluster, so nothing is known"]);
    let text = doctor_of(&[head], &[]);
    assert!(text.contains("you may not read nodes: what depends on them"), "{text}");
    assert!(text.contains("nodes: not known"), "{text}");
    assert!(
        text.contains("nodes are there and ready: not checked, you may not read nodes"),
        "{text}"
    );
    assert!(!text.contains("has no node"), "{text}");
    assert!(!text.contains("no findings\n"), "{text}");
}

/// Annotations on a workload itself, misspelt in its pod template, and changed on a pod that waits with
/// its claim.
#[test]
fn annotations_without_effect_are_found() {
    let workload = |kind: &str, own: Value, of_pods: Value| {
        json!({ "apiVersion": "apps/v1", "kind": kind,
            "metadata": { "name": "a", "namespace": "team", "annotations": own },
            "spec": { "template": { "metadata": { "annotations": of_pods },
                "spec": { "containers": [{ "name": "a", "image": "a" }] } } } })
    };
    let nics = json!({ "dranet.io/aligned-nics": "1" });
    let more = vec![
        workload("Job", json!({}), json!({ "dranet.io/aligned-nic": "1" })),
        workload("Deployment", nics.clone(), json!({})),
        workload("StatefulSet", json!({}), nics.clone()),
        json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "waits", "namespace": "team", "annotations": {
                "dranet.io/aligned-nics": "2", "dranet.io/plan": "p", "dranet.io/request-hash": "h" } },
            "spec": { "containers": [{ "name": "a", "image": "a" }] } }),
    ];
    let text = doctor(more, |_| {});
    for expected in [
        "Job team/a has an annotation without effect: annotation dranet.io/aligned-nic is not known",
        "did you mean dranet.io/aligned-nics?",
        "Deployment team/a has an annotation without effect: Deployment has the annotation",
        "pod team/waits has changed annotations: the claim of a pod never changes",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("StatefulSet"), "{text}");
}

/// Queues of Kueue that limit GPUs but not the resource by which claims are counted, if there is one.
#[test]
fn queues_that_count_no_claims_are_found() {
    let queue = |covered: &[&str]| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
            "metadata": { "name": "team" },
            "spec": { "resourceGroups": [{ "coveredResources": covered }] },
        })
    };
    let admission = |args: &[&str]| {
        let containers = json!([{ "name": "admission", "args": args }]);
        let spec = json!({ "template": { "spec": { "containers": containers } } });
        part("Deployment", "admission", &spec, &json!({}))
    };
    let (gpus, counted) = ("nvidia.com/gpu", "example.org/gpus");
    let flag = "--counted=gpu.nvidia.com=example.org/gpus";
    for (covered, args, expected) in [
        (&["cpu"][..], &[][..], None),
        (&["cpu", gpus], &[], Some("have claims counted by an extended resource")),
        (&["cpu", gpus], &[flag], Some("limits nvidia.com/gpu and not example.org/gpus")),
        (&["cpu", gpus, counted], &[flag], None),
        (&["cpu", counted], &[flag], None),
    ] {
        let text = doctor(vec![queue(covered), admission(args)], |_| {});
        let found = text.lines().find(|line| line.contains("ClusterQueue team"));
        let is_it = match expected {
            Some(expected) => found.is_some_and(|line| line.contains(expected)),
            None => found.is_none(),
        };
        assert!(is_it, "{covered:?} {args:?}: {text}");
    }
}
