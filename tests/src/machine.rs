//! Machines other than the GB300: a fixture of topology-graph whose NICs our driver publishes, with
//! GPUs in the form of their own driver.

use std::fs::File;
use std::path::Path;

use anyhow::Context;
use flate2::read::GzDecoder;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tempfile::TempDir;
use topology_graph::{HostRoot, Topology, fixture, read};

use crate::{binaries, gb300};

/// The class of AMD GPUs.
pub const AMD_CLASS: &str = "
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.amd.com}
spec:
  selectors:
  - cel:
      expression: device.driver == \"gpu.amd.com\" && device.attributes[\"gpu.amd.com\"].type == \"amdgpu\"
";

/// A kind of machine.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The name of the fixture. With `+roce` its InfiniBand ports are Ethernet. With `trees/` before it, an
    /// archive of `topology-graph/tests`.
    pub fixture: &'static str,
    /// Azure's name of its size; empty for machines of others.
    pub size: &'static str,
    /// The GPUs' driver.
    pub driver: &'static str,
    /// The extended resource for one GPU.
    pub resource: &'static str,
}

/// Eight AMD GPUs and eight InfiniBand NICs, four of each per NUMA node. The driver publishes the
/// NUMA node in its own domain.
pub const MI300X: Machine = Machine {
    fixture: "azure-mi300x",
    size: "Standard_ND96isr_MI300X_v5",
    driver: "gpu.amd.com",
    resource: "amd.com/gpu",
};

/// Eight NVIDIA GPUs and eight InfiniBand NICs, four of each per NUMA node. The driver (v0.5.0)
/// publishes the standard NUMA attribute.
pub const H100: Machine = Machine {
    fixture: "azure-ndh100v5",
    size: "Standard_ND96isr_H100_v5",
    driver: "gpu.nvidia.com",
    resource: "nvidia.com/gpu",
};

/// Eight NVIDIA GPUs and eight InfiniBand NICs; the kernel shows no NUMA node for them.
pub const A100: Machine = Machine {
    fixture: "azure-nda100v4",
    size: "Standard_ND96asr_v4",
    driver: "gpu.nvidia.com",
    resource: "nvidia.com/gpu",
};

/// Eight NVIDIA GPUs with four EFA adapters each, and ENA adapters.
pub const P5: Machine = Machine { fixture: "trees/aws-p5", size: "", ..H100 };

/// Eight NVIDIA GPUs with two EFA adapters each, and ENA adapters.
pub const P5EN: Machine = Machine { fixture: "trees/aws-p5en", size: "", ..H100 };

/// Eight MI355X with a Pollara 400 each, behind the NIC's own switch.
pub const POLLARA: Machine = Machine { fixture: "trees/mi355x-pollara", size: "", ..MI300X };

impl Machine {
    /// The machine as a folder.
    pub fn plant(self) -> anyhow::Result<TempDir> {
        self.plant_named(&[])
    }

    /// The same with other names of the RDMA devices at these addresses.
    pub fn plant_named(self, names: &[(&str, &str)]) -> anyhow::Result<TempDir> {
        let folder = tempfile::tempdir()?;
        if self.fixture.starts_with("trees/") {
            unpack(self.fixture, folder.path())?;
            return Ok(folder);
        }
        let (name, roce) = self.fixture.split_once('+').unwrap_or((self.fixture, ""));
        let layer = if roce.is_empty() { "InfiniBand" } else { "Ethernet" };
        let text = fixture::machine(name).context("the fixture is there")?;
        let text = text.replace("link_layer = InfiniBand", &format!("link_layer = {layer}"));
        let text = names.iter().try_fold(text, |text, name| renamed(&text, *name))?;
        fixture::plant(&text, folder.path())?;
        Ok(folder)
    }

    /// The slice in which the driver publishes the GPUs of the machine below `root`.
    pub fn gpu_slice(self, node: &str, root: &Path) -> anyhow::Result<DynamicObject> {
        let snapshot = read(&HostRoot::at(root))?;
        let (topology, _) = Topology::build(&snapshot, None);
        let gpus = topology.gpus().iter().enumerate().map(|(index, gpu)| {
            let mut attributes = json!({
                "resource.kubernetes.io/pciBusID": {"string": gpu.address.to_string()},
            });
            let numa = if self.driver == "gpu.amd.com" {
                attributes["type"] = json!({"string": "amdgpu"});
                "numaNode"
            } else {
                attributes["type"] = json!({"string": "gpu"});
                // NICs of machines without NUMA nodes name that of their GPU.
                let uuid = gpu.uuid.clone();
                let uuid = uuid.unwrap_or_else(|| gb300::gpu_uuid(&format!("GPU-{index}"), node));
                attributes["uuid"] = json!({ "string": uuid });
                "resource.kubernetes.io/numaNode"
            };
            // Drivers omit it if the kernel does not show it.
            if let Some(node) = gpu.numa {
                attributes[numa] = json!({"int": node.0});
            }
            json!({"name": format!("gpu-{index}"), "attributes": attributes})
        });
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": format!("{node}-{}", self.driver)},
            "spec": {
                "driver": self.driver,
                "nodeName": node,
                "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                "devices": gpus.collect::<Vec<Value>>(),
            },
        });
        Ok(serde_json::from_value(slice)?)
    }
}

/// Unpacks a machine that topology-graph keeps as an archive.
fn unpack(name: &str, folder: &Path) -> anyhow::Result<()> {
    let archive = binaries::in_tests(&format!("../topology-graph/tests/{name}.tar.gz"));
    let file = File::open(&archive).with_context(|| format!("`{}`", archive.display()))?;
    Ok(tar::Archive::new(GzDecoder::new(file)).unpack(folder)?)
}

/// A fixture in which the RDMA device at an address has another name.
fn renamed(text: &str, (address, name): (&str, &str)) -> anyhow::Result<String> {
    let head = format!("/{address}]\n");
    let (before, rest) = text.split_once(&head).context("the machine has the address")?;
    let (section, after) = rest.split_at(rest.find("\n[").unwrap_or(rest.len()));
    let device = section.lines().find_map(|line| line.strip_prefix("infiniband/"));
    let device = device.and_then(|line| line.split('/').next()).context("an RDMA device")?;
    Ok([before, &head, &section.replace(device, name), after].concat())
}
