//! Machines that people reported because the graph was wrong on them, or that were made after such
//! reports: virtual machines, AMD, several NUMA nodes in a socket, parts of GPUs, Grace.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(clippy::disallowed_methods, reason = "a test puts files on its machine")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use topology_graph::fixture::{machine, plant};
use topology_graph::{
    Cell, Gdr, HostRoot, Level, NcclXml, Overlay, PathKind, PciAddress, Topology, nccl_xml,
    nccl_xml_of, read,
};

fn built(text: &str) -> Topology {
    let root = tempfile::tempdir().unwrap();
    plant(text, root.path()).unwrap();
    Topology::build(&read(&HostRoot::at(root.path())).unwrap(), None).0
}

fn topology(name: &str) -> Topology {
    built(machine(name).unwrap())
}

fn at(text: &str) -> PciAddress {
    text.parse().unwrap()
}

/// The path between two devices by name.
fn path(topology: &Topology, a: &str, b: &str) -> String {
    topology.path(topology.device(a).unwrap(), topology.device(b).unwrap()).to_string()
}

/// All GPUs and NICs.
fn devices(topology: &Topology) -> BTreeSet<PciAddress> {
    let gpus = topology.gpus().iter().map(|gpu| gpu.address);
    gpus.chain(topology.nics().iter().map(|nic| nic.address)).collect()
}

/// The GPUs of each NIC in the plan.
fn gpus_by_nic(topology: &Topology) -> BTreeMap<PciAddress, Vec<PciAddress>> {
    let mut by_nic: BTreeMap<PciAddress, Vec<PciAddress>> = BTreeMap::new();
    for pair in topology.pairs() {
        by_nic.entry(pair.nic).or_default().push(pair.gpu);
    }
    by_nic
}

const FILE_OF_VM: &str = "opt/topo.xml";

#[test]
fn a_file_wins_over_bare_root_ports_of_a_hypervisor() {
    let topology = topology("h200-vm-8gpu");
    assert_eq!(topology.anomalies(), []);
    for (a, b, expected) in [
        ("GPU0", "NIC0", "PIX"),
        ("GPU0", "NIC1", "PHB"),
        ("GPU0", "NIC4", "SYS"),
        ("GPU7", "NIC7", "PIX"),
        ("NIC0", "NIC7", "SYS"),
        ("GPU0", "GPU7", "NV18"),
    ] {
        assert_eq!(path(&topology, a, b), expected, "{a} {b}");
    }
    let pairs = topology.pairs();
    assert!(pairs.iter().all(|pair| pair.path == PathKind::Pix));
    assert_eq!(pairs.len(), 8);
    assert_eq!(topology.cells(Level::Switch).len(), 8);
}

/// The devices of one root bus that are on two sockets share no cell. Otherwise, with the NICs of one
/// socket down, its GPUs would get those of the other as near ones.
#[test]
fn no_cell_of_one_root_bus_spans_two_sockets() {
    let topology = topology("h200-vm-8gpu");
    let cells = topology.cells(Level::Root);
    assert_eq!(cells.len(), 2);
    for cell in cells {
        for gpu in &cell.gpus {
            for nic in &cell.nics {
                assert!(topology.path(*gpu, *nic) <= PathKind::Phb, "{gpu} {nic}");
            }
        }
        assert_eq!((cell.gpus.len(), cell.nics.len()), (4, 4));
    }
}

/// A DGX H100 with RoCE is the same machine.
#[test]
fn the_link_type_changes_no_path_and_no_pair() {
    let text = machine("dgx-h100").unwrap();
    let (infiniband, roce) =
        (built(text), built(&text.replace("link_layer = InfiniBand", "link_layer = Ethernet")));
    for (gpu, nic) in infiniband
        .gpus()
        .iter()
        .flat_map(|gpu| infiniband.nics().iter().map(|nic| (gpu.address, nic.address)))
    {
        assert_eq!(infiniband.path(gpu, nic), roce.path(gpu, nic), "{gpu} {nic}");
    }
    assert_eq!(infiniband.pairs(), roce.pairs());
    assert_eq!(infiniband.cells(Level::Numa), roce.cells(Level::Numa));
}

