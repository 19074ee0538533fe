//! What the commands print, on the example cluster and on bad input.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use std::fmt::Write as _;
use std::fs;

const EXAMPLE: &str = "../deploy/examples/aks-gb300";

/// The output, or `error: ` and the chain of causes.
async fn kubectl_dranet(args: &[&str]) -> String {
    let args = Args::try_parse_from([&["kubectl-dranet"], args].concat()).unwrap();
    match kubectl_dranet::run(args).await {
        Ok(output) => output.text,
        Err(error) => format!("error: {}", serve::process::one_line(&error)),
    }
}

#[tokio::test]
async fn plan_of_two_nics() {
    let pod = format!("{EXAMPLE}/2nic-aligned.yaml");
    insta::assert_snapshot!(kubectl_dranet(&["plan", "-f", &pod, "--snapshot", EXAMPLE]).await);
}

#[tokio::test]
async fn plan_of_one_nic_as_yaml() {
    let pod = format!("{EXAMPLE}/1nic-aligned.yaml");
    let args = ["plan", "-f", &pod, "--snapshot", EXAMPLE, "-o", "yaml"];
    insta::assert_snapshot!(kubectl_dranet(&args).await);
}

#[tokio::test]
async fn graph_of_a_snapshot() {
    insta::assert_snapshot!(kubectl_dranet(&["graph", "--snapshot", EXAMPLE]).await);
}

/// A machine that was captured gives the graph that the machine gives.
#[tokio::test]
async fn a_capture_is_as_good_as_its_machine() {
    let folder = tempfile::tempdir().unwrap();
    let (root, capture) = (folder.path().join("root"), folder.path().join("capture.tar.gz"));
    fs::create_dir(&root).unwrap();
    let text = topology_graph::fixture::machine("azure-gb300").unwrap();
    topology_graph::fixture::plant(text, &root).unwrap();
    let (root, capture) = (root.display().to_string(), capture.display().to_string());

    let size = "Standard_ND128isr_GB300_v6";
    let machine = kubectl_dranet(&["graph", "--root", &root, "--vm-size", size]).await;
    assert!(machine.contains("NV18"), "{machine}");
    kubectl_dranet(&["graph", "--root", &root, "--capture", &capture]).await;
    let captured = kubectl_dranet(&["graph", "--root", &capture, "--vm-size", size]).await;
    assert_eq!(captured, machine);
}

#[tokio::test]
async fn a_graph_in_every_form() {
    let node = "aks-gpu-45139532-vmss000081";
    for form in topology_graph::Format::ALL {
        let form = form.to_string();
        let text = kubectl_dranet(&["graph", node, "--snapshot", EXAMPLE, "-o", &form]).await;
        assert!(!text.starts_with("error"), "{form}: {text}");
        assert!(text.contains("0101:00:00.0"), "{form}: {text}");
    }
}

/// Each case is a file's content, or nothing for a missing file, and what it is used as.
#[tokio::test]
async fn bad_input_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let missing = folder.path().join("missing.yaml").display().to_string();
    let broken = file("broken.yaml", "a: [1,");
    let pods = file("pods.yaml", "kind: Pod\n---\nkind: Pod\n");
    let service = file("service.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n");
    let slice = file(
        "slice.yaml",
        "apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\nmetadata: {name: a}\nspec: {devices: 3}\n",
    );
    let graph = file(
        "graph.yaml",
        "apiVersion: topology.dranet.io/v1alpha1\nkind: NodeTopology\nmetadata: {name: a}\nspec: {summary: {gpus: 0, nics: 0, numaNodes: 0, anomalies: 0}, shape: {hash: x, vertices: [{at: nonsense, role: gpu}]}}\n",
    );
    let three = file(
        "three.yaml",
        "kind: Pod\nmetadata: {name: a, annotations: {dranet.io/aligned-nics: \"3\"}}\nspec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}\n",
    );
    let plain = file("plain.yaml", "kind: Pod\nmetadata: {name: a}\nspec: {containers: []}\n");
    let mut text = String::new();
    for args in [
        vec!["graph", "--snapshot", &missing],
        vec!["graph", "--snapshot", &broken],
        vec!["graph", "--snapshot", &service],
        vec!["graph", "--snapshot", &slice],
        vec!["graph", "--snapshot", &graph],
        vec!["graph", "no-such-node", "--snapshot", EXAMPLE],
        vec!["graph", "--root", &missing],
        vec!["graph", "--root", &broken],
        vec!["graph", "--nccl-xml", &broken],
        vec!["graph", "--snapshot", EXAMPLE, "-o", "svg"],
        vec!["graph", "--kubeconfig", &missing],
        vec!["graph", "--kubeconfig", &broken],
        vec!["plan", "-f", &missing, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &broken, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &pods, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &service, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &three, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &plain, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &three, "--snapshot", EXAMPLE, "--gpu-class", "none-such"],
    ] {
        let shown = args.join(" ").replace(&folder.path().display().to_string(), "FOLDER");
        let output = kubectl_dranet(&args).await;
        let output = output.replace(&folder.path().display().to_string(), "FOLDER");
        writeln!(text, "$ {shown}\n{}\n", output.trim_end()).unwrap();
    }
    insta::assert_snapshot!(text);
}
