//! Converts a cluster whose pods get NICs from device plugins and secondary networks to one whose
//! pods get them from claims.
//!
//! The input is the configuration of NVIDIA's network operator, the SR-IOV network operator, Multus
//! and the two device plugins (`NicClusterPolicy`, `MacvlanNetwork`, `HostDeviceNetwork`,
//! `IPoIBNetwork`, `SriovNetwork`, `SriovNetworkNodePolicy`, `NetworkAttachmentDefinition`, the
//! pools of nvidia-k8s-ipam, each `ConfigMap` of the plugins) and the pods that use them. The
//! output is values for our chart, DeviceClasses, NicPools, claim templates and the rewritten pods,
//! with a note on everything that has no counterpart.
//!
//! A pod gets the NICs that it had: `allocate` says how many a device plugin gave it, `gke` which GKE
//! did, and `host` whether it used those of its host.
//!
//! All functions are pure. Read the modules in this order: `addresses`, `networks`, `allocate`,
//! `resources`, `pods`.

mod addresses;
mod allocate;
mod containers;
mod environment;
mod fields;
mod gke;
mod gpu_resources;
mod host;
mod named_networks;
mod names;
mod networks;
mod note;
mod options;
mod pods;
mod resources;

pub use note::Note;
pub use options::Options;

use networks::Networks;
use note::note;
use resources::Resources;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The default number of pods that share a NIC, as in the operator's examples.
const RDMA_HCA_MAX: u64 = 63;

/// What replaces the objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Migration {
    /// Values for our Helm chart.
    pub values: Value,
    /// DeviceClasses, NicPools, claim templates, and the objects with rewritten pods, in this
    /// order.
    pub documents: Vec<Value>,
    /// What the user must know or do, in the order of the objects.
    pub notes: Vec<Note>,
}

/// Converts objects; the order among them does not matter.
pub fn migrate(objects: &[Value], options: &Options) -> Migration {
    let mut notes = Vec::new();
    for object in objects {
        skipped(object, &mut notes);
    }
    let resources = Resources::read(objects, &mut notes);
    let networks = Networks::read(objects, &mut notes);
    let mut converter = pods::Converter::new(&resources, &networks, options);
    let workloads: Vec<Value> =
        objects.iter().filter_map(|object| converter.convert(object, &mut notes)).collect();
    let pods::Made { templates, guarded, uses_shares } = converter.made();

    let mut documents = resources.classes();
    documents.extend(networks.pools());
    documents.extend(templates);
    documents.extend(workloads);
    let values = values(&resources, uses_shares, &guarded, options);
    Migration { values, documents, notes }
}

/// API groups of NIC operators.
const OPERATORS: [&str; 6] = [
    "configuration.net.nvidia.com/",
    "mellanox.com/",
    "nv-ipam.nvidia.com/",
    "sriovnetwork.openshift.io/",
    "spectrumx.nvidia.com/",
    "whereabouts.cni.cncf.io/",
];

/// Kinds of these groups that are converted, or that operators write themselves.
const KNOWN: [&str; 10] = [
    "CIDRPool",
    "HostDeviceNetwork",
    "IPoIBNetwork",
    "IPPool",
    "MacvlanNetwork",
    "NicClusterPolicy",
    "OverlappingRangeIPReservation",
    "SriovNetwork",
    "SriovNetworkNodePolicy",
    "SriovNetworkNodeState",
];

/// Names an object of a NIC operator that is not converted.
fn skipped(object: &Value, notes: &mut Vec<Note>) {
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let kind = object["kind"].as_str().unwrap_or_default();
    let is_of_operator = OPERATORS.iter().any(|group| version.starts_with(group));
    let is_named_so = kind.starts_with("Nic") || kind.starts_with("SpectrumX");
    let is_ours = version.starts_with("topology.dranet.io/");
    if (is_of_operator || is_named_so) && !is_ours && !KNOWN.contains(&kind) {
        note(
            notes,
            object,
            "this kind is not known to this program and not converted; keep what manages it as \
             long as pods need it",
        );
    }
}

fn values(
    resources: &Resources,
    uses_shares: bool,
    guarded: &BTreeSet<String>,
    options: &Options,
) -> Value {
    let mut values = Map::new();
    if uses_shares || resources.any_shared() {
        let sharing = if options.share.is_some() { "bandwidth" } else { "count" };
        let max = resources.rdma_hca_max().unwrap_or(RDMA_HCA_MAX);
        values.insert("nodeDriver".to_owned(), json!({"sharing": sharing, "rdmaHcaMax": max}));
    }
    if !guarded.is_empty() {
        values.insert("networkConfig".to_owned(), json!({"namespaces": guarded}));
    }
    Value::Object(values)
}
