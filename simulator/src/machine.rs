//! Kinds of machines and the objects that their drivers publish.
//!
//! A machine is one of topology-graph's fixtures. Its NICs and topology are published as
//! by node-driver; its GPUs as by their DRA driver.

use cluster_model::gpu_drivers::GpuDriver;
use cluster_model::names::{self, attribute, label};
use fastrand::Rng;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use publication::machine_type::{MachineType, MachineTypeError};
use serde_json::{Value, json};
use topology_graph::{NicRole, NodeTopology, NodeTopologySpec, PciAddress, Topology};

/// The maximum number of devices of a machine: each is a bit of [`Devices`].
const DEVICES_MAX: usize = 64;

/// Processors per GPU of a node.
pub const NODE_CPUS_PER_GPU: i64 = 16;
/// Memory per GPU of a node, in GiB.
pub const NODE_GIB_PER_GPU: i64 = 128;
/// Pods that a node can hold.
const NODE_PODS: i64 = 256;

/// A set of devices of a machine: bit `i` is the `i`-th of [`SimulatedMachine::devices`].
pub type Devices = u64;

/// The bits of a set, one for each device.
pub fn bits(set: Devices) -> impl Iterator<Item = Devices> {
    (0..Devices::BITS).map(|index| 1 << index).filter(move |bit| set & bit != 0)
}

/// A device of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The driver that publishes it.
    pub driver: String,
    /// Its name in the slice.
    pub name: String,
    /// Its PCI address.
    pub address: PciAddress,
}

/// A kind of machine.
#[derive(Clone, Debug)]
pub struct SimulatedMachine {
    /// Name of the fixture.
    pub name: String,
    /// The driver of its GPUs.
    pub gpu_driver: &'static GpuDriver,
    /// Its GPUs, then its NICs, in the order in which they are published.
    pub devices: Vec<Device>,
    /// How many of the devices are GPUs.
    pub gpus: u32,
    /// Its graph.
    pub topology: Topology,
    spec: NodeTopologySpec,
    slices: Vec<(&'static str, Value)>,
}

/// The machine is unknown, or cannot run jobs with GPUs and NICs.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// It is unknown, or could not be read.
    #[error(transparent)]
    Type(#[from] MachineTypeError),
    /// It lacks GPUs or NICs, or has more than a set can hold.
    #[error("machine `{name}` cannot run the jobs: {why}")]
    Unfit {
        /// The machine.
        name: String,
        /// The reason.
        why: String,
    },
    /// What is published on it could not be read.
    #[error("failed to read machine `{name}`: {why}")]
    Read {
        /// The machine.
        name: String,
        /// Why.
        why: String,
    },
}

impl MachineError {
    fn read(name: &str, why: &impl ToString) -> Self {
        Self::Read { name: name.to_owned(), why: why.to_string() }
    }

    fn unfit(name: &str, why: &str) -> Self {
        Self::Unfit { name: name.to_owned(), why: why.to_owned() }
    }
}

impl SimulatedMachine {
    /// The machine of a fixture, as its drivers publish it.
    pub fn load(name: &str) -> Result<Self, MachineError> {
        let machine = MachineType::built_in(name)?;
        let topology = Topology::from_spec(&machine.graph)
            .map_err(|error| MachineError::read(name, &error))?;
        if topology.gpus().is_empty() {
            return Err(MachineError::unfit(name, "it has no GPU"));
        }
        let gpu_driver = machine
            .gpu_driver
            .ok_or_else(|| MachineError::unfit(name, "no DRA driver is known for its GPUs"))?;
        let nics = serde_json::to_value(&machine.nics)
            .map_err(|error| MachineError::read(name, &error))?;
        let gpus = serde_json::to_value(&machine.gpus)
            .map_err(|error| MachineError::read(name, &error))?;
        let mut devices = published(gpu_driver.driver, &gpus);
        let count = devices.len();
        devices.extend(published(names::DRIVER, &nics));
        if count == devices.len() {
            return Err(MachineError::unfit(name, "it has no NIC"));
        }
        if devices.len() > DEVICES_MAX {
            return Err(MachineError::unfit(name, "it has more than 64 devices"));
        }
        Ok(Self {
            name: name.to_owned(),
            gpu_driver,
            devices,
            gpus: u32::try_from(count)
                .map_err(|_| MachineError::unfit(name, "it has too many GPUs"))?,
            topology,
            spec: machine.graph,
            slices: vec![(gpu_driver.driver, gpus), (names::DRIVER, nics)],
        })
    }

