//! What the commands print, on the example cluster and on bad input.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use std::fmt::Write as _;
use std::fs;

const EXAMPLE: &str = "../deploy/examples/aks-gb300";

/// The output, or `error: ` and the chain of causes.
fn kubectl_dranet(args: &[&str]) -> String {
    let args = Args::try_parse_from([&["kubectl-dranet"], args].concat()).unwrap();
    match kubectl_dranet::run(&args) {
        Ok(output) => output.text,
        Err(error) => format!("error: {}", process::exit::one_line(&error)),
    }
}

#[test]
fn plan_of_two_nics() {
    let pod = format!("{EXAMPLE}/2nic-aligned.yaml");
    insta::assert_snapshot!(kubectl_dranet(&["plan", "-f", &pod, "--snapshot", EXAMPLE]));
}

#[test]
fn plan_of_one_nic_as_yaml() {
    let pod = format!("{EXAMPLE}/1nic-aligned.yaml");
    let args = ["plan", "-f", &pod, "--snapshot", EXAMPLE, "-o", "yaml"];
    insta::assert_snapshot!(kubectl_dranet(&args));
}

/// A claim that holds devices of the example's node.
fn busy(name: &str, devices: &[(&str, &str)]) -> String {
    let node = "aks-gpu-45139532-vmss000081";
    let result = |(driver, device): &(&str, &str)| serde_json::json!({ "request": "r", "driver": driver, "pool": node, "device": device });
    let results: Vec<_> = devices.iter().map(result).collect();
    let claim = serde_json::json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": { "devices": { "requests": [] } },
        "status": { "allocation": { "devices": { "results": results } } },
    });
    format!("{claim}\n---\n")
}

/// Devices that claims of the snapshot hold are not allocated again.
#[test]
fn plan_as_json_with_devices_in_use() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(format!("{EXAMPLE}/cluster.yaml"), folder.path().join("cluster.yaml")).unwrap();
    let claims = folder.path().join("claims.yaml");
    let pod = format!("{EXAMPLE}/2nic-aligned.yaml");
    let snapshot = folder.path().display().to_string();
    let nodes = || {
        let text = kubectl_dranet(&["plan", "-f", &pod, "--snapshot", &snapshot, "-o", "json"]);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        for key in ["pod", "template", "join", "level", "steps"] {
            assert!(!json[key].is_null(), "{key} is missing in {json}");
        }
        json["nodes"].clone()
    };
    let one = busy("one", &[("dra.net", "pci-0101-00-00-0"), ("gpu.nvidia.com", "gpu-2")]);
    fs::write(&claims, &one).unwrap();
    insta::assert_json_snapshot!(nodes());
    let other = busy("other", &[("dra.net", "pci-0104-00-00-0")]);
    fs::write(&claims, one + &other).unwrap();
    let full = nodes();
    assert_eq!(full[0]["fits"], false, "{full}");
    assert_eq!(full[0]["devices"], serde_json::json!([]), "{full}");
    assert!(full[0]["reason"].is_string(), "{full}");
}

