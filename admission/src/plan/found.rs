//! What was found for a pod: its drivers and classes, and the machines that can serve it.

use super::selection::Selected;
use super::{late, nic_checks};
use crate::demand::Demand;
use crate::denial::Denial;
use crate::fleet::{Fleet, GpuSource, Terms};
use crate::gpu_sharing::SharedGpus;
use crate::intent::Intent;
use crate::nic_class::NicClass;
use cluster_model::machines::Machine;
use cluster_model::view::ClusterView;

/// The machines with the devices that a pod asks for.
#[derive(Clone)]
pub(super) struct Found<'m> {
    /// The intent as it is planned.
    pub(super) intent: Intent,
    pub(super) selected: Selected,
    pub(super) gpu_source: GpuSource,
    /// The machines to plan for.
    pub(super) machines: Vec<Machine<'m>>,
    /// Machines that are only remembered, and are not planned for yet.
    pub(super) remembered: Vec<Machine<'m>>,
}

/// The machines that can serve a pod, and the terms of their claims.
pub(super) struct Servable<'m> {
    pub(super) intent: Intent,
    pub(super) terms: Terms,
    pub(super) machines: Vec<Machine<'m>>,
}

impl<'m> Found<'m> {
    /// Those of these machines that can serve the pod.
    pub(super) fn servable(
        &self,
        mut machines: Vec<Machine<'m>>,
        view: &ClusterView,
    ) -> Result<Servable<'m>, Denial> {
        let Self { intent, selected, gpu_source, .. } = self;
        let demand = match gpu_source {
            GpuSource::PluginLate(_) => Demand::of_any_gpus(intent),
            GpuSource::Claim | GpuSource::Nowhere(_) | GpuSource::Plugin => Demand::of(intent),
        };
        // Plain counts cannot tie CPUs or NVMe devices to certain NICs.
        let by_counts = intent.wishes.on_numa_node().is_none() || demand.blocks == 1;
        let by_counts = by_counts && *gpu_source == GpuSource::Claim;
        let counts = demand.as_counts(&intent.shares).filter(|_| by_counts);
        nic_checks::keep_distinct(intent, selected.nic_driver, &mut machines)?;
        intent.wishes.keep_near(&demand, view, &mut machines)?;
        let asked = (intent.policy, intent.level);
        let settings = view.settings();
        let granted = intent.wishes.keep_granting(&demand, asked, settings, &mut machines)?;
        let nic_class = NicClass::new(selected.nic_driver, intent.nic_role, &machines);
        let shared_gpus = match gpu_source {
            GpuSource::Claim => SharedGpus::new(selected.driver, settings, &machines),
            GpuSource::Nowhere(_) | GpuSource::Plugin | GpuSource::PluginLate(_) => None,
        };
        let terms = Terms {
            gpu_source: *gpu_source,
            demand,
            counts,
            driver: selected.driver,
            classes: selected.classes(),
            nic_class,
            granted,
            shared_gpus,
        };
        let intent = match gpu_source {
            GpuSource::PluginLate(within) => late::configured(intent, *within),
            GpuSource::Claim | GpuSource::Nowhere(_) | GpuSource::Plugin => intent.clone(),
        };
        Ok(Servable { intent, terms, machines })
    }
}

impl<'m> Servable<'m> {
    pub(super) fn fleet(&self) -> Fleet<'_, 'm> {
        Fleet { intent: &self.intent, terms: &self.terms, machines: &self.machines }
    }

    /// Returns true if a claim says the same about the machines of another fleet because of these,
    /// which include them.
    pub(super) fn agrees_with(&self, fewer: &Self) -> bool {
        let (own, other) = (&self.terms, &fewer.terms);
        own.nic_class == other.nic_class
            && own.granted == other.granted
            && SharedGpus::is_same(own.shared_gpus.as_ref(), other.shared_gpus.as_ref())
            && self.machines.len() >= fewer.machines.len()
            && self.machines.iter().zip(&fewer.machines).all(|(machine, known)| {
                machine.nodes == known.nodes
                    && machine.devices.gpus.keys().eq(known.devices.gpus.keys())
                    && machine.devices.nics.keys().eq(known.devices.nics.keys())
            })
    }
}
