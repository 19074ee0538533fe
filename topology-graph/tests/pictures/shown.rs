//! The pictures in the documentation.

use topology_graph::fixture::{machine, plant};
use topology_graph::{HostRoot, Overlay, Theme, Topology, read, svg};

/// File name below `docs/images`, machine, VM size of the overlay, and the file's current content.
type Shown = (&'static str, &'static str, Option<&'static str>, &'static str);

pub(crate) const SHOWN: &[Shown] = &[
    (
        "azure-gb300.svg",
        "azure-gb300",
        Some("Standard_ND128isr_GB300_v6"),
        include_str!("../../../docs/images/azure-gb300.svg"),
    ),
    ("dgx-h100.svg", "dgx-h100", None, include_str!("../../../docs/images/dgx-h100.svg")),
    ("aws-p5.svg", "aws-p5", None, include_str!("../../../docs/images/aws-p5.svg")),
];

/// The machine as a picture.
pub(crate) fn picture(name: &str, size: Option<&str>) -> String {
    let text = machine(name).expect("the crate carries it");
    let root = tempfile::tempdir().expect("a folder can be made");
    plant(text, root.path()).expect("it is sound");
    let snapshot = read(&HostRoot::at(root.path())).expect("it has a sysfs");
    let overlay = size.and_then(Overlay::built_in);
    svg(&Topology::build(&snapshot, overlay.as_ref()).0, Theme::Auto)
}
