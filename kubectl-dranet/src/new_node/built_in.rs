//! Nodes of machine types that are built in.

use super::{HOSTNAME_LABEL, NewNode};
use cluster_model::names::label::INSTANCE_TYPE;
use cluster_model::names::{self, attribute};
use cluster_model::view::ClusterView;
use fabric_controller::machine_labels;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{Device, ResourcePool, ResourceSlice, ResourceSliceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use publication::machine_type::{MachineType, MachineTypeError};
use serde::Deserialize as _;
use std::collections::BTreeMap;
use topology_graph::NodeTopology;

/// A label that every kubelet sets.
const OS_LABEL: (&str, &str) = ("kubernetes.io/os", "linux");

/// Every VM of these sizes gets a placement group, whose name nobody knows before. Claims ask for NICs of
/// one, whichever it is.
const PLACEMENT_GROUP: &str = "template";

/// A node of this type; `None` if it is not built in.
pub(crate) fn node(machine: &str, name: &str) -> anyhow::Result<Option<NewNode>> {
    match MachineType::built_in(machine) {
        Ok(machine) => new(machine, name).map(Some),
        Err(MachineTypeError::Unknown { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A node of each type that has GPUs and NICs, with the name of the type.
pub(crate) fn all(name: &str) -> anyhow::Result<Vec<(&'static str, NewNode)>> {
    let mut all = Vec::new();
    for machine in MachineType::names() {
        let machine = MachineType::built_in(machine)?;
        if !machine.gpus.is_empty() && !machine.nics.is_empty() {
            all.push((machine.name, new(machine, name)?));
        }
    }
    Ok(all)
}

/// A node of this type. Its CPUs and memory are not known.
fn new(machine: MachineType, name: &str) -> anyhow::Result<NewNode> {
    let MachineType { gpu_driver, gpus, mut nics, graph, .. } = machine;
    nics.iter_mut().for_each(join_placement_group);
    let labels = [(HOSTNAME_LABEL, name), OS_LABEL];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let mut labels = BTreeMap::from(labels);
    let types = nics.iter().filter_map(|nic| nic.attributes.as_ref());
    let size = types.flat_map(|attributes| {
        let names = attribute::MACHINE_TYPES.iter();
        names.filter_map(move |name| attributes.get(*name)?.string.clone())
    });
    labels.extend(size.take(1).map(|size| (INSTANCE_TYPE.to_owned(), size)));
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    let of_gpus = gpu_driver.map(|driver| slice(driver.driver, name, gpus));
    let mut new = NewNode {
        node: Node { metadata, ..Node::default() },
        slices: of_gpus.into_iter().chain([slice(names::DRIVER, name, nics)]).collect(),
        graph: Some(NodeTopology::new(name, graph)),
    };
    let labels = labels_of_machine(&new)?;
    new.node.metadata.labels.get_or_insert_default().extend(labels);
    Ok(new)
}

fn join_placement_group(nic: &mut Device) {
    let attributes = nic.attributes.get_or_insert_default();
    if attributes.contains_key(attribute::AZURE_VM_SIZE) {
        let group = attributes.entry(attribute::AZURE_PLACEMENT_GROUP.to_owned()).or_default();
        group.string.get_or_insert_with(|| PLACEMENT_GROUP.to_owned());
    }
}

/// The labels that fabric-controller sets on the node.
fn labels_of_machine(new: &NewNode) -> anyhow::Result<BTreeMap<String, String>> {
    let mut view = ClusterView::default();
    new.put_into(&mut view)?;
    let labels = machine_labels::due(&view).into_iter().map(|(_, labels)| labels).next();
    Ok(labels.map(BTreeMap::deserialize).transpose()?.unwrap_or_default())
}

/// A slice with all devices of a driver on a node.
fn slice(driver: &str, node: &str, devices: Vec<Device>) -> ResourceSlice {
    ResourceSlice {
        metadata: ObjectMeta { name: Some(format!("{node}-{driver}")), ..ObjectMeta::default() },
        spec: ResourceSliceSpec {
            driver: driver.to_owned(),
            node_name: Some(node.to_owned()),
            pool: ResourcePool { name: node.to_owned(), generation: 1, resource_slice_count: 1 },
            devices: Some(devices),
            ..ResourceSliceSpec::default()
        },
    }
}
