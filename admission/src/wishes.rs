//! What a pod asks for besides GPUs and NICs.
//!
//! Each wish has a type in its own file, which reads it from the pod, drops the machines that cannot
//! grant it, adds it to the claim, and says it in the note. [`Wishes`] has them all, and calls them in
//! the order in which they take effect.

mod cpus;
mod fabric;
mod nic_config;
mod numa;
mod nvmes;
mod rail;
mod sharing;

use crate::alignment::{AlignmentPolicy, Share};
use crate::claim::ClaimParts;
use crate::demand::Demand;
use crate::denial::Denial;
use cluster_model::machines::Machine;
use cluster_model::names::annotation;
use cluster_model::view::ClusterView;
use dra_allocator::Settings;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::CapacityRequirements;
use topology_graph::Level;

pub use cpus::Cpus;
pub use fabric::{ComputeDomain, FabricWish};
pub use nic_config::NicConfig;
pub use nvmes::Nvmes;
pub use rail::SameRail;
pub use sharing::NicShare;

/// What a pod asks for besides GPUs and NICs; `None` is no such wish.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Wishes {
    /// The configuration of the NICs' interfaces.
    pub nic_config: Option<NicConfig>,
    /// The pod's share of each NIC, if it shares them with other pods.
    pub share: Option<NicShare>,
    /// One fabric for the pods of a group.
    pub fabric: Option<FabricWish>,
    /// A channel of the `ComputeDomain` of the pod's group.
    pub compute_domain: Option<ComputeDomain>,
    /// NICs of the same rails for all pods of the group.
    pub rail: Option<SameRail>,
    /// CPUs on the NUMA node of the GPUs and NICs.
    pub cpus: Option<Cpus>,
    /// NVMe devices on the NUMA node of the GPUs and NICs.
    pub nvmes: Option<Nvmes>,
}

/// A pod, and what is known of it before its wishes are read.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'p> {
    pub(crate) pod: &'p Pod,
    pub(crate) gpus: u32,
    pub(crate) nics: u32,
    /// The containers that get devices.
    pub(crate) shares: &'p [Share],
    pub(crate) policy: AlignmentPolicy,
}

impl<'p> Asker<'p> {
    /// The value of an annotation.
    pub(crate) fn annotation(&self, key: &str) -> Option<&'p str> {
        self.pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether the pod uses the host network.
    pub(crate) fn is_on_host_network(&self) -> bool {
        self.pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true)
    }
}

/// What a claim says because of the wishes and of the machines that can grant them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Granted {
    /// The capacity to request from each NIC, if the pod shares NICs.
    pub(crate) capacity: Option<CapacityRequirements>,
    /// The rails of the NICs, if the pod asks for those of its group.
    pub(crate) rails: Vec<i64>,
}

impl Wishes {
    pub(crate) fn read(asker: &Asker<'_>) -> Result<Self, Denial> {
        let fabric = FabricWish::read(asker)?;
        let nic_config = NicConfig::read(asker)?;
        let share = NicShare::read(asker)?;
        if let Some(config) = nic_config.as_ref().filter(|_| share.is_some()) {
            NicShare::check_config(config)?;
        }
        Ok(Self {
            nic_config,
            share,
            fabric,
            compute_domain: ComputeDomain::read(asker)?,
            rail: SameRail::read(asker)?,
            cpus: Cpus::read(asker)?,
            nvmes: Nvmes::read(asker)?,
        })
    }

    /// Adds what depends on the pods of the same group.
    pub(crate) fn resolve(&mut self, pod: &Pod, view: &ClusterView) -> Result<(), Denial> {
        match &mut self.rail {
            Some(rail) => rail.resolve(pod, self.fabric.as_ref(), view),
            None => Ok(()),
        }
    }

    /// The annotation that asks for devices on the NUMA node of the NICs, if there is one.
    pub(crate) fn on_numa_node(&self) -> Option<&'static str> {
        let cpus = self.cpus.map(|_| annotation::ALIGNED_CPUS);
        cpus.or_else(|| self.nvmes.map(|_| annotation::ALIGNED_NVMES))
    }

    /// Whether only NICs that are chosen before the pod starts can grant the wishes.
    pub(crate) fn need_named_nics(&self) -> bool {
        self.share.is_some() || self.rail.is_some()
    }

    /// Denies wishes that none of the machines can grant.
    pub(crate) fn check_machines(
        &self,
        machines: &[Machine<'_>],
        view: &ClusterView,
    ) -> Result<(), Denial> {
        if let Some(config) = &self.nic_config {
            config.check_machines(machines)?;
        }
        self.fabric.as_ref().map_or(Ok(()), |fabric| fabric.check_machines(machines, view))
    }

    /// The same, and drops NICs that are not near the devices that the pod asks for, and machines
    /// without remaining NICs.
    pub(crate) fn keep_near(
        &self,
        demand: &Demand,
        view: &ClusterView,
        machines: &mut Vec<Machine<'_>>,
    ) -> Result<(), Denial> {
        self.check_machines(machines, view)?;
        if let Some(cpus) = self.cpus {
            cpus.keep(demand, view, machines)?;
        }
        self.nvmes.map_or(Ok(()), |nvmes| nvmes.keep(demand, machines))
    }

    /// Drops NICs that cannot be shared or are of other rails, and machines without remaining NICs.
    pub(crate) fn keep_granting(
        &self,
        demand: &Demand,
        asked: (AlignmentPolicy, Option<Level>),
        settings: &Settings,
        machines: &mut Vec<Machine<'_>>,
    ) -> Result<Granted, Denial> {
        let capacity =
            self.share.as_ref().map(|share| share.keep(settings, machines)).transpose()?;
        let rails =
            self.rail.as_ref().map(|rail| rail.keep(demand, asked, machines)).transpose()?;
        Ok(Granted { capacity, rails: rails.unwrap_or_default() })
    }

    /// Adds the wishes to a claim.
    pub(crate) fn add_to(&self, demand: &Demand, parts: &mut ClaimParts) {
        if let Some(cpus) = self.cpus {
            cpus.add_to(demand, parts);
        }
        if let Some(nvmes) = self.nvmes {
            nvmes.add_to(demand, parts);
        }
        if self.share.is_some() {
            NicShare::keep_apart(demand, parts);
        }
    }

    /// Returns true if the scheduler could give one of these requests the same NIC twice.
    pub(crate) fn could_repeat(&self, parts: &ClaimParts, settings: &Settings) -> bool {
        self.share.is_some() && parts.outgrows_distinct(settings)
    }

    /// What the pod gets besides GPUs and NICs, for the end of a sentence.
    pub(crate) fn said(&self) -> impl Iterator<Item = String> {
        let cpus = self.cpus.map(Cpus::said);
        let nvmes = self.nvmes.map(Nvmes::said);
        let share = self.share.as_ref().map(NicShare::said);
        [cpus, nvmes, share].into_iter().flatten()
    }
}
