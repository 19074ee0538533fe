//! Container Device Interface (CDI) specs: what a container runtime adds to a container
//! that has a device of this driver.
//!
//! The types cover the part of the CDI specification 0.5 that this driver writes. The
//! runtime itself injects the devices into each container, so a container does not start
//! without them.

mod mappings;

use crate::kernel::attach::AttachMode;
use crate::model::plan::{CharDevice, Plan, PlannedDevice, PlannedRdma};
use crate::prepare::claim::base_request;
use crate::prepare::metadata;
use cluster_model::network_config::RdmaConfig;
use node_files::paths::Paths;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The lowest version with all the fields in use (`hostPath`).
const CDI_VERSION: &str = "0.5.0";
/// Directory of RDMA devices in containers.
const INFINIBAND: &str = "/dev/infiniband";
/// The list of a container's devices.
const DEVICES_FILE: &str = "/etc/dranet/devices.json";
/// The NCCL topology file in containers.
const NCCL_FILE: &str = "/etc/dranet/nccl-topology.xml";
/// Directory in containers with a link to their pod's network namespace per claim.
/// Containers do not need it, but cannot start while it is missing. After the interfaces moved, the NRI
/// plugin removes the mount from containers with a user namespace, and from those of a claim that several
/// pods can have, whose link would be there for each of them.
const NETWORK_DIR: &str = "/etc/dranet/network";
/// Time after which the runtime aborts the hook.
const HOOK_TIMEOUT_SECONDS: u32 = 30;

/// Which environment variables and files a container gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate flag")]
pub struct Environment {
    /// `NCCL_IB_HCA`, and NCCL's connection parameters from the claim's configuration.
    pub nccl_ib_hca: bool,
    /// `UCX_NET_DEVICES`, and UCX's connection parameters from the claim's configuration.
    pub ucx_net_devices: bool,
    /// `VLLM_GPU_NIC_PCIE_MAPPING` and `VLLM_NIC_SELECTION_VARS`, if each GPU of the pod has a NIC.
    pub vllm_nic_mapping: bool,
    /// `NVSHMEM_ENABLE_NIC_PE_MAPPING` and `NVSHMEM_HCA_PE_MAPPING`, if each GPU of the pod has a
    /// NIC.
    pub nvshmem_nic_mapping: bool,
    /// `NCCL_TOPO_FILE`, if the machine's topology says anything about the devices.
    pub nccl_topo_file: NcclTopoFile,
    /// `/etc/dranet/devices.json`.
    pub devices_file: bool,
    /// Device metadata files (KEP-5304).
    pub device_metadata: bool,
}

/// When containers get `NCCL_TOPO_FILE`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum NcclTopoFile {
    /// If the file has more than NCCL and RCCL find by themselves.
    #[default]
    Auto,
    /// Always.
    True,
    /// Never.
    False,
}

impl NcclTopoFile {
    /// The file that containers of the plan get.
    pub(crate) fn of(self, plan: &Plan) -> Option<&String> {
        let is_given = match self {
            Self::Auto => !plan.wiring.nccl_on_request,
            Self::True => true,
            Self::False => false,
        };
        plan.wiring.nccl.as_ref().filter(|_| is_given)
    }
}

impl Default for Environment {
    fn default() -> Self {
        Self {
            nccl_ib_hca: true,
            ucx_net_devices: true,
            vllm_nic_mapping: true,
            nvshmem_nic_mapping: true,
            nccl_topo_file: NcclTopoFile::default(),
            devices_file: true,
            device_metadata: true,
        }
    }
}

