//! What the drivers of a machine type publish on a node of it that need not exist: the NICs and the graph
//! as decided for the machine's description, and the GPUs as their DRA driver publishes them.

use crate::attribute::Text;
use crate::cloud::CloudMetadata;
use crate::decision::decide;
use crate::machine::Facts;
use crate::network::NetworkFacts;
use cluster_model::gpu_drivers::{self, GpuDriver};
use cluster_model::names::attribute;
use cluster_model::published_device::recovered;
use k8s_openapi::api::resource::v1::{Device, DeviceAttribute};
use topology_graph::{
    Gpu, HostRoot, NodeTopologySpec, ReadError, Snapshot, Topology, fixture, read,
};

/// Clouds by the beginning of a machine's name, and the attribute with the name of its type there.
const CLOUDS: [(&str, &str); 3] = [
    ("aws-", attribute::AWS_INSTANCE_TYPE),
    ("azure-", attribute::AZURE_VM_SIZE),
    ("gcp-", attribute::GCE_MACHINE_TYPE),
];

/// What clouds call machines that no overlay supplements.
const SIZES: [(&str, &str); 2] = [("aws-p5", "p5.48xlarge"), ("gcp-a4", "a4-highgpu-8g")];

/// What is published on a machine of a type.
#[derive(Clone, Debug)]
pub struct MachineType {
    /// Its name.
    pub name: &'static str,
    /// The driver of its GPUs; `None` if it has none that a driver is known for.
    pub gpu_driver: Option<&'static GpuDriver>,
    /// Its GPUs.
    pub gpus: Vec<Device>,
    /// Its NICs.
    pub nics: Vec<Device>,
    /// Its graph.
    pub graph: NodeTopologySpec,
}

/// A machine type is unknown, or its description could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MachineTypeError {
    /// topology-graph has no such machine.
    #[error("there is no machine `{name}`; machines: {}", MachineType::names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// The requested name.
        name: String,
    },
    /// Its description could not be converted into files.
    #[error("failed to plant machine `{name}`")]
    Plant {
        /// The machine.
        name: &'static str,
        /// Why.
        source: fixture::PlantError,
    },
    /// Its files could not be written.
    #[error("failed to make a folder for machine `{name}`")]
    Folder {
        /// The machine.
        name: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// Its files could not be read.
    #[error("failed to read machine `{name}`")]
    Read {
        /// The machine.
        name: &'static str,
        /// Why.
        source: ReadError,
    },
}

impl MachineType {
    /// The names of the machine types that are built in and exist; others are for tests.
    pub fn names() -> impl Iterator<Item = &'static str> {
        fixture::real_machines()
    }

    /// The machine type with this name, or that a cloud calls so.
    pub fn built_in(name: &str) -> Result<Self, MachineTypeError> {
        let mut machines = fixture::MACHINES.iter();
        let (name, text) = machines
            .find(|(known, _)| *known == name || size(known) == Some(name))
            .ok_or_else(|| MachineTypeError::Unknown { name: name.to_owned() })?;
        let snapshot = snapshot(name, text)?;
        let facts = Facts {
            snapshot: snapshot.clone(),
            network: NetworkFacts::default(),
            cloud: cloud(name),
            rails: None,
        };
        let decision = decide(&facts);
        let gpus = Topology::from_spec(&decision.topology).ok().and_then(|topology| {
            let driver = gpu_drivers::by_pci_vendor(topology.gpus().first()?.vendor)?;
            Some((driver, gpu_devices(&topology, &snapshot, driver)))
        });
        let (gpu_driver, gpus) = gpus.unzip();
        Ok(Self {
            name,
            gpu_driver,
            gpus: gpus.unwrap_or_default(),
            nics: decision.devices.into_iter().map(recovered).collect(),
            graph: decision.topology,
        })
    }
}

fn snapshot(name: &'static str, text: &str) -> Result<Snapshot, MachineTypeError> {
    // Hundreds of small files: in memory, where the host has a folder for that.
    let root = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let root = root.map_err(|source| MachineTypeError::Folder { name, source })?;
    fixture::plant(text, root.path()).map_err(|source| MachineTypeError::Plant { name, source })?;
    read(&HostRoot::at(root.path())).map_err(|source| MachineTypeError::Read { name, source })
}

/// What the machine's cloud calls its type.
fn size(name: &str) -> Option<&'static str> {
    let named = SIZES.iter().find(|(known, _)| *known == name).map(|(_, size)| *size);
    named.or_else(|| fixture::vm_size(name))
}

/// The cloud's metadata for the machine, from which the driver selects the overlay.
fn cloud(name: &str) -> CloudMetadata {
    let cloud = CLOUDS.iter().find(|(start, _)| name.starts_with(start));
    let said = cloud.and_then(|(_, attribute)| Some((*attribute, Text::new(size(name)?)?)));
    said.into_iter().map(|(name, size)| (name.to_owned(), size)).collect()
}

