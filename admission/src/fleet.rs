//! The machines that can serve a pod, and what each claim for them says because of all of them.

use crate::demand::Demand;
use crate::gpu_sharing::SharedGpus;
use crate::intent::Intent;
use crate::nearness::Nearness;
use crate::nic_class::NicClass;
use crate::wishes::Granted;
use cluster_model::gpu_drivers::{self, GpuDriver};
use cluster_model::machines::Machine;
use cluster_model::names::attribute;
use dra_allocator::Device;
use k8s_openapi::api::resource::v1::CapacityRequirements;
use std::slice;
use topology_graph::Level;

/// Where the GPUs of a pod come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuSource {
    /// The claim, together with the NICs.
    Claim,
    /// Nowhere: the pod has NICs only.
    Nowhere(CommonAttribute),
    /// A device plugin; the claim names NICs.
    Plugin,
    /// A device plugin; the claim counts NICs, and the driver chooses them within this level of the
    /// GPUs when the pod starts.
    PluginLate(Level),
}

impl GpuSource {
    /// Whether a device plugin gives the GPUs.
    pub(crate) fn is_plugin(self) -> bool {
        matches!(self, Self::Plugin | Self::PluginLate(_))
    }
}

/// What NICs of a cell have in common, if no GPU says where they are to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CommonAttribute {
    /// The name of the join.
    pub(crate) join: &'static str,
    /// The attribute.
    pub(crate) name: &'static str,
    /// The level of the cells.
    pub(crate) level: Level,
}

/// The names of the DeviceClasses of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Classes {
    pub(crate) gpu: String,
    pub(crate) nic: String,
}

/// What all claims for some machines say.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) gpu_source: GpuSource,
    pub(crate) demand: Demand,
    /// The same demand as plain counts, if that is possible.
    pub(crate) counts: Option<Demand>,
    pub(crate) driver: &'static GpuDriver,
    pub(crate) classes: Classes,
    /// What the NICs are for; the machines have no others.
    pub(crate) nic_class: NicClass,
    /// The capacity and the rails of the NICs, if the pod asks for some; the machines then have no other
    /// NICs.
    pub(crate) granted: Granted,
    /// How a claim takes whole GPUs, if claims can share some of them.
    pub(crate) shared_gpus: Option<SharedGpus>,
}

/// A pod's demand, and the machines that can serve it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet<'q, 'm> {
    pub(crate) intent: &'q Intent,
    pub(crate) terms: &'q Terms,
    pub(crate) machines: &'q [Machine<'m>],
}

impl<'q, 'm> Fleet<'q, 'm> {
    /// The fleet as if a machine were the only one.
    pub(crate) fn alone(self, machine: &'q Machine<'m>) -> Self {
        Self { machines: slice::from_ref(machine), ..self }
    }

    /// The demand, in blocks.
    pub(crate) fn demand(self) -> &'q Demand {
        &self.terms.demand
    }

    /// The driver of the GPUs.
    pub(crate) fn driver(self) -> &'static GpuDriver {
        self.terms.driver
    }

    /// The capacity to request from each GPU, if claims can share GPUs.
    pub(crate) fn gpu_capacity(self) -> Option<&'q CapacityRequirements> {
        self.terms.shared_gpus.as_ref().and_then(SharedGpus::capacity)
    }

    /// Whether the machine has enough devices, wherever they are.
    pub(crate) fn has_enough(self, machine: &Machine<'_>) -> bool {
        self.demand().has_enough(machine)
    }

    /// Whether any machine has enough devices that are this near.
    pub(crate) fn any_fits(self, nearness: Nearness) -> bool {
        self.machines.iter().any(|machine| self.demand().fits(&nearness.cells(machine)))
    }

    /// Whether the demand takes every GPU and NIC of the machine, near each other.
    pub(crate) fn takes_all(self, machine: &Machine<'_>, nearness: Nearness) -> bool {
        self.demand().takes_all(machine) && self.demand().fits(&nearness.cells(machine))
    }

    /// The level that the user asks for, or the weakest one if that is nearer.
    pub(crate) fn asked(self, weakest: Nearness) -> Option<Nearness> {
        self.intent.level.map(|level| Nearness::Level(level).min(weakest))
    }

    /// The levels that a machine can have, best first. Pairs that only leave devices unused are the last
    /// resort.
    pub(crate) fn levels(self, machine: &Machine<'_>) -> Vec<Nearness> {
        let own = slice::from_ref(machine);
        let asked = self.asked(Nearness::weakest(own));
        let strand = self.pairs_strand(machine);
        // A pair has one GPU; a larger block has no partners.
        let has_pairs = self.demand().gpus == 1;
        let levels = Nearness::levels(own).filter(|level| {
            asked.is_none_or(|asked| asked == *level) && (has_pairs || *level != Nearness::Partner)
        });
        let (last, mut levels): (Vec<_>, Vec<_>) =
            levels.partition(|level| strand && *level == Nearness::Partner);
        levels.extend(last);
        levels
    }

    /// Returns true if pairs only leave devices of the machine unused: the NICs of its pairs are not
    /// nearer than its other NICs. If pods share NICs, also returns true if the machine has GPUs
    /// without a pair, which could share the NICs of others.
    pub(crate) fn pairs_strand(self, machine: &Machine<'_>) -> bool {
        let leaves_gpus = machine.partners().len() < machine.devices.gpus.len();
        (self.terms.granted.capacity.is_some() && leaves_gpus) || !machine.has_nearer_partners()
    }

    /// The attributes by which claims select GPUs by address: the standard one, and those of the driver,
    /// also of its whole GPUs, if some GPU has only that.
    pub(crate) fn gpu_addresses(self) -> Vec<&'static str> {
        let gpus = self.machines.iter().flat_map(|it| it.devices.gpus.values().copied());
        let lacking: Vec<&Device> =
            gpus.filter(|gpu| gpu.attribute(attribute::PCI_BUS_ID).is_none()).collect();
        let whole = gpu_drivers::by_name(self.driver().driver);
        let own = [Some(self.driver()), whole].into_iter().flatten();
        let own = own.filter_map(|driver| driver.address_attribute);
        let own = own.filter(|name| lacking.iter().any(|gpu| gpu.attribute(name).is_some()));
        let mut names: Vec<&'static str> =
            std::iter::once(attribute::PCI_BUS_ID).chain(own).collect();
        names.dedup();
        names
    }
}
