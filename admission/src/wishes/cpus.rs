//! Requests whole CPUs on the NUMA node of the GPUs and NICs, if a CPU driver publishes
//! them.
//!
//! dra-driver-cpu publishes one device per NUMA node (`cpuDeviceMode: grouped`, grouped
//! by NUMA node, its default), with the standard attribute `numaNode` and the capacity
//! `dra.cpu/cpu`, of which a claim takes a part. NICs publish the same attribute, so a
//! constraint ties CPUs to NICs; the plan's join ties GPUs to NICs. A claim for CPUs
//! serves one container whose CPU requests and limits are equal (its
//! `docs/user/workload-requirements.md`).

use super::Asker;
use super::numa::{self, of_block};
use crate::claim::ClaimParts;
use crate::demand::Demand;
use crate::denial::Denial;
use crate::selector::Selector;
use crate::wording::count;
use cluster_model::machines::Machine;
use cluster_model::names::{annotation, attribute, capacity, cpu};
use cluster_model::pod_containers::main_first;
use cluster_model::view::ClusterView;
use dra_allocator::{Class, Quantity};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::api::resource::v1::{CapacityRequirements, DeviceRequest, ExactDeviceRequest};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use std::collections::BTreeMap;

/// Thousandths of a CPU.
const MILLI: i64 = 1_000;

/// The number of whole CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cpus(u32);

impl Cpus {
    /// Reads how many CPUs the container with the devices requests. The CPU driver requires a single
    /// container whose requests and limits are the same whole number.
    pub(super) fn read(asker: &Asker<'_>) -> Result<Option<Self>, Denial> {
        let Some(value) = asker.annotation(annotation::ALIGNED_CPUS) else { return Ok(None) };
        if value != "true" {
            return Err(deny(value, "invalid value").allowed("\"true\""));
        }
        numa::check_required(asker, "CPUs").map_err(|why| deny(value, why))?;
        let [share] = asker.shares else {
            let why = format!(
                "a claim for CPUs serves one container, and {} containers of the pod get devices",
                asker.shares.len()
            );
            return Err(deny(value, why));
        };
        let mut containers = asker.pod.spec.iter().flat_map(main_first);
        let own = containers.find(|container| container.name == share.container);
        own.and_then(whole_cpus).map(|cpus| Some(Self(cpus))).ok_or_else(|| {
            let why = format!(
                "container `{}` requests no whole CPUs; set its CPU limit and request to the same \
                 whole number",
                share.container
            );
            deny(value, why)
        })
    }

    /// The class of the CPUs.
    pub(crate) fn class(view: &ClusterView) -> Option<&Class> {
        view.inventory().class(cpu::CLASS).map(|class| &**class)
    }

    /// Drops NICs on NUMA nodes with too few CPUs for a block, and machines without remaining
    /// NICs.
    pub(super) fn keep(
        self,
        demand: &Demand,
        view: &ClusterView,
        machines: &mut Vec<Machine<'_>>,
    ) -> Result<(), Denial> {
        let Self(cpus) = self;
        let Some(of_block) = of_block(cpus, demand) else {
            let allowed =
                format!("a multiple of {} CPUs, or dranet.io/pairing: \"group\"", demand.blocks);
            return Err(deny("true", numa::uneven(cpus, "CPUs", demand)).allowed(allowed));
        };
        if !view.settings().gates.consumable_capacity {
            let why = "CPUs are published as a shared capacity, and the scheduler cannot allocate one \
                       (feature gate DRAConsumableCapacity is off)";
            return Err(deny("true", why));
        }
        let kept = numa::keep_near(machines, |machine| &machine.cpus, of_block);
        kept.map_err(|most| {
            let why = match most {
                None => format!(
                    "no node that can serve the pod has CPUs of driver {} in class `{}` that are \
                     grouped by NUMA node and publish {}; install dra-driver-cpu with cpuDeviceMode: \
                     grouped",
                    cpu::DRIVER,
                    cpu::CLASS,
                    attribute::NUMA_NODE
                ),
                Some(most) => numa::too_few(of_block, "CPUs", most),
            };
            deny("true", why)
        })
    }

    /// Adds the CPUs of each block to a claim, tied to the block's NICs.
    pub(super) fn add_to(self, demand: &Demand, parts: &mut ClaimParts) {
        numa::add(demand, parts, self.0, ["cpus", "cpu"], request);
    }

    /// Says how many there are.
    pub(super) fn said(self) -> String {
        format!(", with {} of the same NUMA node", count(self.0 as usize, "CPU"))
    }
}

fn deny(value: &str, why: impl Into<String>) -> Denial {
    Denial::new(annotation::ALIGNED_CPUS, value, why)
}

fn request(name: &str, cpus: u32) -> DeviceRequest {
    let amount = Text(cpus.to_string());
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

/// The CPU limit of a container, if it is a whole number equal to the request.
fn whole_cpus(container: &Container) -> Option<u32> {
    let resources = container.resources.as_ref()?;
    let limit = whole(resources.limits.as_ref()?.get("cpu")?)?;
    // The API server sets a missing request to the limit.
    let request = resources.requests.as_ref().and_then(|requests| requests.get("cpu"));
    let is_same = request.is_none_or(|request| whole(request) == Some(limit));
    is_same.then_some(limit)
}

fn whole(quantity: &Text) -> Option<u32> {
    let milli = quantity.0.parse::<Quantity>().ok()?.milli_value();
    let cpus = u32::try_from(milli / MILLI).ok()?;
    (cpus > 0 && milli % MILLI == 0).then_some(cpus)
}