/// GPUs that publish their address in NVIDIA's own attribute, from before the standard one.
#[test]
fn pairs_of_the_plan_as_json_are_those_of_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = std::path::Path::new(EXAMPLE).join("cluster.yaml");
    let objects = cluster_model::snapshot::objects(&path).unwrap();
    let cluster = objects.iter().map(|object| {
        let text = object.to_string();
        let is_gpus = object["spec"]["driver"] == "gpu.nvidia.com";
        let own = text.replace("resource.kubernetes.io/pciBusID", "gpu.nvidia.com/pcieBusID");
        format!("{}\n---\n", if is_gpus { own } else { text })
    });
    fs::write(folder.path().join("cluster.yaml"), cluster.collect::<String>()).unwrap();
    let pod = format!("{EXAMPLE}/2nic-aligned.yaml");
    let snapshot = folder.path().display().to_string();
    let text = kubectl_dranet(&["plan", "-f", &pod, "--snapshot", &snapshot]);
    assert!(text.contains("GPU0 with mlx5_0 and mlx5_1 (NODE)"), "{text}");
    let text = kubectl_dranet(&["plan", "-f", &pod, "--snapshot", &snapshot, "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let pair = |nic: &str| serde_json::json!({ "gpu": "gpu-0", "nic": nic, "path": "NODE" });
    let pairs = serde_json::json!([pair("pci-0101-00-00-0"), pair("pci-0102-00-00-0")]);
    assert_eq!(json["nodes"][0]["pairs"], pairs, "{text}");
}

/// Two pods of a group fit on the one labelled node, three do not.
#[test]
fn plan_names_the_fabric_that_a_group_would_take() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = fs::read_to_string(format!("{EXAMPLE}/cluster.yaml")).unwrap();
    let label = "      kubernetes.io/os: linux\n";
    assert_eq!(cluster.matches(label).count(), 1);
    let labelled =
        cluster.replace(label, &format!("{label}      topology.dranet.io/fabric: ib-7\n      topology.dranet.io/nvlink-domain: rack-3\n"));
    let allocatable = "  spec: {}\n  status: {allocatable: {cpu: 8, memory: 8Gi, pods: 110}}\n";
    let cluster = folder.path().join("cluster.yaml");
    fs::write(&cluster, labelled.replacen("  spec: {}\n", allocatable, 1)).unwrap();
    let pod = fs::read_to_string(format!("{EXAMPLE}/2nic-aligned.yaml")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut sections = Vec::new();
    for size in [2, 3] {
        let trigger = "    dranet.io/aligned-nics: \"2\"\n";
        let group = format!(
            "    dranet.io/fabric: train\n    dranet.io/fabric-size: \"{size}\"\n    \
             dranet.io/fabric-level: nvlink=preferred,fabric=required\n"
        );
        fs::write(file.path(), pod.replace(trigger, &format!("{trigger}{group}"))).unwrap();
        let (pod, cluster) = (file.path().display().to_string(), cluster.display().to_string());
        let args = ["plan", "-f", &pod, "--snapshot", &cluster, "--fabric-controller"];
        let text = kubectl_dranet(&args);
        let section = text.split_once("# Fabric of the group\n\n");
        let section = section.and_then(|(_, section)| section.split("\n--show").next());
        let section = section.map(str::to_owned);
        sections.push(section.unwrap_or(text));
    }
    insta::assert_snapshot!(sections.join("---\n"), @r"
    ib-7: 2 such pods fit now

    A group of 2 would go to ib-7.
    2 pods of them to NVLink domain rack-3.
    ---
    ib-7: 2 such pods fit now

    A group of 3 would wait: no fabric is large enough: the group needs 3 places and
      an empty fabric has at most 2; now 2 fit on ib-7; make the group smaller, or
      ask less for each pod.
    ");
}

/// Two nodes of one clique, of which topograph says that they are apart.
#[test]
fn sources_of_fabrics_that_disagree_are_shown() {
    let node = |name: &str, domain: &str| {
        serde_json::json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": {
                "nvidia.com/gpu.clique": "u.1", "accelerator.topograph.run/domain": domain,
            } },
        })
    };
    let list = serde_json::json!({
        "apiVersion": "v1", "kind": "List", "items": [node("n0", "a"), node("n1", "b")],
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), list.to_string()).unwrap();
    let path = file.path().display().to_string();
    let text = kubectl_dranet(&["fabric", "--snapshot", &path]);
    let conflict = "NVLink domain u.1 (nvidia.com/gpu.clique) has 2 nodes that \
                    accelerator.topograph.run/domain divides: a on n0, b on n1";
    let expected = format!("sources that disagree; the first one is in use: {conflict}");
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains(&expected), "{text}");
    let json = kubectl_dranet(&["fabric", "--snapshot", &path, "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let parts = serde_json::json!({ "a": ["n0"], "b": ["n1"] });
    assert_eq!(json["conflicts"][0]["parts"], parts, "{json}");
    let doctor = ["kubectl-dranet", "doctor", "--snapshot", &path];
    let doctor = kubectl_dranet::run(&Args::try_parse_from(doctor).unwrap()).unwrap().text;
    let joined = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains(&format!("is divided by another source: {conflict}")), "{doctor}");
}

