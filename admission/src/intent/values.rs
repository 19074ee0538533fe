//! Parses the values of annotations, each on its own.

use super::containers;
use crate::alignment::{AlignmentPolicy, CLAIM_DEVICES_MAX, Pairing, device_count};
use crate::denial::Denial;
use crate::dns::is_label;
use cluster_model::names::annotation;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashSet;
use topology_graph::{Level, NicRole};

/// Value for as many NICs as GPUs.
const PER_GPU: &str = "per-gpu";

/// Longest DNS subdomain, which a class name is.
const NAME_MAX: usize = 253;

/// Parses the number of NICs; `None` means `per-gpu`.
pub(super) fn nics(value: &str) -> Result<Option<u32>, Denial> {
    if value == PER_GPU {
        return Ok(None);
    }
    let allowed = format!(
        "a whole number from 1 to {CLAIM_DEVICES_MAX}, for example \"2\", or \"{PER_GPU}\""
    );
    device_count(annotation::ALIGNED_NICS, value, "NICs", &allowed).map(Some)
}

/// Parses the number of GPUs; 0 for a pod that wants NICs only.
pub(super) fn gpus(value: &str) -> Result<u32, Denial> {
    if value == "0" {
        return Ok(0);
    }
    let allowed = format!("a whole number from 0 to {}", CLAIM_DEVICES_MAX - 1);
    device_count(annotation::GPUS, value, "GPUs", &allowed)
}

pub(super) fn level(value: &str) -> Result<Level, Denial> {
    value.parse().map_err(|_| {
        Denial::new(annotation::ALIGNMENT, value, "invalid value")
            .allowed("\"switch\", \"root-port\", \"root\", \"numa\" or \"socket\"")
    })
}

pub(super) fn policy(value: Option<&str>) -> Result<AlignmentPolicy, Denial> {
    match value {
        None | Some("required") => Ok(AlignmentPolicy::Required),
        Some("preferred") => Ok(AlignmentPolicy::Preferred),
        Some(value) => Err(Denial::new(annotation::ALIGNMENT_POLICY, value, "invalid value")
            .allowed("\"required\" or \"preferred\"")),
    }
}

/// Parses the pairing. By default each GPU has its own NICs if they divide evenly. With
/// one GPU both values mean the same.
pub(super) fn pairing(value: Option<&str>, gpus: u32, nics: u32) -> Result<Pairing, Denial> {
    let even = nics.is_multiple_of(gpus);
    match value {
        None | Some("each") if even && gpus > 1 => Ok(Pairing::Each),
        None | Some("group") => Ok(Pairing::Group),
        Some("each") if even => Ok(Pairing::Group),
        Some("each") => Err(Denial::new(
            annotation::PAIRING,
            "each",
            format!("{nics} NICs cannot be divided evenly among {gpus} GPUs"),
        )
        .allowed(format!("\"group\", or {} of a multiple of {gpus}", annotation::ALIGNED_NICS))),
        Some(value) => Err(Denial::new(annotation::PAIRING, value, "invalid value")
            .allowed("\"each\" or \"group\"")),
    }
}

/// Parses whether the pod waits while no machine is known that it can run on.
pub(super) fn unknown_shape(value: &str) -> Result<bool, Denial> {
    match value {
        "admit" => Ok(true),
        "deny" => Ok(false),
        _ => Err(Denial::new(annotation::UNKNOWN_SHAPE, value, "invalid value")
            .allowed("\"admit\" or \"deny\"")),
    }
}

/// Parses the role of the NICs. Nobody may have NICs that manage NVLink switches.
pub(super) fn nic_role(value: Option<&str>) -> Result<NicRole, Denial> {
    let Some(value) = value else { return Ok(NicRole::Compute) };
    let why = match value.parse() {
        Ok(NicRole::Management) => "these NICs manage NVLink switches, and no pod can have them",
        Ok(role) => return Ok(role),
        Err(_) => "invalid value",
    };
    let allowed = format!("\"{}\" or \"{}\"", NicRole::Compute, NicRole::Storage);
    Err(Denial::new(annotation::NIC_ROLE, value, why).allowed(allowed))
}

pub(super) fn class(name: &'static str, value: &str) -> Result<String, Denial> {
    if value.len() <= NAME_MAX && value.split('.').all(is_label) {
        return Ok(value.to_owned());
    }
    Err(Denial::new(name, value, "invalid value: not the name of a DeviceClass")
        .allowed("a name in lower case, for example \"gpu.nvidia.com\""))
}

/// Parses a list of container names of the pod.
pub(super) fn containers(value: &str, pod: &Pod) -> Result<Vec<String>, Denial> {
    let there = containers::names(pod);
    let known: HashSet<&str> = there.iter().copied().collect();
    let (mut names, mut seen) = (Vec::new(), HashSet::new());
    for name in value.split(',').map(str::trim) {
        if !known.contains(name) {
            let why = format!("the pod has no container `{name}`");
            let allowed = format!("one or more of {}, separated by commas", there.join(", "));
            return Err(Denial::new(annotation::CONTAINERS, value, why).allowed(allowed));
        }
        if seen.insert(name) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}