    /// All GPUs.
    pub fn gpu_devices(&self) -> Devices {
        (1 << self.gpus) - 1
    }

    /// The NICs of the compute network.
    pub fn compute_nics(&self) -> Devices {
        let nics = self.topology.nics().iter().filter(|nic| nic.role == NicRole::Compute);
        let addresses: Vec<PciAddress> = nics.map(|nic| nic.address).collect();
        let devices = self.devices.iter().enumerate();
        let nics = devices.filter(|(_, device)| addresses.contains(&device.address));
        nics.map(|(index, _)| 1 << index).sum()
    }

    /// The NUMA node of a GPU or NIC, by its bit.
    pub fn numa_of(&self, bit: Devices) -> Option<u32> {
        let address = self.of(bit).next()?.address;
        let node = match self.topology.gpu(address) {
            Some(gpu) => gpu.numa,
            None => self.topology.nic(address)?.numa,
        };
        node.map(|node| node.0)
    }

    /// The same machine whose GPUs are published in another order. NVIDIA's and AMD's drivers
    /// publish them in the order of a Go map, which is random (`publishResources` in
    /// `cmd/gpu-kubelet-plugin/driver.go` of kubernetes-sigs/dra-driver-nvidia-gpu 95932046,
    /// `cmd/gpu-kubeletplugin/driver.go` of ROCm/k8s-gpu-dra-driver 2622427).
    #[must_use]
    pub fn with_gpus_in_other_order(mut self, draw: &mut Rng) -> Self {
        let count = self.gpus as usize;
        let mut order: Vec<usize> = (0..count).collect();
        draw.shuffle(&mut order);
        let devices: Vec<Device> = order.iter().map(|index| self.devices[*index].clone()).collect();
        self.devices.splice(..count, devices);
        if let Some(gpus) = self.slices.first_mut().and_then(|(_, gpus)| gpus.as_array_mut()) {
            *gpus = order.iter().map(|index| gpus[*index].clone()).collect();
        }
        self
    }

    /// The bit of a device.
    pub fn bit(&self, driver: &str, name: &str) -> Option<Devices> {
        self.devices
            .iter()
            .position(|device| device.driver == driver && device.name == name)
            .map(|index| 1 << index)
    }

    /// The devices of a set.
    pub fn of(&self, devices: Devices) -> impl Iterator<Item = &Device> {
        (0..self.devices.len())
            .filter(move |index| devices >> index & 1 == 1)
            .map(|index| &self.devices[index])
    }

    /// The Node object of a machine of this kind.
    ///
    /// # Panics
    ///
    /// Never: the object is a valid Node, which a test checks.
    pub fn node(&self, name: &str, fabric: &str) -> Node {
        let gpus = i64::from(self.gpus);
        let amounts = json!({
            "cpu": (gpus * NODE_CPUS_PER_GPU).to_string(),
            "memory": format!("{}Gi", gpus * NODE_GIB_PER_GPU),
            "pods": NODE_PODS.to_string(),
        });
        let mut labels = json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux" });
        labels[label::NODE_FABRIC] = json!(fabric);
        let object = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name, "labels": labels },
            "status": { "allocatable": amounts, "capacity": amounts },
        });
        serde_json::from_value(object).expect("this is a Node")
    }

    /// What its drivers publish.
    ///
    /// # Panics
    ///
    /// Never: the objects are valid ResourceSlices, which a test checks.
    pub fn slices(&self, node: &str) -> Vec<ResourceSlice> {
        self.slices
            .iter()
            .map(|(driver, devices)| {
                let object = json!({
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": { "name": format!("{node}-{driver}") },
                    "spec": {
                        "driver": driver,
                        "nodeName": node,
                        "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
                        "devices": own(devices, node),
                    },
                });
                serde_json::from_value(object).expect("this is a ResourceSlice")
            })
            .collect()
    }

    /// Its topology as an object.
    pub fn node_topology(&self, node: &str, fabric: &str) -> NodeTopology {
        let spec = NodeTopologySpec { fabric: Some(fabric.to_owned()), ..self.spec.clone() };
        NodeTopology::new(node, spec)
    }

    /// The device classes that claims on such machines use.
    pub fn classes(&self) -> [DeviceClass; 2] {
        let driver = self.gpu_driver;
        let is_driver = format!("device.driver == \"{}\"", driver.driver);
        let kind = driver.kind_attribute.and_then(|name| name.split_once('/'));
        let gpus = kind.map_or_else(
            || is_driver.clone(),
            |(domain, name)| {
                let kind = driver.gpu_kind;
                format!("{is_driver} && device.attributes[\"{domain}\"].{name} == \"{kind}\"")
            },
        );
        let nics = format!("device.driver == \"{}\"", names::DRIVER);
        [class(driver.driver, &gpus), class(names::NIC_CLASS, &nics)]
    }
}

