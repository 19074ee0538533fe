//! Describes a plan in one sentence, for the pod's annotation and for users.

use super::planned::named;
use super::{Plan, PlannedMachine, late};
use crate::intent::{AlignmentPolicy, Pairing};
use crate::nearness::Nearness;
use crate::wording::{count, nodes};
use cluster_model::node_devices::published;
use cluster_model::placement::Placement;
use cluster_model::view::ClusterView;
use std::collections::BTreeMap;

/// What a note says before the name of its template, which ends it.
const BEFORE_TEMPLATE: &str = "; template ";

/// Whether a note is that of a plan with this template.
#[cfg(feature = "server")]
pub(crate) fn is_note_of(note: &str, template: &str) -> bool {
    note.strip_suffix(template).is_some_and(|rest| rest.ends_with(BEFORE_TEMPLATE))
}

impl Plan {
    /// Describes the devices, join, nodes, cost and template of the plan.
    pub fn note(&self, template: &str) -> String {
        [&self.summary(), BEFORE_TEMPLATE, template].concat()
    }

    /// Describes the devices, join, nodes and cost of the plan.
    pub fn summary(&self) -> String {
        self.described("can serve it")
    }

    /// The same of a pod that something else than devices keeps off some of these nodes.
    pub fn summary_of_devices(&self) -> String {
        self.described("can give it such devices")
    }

    fn described(&self, what: &str) -> String {
        let (can, of) = self.nodes;
        format!(
            "{} (join {}); {can} of {} {what}{}; at most {} a node",
            [self.promise(), self.beside()].concat(),
            self.join,
            count(of, "node"),
            self.exceptions(),
            count(usize::try_from(self.steps).unwrap_or(usize::MAX), "search step"),
        )
    }

    /// `2 GPUs and 2 NICs on one NUMA node`.
    fn promise(&self) -> String {
        let (gpus, nics) = (self.intent.gpus as usize, self.intent.nics as usize);
        let gpus_text = self.gpus_text();
        let each = nics.checked_div(gpus).unwrap_or_default();
        let near = match (self.intent.pairing, self.nearness) {
            (Pairing::Group, Nearness::Partner) => {
                format!("{gpus_text} and {} nearest to it", the(nics))
            }
            (Pairing::Group, Nearness::Level(_)) if gpus == 0 => self.nics_text(),
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
                let share = if nics.is_multiple_of(gpus) {
                    count(each, "NIC")
                } else {
                    format!("{each} or {} of {nics} NICs", each + 1)
                };
                format!("{gpus_text}, each with {share} on its {place}")
            }
        };
        match self.intent.policy {
            _ if !self.pins.is_empty() => self.pinned_promise(&near),
            AlignmentPolicy::Required => near,
            AlignmentPolicy::Preferred if !self.is_near() => {
                let nics = count(nics, "NIC");
                let gpus = if gpus == 0 { String::new() } else { format!("{gpus_text} and ") };
                format!("any {gpus}{nics}, as {}", self.far_because)
            }
            AlignmentPolicy::Preferred => format!("{near} where possible, else farther ones"),
        }
    }
}

impl Plan {
    /// `2 NICs on one NUMA node`, for a pod without GPUs.
    fn nics_text(&self) -> String {
        match self.intent.nics as usize {
            1 => "1 NIC".to_owned(),
            nics => format!("{} on one {}", count(nics, "NIC"), self.nearness.place()),
        }
    }

    /// `2 GPUs`, `1 part of a GPU`.
    fn gpus_text(&self) -> String {
        match self.driver.part {
            Some(_) => "1 part of a GPU".to_owned(),
            None => count(self.intent.gpus as usize, "GPU"),
        }
    }

    /// Describes what the pod gets besides GPUs and NICs.
    fn beside(&self) -> String {
        let rail = match &*self.rails {
            [] => None,
            [rail] => Some(format!(", on rail {rail} as all pods of the job")),
            rails => {
                let rails: Vec<_> = rails.iter().map(i64::to_string).collect();
                Some(format!(", on rails {} as all pods of the job", rails.join(", ")))
            }
        };
        let plugin = self
            .plugin
            .as_ref()
            .map(|resource| format!(", the GPUs by the limit on {resource} from a device plugin"));
        let late = (self.join == late::JOIN).then(|| {
            let far = match self.intent.policy {
                AlignmentPolicy::Required => ", which waits if the free ones are farther",
                AlignmentPolicy::Preferred => "",
            };
            format!(", the NICs counted now and chosen at the start of the pod{far}")
        });
        let wishes = self.intent.wishes.said();
        [plugin, late, rail].into_iter().flatten().chain(wishes).collect()
    }

