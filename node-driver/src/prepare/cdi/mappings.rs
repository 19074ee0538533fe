//! Which NIC each GPU uses, for libraries that do not find the nearest one by themselves. They are
//! told only if every GPU of the pod has an RDMA device, since they refuse a GPU without one.

use crate::model::plan::{Plan, PlannedDevice, PlannedGpu, PlannedRdma};

/// A GPU and its nearest NIC.
#[derive(Clone, Copy, Debug)]
struct Pair<'p> {
    gpu: &'p str,
    nic: &'p str,
    rdma: &'p PlannedRdma,
}

impl Pair<'_> {
    /// The first port of the NIC.
    fn port(&self) -> Option<u32> {
        self.rdma.ports.first().copied()
    }

    /// The place of the NIC in the list of libibverbs, which has the order in which the kernel found
    /// the devices, as have the numbers of their character devices.
    fn place(&self) -> Option<u32> {
        self.rdma.chars.iter().find_map(|char| char.name.strip_prefix("uverbs")?.parse().ok())
    }
}

/// vLLM sets the variables that it is told for each worker, before UCX or NVSHMEM starts, with one
/// port for all (`vllm/v1/executor/vllm_net_devices.py`).
pub(super) fn vllm(plan: &Plan) -> Option<[String; 2]> {
    let pairs = pairs(plan)?;
    let port = pairs.first()?.port()?;
    let mapping: Vec<_> = pairs.iter().map(|pair| format!("{}={}", pair.gpu, pair.nic)).collect();
    pairs.iter().all(|pair| pair.port() == Some(port)).then(|| {
        [
            format!("VLLM_GPU_NIC_PCIE_MAPPING={}", mapping.join(",")),
            format!("VLLM_NIC_SELECTION_VARS=UCX_NET_DEVICES:{port}"),
        ]
    })
}

/// NVSHMEM goes through the list of libibverbs, takes the devices that the variable names, each as
/// often as its last entry says, and gives processing element N of the node the Nth of them
/// (`nvshmemt_init` in `ibrc.cpp`). So the order of the entries means nothing: the variable is
/// right only if the NICs are in the order of their GPUs there, too. Without it, NVSHMEM takes the
/// nearest by itself.
pub(super) fn nvshmem(plan: &Plan) -> Option<[String; 2]> {
    let pairs = pairs(plan)?;
    let places: Vec<u32> = pairs.iter().map(Pair::place).collect::<Option<_>>()?;
    if !places.is_sorted() {
        return None;
    }
    let by_nic = pairs.chunk_by(|one, other| one.rdma.name == other.rdma.name);
    let entries: Vec<String> = by_nic.map(entry).collect::<Option<_>>()?;
    Some([
        "NVSHMEM_ENABLE_NIC_PE_MAPPING=1".to_owned(),
        format!("NVSHMEM_HCA_PE_MAPPING={}", entries.join(",")),
    ])
}

/// A NIC's device, port and number of GPUs.
fn entry(pairs_of_nic: &[Pair<'_>]) -> Option<String> {
    let first = pairs_of_nic.first()?;
    Some(format!("{}:{}:{}", first.rdma.name, first.port()?, pairs_of_nic.len()))
}

/// Each GPU with its nearest NIC, by the GPU's address; `None` without a GPU, or if one has no
/// address or no RDMA device.
fn pairs(plan: &Plan) -> Option<Vec<Pair<'_>>> {
    let told: Vec<_> = plan.told().into_iter().map(|(_, device)| device).collect();
    let pairs = plan.wiring.gpus.iter().map(|gpu| pair(gpu, &told));
    let mut pairs: Vec<_> = pairs.collect::<Option<_>>()?;
    pairs.sort_unstable_by_key(|pair| pair.gpu);
    (!pairs.is_empty()).then_some(pairs)
}

fn pair<'p>(gpu: &'p PlannedGpu, told: &[&'p PlannedDevice]) -> Option<Pair<'p>> {
    let nic = gpu.nics.iter().find(|nic| nic.rdma_device.is_some())?;
    let device = told.iter().find(|device| device.device == nic.device)?;
    let rdma = device.rdma.as_ref()?;
    Some(Pair { gpu: gpu.pci_bus_id.as_deref()?, nic: &device.pci_bus_id, rdma })
}