/// The GPUs as published by NVIDIA's driver from v0.5.0 and AMD's v1.0.
fn gpu_devices(topology: &Topology, snapshot: &Snapshot, driver: &GpuDriver) -> Vec<Device> {
    let gpus = topology.gpus().iter().enumerate().map(|(index, gpu)| {
        let function = snapshot.pci.iter().find(|function| function.address == gpu.address);
        let root = function.filter(|function| function.path.starts_with("devices/pci"));
        let root = root.and_then(|function| function.root);
        let texts = [
            (attribute::PCI_BUS_ID, Some(gpu.address.to_string())),
            (attribute::PCIE_ROOT, root.map(|root| root.to_string())),
            ("type", driver.kind_attribute.map(|_| driver.gpu_kind.to_owned())),
            ("uuid", driver.uuid_attribute.map(|_| uuid(gpu))),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| {
            Some((name.to_owned(), DeviceAttribute { string: Some(text?), ..Default::default() }))
        });
        let bare = driver.numa_attribute.and_then(|name| name.rsplit('/').next());
        // Drivers read it from the kernel, and know nothing of what a cloud says of its machines.
        let numa = function.and_then(|function| function.numa_node).map(|numa| {
            let int = Some(i64::from(numa.0));
            let name = bare.unwrap_or(attribute::NUMA_NODE).to_owned();
            (name, DeviceAttribute { int, ..Default::default() })
        });
        Device {
            name: format!("gpu-{index}"),
            attributes: Some(texts.chain(numa).collect()),
            ..Device::default()
        }
    });
    gpus.collect()
}

fn uuid(gpu: &Gpu) -> String {
    gpu.uuid.clone().unwrap_or_else(|| format!("GPU-{}", gpu.address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::facts;
    use cluster_model::published_device::{PublishedDevice as _, WireDevice};

    /// Attributes that a description does not have: names, addresses and what the network gives.
    const OF_ONE_NODE: [&str; 3] =
        ["dra.net/", "dranet.io/fabric", "azure.dra.net/placementGroupId"];

    /// A node of the type publishes the same, but for what only it has.
    #[test]
    fn a_machine_type_publishes_what_its_nodes_publish() {
        for (name, node) in [("azure-gb300", "aks-gb300")] {
            let (machine, real) = (MachineType::built_in(name).unwrap(), decide(&facts(node)));
            assert_eq!(machine.nics.len(), real.devices.len(), "{name}");
            for (nic, real) in machine.nics.iter().zip(&real.devices) {
                assert_eq!(nic.name, real.name, "{name}");
                let mut attributes = real.attributes.clone().unwrap();
                attributes.retain(|key, _| {
                    nic.attributes.as_ref().unwrap().contains_key(key)
                        || !OF_ONE_NODE.iter().any(|start| key.starts_with(start))
                });
                assert_eq!(nic.attributes.as_ref().unwrap(), &attributes, "{name} {}", nic.name);
            }
            let shape = |graph: &NodeTopologySpec| Topology::from_spec(graph).unwrap().shape();
            assert_eq!(shape(&machine.graph), shape(&real.topology), "{name}");
        }
    }

    /// What a GPU's driver does not publish, no claim for a node of the type may rest on.
    #[test]
    fn gpus_have_the_numa_node_that_the_kernel_shows() {
        for (name, is_shown) in [("azure-nda100v4", false), ("azure-ndh100v5", true)] {
            let machine = MachineType::built_in(name).unwrap();
            let shown =
                |gpu: &Device| gpu.attributes.as_ref().unwrap().contains_key(attribute::NUMA_NODE);
            assert!(machine.gpus.iter().all(|gpu| shown(gpu) == is_shown), "{name}");
            let topology = Topology::from_spec(&machine.graph).unwrap();
            assert!(topology.gpus().iter().all(|gpu| gpu.numa.is_some()), "{name}");
        }
    }

    #[test]
    fn devices_of_machine_types_are_in_order() {
        for name in MachineType::names().filter(|name| *name != "broken") {
            let machine = MachineType::built_in(name).unwrap();
            for nic in &machine.nics {
                let nic = WireDevice::of_ours(nic);
                assert!(nic.trouble().is_none(), "{name}: {}", nic.name());
            }
        }
    }

    #[test]
    fn types_are_found_by_the_names_of_clouds() {
        let machine = MachineType::built_in("Standard_ND128isr_GB300_v6").unwrap();
        assert_eq!((machine.name, machine.gpus.len()), ("azure-gb300", 4));
        let error = MachineType::built_in("no-such").unwrap_err().to_string();
        assert!(error.contains("there is no machine `no-such`; machines: "), "{error}");
    }
}