#[test]
fn a_denial_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let pod = folder.path().join("pod.yaml");
    let text = "kind: Pod\nmetadata: {name: a, annotations: {dranet.io/aligned-nics: \"1\", dranet.io/alignment: root}}\n\
                spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}\n";
    fs::write(&pod, text).unwrap();
    let pod = pod.display().to_string();
    let args = ["kubectl-dranet", "plan", "-f", &pod, "--snapshot", EXAMPLE, "-o", "json"];
    let output = kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap();
    assert!(output.denied, "a denial ends with exit code 3");
    let json: serde_json::Value = serde_json::from_str(&output.text).unwrap();
    insta::assert_json_snapshot!(json);
}

#[test]
fn lint_of_an_example() {
    let cluster = "../tests/fixtures/aks-gb300";
    let file = format!("{cluster}/resource-claim-template.yaml");
    let args = |more: &[&'static str]| {
        let args = ["kubectl-dranet", "lint", "-f", &file, "--snapshot", cluster];
        Args::try_parse_from(args.iter().copied().chain(more.iter().copied())).unwrap()
    };
    let output = kubectl_dranet::run(&args(&["--fail-on", "warning"])).unwrap();
    assert!(output.denied, "there is a warning");
    insta::assert_snapshot!(output.text);
    let output = kubectl_dranet::run(&args(&["-o", "json"])).unwrap();
    assert!(!output.denied, "only an error counts by default");
    let json: serde_json::Value = serde_json::from_str(&output.text).unwrap();
    insta::assert_json_snapshot!(json["claims"][0]);
}

/// The example plus: a quota that its claims escape and one that they do not, nodes whose
/// GPUs belong to a device plugin, nodes with GPUs or NICs only, a pool without all of
/// its slices, a NIC class of another name.
#[test]
fn doctor_of_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(format!("{EXAMPLE}/cluster.yaml"), folder.path().join("cluster.yaml")).unwrap();
    let snapshot = folder.path().display().to_string();
    let args = |more: &[&'static str]| {
        let args = ["kubectl-dranet", "doctor", "--snapshot", &snapshot];
        Args::try_parse_from(args.iter().copied().chain(more.iter().copied())).unwrap()
    };
    let output = kubectl_dranet::run(&args(&[])).unwrap();
    assert!(!output.denied, "{}", output.text);
    insta::assert_snapshot!("doctor_of_the_example", output.text);
    let quota = |name: &str, hard: &[&str]| {
        let hard: serde_json::Map<_, _> =
            hard.iter().map(|resource| ((*resource).to_owned(), "8".into())).collect();
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": name, "namespace": "training"},
            "spec": {"hard": hard},
        })
    };
    let plugin = |index: u32| {
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": format!("plugin-{index}")},
            "status": {"allocatable": {"nvidia.com/gpu": "8"}},
        })
    };
    let slice = |node: &str, driver: &str| {
        serde_json::json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": format!("{node}-{driver}")},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "device-0"}],
            },
        })
    };
    let half = |node: &str, driver: &str| {
        let mut slice = slice(node, driver);
        slice["spec"]["pool"]["resourceSliceCount"] = 2.into();
        slice
    };
    let node = |name: &str| serde_json::json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let classes = "gpu.nvidia.com.deviceclass.resource.k8s.io/devices";
    let more = [
        quota("escaped", &["requests.nvidia.com/gpu"]),
        quota("whole", &["requests.nvidia.com/gpu", classes]),
        node("no-nics"),
        slice("no-nics", "gpu.amd.com"),
        node("no-graph"),
        slice("no-graph", "dra.net"),
        node("half"),
        slice("half", "gpu.nvidia.com"),
        half("half", "dra.net"),
    ];
    let objects: Vec<_> = more.into_iter().chain((0..5).map(plugin)).collect();
    let text: Vec<_> = objects.iter().map(|object| format!("{object}\n")).collect();
    fs::write(folder.path().join("more.yaml"), text.join("---\n")).unwrap();
    let output = kubectl_dranet::run(&args(&["--nic-class", "rdma"])).unwrap();
    assert!(output.denied, "an error counts");
    insta::assert_snapshot!(output.text);
    let output = kubectl_dranet::run(&args(&["-o", "json", "--fail-on", "error"])).unwrap();
    assert!(!output.denied, "a warning does not, where it is said");
    let json: serde_json::Value = serde_json::from_str(&output.text).unwrap();
    assert_eq!(json["findings"].as_array().unwrap().len(), 7, "{json}");
}

