//! Measures the picture of every machine and draws it as PNG.

#![expect(clippy::unwrap_used, reason = "a test's setup may panic")]
#![expect(
    clippy::disallowed_methods,
    reason = "pictures are written where a person can look at them"
)]

#[expect(dead_code, reason = "the laws use all of it")]
#[path = "laws/machine.rs"]
mod at_random;
#[path = "pictures/check.rs"]
mod check;
#[path = "pictures/shown.rs"]
mod shown;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use at_random::{build, machine};
use check::{Parts, faults, parsed, png};
use proptest::prelude::*;
use shown::{SHOWN, picture};
use topology_graph::fixture::{MACHINES, plant, vm_size};
use topology_graph::{Format, HostRoot, Overlay, PciAddress, Snapshot, Theme, Topology, read, svg};

/// The folder of the PNGs, below cargo's target directory.
const FOLDER: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/pictures");

/// A machine, from kernel facts alone or with its overlay.
struct Machine {
    name: String,
    snapshot: Snapshot,
    topology: Topology,
}

fn machines() -> Vec<Machine> {
    let mut machines = Vec::new();
    for (name, text) in MACHINES {
        let root = tempfile::tempdir().unwrap();
        plant(text, root.path()).unwrap();
        let snapshot = read(&HostRoot::at(root.path())).unwrap();
        let overlay = vm_size(name).and_then(Overlay::built_in);
        for overlay in [None].into_iter().chain(overlay.as_ref().map(Some)) {
            let told = if overlay.is_some() { "-with-overlay" } else { "" };
            let (topology, _) = Topology::build(&snapshot, overlay);
            let name = format!("{name}{told}");
            machines.push(Machine { name, snapshot: snapshot.clone(), topology });
        }
    }
    machines
}

/// Measured pictures are drawn too, so that a person can look for other faults.
#[test]
fn no_text_leaves_its_box_and_no_line_crosses_one() {
    fs::create_dir_all(FOLDER).unwrap();
    for Machine { name, topology, .. } in machines() {
        let is_shown = SHOWN.iter().any(|(_, shown, ..)| *shown == name);
        for theme in [Theme::Light, Theme::Dark] {
            let svg = svg(&topology, theme);
            assert_eq!(faults(&svg), [] as [String; 0], "{name} {theme}");
            if theme == Theme::Light || is_shown {
                let file = Path::new(FOLDER).join(format!("{name}-{theme}.png"));
                fs::write(file, png(&parsed(&svg))).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_machine_is_drawn_without_a_fault(snapshot in machine(24)) {
        prop_assert_eq!(faults(&svg(&build(snapshot), Theme::Light)), [] as [String; 0]);
    }
}

/// The default picture has both themes: light, or dark if the viewer prefers that.
#[test]
fn one_picture_is_light_and_dark() {
    let topology = &machines()[0].topology;
    let style = |theme| {
        let svg = svg(topology, theme);
        svg.split("<style>").nth(1).unwrap().split("</style>").next().unwrap().to_owned()
    };
    let auto = style(Theme::Auto);
    let (light, dark) = auto.split_once("@media(prefers-color-scheme:dark){").unwrap();
    assert_eq!(light, style(Theme::Light));
    assert!(style(Theme::Dark).starts_with(dark.strip_suffix('}').unwrap()), "{dark}");
    assert_eq!(Format::Svg.render(topology), svg(topology, Theme::Auto));
}

#[test]
fn every_device_is_drawn_once_and_every_pair_is_named() {
    for Machine { name, topology, .. } in machines() {
        let parts = Parts::new(&parsed(&svg(&topology, Theme::Light)));
        let texts = |address: PciAddress| -> Vec<&str> {
            let id = address.to_string().replace([':', '.'], "-");
            let is_its = |owner: &str| owner.split_once('-').is_some_and(|(_, at)| at == id);
            let owners: BTreeSet<&str> =
                parts.owners().into_iter().filter(|owner| is_its(owner)).collect();
            assert_eq!(owners.len(), 1, "{name} {address}");
            let labels = parts.labels.iter().filter(|label| is_its(&label.owner));
            labels.map(|label| label.text.as_str()).collect()
        };
        for (gpu, named) in topology.gpus().iter().map(|gpu| (gpu.address, &gpu.name)) {
            assert!(texts(gpu).contains(&named.as_str()), "{name} {gpu}");
        }
        for (nic, named) in topology.nics().iter().map(|nic| (nic.address, &nic.name)) {
            assert!(texts(nic).contains(&named.as_str()), "{name} {nic}");
        }
        for (disk, named) in topology.nvmes().iter().map(|disk| (disk.address, &disk.name)) {
            assert!(texts(disk).contains(&named.as_str()), "{name} {disk}");
        }
        let pairs = topology.pairs();
        for pair in &pairs {
            let mut same = pairs.iter().filter(|other| other.nic == pair.nic);
            let first = same.next().unwrap();
            let more = same.count();
            let more = if more > 0 { format!(" +{more}") } else { String::new() };
            let badge = format!("{} {}{more}", first.path, topology.gpu(first.gpu).unwrap().name);
            assert!(texts(pair.nic).contains(&badge.as_str()), "{name} {}: {badge}", pair.nic);
        }
    }
}

/// A function's first bridge is on a root bus.
#[test]
fn a_root_port_is_never_called_a_switch() {
    let mut seen = 0;
    for Machine { name, snapshot, topology } in machines() {
        let ports: BTreeSet<PciAddress> =
            snapshot.pci.iter().filter_map(|function| function.bridges.first().copied()).collect();
        for format in [Format::Svg, Format::Tree, Format::Dot, Format::Mermaid] {
            let text = format.render(&topology);
            for port in &ports {
                assert!(!text.contains(&format!("switch {port}")), "{name} {format} {port}");
                seen += usize::from(text.contains(&format!("root port {port}")));
            }
        }
    }
    assert!(seen > 0);
}

/// To update them, run `cargo run -p topology-graph --example pictures -- docs/images`.
#[test]
fn the_pictures_in_the_documentation_are_current() {
    for (name, machine, size, published) in SHOWN {
        let drawn = picture(machine, *size);
        assert!(
            drawn == *published,
            "docs/images/{name} is not what is drawn now; `cargo run -p topology-graph --example pictures -- docs/images` makes it"
        );
    }
}
