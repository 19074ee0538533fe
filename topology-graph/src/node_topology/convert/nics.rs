//! Converts what NICs are for, and their current connections.

use std::collections::BTreeMap;

use super::super::{GpuDirectSpec, NicSpec};
use super::value::{SpecError, link_text, optional, unexpected, value};
use crate::build::Verdicts;
use crate::graph::Place;
use crate::nic_role::{FactsOfNics, NicFacts, Verdict};
use crate::{Acs, Gdr, Nic, NicRole, PciAddress, Topology};

pub(super) fn spec(nic: &Nic, topology: &Topology) -> NicSpec {
    let mut by_verdict: BTreeMap<Gdr, Vec<u32>> = BTreeMap::new();
    for (number, gpu) in (0..).zip(topology.gpus()) {
        if let Some(verdict) = topology.gdr.get(&(gpu.address, nic.address)) {
            by_verdict.entry(*verdict).or_default().push(number);
        }
    }
    let gpu_direct = by_verdict.into_iter();
    let vertex = topology.graph.vertex(Place::Function(nic.address));
    let is_virtual = vertex.is_some_and(|vertex| vertex.physical_function.is_some());
    let facts = topology.nic_facts.get(&nic.address);
    let is_decided = facts.is_some_and(|facts| facts.decided.is_some());
    NicSpec {
        at: nic.address.to_string(),
        link: nic.current_link.map(link_text),
        acs: nic.acs.map(|acs| acs.to_string()),
        role: nic.role.to_string(),
        role_reason: Some(nic.role_reason.clone()).filter(|_| !is_virtual || is_decided),
        rate: nic.rate_megabits,
        state: nic.port_state.map(|state| state.to_string()),
        // No facts of the graph: the driver adds them.
        rail: None,
        rail_reason: None,
        bonded: Vec::new(),
        gpu_direct: gpu_direct
            .map(|(verdict, gpus)| GpuDirectSpec { verdict: verdict.to_string(), gpus })
            .collect(),
    }
}

/// Ports, and the roles that the driver has decided.
pub(super) fn facts(specs: &[NicSpec]) -> Result<FactsOfNics, SpecError> {
    specs.iter().map(facts_of_nic).collect()
}

fn facts_of_nic(spec: &NicSpec) -> Result<(PciAddress, NicFacts), SpecError> {
    let role: NicRole = value("nics.role", &spec.role)?;
    let decided = spec.role_reason.clone().map(|reason| Verdict { role, reason });
    let facts = NicFacts {
        rate_megabits: spec.rate,
        port_state: optional(spec.state.as_ref(), |text| value("nics.state", text))?,
        decided,
        ..NicFacts::default()
    };
    Ok((value("nics.at", &spec.at)?, facts))
}

pub(super) fn acs(specs: &[NicSpec]) -> Result<BTreeMap<PciAddress, Acs>, SpecError> {
    let told = specs.iter().filter_map(|spec| Some((spec, spec.acs.as_ref()?)));
    told.map(|(spec, acs)| Ok((value("nics.at", &spec.at)?, value("nics.acs", acs)?))).collect()
}

pub(super) fn verdicts(specs: &[NicSpec], topology: &Topology) -> Result<Verdicts, SpecError> {
    let mut verdicts = Verdicts::new();
    for spec in specs {
        let nic = value("nics.at", &spec.at)?;
        for told in &spec.gpu_direct {
            let verdict = value("nics.gpuDirect.verdict", &told.verdict)?;
            for number in &told.gpus {
                let gpu =
                    usize::try_from(*number).ok().and_then(|index| topology.gpus().get(index));
                let gpu =
                    gpu.ok_or_else(|| unexpected("nics.gpuDirect.gpus", &number.to_string()))?;
                verdicts.insert((gpu.address, nic), verdict);
            }
        }
    }
    Ok(verdicts)
}