/// On bare metal a root port is hardware: what sysfs shows stays.
#[test]
fn hardware_wins_over_a_file() {
    let text = machine("h200-vm-8gpu").unwrap();
    let hardware = text.replace("vendor = 0x1b36", "vendor = 0x8086").replace("0x000c", "0x352a");
    assert_ne!(hardware, text);
    let topology = built(&hardware);
    assert!(topology.anomalies().iter().any(|anomaly| anomaly.detail.contains("sysfs wins")));
    assert_eq!(path(&topology, "GPU0", "NIC0"), "PHB");
    // The NUMA nodes of the file are the only ones that are known.
    assert_eq!(path(&topology, "GPU0", "NIC4"), "SYS");
}

#[test]
fn containers_get_the_operators_file_with_what_it_lacks() {
    let root = tempfile::tempdir().unwrap();
    plant(machine("h200-vm-8gpu").unwrap(), root.path()).unwrap();
    let file = fs::read_to_string(root.path().join(FILE_OF_VM)).unwrap();
    let build = || Topology::build(&read(&HostRoot::at(root.path())).unwrap(), None).0;
    let whole = build();
    let given = nccl_xml_of(&whole, &[at("0000:05:00.0")].into()).unwrap();
    assert_eq!(given, NcclXml::parse(&file).unwrap().write());
    // A NIC that the file lacks is added to its NUMA node, if that is known.
    let nic = file.find("<pci busid=\"0000:0d:00.0\"").unwrap();
    let end = nic + file[nic..].find("/>").unwrap() + 2;
    let less = format!("{}{}", &file[..nic], &file[end..]);
    fs::write(root.path().join(FILE_OF_VM), &less).unwrap();
    let topology = build();
    let given = nccl_xml_of(&topology, &devices(&topology)).unwrap();
    for line in NcclXml::parse(&less).unwrap().write().lines() {
        assert!(given.contains(line.trim().trim_end_matches("/>").trim_end_matches('>')), "{line}");
    }
    assert!(!given.contains("0000:0d:00.0"), "{given}");
    let nic = root.path().join("sys/devices/pci0000:00/0000:00:02.4/0000:0d:00.0");
    fs::write(nic.join("numa_node"), "0\n").unwrap();
    let topology = build();
    let given = nccl_xml_of(&topology, &devices(&topology)).unwrap();
    assert_eq!(given.matches("0000:0d:00.0").count(), 1, "{given}");
    assert_eq!(given.matches("<cpu ").count(), 2, "{given}");
}

/// NCCL merges the functions of a device.
#[test]
fn another_function_of_a_listed_device_has_its_place() {
    let text = machine("h200-vm-8gpu").unwrap();
    let start = text.find("[sys/devices/pci0000:00/0000:00:02.4/0000:0d:00.0]").unwrap();
    let end = start + text[start..].find("\n\n").unwrap();
    let second = text[start..end].replace("0d:00.0", "0d:00.1");
    let link = "[sys/bus/pci/devices]\n0000:0d:00.1 -> \
                /sys/devices/pci0000:00/0000:00:02.4/0000:0d:00.1\n";
    let topology = built(&format!("{text}\n{second}\n{link}"));
    assert_eq!(topology.nics().len(), 9);
    let gpu = at("0000:05:00.0");
    assert_eq!(topology.path(gpu, at("0000:0d:00.1")), PathKind::Pix);
    assert_eq!(topology.nic(at("0000:0d:00.1")).unwrap().numa, topology.gpu(gpu).unwrap().numa);
    assert_eq!(topology.anomalies(), []);
}

