//! Files as people have them: several documents, other line ends, other kinds, and mistakes in them.

use super::{Cluster, NODE, joined};
use serde_json::{Value, json};
use std::fs;

/// The metadata and spec of a pod with one GPU and one NIC, indented.
fn template(indent: usize) -> String {
    let text = "metadata: {annotations: {dranet.io/aligned-nics: \"1\"}}\n\
                spec: {containers: [{name: a, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}\n";
    let indent = " ".repeat(indent);
    text.lines().fold(String::new(), |all, line| all + &indent + line + "\n")
}

fn workload(kind: &str, spec: &str) -> String {
    format!("apiVersion: example.com/v1\nkind: {kind}\nmetadata: {{name: w}}\nspec:\n{spec}")
}

fn pod(metadata: &str, spec: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{{metadata}}}\nspec: {{{spec}}}\n")
}

/// The answer about a file.
fn answer(cluster: &Cluster, command: &str, text: &str) -> String {
    let file = cluster.0.path().join("asked.yaml");
    fs::write(&file, text).unwrap();
    let path = file.display().to_string();
    cluster.run(&[command, "-f", &path]).replace(&path, "FILE")
}

#[test]
fn workloads_of_every_form_are_read() {
    let cluster = Cluster::of(&[], |_| {});
    let nics = "annotations: {dranet.io/aligned-nics: \"1\"}";
    let gpus = "containers: [{name: a, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]";
    let replicas = workload("ReplicaSet", &format!("  replicas: 3\n  template:\n{}", template(4)));
    let cron = format!("  jobTemplate:\n    spec:\n      template:\n{}", template(8));
    let group = format!("  leaderWorkerTemplate:\n    workerTemplate:\n{}", template(6));
    let named = pod(&format!("name: w, {nics}"), gpus);
    for (text, subject) in [
        (workload("CronJob", &cron), "CronJob w"),
        (workload("LeaderWorkerSet", &group), "LeaderWorkerSet w, workerTemplate"),
        (workload("Rollout", &format!("  template:\n{}", template(4))), "Rollout w"),
        (replicas.clone(), "ReplicaSet w"),
        (replicas.replace('\n', "\r\n"), "ReplicaSet w"),
        (format!("\u{feff}{replicas}"), "ReplicaSet w"),
        (format!("# note\n---\n---\n{named}---\n# nothing\n...\n"), "Pod w"),
        (pod(&format!("generateName: train-, {nics}"), gpus), "Pod train-"),
        (
            format!(
                "apiVersion: v1\nkind: PodTemplate\nmetadata: {{name: w}}\ntemplate:\n{}",
                template(2)
            ),
            "PodTemplate w",
        ),
    ] {
        let text = answer(&cluster, "explain", &text);
        let expected = format!("{subject} fits on 1 of 1 node now.\n");
        assert!(text.starts_with(&expected) && text.ends_with("exit code 0\n"), "{text}");
    }
}

