//! Decides the plan, device by device.

use super::link::link;
use super::names::PodNames;
use crate::kernel::attach::rdma::NetnsMode;
use crate::model::plan::{CharDevice, Plan, PlannedDevice, PlannedFunction, PlannedRdma, Wiring};
use crate::prepare::claim::{AllocatedClaim, AllocatedDevice};
use crate::prepare::inventory::{char_names, is_virtual_function};
use crate::prepare::plan::{Facts, PlanError, Policy, Refusal};
use cluster_model::network_config::{NetworkConfig, VirtualFunctionConfig};
use publication::nic::NicState;

/// Decides what the claim's pod gets. [`wiring`](crate::prepare::wiring::wiring) then
/// adds the topology.
pub fn plan(claim: &AllocatedClaim, facts: &Facts<'_>) -> Result<Plan, PlanError> {
    let configs = claim.devices.iter().map(config).collect::<Result<Vec<_>, _>>()?;
    let mut names = PodNames::new(claim, &configs, facts.held);
    let devices = claim.devices.iter().zip(configs);
    let devices: Vec<PlannedDevice> = devices
        .map(|(device, config)| {
            let planned = planned(claim, device, config, facts, &mut names);
            planned.map_err(PlanError::of(&device.device))
        })
        .collect::<Result<_, _>>()?;
    refuse_same_names(&devices)?;
    refuse_different_variables(&devices)?;
    let has_rdma = devices.iter().any(|device| device.rdma.is_some());
    Ok(Plan {
        claim: claim.claim.clone(),
        pods: claim.pods.clone(),
        devices,
        rdma_cm: facts.inventory.rdma_cm().filter(|_| has_rdma).cloned(),
        plugin_gpus: Vec::new(),
        others: claim.others.clone(),
        pod_claim_name: claim.pod_claim_name.clone(),
        wiring: Wiring::default(),
        boot_id: facts.boot_id.map(str::to_owned),
    })
}

fn planned(
    claim: &AllocatedClaim,
    device: &AllocatedDevice,
    config: NetworkConfig,
    facts: &Facts<'_>,
    names: &mut PodNames,
) -> Result<PlannedDevice, Refusal> {
    let nic = facts.inventory.nic(&device.device).ok_or_else(|| unknown(facts))?;
    refuse_held(device, facts.held)?;
    Ok(PlannedDevice {
        request: device.request.clone(),
        pool: device.pool.clone(),
        device: device.device.clone(),
        place: device.place.clone(),
        share_id: device.share_id.clone(),
        is_whole: device.is_whole,
        admin_access: device.admin_access,
        pci_bus_id: nic.address().map(|address| address.to_string()).unwrap_or_default(),
        rdma: rdma(claim, device, nic, &config, facts)?,
        function: function(device, &config, facts)?,
        link: link(claim, device, nic, config, facts, names)?,
    })
}

fn unknown(facts: &Facts<'_>) -> Refusal {
    let mut names: Vec<_> =
        facts.inventory.devices().map(|nic| format!("`{}`", nic.name)).collect();
    names.sort();
    let present = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Refusal::UnknownDevice { present }
}

/// Refuses a device that another claim holds, except for shares and for admin access.
fn refuse_held(device: &AllocatedDevice, held: &[&Plan]) -> Result<(), Refusal> {
    let holder = held.iter().find(|plan| {
        plan.devices.iter().any(|other| {
            let shares =
                device.is_shared() && other.is_shared() && device.share_id != other.share_id;
            other.device == device.device && !other.admin_access && !device.admin_access && !shares
        })
    });
    holder.map_or(Ok(()), |plan| Err(Refusal::Held { holder: plan.claim.clone() }))
}

fn config(device: &AllocatedDevice) -> Result<NetworkConfig, PlanError> {
    let Some(parameters) = &device.parameters else { return Ok(NetworkConfig::default()) };
    let config = NetworkConfig::parse(parameters).map_err(Refusal::Config);
    Ok(with_address(device, config.map_err(PlanError::of(&device.device))?))
}

