//! The rules by which roles are found, in order. Each rule sets NICs aside; those that are left in
//! the end are compute NICs.
//!
//! 1. What the operator or the node's driver has decided.
//! 2. Management: the vital product data say `SMDL=SW_MNG` (NVIDIA Fabric Manager's guide for HGX
//!    B200), or the PCIe link is much too narrow for an InfiniBand port.
//! 3. Storage: NICs that the description of the machine does not list, and NICs without RDMA, if
//!    others are listed or have RDMA.
//! 4. One class of the rest is for compute, all others are storage. See [`Standing`].
//! 5. Storage: a few NICs of the compute class that are near no GPU, while the others are near all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::candidate::{Candidate, Class, candidates};
use crate::nic_role::{NicRole, Verdict, Verdicts};
use crate::{LinkLayer, PciAddress, Topology};

/// A class may be slower than the fastest by this factor, if something else speaks for it. Front
/// ends are slower by more than that.
const SLOWER_BY: u32 = 4;

/// How much speaks for a class; the greatest is the compute class. Field by field:
///
/// - It is near all of several GPUs: the machine was built for it, and port states do not matter.
/// - It is InfiniBand and in use. On machines with InfiniBand, Ethernet is for storage.
/// - Its rate, since NCCL prefers bandwidth to distance (`ncclTopoGetLocal`). An unknown rate is neither more
///   nor less than another, so it counts only if those of all classes are known.
/// - It is no DPU.
/// - The number of GPUs that it is near to, links that are up, and the number of NICs.
type Standing = (bool, bool, Option<u32>, bool, usize, bool, bool, usize, Reverse<Class>);

/// The role of every candidate.
pub(super) fn verdicts(topology: &Topology) -> Verdicts {
    let mut open = Open { left: candidates(topology), decided: Verdicts::new() };
    open.decide(already);
    open.decide(managed);
    open.decide_unless_all(unlisted);
    open.decide_unless_all(without_rdma);
    open.decide_unless_all(narrow);
    let gpus = topology.gpus().iter().map(|gpu| gpu.address).collect();
    open.choose_class(&gpus);
    open.decided
}

/// Candidates without a role, and the roles so far.
struct Open<'t> {
    left: Vec<Candidate<'t>>,
    decided: Verdicts,
}

/// The rates of all classes.
#[derive(Clone, Copy)]
struct Rates {
    /// The fastest known one.
    fastest: Option<u32>,
    are_known: bool,
}

impl Rates {
    fn new(classes: &[Members<'_, '_>]) -> Self {
        Self {
            fastest: classes.iter().filter_map(|members| members.class.rate).max(),
            are_known: classes.iter().all(|members| members.class.rate.is_some()),
        }
    }
}

/// The NICs of a class.
struct Members<'c, 't> {
    class: Class,
    nics: Vec<&'c Candidate<'t>>,
    /// All NICs of the same models. A link that came up with a lower rate puts its NIC into another
    /// class, and says nothing about what the machine was built for.
    of_models: Vec<&'c Candidate<'t>>,
}

impl Open<'_> {
    /// Applies a rule.
    fn decide(&mut self, rule: fn(&Candidate<'_>) -> Option<Verdict>) {
        let found = self.left.iter().filter_map(|nic| Some((nic.address, rule(nic)?)));
        let found: Verdicts = found.collect();
        self.left.retain(|nic| !found.contains_key(&nic.address));
        self.decided.extend(found);
    }

    /// Applies a rule if it leaves a NIC.
    fn decide_unless_all(&mut self, rule: fn(&Candidate<'_>) -> Option<Verdict>) {
        if self.left.iter().any(|nic| rule(nic).is_none()) {
            self.decide(rule);
        }
    }

    /// Decides everything that is left.
    fn choose_class(&mut self, gpus: &BTreeSet<PciAddress>) {
        let classes = classes(&self.left);
        let rates = Rates::new(&classes);
        let best = classes.iter().max_by_key(|members| members.standing(gpus, rates));
        let Some(best) = best else { return };
        let is_only = classes.len() == 1;
        let why = best.reason(gpus, rates, is_only);
        let far = best.outliers(gpus);
        let verdicts = self.left.iter().map(|nic| (nic.address, best.verdict(nic, &far, &why)));
        self.decided.extend(verdicts);
        self.left.clear();
    }
}

fn classes<'c, 't>(nics: &'c [Candidate<'t>]) -> Vec<Members<'c, 't>> {
    let mut classes: BTreeMap<Class, Vec<&'c Candidate<'t>>> = BTreeMap::new();
    for nic in nics {
        classes.entry(nic.class()).or_default().push(nic);
    }
    classes
        .into_iter()
        .map(|(class, members)| {
            let of_models = nics
                .iter()
                .filter(|nic| members.iter().any(|member| member.model == nic.model))
                .collect();
            Members { class, nics: members, of_models }
        })
        .collect()
}

