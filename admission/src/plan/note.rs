//! Describes a plan in one sentence, for the pod's annotation and for users.

use super::Plan;
use crate::intent::{AlignmentPolicy, Pairing};
use crate::nearness::Nearness;
use crate::wording::count;

impl Plan {
    /// Describes the devices, join, nodes, cost and template of the plan.
    pub fn note(&self, template: &str) -> String {
        let (can, of) = self.nodes;
        format!(
            "{} (join {}); {can} of {} can serve it; at most {} a node; template {template}",
            [self.promise(), self.beside()].concat(),
            self.join,
            count(of, "node"),
            count(usize::try_from(self.steps).unwrap_or(usize::MAX), "search step"),
        )
    }

    /// `2 GPUs and 2 NICs on one NUMA node`.
    fn promise(&self) -> String {
        let (gpus, nics) = (self.devices.0 as usize, self.devices.1 as usize);
        let gpus_text = count(gpus, "GPU");
        let each = nics.checked_div(gpus).unwrap_or_default();
        let near = match (self.pairing, self.nearness) {
            (Pairing::Group, Nearness::Partner) => {
                format!("{gpus_text} and {} nearest to it", the(nics))
            }
            (Pairing::Group, Nearness::Level(_)) => {
                let place = self.nearness.place();
                format!("{gpus_text} and {} on one {place}", count(nics, "NIC"))
            }
            (Pairing::Shared, _) => {
                let share = gpus.checked_div(nics).unwrap_or_default();
                let place = self.nearness.place();
                format!("{gpus_text}, each {share} with 1 NIC on their {place}")
            }
            (Pairing::Each, Nearness::Partner) => {
                format!("{gpus_text}, each with {} nearest to it", the(each))
            }
            (Pairing::Each, Nearness::Level(_)) => {
                let place = self.nearness.place();
                format!("{gpus_text}, each with {} on its {place}", count(each, "NIC"))
            }
        };
        match self.policy {
            _ if !self.pins.is_empty() => self.pinned_promise(&near),
            AlignmentPolicy::Required => near,
            AlignmentPolicy::Preferred if !self.is_near() => {
                format!("any {gpus_text} and {}, as no node can align them", count(nics, "NIC"))
            }
            AlignmentPolicy::Preferred => format!("{near} where possible, else farther ones"),
        }
    }
}

impl Plan {
    /// Describes what the pod gets besides GPUs and NICs.
    fn beside(&self) -> String {
        let rail = self.rail.map(|rail| format!(", on rail {rail} as all pods of the job"));
        let cpus = self
            .cpus
            .map(|cpus| format!(", with {} of the same NUMA node", count(cpus as usize, "CPU")));
        let nvmes = self.nvmes.map(|nvmes| {
            format!(", with {} of the same NUMA node", count(nvmes as usize, "NVMe device"))
        });
        let share = self.share.as_ref().map(|share| match &share.bandwidth {
            Some(bandwidth) => format!(", {bandwidth} bit/s of each NIC shared with other pods"),
            None => ", NICs shared with other pods".to_owned(),
        });
        [rail, cpus, nvmes, share].into_iter().flatten().collect()
    }

    /// Says that the pod waits for these cells, even if others become free.
    fn pinned_promise(&self, near: &str) -> String {
        if let Some(place) = &self.place {
            return format!("{near}, pinned to {place}");
        }
        let (gpus, nics) = (self.devices.0 as usize, self.devices.1 as usize);
        let (gpus, nics) = (count(gpus, "GPU"), count(nics, "NIC"));
        format!("any {gpus} and {nics}, as no near ones are free now")
    }
}

/// `the NIC`, `the 2 NICs`.
fn the(nics: usize) -> String {
    if nics == 1 { "the NIC".to_owned() } else { format!("the {nics} NICs") }
}
