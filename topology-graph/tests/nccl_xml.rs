//! NCCL topology files, mainly those of Azure and AWS: read, written back, and used as machines.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]

use std::collections::BTreeSet;
use std::fmt::Write;

use topology_graph::{
    Level, NcclXml, Overlay, PciAddress, Topology, matrix, nccl_xml, nccl_xml_of,
};

/// The seven files in the crate.
const FILES: [(&str, &str); 7] = [
    ("aws-g5.48xl", include_str!("../overlays/aws-g5.48xl-topo.xml")),
    ("aws-p4d", include_str!("../overlays/aws-p4d-24xl-topo.xml")),
    ("aws-p4de", include_str!("../overlays/aws-p4de-24xl-topo.xml")),
    ("azure-ncv4", include_str!("../overlays/azure-ncv4-topo.xml")),
    ("azure-ndv2", include_str!("../overlays/azure-ndv2-topo.xml")),
    ("azure-ndv4", include_str!("../overlays/azure-ndv4-topo.xml")),
    ("azure-ndv5", include_str!("../overlays/azure-ndv5-topo.xml")),
];

fn topology(text: &str) -> Topology {
    let xml = NcclXml::parse(text).unwrap();
    Topology::from_overlay(&Overlay::from_nccl_xml(&xml)).0
}

#[test]
fn files_are_written_back_equal() {
    for (name, text) in FILES {
        let xml = NcclXml::parse(text).unwrap();
        let written = xml.write();
        assert_eq!(NcclXml::parse(&written).unwrap(), xml, "{name}");
        assert_eq!(NcclXml::parse(&written).unwrap().write(), written, "{name}");
    }
}

#[test]
fn graphs_survive_nccl() {
    for (name, text) in FILES {
        let before = topology(text);
        let after = topology(&nccl_xml(&before));
        for level in Level::ALL {
            assert_eq!(after.cells(level), before.cells(level), "{name}");
        }
        assert_eq!(after.pairs(), before.pairs(), "{name}");
    }
}

/// The file of some devices agrees with the file of all: paths between them are the same, and it
/// names no other device. A device with unknown NUMA node is omitted.
#[test]
fn the_file_of_a_part_agrees_with_the_whole() {
    let mut parts = 0;
    for (name, text) in FILES {
        let whole = topology(text);
        let endpoints = |topology: &Topology| -> Vec<PciAddress> {
            let gpus = topology.gpus().iter().map(|gpu| (gpu.address, gpu.numa));
            let nics = topology.nics().iter().map(|nic| (nic.address, nic.numa));
            gpus.chain(nics).filter_map(|(address, numa)| numa.map(|_| address)).collect()
        };
        let all = endpoints(&whole);
        let told = nccl_xml_of(&whole, &all.iter().copied().collect());
        assert_eq!(told.is_none(), all.is_empty(), "{name}");
        assert!(told.is_none_or(|told| told == nccl_xml(&whole)), "{name}");
        for step in 2..4 {
            let kept: Vec<PciAddress> = all.iter().step_by(step).copied().collect();
            let Some(text) = nccl_xml_of(&whole, &kept.iter().copied().collect()) else { continue };
            parts += 1;
            let part = topology(&text);
            assert_eq!(endpoints(&part), kept, "{name}");
            for (a, b) in kept.iter().flat_map(|a| kept.iter().map(move |b| (*a, *b))) {
                let (before, after) = (whole.path(a, b), part.path(a, b));
                // NCCL finds NVLinks itself, from each GPU's driver.
                let is_link = before.to_string().starts_with("NV");
                assert!(after == before || is_link, "{name}: {a} {b} {before} {after}");
            }
        }
        assert_eq!(nccl_xml_of(&whole, &BTreeSet::new()), None, "{name}");
    }
    assert!(parts >= 8, "{parts}");
}

#[test]
fn files_as_machines() {
    for (name, text) in FILES {
        let topology = topology(text);
        let mut report = matrix(&topology);
        report.push_str("\nPairs:\n");
        for pair in topology.pairs() {
            writeln!(report, "  {} {} {}", pair.gpu, pair.nic, pair.path).unwrap();
        }
        report.push_str("\nAnomalies:\n");
        for anomaly in topology.anomalies() {
            writeln!(report, "  {anomaly}").unwrap();
        }
        write!(report, "\nNCCL:\n{}", nccl_xml(&topology)).unwrap();
        insta::assert_snapshot!(name, report);
    }
}

#[test]
fn invalid_nccl_files_are_refused() {
    let deep = format!("{}{}", "<pci>".repeat(90), "</pci>".repeat(90));
    for (text, expected) in [
        ("", "failed to read the NCCL topology as XML"),
        ("<system", "failed to read the NCCL topology as XML"),
        (
            "<topology/>",
            "found `<topology>`, and an NCCL topology begins with `<system version=\"1\">` or, of RCCL, `\"2\"`",
        ),
        (
            "<system version=\"3\"/>",
            "found `<system version=\"3\">`, and an NCCL topology begins with `<system version=\"1\">` or, of RCCL, `\"2\"`",
        ),
        (
            &format!("<system version=\"1\"><cpu>{deep}</cpu></system>"),
            "found elements nested deeper than 64",
        ),
    ] {
        assert_eq!(NcclXml::parse(text).unwrap_err().to_string(), expected);
    }
}

/// The form that NCCL itself writes on a machine with NVSwitch: link targets are switches.
#[test]
fn nvlinks_into_switches_join_all_gpus() {
    let text = r#"<system version="1"><cpu numaid="0">
        <pci busid="0000:01:00.0" class="0x030200"><gpu dev="0">
          <nvlink target="0000:a0:00.0" count="6" tclass="0x068000"/>
          <nvlink target="0000:a1:00.0" count="6" tclass="0x068000"/></gpu></pci>
        <pci busid="0000:02:00.0" class="0x030200"><gpu dev="1">
          <nvlink target="0000:a0:00.0" count="12" tclass="0x068000"/></gpu></pci>
        <pci busid="0000:03:00.0" class="0x030200"><gpu dev="2">
          <nvlink target="0000:02:00.0" count="4" tclass="0x030200"/></gpu></pci>
        </cpu></system>"#;
    let topology = topology(text);
    let gpus: Vec<_> = topology.gpus().iter().map(|gpu| gpu.address).collect();
    let path = |a: usize, b: usize| topology.path(gpus[a], gpus[b]).to_string();
    assert_eq!([path(0, 1), path(1, 2), path(0, 2)], ["NV12", "NV4", "NODE"]);
}