fn class(name: &str, expression: &str) -> DeviceClass {
    let object = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": { "name": name },
        "spec": { "selectors": [{ "cel": { "expression": expression } }] },
    });
    serde_json::from_value(object).expect("this is a DeviceClass")
}

/// The devices of a slice.
fn published(driver: &str, devices: &Value) -> Vec<Device> {
    devices
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|device| {
            let name = device["name"].as_str()?.to_owned();
            let address = &device["attributes"][attribute::PCI_BUS_ID]["string"];
            let address = address.as_str()?.parse().ok()?;
            Some(Device { driver: driver.to_owned(), name, address })
        })
        .collect()
}

/// The devices with GPU UUIDs that are unique to the node.
fn own(devices: &Value, node: &str) -> Value {
    let mut devices = devices.clone();
    for device in devices.as_array_mut().into_iter().flatten() {
        let Some(attributes) = device["attributes"].as_object_mut() else { continue };
        let uuids =
            attributes.iter_mut().filter(|(name, _)| name.rsplit('/').next() == Some("uuid"));
        for (_, value) in uuids {
            if let Some(uuid) = value["string"].as_str() {
                let tail: String =
                    uuid.chars().rev().take(40).collect::<Vec<_>>().into_iter().rev().collect();
                *value = json!({ "string": format!("{tail}@{node}") });
            }
        }
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_its_gpus_first_and_each_device_has_a_bit() {
        let machine = SimulatedMachine::load("azure-ndh100v5").unwrap();
        assert_eq!(machine.gpus, 8);
        assert!(machine.devices.len() > 8);
        for (index, device) in machine.devices.iter().enumerate() {
            let bit = machine.bit(&device.driver, &device.name);
            assert_eq!(bit, Some(1 << index));
            assert_eq!(machine.gpu_devices() >> index & 1 == 1, index < 8);
        }
        assert_eq!(machine.of(0b101).count(), 2);
    }

    #[test]
    fn another_order_changes_slices_and_bits_alike() {
        let machine = SimulatedMachine::load("azure-gb300").unwrap();
        let names = |machine: &SimulatedMachine| -> Vec<String> {
            machine.devices.iter().map(|device| device.name.clone()).collect()
        };
        let mut draw = Rng::with_seed(3);
        let other = machine.clone().with_gpus_in_other_order(&mut draw);
        assert_ne!(names(&machine), names(&other));
        assert_eq!(names(&machine)[4..], names(&other)[4..]);
        let published = serde_json::to_value(other.slices("n")).unwrap();
        let gpus = published[0]["spec"]["devices"].as_array().unwrap();
        let gpus: Vec<&str> = gpus.iter().filter_map(|gpu| gpu["name"].as_str()).collect();
        assert_eq!(gpus, &names(&other)[..4]);
        assert_eq!(other.compute_nics().count_ones(), 4);
    }

    #[test]
    fn a_machine_without_gpus_or_unknown_is_refused() {
        for (name, part) in [("nothing", "it has no GPU"), ("no-such", "there is no machine")] {
            let error = SimulatedMachine::load(name).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn uuids_differ_between_nodes_and_fit_into_an_attribute() {
        let machine = SimulatedMachine::load("azure-gb300").unwrap();
        let uuids = |node: &str| {
            let slices = serde_json::to_value(machine.slices(node)).unwrap();
            slices[0]["spec"]["devices"][0]["attributes"]["uuid"]["string"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        assert_ne!(uuids("n1"), uuids("n2"));
        assert!(uuids("n1").len() <= 64);
    }
}
