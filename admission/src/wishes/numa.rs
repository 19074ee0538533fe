//! Requests devices on the NUMA node of the NICs, beside GPUs and NICs: CPUs, NVMe
//! devices.
//!
//! Their driver publishes the standard attribute `numaNode`, as NICs do, so a constraint
//! ties them to the NICs; the plan's join ties GPUs to NICs.

use super::Asker;
use crate::alignment::AlignmentPolicy;
use crate::claim::{ClaimParts, match_attribute};
use crate::demand::{Block, Demand};
use cluster_model::machines::{Machine, NumaAmount};
use cluster_model::names::{annotation, attribute};
use k8s_openapi::api::resource::v1::DeviceRequest;

/// Says why a pod with preferred alignment cannot have such devices.
pub(super) fn check_required(asker: &Asker<'_>, noun: &str) -> Result<(), String> {
    match asker.policy {
        AlignmentPolicy::Required => Ok(()),
        AlignmentPolicy::Preferred => Err(format!(
            "aligned {noun} must be on the NUMA node of the NICs, so they cannot be combined with {}: \
             \"preferred\"",
            annotation::ALIGNMENT_POLICY
        )),
    }
}

/// Says that blocks cannot have equal amounts.
pub(super) fn uneven(amount: u32, noun: &str, demand: &Demand) -> String {
    format!(
        "{amount} {noun} cannot be divided evenly among {} GPUs, each with NICs of its own",
        demand.blocks
    )
}

/// Says that no NUMA node has enough for a block.
pub(super) fn too_few(of_block: u32, noun: &str, most: i64) -> String {
    format!(
        "asks for {of_block} {noun} on the NUMA node of its NICs; no NUMA node in this cluster has \
         more than {most}, or NICs do not publish {}",
        attribute::NUMA_NODE
    )
}

/// The amount per block, if it divides evenly.
pub(super) fn of_block(amount: u32, demand: &Demand) -> Option<u32> {
    amount.is_multiple_of(demand.blocks).then(|| amount / demand.blocks)
}

/// Drops NICs on NUMA nodes with too little for a block, and machines without remaining
/// NICs.
///
/// # Errors
/// If no machine remains: the largest amount on any NUMA node, if any has some.
pub(super) fn keep_near(
    machines: &mut Vec<Machine<'_>>,
    amounts: impl for<'m> Fn(&'m Machine<'_>) -> &'m Vec<NumaAmount>,
    of_block: u32,
) -> Result<(), Option<i64>> {
    for machine in machines.iter_mut() {
        let enough: Vec<_> = amounts(machine)
            .iter()
            .filter(|it| it.amount >= i64::from(of_block))
            .cloned()
            .collect();
        machine.devices.nics.retain(|_, nic| {
            let numa = nic.attribute(attribute::NUMA_NODE);
            enough.iter().any(|there| numa == Some(&there.numa))
        });
    }
    let most = machines.iter().flat_map(&amounts).map(|it| it.amount).max();
    machines.retain(|machine| !machine.devices.nics.is_empty());
    if machines.is_empty() { Err(most) } else { Ok(()) }
}

/// Adds the amount per block to a claim, tied to the block's NICs. The request of a
/// single block has the first name; those of several have the second name with a number.
pub(super) fn add(
    demand: &Demand,
    parts: &mut ClaimParts,
    amount: u32,
    [single, numbered]: [&str; 2],
    request: impl Fn(&str, u32) -> DeviceRequest,
) {
    let Some(of_block) = of_block(amount, demand) else { return };
    let blocks = demand.requests();
    for (index, (block, size)) in blocks.iter().zip(demand.sizes()).enumerate() {
        let name =
            if blocks.len() == 1 { single.to_owned() } else { format!("{numbered}-{index}") };
        parts.requests.push(request(&name, of_block * size));
        let tied = nic_names(block, parts).into_iter().chain([name]).collect();
        parts.constraints.push(match_attribute(tied, attribute::NUMA_NODE));
    }
}

/// Names of the requests for a block's NICs. With an anchor there is a second one.
fn nic_names(block: &Block, parts: &ClaimParts) -> Vec<String> {
    let own = &block.nics.0;
    let rest = format!("{own}-rest");
    let all = parts.nic_requests.iter();
    all.filter(|name| *name == own || **name == rest).cloned().collect()
}