    /// Says that the pod waits for these cells, even if others become free.
    fn pinned_promise(&self, near: &str) -> String {
        if let Some(place) = &self.place {
            return format!("{near}, pinned to {place}");
        }
        let nics = self.intent.nics as usize;
        let (gpus, nics) = (self.gpus_text(), count(nics, "NIC"));
        format!("any {gpus} and {nics}, as no near ones are free now")
    }
}

impl Plan {
    /// Names the nodes that give less than the plan promises, or get nothing although they could.
    fn exceptions(&self) -> String {
        let farther = self.lesser().into_iter().map(|(nearness, machines)| {
            let what = match nearness {
                Some(nearness) => format!("on one {}", nearness.place()),
                None => "with any devices".to_owned(),
            };
            format!(", {} only {what}", named(&machines))
        });
        let left_out: Vec<_> = self.left_out().collect();
        let left_out = (!left_out.is_empty())
            .then(|| format!(", but not {}, for which the claim has no room", named(&left_out)));
        let unfit: Vec<_> = self.unfit().collect();
        let unfit = (!unfit.is_empty()).then(|| {
            format!(", but not {}, where no claim fits even with nothing in use", named(&unfit))
        });
        farther.chain(left_out).chain(unfit).collect()
    }

    /// The present machines that give less than the plan promises, by what they give.
    fn lesser(&self) -> BTreeMap<Option<Nearness>, Vec<&PlannedMachine>> {
        let mut lesser: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let served = self.machines.iter().filter(|it| it.is_served && it.present > 0);
        for machine in served.filter(|_| self.pins.is_empty() && self.is_near()) {
            let is_less = match machine.nearness {
                Some(nearness) => nearness > self.nearness,
                None => machine.could,
            };
            if is_less {
                lesser.entry(machine.nearness).or_default().push(machine);
            }
        }
        lesser
    }

    /// A warning about nodes that could serve the pod, but have no place in its claim.
    pub(crate) fn warning(&self) -> Option<String> {
        let left_out: Vec<_> = self.left_out().collect();
        (!left_out.is_empty()).then(|| {
            format!(
                "the claim has no room for all machine types that could serve the pod, so it cannot \
                 run {}; a node selector for these nodes would give it a claim for them",
                named(&left_out)
            )
        })
    }

    /// A warning about GPUs that the driver cannot know when it chooses the NICs.
    pub(crate) fn late_warning(&self) -> Option<String> {
        (self.join == late::JOIN).then(|| late::warning(&self.intent)).flatten()
    }

    /// A warning that the claim does not keep the functions of a port apart.
    pub(crate) fn port_warning(&self) -> Option<String> {
        let why = self.shares_ports?;
        Some(format!(
            "the pod can get several virtual functions of one port, which share its bandwidth, since {why}"
        ))
    }

    /// A warning about nodes whose GPUs a device plugin offers too: the kubelet and the scheduler do not
    /// know what the other one gave away.
    pub(crate) fn offered_twice(
        &self,
        placement: &Placement,
        view: &ClusterView,
    ) -> Option<String> {
        let resources = self.driver.extended_resources.iter();
        let names: Vec<String> = resources
            .flat_map(|resource| view.nodes_with_plugin(resource))
            .filter(|node| placement.allows(view, node))
            .filter(|node| {
                published(view, node).any(|(_, gpu)| *gpu.id().driver == *self.driver.driver)
            })
            .map(str::to_owned)
            .collect();
        (!names.is_empty()).then(|| {
            format!(
                "a device plugin offers the GPUs of {} too, so another pod that requests them by its \
                 limits can get the same GPU; run either the device plugin or the DRA driver there",
                nodes(&names)
            )
        })
    }

    /// The present machines that the plan does not serve although they have near devices.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = &PlannedMachine> {
        self.machines.iter().filter(|it| !it.is_served && it.could && it.present > 0)
    }
}

impl Plan {
    /// The present machines on which no claim fits.
    fn unfit(&self) -> impl Iterator<Item = &PlannedMachine> {
        self.machines.iter().filter(|it| !it.is_served && it.is_unfit && it.present > 0)
    }
}

/// `the NIC`, `the 2 NICs`.
fn the(nics: usize) -> String {
    if nics == 1 { "the NIC".to_owned() } else { format!("the {nics} NICs") }
}