impl Members<'_, '_> {
    fn standing(&self, gpus: &BTreeSet<PciAddress>, rates: Rates) -> Standing {
        let is_fast = self.is_fast(rates);
        (
            self.is_near_all(gpus) && is_fast,
            self.is_infiniband() && self.has_link() && is_fast,
            self.class.rate.filter(|_| rates.are_known),
            !self.class.is_dpu,
            served(&self.nics).len(),
            self.has_link(),
            self.is_infiniband(),
            self.nics.len(),
            Reverse(self.class),
        )
    }

    fn reason(&self, gpus: &BTreeSet<PciAddress>, rates: Rates, is_only: bool) -> String {
        let class = self.class;
        if is_only {
            return format!("{class}, the only class of NICs");
        }
        if self.is_near_all(gpus) && self.is_fast(rates) {
            return format!("{class}, near every GPU");
        }
        if !rates.are_known {
            return format!("{class}, although not all rates are known");
        }
        if class.rate < rates.fastest {
            return format!("{class}, before faster Ethernet");
        }
        format!("{class}, the fastest class")
    }

    /// Returns true unless the rate is known to be that of a front end.
    fn is_fast(&self, rates: Rates) -> bool {
        self.class.rate.is_none_or(|rate| Some(rate.saturating_mul(SLOWER_BY)) >= rates.fastest)
    }

    fn is_infiniband(&self) -> bool {
        self.class.link_layer == Some(LinkLayer::InfiniBand)
    }

    fn has_link(&self) -> bool {
        self.nics.iter().any(|nic| nic.facts.has_link())
    }

    /// A single GPU shows no pattern.
    fn is_near_all(&self, gpus: &BTreeSet<PciAddress>) -> bool {
        gpus.len() > 1 && served(&self.of_models).len() == gpus.len()
    }

    /// NICs that are near no GPU, if they are few and the others are near all.
    fn outliers(&self, gpus: &BTreeSet<PciAddress>) -> BTreeSet<PciAddress> {
        let far = self.nics.iter().filter(|nic| nic.near.is_empty());
        let far: BTreeSet<PciAddress> = far.map(|nic| nic.address).collect();
        let near = self.nics.len() - far.len();
        let is_exception = self.is_near_all(gpus) && near > 1 && far.len() * 2 <= near;
        far.into_iter().filter(|_| is_exception).collect()
    }

    /// The role of a NIC if this class is the compute class: because of `why`, without `far`.
    fn verdict(&self, nic: &Candidate<'_>, far: &BTreeSet<PciAddress>, why: &str) -> Verdict {
        if far.contains(&nic.address) {
            return storage(format!(
                "{}, but near no GPU, while the other {} are near all GPUs",
                self.class,
                self.nics.len() - far.len()
            ));
        }
        if nic.class() == self.class {
            return Verdict { role: NicRole::Compute, reason: why.to_owned() };
        }
        if self.is_slow_equal(nic) {
            let reason = format!("{}, its model has {}", nic.class(), self.class);
            return Verdict { role: NicRole::Compute, reason };
        }
        storage(format!("{}; the compute NICs have {}", nic.class(), self.class))
    }

    /// Returns true for a NIC of the same model whose link came up with a lower rate, next to a GPU
    /// that would otherwise have no compute NIC.
    fn is_slow_equal(&self, nic: &Candidate<'_>) -> bool {
        let served = served(&self.nics);
        self.nics.iter().any(|member| member.model == nic.model)
            && nic.near.iter().any(|gpu| !served.contains(gpu))
    }
}

/// The GPUs that have one of these NICs near them.
fn served(nics: &[&Candidate<'_>]) -> BTreeSet<PciAddress> {
    nics.iter().flat_map(|nic| &nic.near).copied().collect()
}

fn already(nic: &Candidate<'_>) -> Option<Verdict> {
    nic.facts.decided.clone()
}

fn managed(nic: &Candidate<'_>) -> Option<Verdict> {
    let reason = "its vital product data say SW_MNG: it manages NVLink switches";
    nic.facts
        .manages_switches
        .then(|| Verdict { role: NicRole::Management, reason: reason.to_owned() })
}

fn unlisted(nic: &Candidate<'_>) -> Option<Verdict> {
    let reason = "the description of the machine lists other NICs, and not this one";
    (nic.facts.is_listed == Some(false)).then(|| storage(reason.to_owned()))
}

fn without_rdma(nic: &Candidate<'_>) -> Option<Verdict> {
    (!nic.has_rdma()).then(|| storage("no RDMA device, while other NICs have one".to_owned()))
}

/// The managers of NVLink switches are functions of an InfiniBand adapter with one or two lanes
/// each. Other adapters with such links cannot be for GPUs either.
fn narrow(nic: &Candidate<'_>) -> Option<Verdict> {
    let (link, port) = nic.narrow_link()?;
    let is_infiniband = nic.class().link_layer == Some(LinkLayer::InfiniBand);
    let role = if is_infiniband { NicRole::Management } else { NicRole::Storage };
    let reason = format!("its PCIe link has {link} Gb/s for a port of {port} Gb/s");
    Some(Verdict { role, reason })
}

fn storage(reason: String) -> Verdict {
    Verdict { role: NicRole::Storage, reason }
}
