//! NVLinks from the GPU model, if neither the kernel nor an overlay shows them.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use topology_graph::fixture::{machine, plant};
use topology_graph::{HostRoot, Overlay, PathKind, Topology, matrix, read};

fn build(text: &str, overlay: Option<&Overlay>) -> Topology {
    let root = tempfile::tempdir().unwrap();
    plant(text, root.path()).unwrap();
    Topology::build(&read(&HostRoot::at(root.path())).unwrap(), overlay).0
}

/// The path kinds between every two GPUs, each once.
fn words(topology: &Topology) -> Vec<String> {
    let gpus = topology.gpus();
    let mut words: Vec<PathKind> = gpus
        .iter()
        .enumerate()
        .flat_map(|(at, a)| gpus[at + 1..].iter().map(|b| topology.path(a.address, b.address)))
        .collect();
    words.sort_unstable();
    words.dedup();
    words.iter().map(ToString::to_string).collect()
}

/// Without an overlay, and with one that does not know their size.
#[test]
fn whole_boards_with_nvswitches_are_known_by_their_gpus() {
    for (name, expected) in [
        ("dgx-a100", "NV12"),
        ("aws-p4d", "NV12"),
        ("azure-nda100v4", "NV12"),
        ("dgx-h100", "NV18"),
        ("aws-p5", "NV18"),
        ("azure-ndh100v5", "NV18"),
        ("ibmcloud-gx3d-h100", "NV18"),
        ("dgx-b200", "NV18"),
        ("oci-gb200", "NV18"),
        ("azure-gb300", "NV18"),
    ] {
        let topology = build(machine(name).unwrap(), None);
        assert_eq!(words(&topology), [expected], "{name}");
        assert_eq!(topology.gpus_with_unknown_nvlinks(), Vec::<&topology_graph::Gpu>::new());
        assert!(!matrix(&topology).contains("NVLinks between"), "{name}");
    }
}

/// A virtual machine with some of a board's GPUs, or a board without NVSwitches.
#[test]
fn parts_of_a_board_have_unknown_links_and_a_note() {
    let text = machine("dgx-h100").unwrap().replacen("device = 0x2330", "device = 0x26b9", 1);
    let topology = build(&text, None);
    assert!(!words(&topology).iter().any(|word| word.starts_with("NV")));
    assert_eq!(topology.gpus_with_unknown_nvlinks().len(), 7);
    let text = matrix(&topology);
    let note = "NVLinks between these GPUs are unknown, their paths here are over PCIe only: GPU1, GPU2, GPU3, GPU4, GPU5, GPU6, GPU7.";
    assert!(text.contains(note), "{text}");
}

/// If the machine shows its NVSwitches, the number of GPUs does not matter.
#[test]
fn parts_of_a_board_with_its_nvswitches_are_known() {
    let text = machine("dgx-a100").unwrap().replacen("device = 0x20b0", "device = 0x26b9", 1);
    let topology = build(&text, None);
    let gpus = topology.gpus();
    assert_eq!(topology.path(gpus[1].address, gpus[7].address), PathKind::NvLink(12));
    assert!(!matches!(topology.path(gpus[0].address, gpus[7].address), PathKind::NvLink(_)));
}

#[test]
fn bridges_between_pcie_cards_are_unknown_and_other_cards_have_none() {
    let cards = build(machine("a100-pcie-8gpu").unwrap(), None);
    assert_eq!(cards.gpus_with_unknown_nvlinks().len(), 8);
    for name in ["l40s-4gpu", "puget-trpro-wrx90", "mi300x-8gpu", "azure-mi300x", "laptop"] {
        let topology = build(machine(name).unwrap(), None);
        assert!(topology.gpus_with_unknown_nvlinks().is_empty(), "{name}");
    }
}

/// Links from a description are kept, and none are added.
#[test]
fn a_description_of_the_machine_comes_first() {
    let text = machine("dgx-a100").unwrap();
    let xml = r#"<system version="1"><cpu numaid="3">
        <pci busid="0000:07:00.0" class="0x030200"><gpu dev="0">
          <nvlink target="0000:0f:00.0" count="4" tclass="0x030200"/></gpu></pci>
        <pci busid="0000:0f:00.0" class="0x030200"><gpu dev="1"/></pci></cpu></system>"#;
    let overlay = Overlay::from_nccl_xml(&topology_graph::NcclXml::parse(xml).unwrap());
    let topology = build(text, Some(&overlay));
    let nvlinks: Vec<_> =
        words(&topology).into_iter().filter(|word| word.starts_with("NV")).collect();
    assert_eq!(nvlinks, ["NV4"]);
    assert_eq!(topology.gpus_with_unknown_nvlinks().len(), 6);
}

#[test]
fn published_graphs_keep_links_by_model() {
    let topology = build(machine("aws-p5").unwrap(), None);
    let spec = topology.to_spec();
    assert_eq!(spec.shape.gpu_links[0].evidence.as_deref(), Some("gpu-model"));
    assert_eq!(words(&Topology::from_spec(&spec).unwrap()), ["NV18"]);
}