#[test]
fn graph_of_a_snapshot() {
    insta::assert_snapshot!(kubectl_dranet(&["graph", "--snapshot", EXAMPLE]));
}

/// A captured machine gives the same topology as the machine itself.
#[test]
fn a_capture_has_the_topology_of_its_machine() {
    let folder = tempfile::tempdir().unwrap();
    let (root, capture) = (folder.path().join("root"), folder.path().join("capture.tar.gz"));
    fs::create_dir(&root).unwrap();
    let text = topology_graph::fixture::machine("azure-gb300").unwrap();
    topology_graph::fixture::plant(text, &root).unwrap();
    let (root, capture) = (root.display().to_string(), capture.display().to_string());

    let size = "Standard_ND128isr_GB300_v6";
    let machine = kubectl_dranet(&["graph", "--root", &root, "--vm-size", size]);
    assert!(machine.contains("NV18"), "{machine}");
    kubectl_dranet(&["graph", "--root", &root, "--capture", &capture]);
    let captured = kubectl_dranet(&["graph", "--root", &capture, "--vm-size", size]);
    assert_eq!(captured, machine);
}

/// Through several switches, over NVLink, through one port, between NUMA nodes, to the
/// device itself; each device is named in a different way.
#[test]
fn the_path_between_two_devices() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = String::new();
    for (name, size, ways) in [
        (
            "dgx-h100",
            None,
            &[("GPU0", "NIC0"), ("0000:1b:00.0", "mlx5_3"), ("NIC1", "NIC2"), ("NVME0", "NVME1")][..],
        ),
        (
            "azure-gb300",
            Some("Standard_ND128isr_GB300_v6"),
            &[("GPU0", "GPU3"), ("GPU1", "NIC2"), ("NIC3", "NIC3")],
        ),
        ("gb300-data-direct", None, &[("NIC0", "GPU0")]),
        ("azure-mi300x", None, &[("GPU0", "GPU1"), ("GPU0", "NIC0")]),
        ("numa-unknown", None, &[("GPU0", "NIC1")]),
    ] {
        let root = folder.path().join(name);
        let machine = topology_graph::fixture::machine(name).unwrap();
        topology_graph::fixture::plant(machine, &root).unwrap();
        let root = root.display().to_string();
        for (from, to) in ways {
            let mut args = vec!["graph", "--root", &root, "--path", from, to];
            args.extend(size.iter().flat_map(|size| ["--vm-size", size]));
            let way = kubectl_dranet(&args);
            writeln!(text, "# {name}: --path {from} {to}\n{way}").unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

/// Machine sizes that reveal their whole topology have no description.
#[test]
fn a_size_without_description_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let text = topology_graph::fixture::machine("azure-mi300x").unwrap();
    topology_graph::fixture::plant(text, folder.path()).unwrap();
    for size in ["Standard_HX176rs", "g6.48xlarge"] {
        let args =
            Args::parse_from(["kubectl-dranet", "graph", "--root", &root, "--vm-size", size]);
        let output = kubectl_dranet::run(&args).unwrap();
        assert!(output.text.contains("XGMI"), "{}", output.text);
        let [note] = output.notes.as_slice() else { panic!("{:?}", output.notes) };
        assert!(
            note.contains(&format!("no description for virtual machine size `{size}`")),
            "{note}"
        );
        assert!(!output.denied);
    }
}

/// A machine, its graph as JSON, and another machine.
#[test]
fn graphs_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let text = topology_graph::fixture::machine("azure-gb300").unwrap();
    let other = text.replace("0x31c2", "0x31c3").replace("GPU-ad11da28", "GPU-00000000");
    for (name, text) in [("one", text), ("other", &other)] {
        topology_graph::fixture::plant(text, &folder.path().join(name)).unwrap();
    }
    let json = kubectl_dranet(&["graph", "--root", &path("one"), "-o", "json"]);
    fs::write(path("one.json"), json).unwrap();
    let args = ["graph", "--root", &path("one"), "--diff", &path("one.json")];
    assert_eq!(kubectl_dranet(&args), "no difference\n");
    let args = ["graph", "--root", &path("one.json"), "--diff", &path("other")];
    insta::assert_snapshot!(kubectl_dranet(&args));
    let node = "aks-gpu-45139532-vmss000081";
    let args = ["graph", node, "--snapshot", EXAMPLE, "--diff", node];
    assert_eq!(kubectl_dranet(&args), "no difference\n");
}

