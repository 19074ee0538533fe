//! Requests whole CPUs on the NUMA node of the GPUs and NICs, if a CPU driver publishes
//! them.
//!
//! dra-driver-cpu publishes one device per NUMA node (`cpuDeviceMode: grouped`, grouped
//! by NUMA node, its default), with the standard attribute `numaNode` and the capacity
//! `dra.cpu/cpu`, of which a claim takes a part. NICs publish the same attribute, so a
//! constraint ties CPUs to NICs; the plan's join ties GPUs to NICs. A claim for CPUs
//! serves one container whose CPU requests and limits are equal (its
//! `docs/user/workload-requirements.md`).

use crate::demand::Demand;
use crate::denial::Denial;
use crate::intent::Intent;
use crate::join::form::ClaimParts;
use crate::numa_beside::{self, of_block};
use crate::selector::Selector;
use cluster_model::machines::Machine;
use cluster_model::names::{annotation, attribute, capacity, cpu};
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::{CapacityRequirements, DeviceRequest, ExactDeviceRequest};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use std::collections::BTreeMap;

/// Drops NICs on NUMA nodes with too few CPUs for a block, and machines without remaining
/// NICs.
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
            "{cpus} CPUs cannot be divided evenly among {} GPUs, each with NICs of its own",
            demand.blocks
        ))
        .allowed(format!(
            "a multiple of {} CPUs, or dranet.io/pairing: \"group\"",
            demand.blocks
        )));
    };
    if !view.settings().gates.consumable_capacity {
        return Err(deny(
            "CPUs are published as a shared capacity, and the scheduler cannot allocate one \
             (feature gate DRAConsumableCapacity is off)"
                .to_owned(),
        ));
    }
    let kept = numa_beside::keep_near(machines, |machine| &machine.cpus, of_block);
    kept.map_err(|most| deny(match most {
        None => format!(
            "no node that can serve the pod has CPUs of driver {} in class `{}` that are grouped \
             by NUMA node and publish {}; install dra-driver-cpu with cpuDeviceMode: grouped",
            cpu::DRIVER,
            cpu::CLASS,
            attribute::NUMA_NODE
        ),
        Some(most) => format!(
            "asks for {of_block} CPUs on the NUMA node of its NICs; no NUMA node in this cluster \
             has more than {most}, or NICs do not publish {}",
            attribute::NUMA_NODE
        ),
    }))
}

/// Adds the CPUs of each block to a claim, tied to the block's NICs.
pub(crate) fn add(intent: &Intent, demand: &Demand, parts: &mut ClaimParts) {
    numa_beside::add(demand, parts, intent.cpus, ["cpus", "cpu"], request);
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
