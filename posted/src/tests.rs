use super::*;
use topology_graph::{AcsControl, NumaNode, PathKind, PciAddress, PcieLink, Topology};

/// The host of `machines/a100-pcie-8gpu.machine` as its report has it, shortened.
const TREE: &str = "\
-+-[0000:97]-+-00.0  Intel Corporation Ice Lake Memory Map/VT-d
 |           \\-02.0-[98-9e]--+-00.0-[99-9e]--+-00.0-[9a]--+-00.0  Mellanox Technologies MT2892 Family [ConnectX-6 Dx]
 |                           |               |            \\-00.2  Mellanox Technologies ConnectX Family mlx5Gen Virtual Function
 |                           |               +-01.0-[9b]----00.0  NVIDIA Corporation GA100 [A100 PCIe 80GB]
 |                           |               \\-02.0-[9c]----00.0  NVIDIA Corporation GA100 [A100 PCIe 80GB]
 |                           \\-00.1  PMC-Sierra Inc. Device 4000
 \\-[0000:00]-+-00.0  Intel Corporation Ice Lake Memory Map/VT-d
             \\-1f.0  Intel Corporation LPC Controller
";

const DETAILS: &str = "\
9b:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 PCIe 80GB] [10de:20b5] (rev a1)
\tSubsystem: NVIDIA Corporation Device [10de:1533]
\tNUMA node: 1
\tIOMMU group: 40
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x16
\tKernel driver in use: nvidia

99:01.0 PCI bridge [0604]: PMC-Sierra Inc. Device [11f8:4000]
\tBus: primary=99, secondary=9b, subordinate=9b, sec-latency=0
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
";

fn at(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn topology(text: &str) -> Topology {
    Topology::build(&listing(text).unwrap(), None).0
}

#[test]
fn a_tree_shows_the_bridges_above_each_function() {
    let snapshot = listing(TREE).unwrap();
    let gpu = snapshot.function(at("0000:9c:00.0")).unwrap();
    assert_eq!(gpu.bridges, ["0000:97:02.0", "0000:98:00.0", "0000:99:02.0"].map(at));
    assert_eq!(gpu.root.unwrap().to_string(), "pci0000:97");
    let other = snapshot.function(at("0000:98:00.1")).unwrap();
    assert_eq!(other.bridges, [at("0000:97:02.0")]);
    assert!(snapshot.function(at("0000:00:1f.0")).unwrap().bridges.is_empty());
    let virtual_function = snapshot.function(at("0000:9a:00.2")).unwrap();
    assert_eq!(virtual_function.physical_function, Some(at("0000:9a:00.0")));
    let topology = topology(TREE);
    assert_eq!((topology.gpus().len(), topology.nics().len()), (2, 2));
    let path = |a, b| topology.path(at(a), at(b));
    assert_eq!(path("0000:9b:00.0", "0000:9a:00.0"), PathKind::Pix);
}

#[test]
fn descriptions_add_what_a_tree_does_not_show() {
    let snapshot = listing(&format!("{TREE}\n{DETAILS}")).unwrap();
    let gpu = snapshot.function(at("0000:9b:00.0")).unwrap();
    assert_eq!((gpu.vendor, gpu.device, gpu.class), (0x10de, 0x20b5, 0x03_0200));
    assert_eq!((gpu.numa_node, gpu.iommu_group), (Some(NumaNode(1)), Some(40)));
    assert_eq!(gpu.driver.as_deref(), Some("nvidia"));
    let link = |megatransfers| Some(PcieLink { megatransfers, width: 16 });
    assert_eq!((gpu.max_link, gpu.current_link), (link(16_000), link(2_500)));
    let port = snapshot.function(at("0000:99:01.0")).unwrap();
    assert_eq!(port.acs, Some(AcsControl(0b1_1101)));
}

#[test]
fn flags_of_lspci_v_have_the_numa_node() {
    let text = "17:00.0 3D controller: NVIDIA Corporation GA100 (rev a1)\n\
        \tFlags: bus master, fast devsel, latency 0, IRQ 16, NUMA node 1, IOMMU group 40\n\
        \tKernel driver in use: nvidia\n";
    let tree = "-[0000:16]---02.0-[17]----00.0  NVIDIA Corporation GA100\n\n";
    let snapshot = listing(&format!("{tree}{text}")).unwrap();
    let gpu = snapshot.function(at("0000:17:00.0")).unwrap();
    assert_eq!((gpu.numa_node, gpu.iommu_group), (Some(NumaNode(1)), Some(40)));
}

/// As a mail or a tracker quotes it.
fn quoted(text: &str) -> String {
    text.lines().fold(String::new(), |text, line| text + "> " + line + "\n")
}

#[test]
fn a_quotation_is_read_as_its_text() {
    assert_eq!(listing(&quoted(TREE)).unwrap().pci, listing(TREE).unwrap().pci);
    let error = listing(&quoted("<topology")).unwrap_err();
    assert!(matches!(error, PostedError::Xml(_)), "it is read as XML: {error}");
}

#[test]
fn descriptions_alone_are_placed_by_their_buses() {
    let snapshot = listing(DETAILS).unwrap();
    let gpu = snapshot.function(at("0000:9b:00.0")).unwrap();
    assert_eq!(gpu.bridges, [at("0000:99:01.0")]);
}

#[test]
fn other_texts_are_refused() {
    for text in ["", "hello", "-[x]", "<topology/>", "- [ ] 00.0 to do"] {
        let error = listing(text).unwrap_err().to_string();
        assert!(error.starts_with("found no PCI function"), "{text:?}: {error}");
    }
    assert!(listing("<topology").is_err());
}

#[test]
fn matrices_are_compared_cell_by_cell() {
    let posted = "\u{1b}[4m\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\u{1b}[0m\n\
        GPU0\t X \tPIX\tPIX\t0-3\t1\n\
        GPU1\tPIX\t X \tSYS\t0-3\t1\n\
        NIC0\tPIX\tSYS\t X \n\n\
        NIC Legend:\n\n  NIC0: mlx5_7\n";
    let matrix = PostedMatrix::parse(posted).unwrap();
    assert_eq!(PostedMatrix::parse(&quoted(posted)).unwrap(), matrix);
    let text = matrix.compare(&topology(TREE)).to_string();
    assert_eq!(
        text,
        "GPU1 NIC0: posted SYS, found PIX\nNIC0 GPU1: posted SYS, found PIX\n9 cells compared, 2 differ\n"
    );
}

#[test]
fn link_types_of_rocm_smi_are_compared() {
    let posted = "\
============================ Weight between two GPUs =============================
       GPU0         GPU1
GPU0   0            40
GPU1   40           0
================================ Link Type between two GPUs ======================
       GPU0         GPU1
GPU0   0            PCIE
GPU1   XGMI         0
";
    let matrix = PostedMatrix::parse(posted).unwrap();
    let Comparison { compared, differences, .. } = matrix.compare(&topology(TREE));
    assert_eq!((compared, differences.len()), (4, 1));
    assert_eq!(differences[0].posted, "XGMI");
    assert!(PostedMatrix::parse("nothing here").is_err());
}