/// Captures of hwloc can be used as machines too.
#[test]
fn a_capture_of_hwloc_is_a_machine() {
    let capture = "../topology-graph/tests/captures/40intel64-2g2n4c+pcilocality.tar.bz2";
    let text = kubectl_dranet(&["graph", "--root", capture, "-o", "tree"]);
    assert!(text.contains("NIC0"), "{text}");
}

#[test]
fn a_graph_in_every_form() {
    let node = "aks-gpu-45139532-vmss000081";
    for form in topology_graph::Format::ALL {
        let form = form.to_string();
        let text = kubectl_dranet(&["graph", node, "--snapshot", EXAMPLE, "-o", &form]);
        assert!(!text.starts_with("error"), "{form}: {text}");
        assert!(text.contains("0101:00:00.0"), "{form}: {text}");
    }
}

/// If all nodes are equal, no node needs to be named; otherwise JSON and pictures show
/// all shapes.
#[test]
fn the_graphs_of_all_shapes() {
    let node = "aks-gpu-45139532-vmss000081";
    for more in [&["-o", "svg"][..], &["-o", "json"], &["-o", "tree"], &["--path", "GPU0", "NIC0"]]
    {
        let named = kubectl_dranet(&[&["graph", node, "--snapshot", EXAMPLE], more].concat());
        let of_all = kubectl_dranet(&[&["graph", "--snapshot", EXAMPLE], more].concat());
        assert!(!named.starts_with("error"), "{named}");
        assert_eq!(of_all, named);
    }
    let folder = tempfile::tempdir().unwrap();
    let mut objects =
        cluster_model::snapshot::objects(&std::path::Path::new(EXAMPLE).join("cluster.yaml"))
            .unwrap();
    let root = folder.path().join("root");
    let text = topology_graph::fixture::machine("dgx-h100").unwrap();
    topology_graph::fixture::plant(text, &root).unwrap();
    let other = kubectl_dranet(&["graph", "--root", &root.display().to_string(), "-o", "json"]);
    let spec: serde_json::Value = serde_json::from_str(&other).unwrap();
    objects.push(serde_json::json!({
        "apiVersion": "topology.dranet.io/v1alpha1",
        "kind": "NodeTopology",
        "metadata": { "name": "dgx" },
        "spec": spec["topology"],
    }));
    let path = folder.path().join("cluster.json");
    let list = serde_json::json!({ "kind": "List", "items": objects });
    fs::write(&path, list.to_string()).unwrap();
    let path = path.display().to_string();
    let json = kubectl_dranet(&["graph", "--snapshot", &path, "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let nodes: Vec<_> = json["shapes"].as_array().unwrap().iter().map(|it| &it["nodes"]).collect();
    assert_eq!(nodes.len(), 2, "{json}");
    let picture = kubectl_dranet(&["graph", "--snapshot", &path, "-o", "svg"]);
    assert_eq!(picture.matches("<svg ").count(), 3, "{picture}");
    assert_eq!(picture.matches("1 node of shape").count(), 2);
    let path = kubectl_dranet(&["graph", "--snapshot", &path, "--path", "GPU0", "NIC0"]);
    assert!(path.starts_with("error: the nodes have 2 different shapes; name a node"), "{path}");
}

#[test]
fn graph_flags_change_the_look_of_a_graph() {
    let node = "aks-gpu-45139532-vmss000081";
    let graph = |more: &[&str]| {
        let args = [&["graph", node, "--snapshot", EXAMPLE], more].concat();
        kubectl_dranet(&args)
    };
    assert!(graph(&["--fold", "always"]).contains("NIC0-1"));
    assert!(!graph(&[]).contains("NIC0-1"));
    assert!(!graph(&["--gpus-only"]).contains("NIC0"));
    let every = kubectl_dranet(&["graph", "--snapshot", EXAMPLE, "--gpus-only"]);
    assert!(every.contains("GPU0") && !every.contains("NIC0"), "{every}");
    let dark = graph(&["-o", "svg", "--theme", "dark"]);
    assert!(dark.contains("fill:#0d1117") && !dark.contains("prefers-color-scheme"), "{dark}");
    assert!(graph(&["-o", "svg"]).contains("prefers-color-scheme"));
}

/// With `-o yaml`, standard output contains only objects to apply; everything else is a
/// note.
#[test]
fn yaml_output_has_only_objects() {
    let folder = tempfile::tempdir().unwrap();
    let plan = |annotation: &str| {
        let path = folder.path().join("pod.yaml");
        let pod = format!(
            "kind: Pod\nmetadata: {{name: a, annotations: {{{annotation}}}}}\nspec: {{containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}\n"
        );
        fs::write(&path, pod).unwrap();
        let path = path.display().to_string();
        let args = ["kubectl-dranet", "plan", "-f", &path, "--snapshot", EXAMPLE, "-o", "yaml"];
        kubectl_dranet::run(&Args::try_parse_from(args).unwrap()).unwrap()
    };
    let misspelt = plan("dranet.io/aligned-nic: \"1\"");
    assert!(misspelt.text.starts_with("kind: Pod\n"), "{}", misspelt.text);
    assert!(!misspelt.denied);
    let denied = plan("dranet.io/aligned-nics: \"3\"");
    assert_eq!((denied.text.as_str(), denied.denied), ("", true));
    insta::assert_debug_snapshot!([misspelt.notes, denied.notes]);
}

/// Each case is a file's content, or nothing for a missing file, and what it is used as.
#[test]
fn bad_input_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let missing = folder.path().join("missing.yaml").display().to_string();
    let broken = file("broken.yaml", "a: [1,");
    let empty = file("empty.json", "{}");
    let pods = file("pods.yaml", "kind: Pod\n---\nkind: Pod\n");
    let ingress = file(
        "ingress.yaml",
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\n",
    );
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
    let misspelt = file(
        "misspelt.yaml",
        "kind: Pod\nmetadata: {name: a, annotations: {dranet.io/aligned-nic: \"1\"}}\nspec: {containers: []}\n",
    );
    let no_kind = file("no-kind.json", "{\"items\": [{}]}");
    let template = file(
        "template.yaml",
        "kind: ResourceClaimTemplate\nmetadata: {name: a}\nspec: {spec: {devices: 3}}\n",
    );
    let mut text = String::new();
    for args in [
        vec!["graph", "--snapshot", &missing],
        vec!["graph", "--snapshot", &broken],
        vec!["graph", "--snapshot", &ingress],
        vec!["graph", "--snapshot", &slice],
        vec!["graph", "--snapshot", &graph],
        vec!["graph", "no-such-node", "--snapshot", EXAMPLE],
        vec!["graph", "--root", &missing],
        vec!["graph", "--root", &broken],
        vec!["graph", "--root", &empty],
        vec!["graph", "--snapshot", EXAMPLE, "--diff", "no-such-node"],
        vec![
            "graph",
            "aks-gpu-45139532-vmss000081",
            "--snapshot",
            EXAMPLE,
            "--path",
            "GPU0",
            "NIC9",
        ],
        vec!["graph", "--nccl-xml", &broken],
        vec!["graph", "--snapshot", EXAMPLE, "-o", "svg", "--gpus-only"],
        vec!["graph", "--snapshot", EXAMPLE, "-o", "json", "--fold", "always"],
        vec!["graph", "--snapshot", EXAMPLE, "--theme", "dark"],
        vec!["graph", "--kubeconfig", &missing],
        vec!["graph", "--kubeconfig", &broken],
        vec!["plan", "-f", &missing, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &broken, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &pods, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &ingress, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &misspelt, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &no_kind, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &three, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &plain, "--snapshot", EXAMPLE],
        vec!["plan", "-f", &three, "--snapshot", EXAMPLE, "--gpu-class", "none-such"],
        vec!["lint", "-f", &plain, "--snapshot", EXAMPLE],
        vec!["lint", "-f", &template, "--snapshot", EXAMPLE],
    ] {
        let shown = args.join(" ").replace(&folder.path().display().to_string(), "FOLDER");
        let output = kubectl_dranet(&args);
        let output = output.replace(&folder.path().display().to_string(), "FOLDER");
        writeln!(text, "$ {shown}\n{}\n", output.trim_end()).unwrap();
    }
    insta::assert_snapshot!(text);
}