#[test]
fn a_virtual_machine_with_one_gpu_is_as_nvidia_smi_and_nccl_say() {
    let topology = topology("h200-vm-1gpu");
    assert_eq!(path(&topology, "GPU0", "NIC0"), "PHB");
    let spec = topology.to_spec();
    let gpu = &topology.gpus()[0];
    assert_eq!(gpu.numa.unwrap().0, 0);
    assert_eq!(spec.shape.numa_nodes[0].cpus, "0-15");
}

#[test]
fn names_in_a_file_name_its_nics() {
    let xml = r#"<system version="1"><cpu numaid="0"><pci busid="0000:e0:00.0" class="0x060400">
        <pci busid="0000:05:00.0"><gpu dev="0"/></pci>
        <pci busid="0000:0d:00.0"><nic><net name="mlx5_3" dev="0"/></nic></pci></pci></cpu></system>"#;
    let overlay = Overlay::from_nccl_xml(&NcclXml::parse(xml).unwrap());
    let (topology, anomalies) = Topology::from_overlay(&overlay);
    assert_eq!(anomalies, []);
    assert_eq!(path(&topology, "GPU0", "mlx5_3"), "PIX");
}

#[test]
fn a_dump_of_several_hosts_is_refused() {
    let host = |hash| format!(r#"<cpu host_hash="{hash}" numaid="0"/>"#);
    let text = format!("<system version=\"1\">{}{}</system>", host("0x1"), host("0x2"));
    let error = NcclXml::parse(&text).unwrap_err().to_string();
    assert!(error.starts_with("found the devices of 2 hosts"), "{error}");
    let one = format!("<system version=\"1\">{}{}</system>", host("0x1"), host("0x1"));
    assert!(NcclXml::parse(&one).is_ok());
}

/// Two GPUs and a NIC are on each leaf switch; the ports inside of a GPU are not a switch.
#[test]
fn gpus_of_amd_share_the_nic_of_their_leaf_switch() {
    let topology = topology("mi250x-16gpu");
    assert_eq!((topology.gpus().len(), topology.nics().len()), (16, 8));
    let pairs = topology.pairs();
    assert_eq!(pairs.len(), 16);
    assert!(pairs.iter().all(|pair| pair.path == PathKind::Pix), "{pairs:?}");
    assert!(gpus_by_nic(&topology).values().all(|gpus| gpus.len() == 2));
    let cells = topology.cells(Level::Switch);
    let sizes: BTreeSet<_> = cells.iter().map(|it| (it.gpus.len(), it.nics.len())).collect();
    assert_eq!((cells.len(), sizes), (8, [(2, 1)].into()));
    let route = topology.route(at("0000:0e:00.0"), at("0000:0b:00.0")).unwrap();
    assert_eq!(route.kind, PathKind::Pix);
}

/// A published graph gives the same paths as the machine.
#[test]
fn published_graphs_keep_the_ports_inside_of_gpus() {
    let topology = topology("mi250x-16gpu");
    let spec = topology.to_spec();
    let again = Topology::from_spec(&spec).unwrap();
    assert_eq!(again.all_paths(), topology.all_paths());
    assert_eq!(again.pairs(), topology.pairs());
    let port = spec.shape.vertices.iter().find(|vertex| vertex.at == "0000:0c:00.0").unwrap();
    assert_eq!(port.id.as_deref(), Some("1022:14c7"));
}

/// RCCL wants version 2 and counts the links between two GPUs.
#[test]
fn files_for_rccl_have_its_version_and_xgmi() {
    let topology = topology("mi300x-8gpu");
    let text = nccl_xml(&topology);
    assert!(text.starts_with("<system version=\"2\">"), "{text}");
    assert_eq!(text.matches("<xgmi ").count(), 8 * 7);
    assert!(text.contains("count=\"1\" tclass=\"0x038000\""), "{text}");
    let (again, _) =
        Topology::from_overlay(&Overlay::from_nccl_xml(&NcclXml::parse(&text).unwrap()));
    assert_eq!(path(&again, "GPU0", "GPU7"), "XGMI");
    assert!(nccl_xml(&self::topology("dgx-h100")).starts_with("<system version=\"1\">"));
}

#[test]
fn of_two_paths_of_one_kind_the_shorter_one_wins() {
    let topology = topology("pxb-tie");
    let pairs: Vec<_> = topology.pairs().iter().map(|pair| (pair.gpu, pair.nic)).collect();
    let expected = [("0000:24:00.0", "0000:60:00.0"), ("0000:52:00.0", "0000:44:00.0")];
    assert_eq!(pairs, expected.map(|(gpu, nic)| (at(gpu), at(nic))));
}

/// The words stay those of `nvidia-smi`, but a socket is nearer than the machine.
#[test]
fn numa_nodes_of_one_socket_are_nearer_than_another_socket() {
    let topology = topology("epyc-nps4-sockets");
    assert_eq!(path(&topology, "GPU0", "NIC0"), "SYS");
    let both = |cell: &&Cell| !cell.gpus.is_empty() && !cell.nics.is_empty();
    assert_eq!(topology.cells(Level::Numa).iter().filter(both).count(), 0);
    let sockets = topology.cells(Level::Socket);
    let sizes: Vec<_> = sockets.iter().map(|it| (it.gpus.len(), it.nics.len())).collect();
    assert_eq!(sizes, [(2, 1), (2, 1)]);
    let pairs = topology.pairs();
    assert_eq!(pairs.len(), 4);
    for pair in pairs {
        let same = |cell: &Cell| cell.gpus.contains(&pair.gpu) && cell.nics.contains(&pair.nic);
        assert!(sockets.iter().any(same), "{pair:?}");
    }
}

#[test]
fn parts_of_gpus_and_of_cpus_are_no_gpus() {
    let host = topology("vgpu-host");
    assert_eq!(host.gpus().len(), 2);
    assert_eq!(host.anomalies(), []);
    let workstation = topology("integrated-gpu");
    let gpus: Vec<_> = workstation.gpus().iter().map(|gpu| gpu.address).collect();
    assert_eq!(gpus, [at("0000:01:00.0")]);
    assert_eq!(workstation.pairs()[0].gpu, gpus[0]);
}

/// The data of NICs reach the memory of such GPUs through the CPU, with or without an IOMMU.
#[test]
fn grace_reaches_its_gpus_by_its_own_link() {
    let topology = topology("gb200-dma-fq");
    for (gpu, nic) in
        topology.gpus().iter().flat_map(|gpu| topology.nics().iter().map(move |nic| (gpu, nic)))
    {
        assert_ne!(topology.gdr(gpu.address, nic.address), Gdr::Iommu);
    }
    let quad = self::topology("gh200-quad");
    assert_eq!(path(&quad, "GPU0", "GPU3"), "NV6");
    assert!(quad.gpus_with_unknown_nvlinks().is_empty());
}

/// One NIC near two GPUs serves both.
#[test]
fn gpus_share_nics_if_there_are_fewer() {
    let topology = topology("aws-p4d");
    let overlay = Overlay::built_in("p4d.24xlarge").unwrap();
    let (described, _) = Topology::from_overlay(&overlay);
    for topology in [topology, described].iter().filter(|topology| !topology.nics().is_empty()) {
        let by_nic = gpus_by_nic(topology);
        if topology.nics().len() == 4 {
            assert!(by_nic.values().all(|gpus| gpus.len() == 2), "{by_nic:?}");
            assert!(topology.pairs().iter().all(|pair| pair.path <= PathKind::Pxb));
        }
    }
    let half = self::topology("dgx-h100");
    let gpus: Vec<_> = half.gpus().iter().map(|gpu| gpu.address).collect();
    let paired: BTreeSet<_> = half.pairs().iter().map(|pair| pair.gpu).collect();
    assert_eq!(paired, gpus.into_iter().collect());
}