#[test]
fn mistakes_in_files_are_named() {
    let cluster = Cluster::of(&[], |_| {});
    let gpus = "containers: [{name: a, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]";
    let one = |annotation: &str| pod(&format!("name: w, annotations: {{{annotation}}}"), gpus);
    let source = "resourceClaims: [{name: gpu, source: {resourceClaimTemplateName: t}}], ";
    let daemon = workload("DaemonSet", &format!("  template:\n{}", template(4)));
    let amount = "containers: [{name: a, image: x, resources: {limits: {cpu: lots}}}]";
    let deployment = workload("Deployment", &format!("  template:\n{}", template(4)));
    let labels = deployment.replace("annotations:", "labels:");
    for (command, text, expected) in [
        ("explain", String::new(), "error: `FILE` is empty\n"),
        ("explain", "# only a comment\n---\n".to_owned(), "error: `FILE` is empty\n"),
        ("explain", "hello\n".to_owned(), "it holds: something without a kind\n"),
        (
            "explain",
            "a:\n\tb: 1\n".to_owned(),
            "error: `FILE` is not valid YAML: tabs disallowed within this context (block \
             indentation) at line 2, column 2\n",
        ),
        ("explain", one("dranet.io/Aligned-NICs: \"1\""), "did you mean dranet.io/aligned-nics?"),
        (
            "plan",
            pod("name: w, labels: {dranet.io/aligned-nics: \"1\"}", gpus),
            "note: Pod w has dranet.io/aligned-nics as a label, where it has no effect; write it as \
             an annotation\n",
        ),
        ("plan", labels, "note: Deployment w has dranet.io/aligned-nics as a label"),
        (
            "explain",
            pod("name: w", &format!("{source}{gpus}")),
            "its claim `gpu` names neither a resourceClaimName nor a resourceClaimTemplateName",
        ),
        ("simulate", daemon, "note: DaemonSet w has a pod on each node; one of them is looked at\n"),
        (
            "explain",
            pod("name: w", amount),
            "error: invalid value \"lots\" for cpu of container a of Pod w: write an amount such as 1",
        ),
        (
            "lint",
            "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaimTemplate\nmetadata: {name: t}\n\
             spec: {spec: {devices: {requests: [{name: gpu, deviceClassName: gpu.nvidia.com}]}}}\n"
                .to_owned(),
            "error: ResourceClaimTemplate \"t\" has the apiVersion resource.k8s.io/v1beta1; write it \
             for resource.k8s.io/v1",
        ),
        (
            "lint",
            "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\n\
             spec: {devices: {requests: [{name: gpu, deviceClassName: gpu.nvidia.com}]}}\n"
                .to_owned(),
            "error: request \"gpu\" of ResourceClaim \"c\" has neither `exactly` nor",
        ),
    ] {
        let text = answer(&cluster, command, &text);
        assert!(joined(&text).contains(expected.trim_end()), "{expected}: {text}");
    }
}

/// Slices and classes of older API servers: the same fields are read, others are named.
#[test]
fn objects_of_older_versions_are_read_or_named() {
    let versioned = |version: &'static str| {
        Cluster::of(&[], move |object| {
            if object["apiVersion"] == "resource.k8s.io/v1" {
                object["apiVersion"] = version.into();
            }
        })
    };
    let pod = fs::read_to_string("../deploy/examples/aks-gb300/1nic-aligned.yaml").unwrap();
    let text = answer(&versioned("resource.k8s.io/v1beta2"), "explain", &pod);
    assert!(text.contains("fits on 1 of 1 node now"), "{text}");
    let text = answer(&versioned("resource.k8s.io/v1beta1"), "explain", &pod);
    let expected = "note: ignored 2 DeviceClasses of resource.k8s.io/v1beta1 and 2 ResourceSlices of \
                    resource.k8s.io/v1beta1: only resource.k8s.io/v1 and v1beta2 are read";
    assert!(text.contains(expected), "{text}");
}

/// A template `one` for one NIC.
fn one_nic() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": { "name": "one", "namespace": "default" },
        "spec": { "spec": { "devices": { "requests": [
            { "name": "nic", "exactly": { "deviceClassName": "dranet.net" } },
        ] } } },
    })
}

/// Without a namespace in the file, the flags and the snapshot, a pod is in `default`, as its claims.
#[test]
fn a_pod_of_a_file_finds_its_template_in_default() {
    let pod = pod(
        "name: w",
        "containers: [{name: a, image: x, resources: {claims: [{name: nic}]}}], \
         resourceClaims: [{name: nic, resourceClaimTemplateName: one}]",
    );
    let text = answer(&Cluster::of(&[one_nic()], |_| {}), "explain", &pod);
    assert!(text.contains(&format!("node {NODE}: fits")), "{text}");
}

/// A gated pod says why its group waits, in the words of its condition.
#[test]
fn the_reason_of_a_group_without_a_fabric_is_given() {
    let cluster = Cluster::of(&[one_nic()], |_| {});
    let gated = |status: &str| {
        format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: w, namespace: default}}\nspec:\n  \
             schedulingGates: [{{name: dranet.io/fabric}}]\n  \
             containers: [{{name: a, image: x, resources: {{claims: [{{name: nic}}]}}}}]\n  \
             resourceClaims: [{{name: nic, resourceClaimTemplateName: one}}]\nstatus: {{{status}}}\n"
        )
    };
    let condition =
        "conditions: [{type: dranet.io/FabricChosen, status: 'False', message: too few}]";
    let text = joined(&answer(&cluster, "explain", &gated(condition)));
    assert!(text.contains("no fabric is chosen for its group: too few."), "{text}");
    let text = joined(&answer(&cluster, "explain", &gated("")));
    assert!(text.contains("no fabric is chosen for its group (gate dranet.io/fabric)."), "{text}");
}
