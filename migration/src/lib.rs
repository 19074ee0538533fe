//! From a cluster whose pods get NICs by device plugins and secondary networks to one whose pods
//! get them by claims.
//!
//! It reads what NVIDIA's network operator, the SR-IOV network operator, Multus and the two device
//! plugins are configured by (`NicClusterPolicy`, `MacvlanNetwork`, `HostDeviceNetwork`,
//! `IPoIBNetwork`, `SriovNetwork`, `SriovNetworkNodePolicy`, `NetworkAttachmentDefinition`, the
//! pools of nvidia-k8s-ipam, each `ConfigMap` of the plugins) and the pods that use them. It writes values
//! of our chart, DeviceClasses, NicPools, claim templates and the rewritten pods, with a note on each thing
//! that has no counterpart.
//!
//! Everything here is a function of values. Read bottom up: `addresses`, `networks`,
//! `resources`, `pods`.

mod addresses;
mod networks;
mod pods;
mod resources;

use networks::Networks;
use resources::Resources;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// What is asked for where the source does not say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The share of a NIC that each pod of a shared resource gets, a quantity of bits per
    /// second as `1G`; without it pods share NICs by their number, as the device plugin does.
    pub share: Option<String>,
}

/// How many pods share a NIC where no configuration says it, as in the operator's examples.
const RDMA_HCA_MAX: u64 = 63;

/// What replaces the objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Migration {
    /// Values of our Helm chart.
    pub values: Value,
    /// DeviceClasses, NicPools, claim templates, and the objects whose pods are rewritten, in this order.
    pub documents: Vec<Value>,
    /// What a person has to know or do, in the order of the objects.
    pub notes: Vec<Note>,
}

/// Something about an object that has no counterpart, or that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// The object, as `NicClusterPolicy nic-cluster-policy`.
    pub object: String,
    /// What it is, and what to do.
    pub text: String,
}

/// Converts objects; the order among them does not matter.
pub fn migrate(objects: &[Value], options: &Options) -> Migration {
    let mut notes = Vec::new();
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

/// An object for a person: its kind and name, with the namespace where it has one.
fn described(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&object["kind"]);
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().or_else(|| metadata["generateName"].as_str());
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{kind} {namespace}/{}", name.unwrap_or_default()),
        None => format!("{kind} {}", name.unwrap_or_default()),
    }
}

fn note(notes: &mut Vec<Note>, object: &Value, text: impl Into<String>) {
    notes.push(Note { object: described(object), text: text.into() });
}

/// A name as Kubernetes takes it for an object.
fn object_name(text: &str) -> String {
    let kept = text.to_lowercase();
    let replaced: String =
        kept.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    replaced.trim_matches('-').to_owned()
}
