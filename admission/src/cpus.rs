//! Whole CPUs on the NUMA node of the GPUs and NICs, where a CPU driver publishes them.
//!
//! dra-driver-cpu publishes a device for each NUMA node (`cpuDeviceMode: grouped`, grouped by
//! NUMA node, its default), with the standard attribute `numaNode` and the capacity
//! `dra.cpu/cpu`, of which a claim takes a part. NICs publish the same attribute, so a
//! constraint ties both; GPUs follow the NICs by the join of the plan. A claim for CPUs serves
//! one container, whose CPU requests and limits are the same number (its
//! `docs/user/workload-requirements.md`).

use crate::claim::match_attribute;
use crate::demand::{Block, Demand};
use crate::denial::Denial;
use crate::intent::Intent;
use crate::join::form::ClaimParts;
use crate::selector::Selector;
use cluster_model::machines::Machine;
use cluster_model::names::{annotation, attribute, capacity, cpu};
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::{CapacityRequirements, DeviceRequest, ExactDeviceRequest};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Keeps of each machine the NICs on whose NUMA node a block finds enough CPUs, and the machines
/// that are left with any.
pub(crate) fn keep_near_cpus(
    intent: &Intent,
    demand: &Demand,
    view: &ClusterView,
    machines: &mut Vec<Machine<'_>>,
) -> Result<(), Denial> {
    let Some(cpus) = intent.cpus else { return Ok(()) };
    let deny = |why: String| Denial::new(annotation::ALIGNED_CPUS, "true", why);
    let Some(of_block) = of_block(cpus, demand) else {
        return Err(deny(format!(
            "{cpus} CPUs cannot be shared out evenly among {} GPUs, each with NICs of its own",
            demand.blocks
        ))
        .allowed(format!(
            "a multiple of {} CPUs, or dranet.io/pairing: \"group\"",
            demand.blocks
        )));
    };
    if !view.settings().gates.consumable_capacity {
        return Err(deny(
            "the scheduler shares no capacity of devices (feature DRAConsumableCapacity), of which \
             CPUs are a part"
                .to_owned(),
        ));
    }
    for machine in machines.iter_mut() {
        let groups = machine.cpus.clone();
        machine.devices.nics.retain(|_, nic| {
            let numa = nic.attribute(attribute::NUMA_NODE);
            let mut groups = groups.iter();
            groups.any(|group| numa == Some(&group.numa) && group.cpus >= i64::from(of_block))
        });
    }
    let most = machines.iter().flat_map(|it| &it.cpus).map(|group| group.cpus).max();
    machines.retain(|machine| !machine.devices.nics.is_empty());
    if !machines.is_empty() {
        return Ok(());
    }
    Err(deny(match most {
        None => format!(
            "no node that can serve the pod has CPUs of driver {} in class `{}` that are grouped by \
             NUMA node and publish {}; install dra-driver-cpu with cpuDeviceMode: grouped",
            cpu::DRIVER,
            cpu::CLASS,
            attribute::NUMA_NODE
        ),
        Some(most) => format!(
            "asks {of_block} CPUs on the NUMA node of its NICs; no NUMA node here has more than \
             {most}, or NICs do not publish {}",
            attribute::NUMA_NODE
        ),
    }))
}

/// CPUs for each block.
fn of_block(cpus: u32, demand: &Demand) -> Option<u32> {
    cpus.is_multiple_of(demand.blocks).then(|| cpus / demand.blocks)
}

/// Adds the CPUs of each block of a claim, tied to its NICs.
pub(crate) fn add(intent: &Intent, demand: &Demand, written: &mut ClaimParts) {
    let Some(of_block) = intent.cpus.and_then(|cpus| of_block(cpus, demand)) else { return };
    let blocks = demand.requests();
    for (index, (block, size)) in blocks.iter().zip(demand.sizes()).enumerate() {
        let name = if blocks.len() == 1 { "cpus".to_owned() } else { format!("cpu-{index}") };
        written.requests.push(request(&name, of_block * size));
        let tied = nic_names(block, written).into_iter().chain([name]).collect();
        written.constraints.push(match_attribute(tied, attribute::NUMA_NODE));
    }
}

/// The requests for the NICs of a block: beside an anchor there is a second one.
fn nic_names(block: &Block, written: &ClaimParts) -> Vec<String> {
    let own = &block.nics.0;
    let rest = format!("{own}-rest");
    let all = written.nic_requests.iter();
    all.filter(|name| *name == own || **name == rest).cloned().collect()
}

fn request(name: &str, cpus: u32) -> DeviceRequest {
    let amount = Quantity(cpus.to_string());
    DeviceRequest {
        name: name.to_owned(),
        exactly: Some(ExactDeviceRequest {
            device_class_name: cpu::CLASS.to_owned(),
            allocation_mode: Some("ExactCount".to_owned()),
            count: Some(1),
            selectors: Some(vec![crate::claim::cel(Selector::driver(cpu::DRIVER))]),
            capacity: Some(CapacityRequirements {
                requests: Some(BTreeMap::from([(capacity::CPU.to_owned(), amount)])),
            }),
            ..Default::default()
        }),
        first_available: None,
    }
}