/// Treats the address that was reserved from a range like a configured one.
fn with_address(device: &AllocatedDevice, mut config: NetworkConfig) -> NetworkConfig {
    // The NIC is chosen by now.
    config.late_binding = None;
    if config.interface.address_range.take().is_some() {
        config.interface.addresses = device.address.into_iter().collect();
    }
    config
}

fn rdma(
    claim: &AllocatedClaim,
    device: &AllocatedDevice,
    nic: &NicState,
    config: &NetworkConfig,
    facts: &Facts<'_>,
) -> Result<Option<PlannedRdma>, Refusal> {
    let Some(rdma) = &nic.rdma else {
        return if config.rdma.is_some() { Err(Refusal::NoRdma) } else { Ok(None) };
    };
    let moves = facts.netns_mode == NetnsMode::Exclusive && !device.admin_access;
    if moves && device.is_shared() {
        return Err(Refusal::ExclusiveShare);
    }
    if moves && claim.pods.len() > 1 {
        return Err(Refusal::ExclusiveRdma { pods: claim.pods.len() });
    }
    // Only `uverbs` is required for RDMA; the other devices are for management.
    let mut names = rdma.uverbs.iter();
    if let Some(missing) = names.find(|name| !facts.inventory.chars.contains_key(*name)) {
        return Err(Refusal::NoCharDevice { missing: missing.clone() });
    }
    let chars = char_names(rdma)
        .filter_map(|name| facts.inventory.chars.get(name))
        .filter(|char| is_given(char, nic, facts.policy))
        .cloned()
        .collect();
    let (name, ports) = (rdma.name.clone(), rdma.ports.iter().map(|port| port.number).collect());
    let parameters = config.rdma.unwrap_or_default();
    let part = nic.part.clone();
    Ok(Some(PlannedRdma { name, part, ports, chars, moves, parameters }))
}

/// A physical function's management devices can manage the whole subnet. Management datagrams of a
/// virtual function are confined to it.
fn is_given(char: &CharDevice, nic: &NicState, policy: Policy) -> bool {
    let is_confined = is_virtual_function(nic) && char.name.starts_with("umad");
    policy.management_devices || is_confined || char.name.starts_with("uverbs")
}

/// Plans the settings of a virtual function. They apply to the whole NIC, so shares are refused,
/// and claims with admin access set none.
fn function(
    device: &AllocatedDevice,
    config: &NetworkConfig,
    facts: &Facts<'_>,
) -> Result<Option<PlannedFunction>, Refusal> {
    let asked = config.virtual_function.filter(|it| *it != VirtualFunctionConfig::default());
    let Some(asked) = asked.filter(|_| !device.admin_access) else { return Ok(None) };
    if device.is_shared() {
        return Err(Refusal::SharedFunction);
    }
    let function = facts.inventory.functions.get(&device.device);
    let function = function.ok_or(Refusal::NoVirtualFunction)?;
    let physical = function.physical.to_string();
    let Some((link, former)) = function.seen.clone() else {
        return Err(Refusal::NoPhysicalFunction { physical });
    };
    if asked.port_guid.is_some() && former.port_guid.is_none() {
        return Err(Refusal::NoFormerGuid { physical });
    }
    Ok(Some(PlannedFunction { physical, link, index: function.index, asked, former }))
}

fn refuse_same_names(devices: &[PlannedDevice]) -> Result<(), PlanError> {
    let mut names: Vec<_> =
        devices.iter().filter_map(|device| Some(&device.link.as_ref()?.name)).collect();
    names.sort();
    let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
    twice.map_or(Ok(()), |pair| Err(PlanError::SameName { name: pair[0].clone() }))
}

/// Refuses different RDMA parameters: a container's environment has one value per
/// variable for all NICs.
fn refuse_different_variables(devices: &[PlannedDevice]) -> Result<(), PlanError> {
    let with_rdma = devices.iter().filter_map(|it| Some((it, it.rdma.as_ref()?.parameters)));
    let with_rdma: Vec<_> = with_rdma.collect();
    let differ = with_rdma.windows(2).find(|pair| pair[0].1 != pair[1].1);
    differ.map_or(Ok(()), |pair| {
        let [device, other] = [pair[0].0, pair[1].0].map(|it| it.device.clone());
        Err(PlanError::DifferentRdma { device, other })
    })
}