/// One file in the runtime's CDI directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    cdi_version: &'static str,
    kind: String,
    devices: Vec<SpecDevice>,
    #[serde(skip_serializing_if = "Edits::is_empty")]
    container_edits: Edits,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct SpecDevice {
    name: String,
    container_edits: Edits,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<DeviceNode>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<Mount>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hooks: Vec<Hook>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct DeviceNode {
    path: String,
    host_path: PathBuf,
    #[serde(rename = "type")]
    kind: &'static str,
    major: u32,
    minor: u32,
    permissions: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: PathBuf,
    container_path: String,
    options: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Hook {
    #[serde(rename = "hookName")]
    name: &'static str,
    path: PathBuf,
    args: Vec<String>,
    timeout: u32,
}

/// Settings for all specs.
#[derive(Clone, Debug)]
pub struct SpecSettings {
    /// Root below which the runtime finds `dev`.
    pub runtime_root: PathBuf,
    /// How interfaces get into pods.
    pub attach: AttachMode,
    /// Environment variables and files.
    pub environment: Environment,
    /// Whether containers with RDMA devices may lock all of their memory.
    pub locked_memory: bool,
}

impl Edits {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The CDI device ID that the kubelet passes to the runtime.
pub fn device_id(driver: &str, plan: &Plan, device: &PlannedDevice) -> String {
    format!("{}={}", kind(driver), device_name(plan, device))
}

/// The CDI kind of this driver's devices.
pub fn kind(driver: &str) -> String {
    format!("{driver}/claim")
}

/// Where a container mounts the link that exists when the claim's interfaces are in its pod.
pub fn network(uid: &str) -> String {
    format!("{NETWORK_DIR}/{uid}")
}

fn device_name(plan: &Plan, device: &PlannedDevice) -> String {
    format!("{}-{}", plan.claim.uid, device.device)
}

/// A file of the host that a container can read.
fn mount(host_path: PathBuf, container_path: impl Into<String>) -> Mount {
    let options = vec!["ro", "nosuid", "nodev", "bind"];
    Mount { host_path, container_path: container_path.into(), options }
}

/// The spec of one claim.
pub fn spec(plan: &Plan, paths: &Paths, settings: &SpecSettings) -> Spec {
    // Two shares of one device are one CDI device.
    let mut seen = BTreeSet::new();
    let mut told = BTreeSet::new();
    let devices = plan
        .devices
        .iter()
        .filter(|device| seen.insert(device_name(plan, device)))
        .map(|device| SpecDevice {
            name: device_name(plan, device),
            container_edits: Edits {
                // Shows which devices a container has if it does not have all of the claim's.
                // Also, CDI rejects a device without edits.
                env: vec![own_variable(device)],
                device_nodes: device_nodes(device.rdma.as_ref(), settings),
                mounts: metadata_mount(plan, device, paths, settings, &mut told),
                ..Edits::default()
            },
        })
        .collect();
    Spec {
        cdi_version: CDI_VERSION,
        kind: kind(&paths.driver),
        devices,
        container_edits: edits_of_claim(plan, paths, settings),
    }
}

/// The variable for one device, `DRANET_PCI_0101_00_00_0=0101:00:00.0` or
/// `DRANET_VLAN7=vlan7`: its PCI address, or its interface in the pod if it has none.
fn own_variable(device: &PlannedDevice) -> String {
    let name = device.device.to_uppercase().replace('-', "_");
    let link = device.link.as_ref().filter(|_| device.pci_bus_id.is_empty());
    let place = link.map_or(device.pci_bus_id.as_str(), |link| link.name.as_str());
    format!("DRANET_{name}={place}")
}

fn device_nodes(rdma: Option<&PlannedRdma>, settings: &SpecSettings) -> Vec<DeviceNode> {
    rdma.into_iter()
        .flat_map(|rdma| &rdma.chars)
        .map(|char| node(INFINIBAND, char, settings))
        .collect()
}

fn node(folder: &str, char: &CharDevice, settings: &SpecSettings) -> DeviceNode {
    let path = format!("{folder}/{}", char.name);
    let host_path = settings.runtime_root.join(path.trim_start_matches('/'));
    let (major, minor) = (char.major, char.minor);
    DeviceNode { path, host_path, kind: "c", major, minor, permissions: "rw" }
}

/// Mounts the metadata file of a request, together with the request's first device.
fn metadata_mount<'p>(
    plan: &'p Plan,
    device: &'p PlannedDevice,
    paths: &Paths,
    settings: &SpecSettings,
    told: &mut BTreeSet<&'p str>,
) -> Vec<Mount> {
    let request = base_request(&device.request);
    let is_told = settings.environment.device_metadata
        && metadata::requests(plan).contains(request)
        && told.insert(request);
    let inside = is_told.then(|| metadata::container_path(plan, &paths.driver, request));
    inside
        .flatten()
        .map(|inside| mount(paths.metadata(&plan.claim.uid, request), inside))
        .into_iter()
        .collect()
}

/// The edits that any device of the claim brings, once per container.
fn edits_of_claim(plan: &Plan, paths: &Paths, settings: &SpecSettings) -> Edits {
    let uid = &plan.claim.uid;
    let moves = plan.devices.iter().any(PlannedDevice::moves);
    let mode = settings.attach.of(plan);
    let has_rdma = plan.devices.iter().any(|device| device.rdma.is_some());
    let needs_hook = mode == AttachMode::Hook && (moves || has_rdma);
    let hook = needs_hook.then(|| hook(plan, paths, settings));
    let Environment { nccl_topo_file, devices_file, .. } = settings.environment;
    let devices = devices_file.then(|| mount(paths.devices(uid), DEVICES_FILE));
    let nccl = nccl_topo_file.of(plan).map(|_| mount(paths.nccl(uid), NCCL_FILE));
    let waits = moves && mode == AttachMode::Nri;
    let there = if plan.is_of_one_pod() { paths.ready(uid) } else { paths.never(uid) };
    let network = waits.then(|| mount(there, network(uid)));
    Edits {
        env: variables(plan, settings.environment),
        device_nodes: plan.rdma_cm.iter().map(|char| node(INFINIBAND, char, settings)).collect(),
        mounts: devices.into_iter().chain(nccl).chain(network).collect(),
        hooks: hook.into_iter().collect(),
    }
}

/// The hook moves interfaces, checks the numbers of RDMA devices and lifts the limit of locked
/// memory.
fn hook(plan: &Plan, paths: &Paths, settings: &SpecSettings) -> Hook {
    let mut args = vec![
        "node-driver".to_owned(),
        "attach".to_owned(),
        format!("--plan={}", paths.plan(&plan.claim.uid).display()),
        format!("--run-dir={}", paths.run.display()),
        format!("--root={}", settings.runtime_root.display()),
    ];
    args.extend(settings.locked_memory.then(|| "--locked-memory".to_owned()));
    Hook { name: "createRuntime", path: paths.hook(), args, timeout: HOOK_TIMEOUT_SECONDS }
}

/// Environment variables. NCCL matches exact names after `=`; UCX takes devices with
/// ports.
fn variables(plan: &Plan, environment: Environment) -> Vec<String> {
    let mut rdma: Vec<_> =
        plan.told().into_iter().filter_map(|(_, device)| device.rdma.as_ref()).collect();
    // Several shares of a device name it only once.
    rdma.dedup_by_key(|rdma| &rdma.name);
    let parameters = parameters(&rdma, environment);
    let vllm = environment.vllm_nic_mapping.then(|| mappings::vllm(plan)).flatten();
    let nvshmem = environment.nvshmem_nic_mapping.then(|| mappings::nvshmem(plan)).flatten();
    let has_rdma = !rdma.is_empty();
    let has_nccl = environment.nccl_topo_file.of(plan).is_some();
    let names: Vec<_> = rdma.iter().map(|rdma| rdma.name.as_str()).collect();
    let ports: Vec<_> = rdma
        .iter()
        .flat_map(|rdma| rdma.ports.iter().map(|port| format!("{}:{port}", rdma.name)))
        .collect();
    [
        (environment.nccl_ib_hca && has_rdma, format!("NCCL_IB_HCA=={}", names.join(","))),
        (environment.ucx_net_devices && has_rdma, format!("UCX_NET_DEVICES={}", ports.join(","))),
        (has_nccl, format!("NCCL_TOPO_FILE={NCCL_FILE}")),
    ]
    .into_iter()
    .filter_map(|(is_on, variable)| is_on.then_some(variable))
    .chain(parameters)
    .chain(vllm.into_iter().flatten())
    .chain(nvshmem.into_iter().flatten())
    .collect()
}

/// The value of a parameter, if all NICs have the same.
fn agreed(rdma: &[&PlannedRdma], value: fn(&RdmaConfig) -> Option<u8>) -> Option<u8> {
    let first = value(&rdma.first()?.parameters)?;
    rdma.iter().all(|rdma| value(&rdma.parameters) == Some(first)).then_some(first)
}

/// Connection parameters, if the NICs of all the pod's claims agree. NCCL finds the GID
/// for a RoCE version by itself; UCX has no such variable.
fn parameters(rdma: &[&PlannedRdma], environment: Environment) -> Vec<String> {
    let Environment { nccl_ib_hca: nccl, ucx_net_devices: ucx, .. } = environment;
    [
        (nccl, "NCCL_IB_GID_INDEX", agreed(rdma, |it| it.gid_index)),
        (nccl, "NCCL_IB_ROCE_VERSION_NUM", agreed(rdma, |it| it.roce_version)),
        (nccl, "NCCL_IB_TC", agreed(rdma, |it| it.traffic_class)),
        (nccl, "NCCL_IB_SL", agreed(rdma, |it| it.service_level)),
        (ucx, "UCX_IB_GID_INDEX", agreed(rdma, |it| it.gid_index)),
        (ucx, "UCX_IB_TRAFFIC_CLASS", agreed(rdma, |it| it.traffic_class)),
        (ucx, "UCX_IB_SL", agreed(rdma, |it| it.service_level)),
    ]
    .into_iter()
    .filter_map(|(is_on, name, value)| Some(format!("{name}={}", value.filter(|_| is_on)?)))
    .collect()
}
