//! Parses the values of annotations, each on its own.

use super::{AlignmentPolicy, CLAIM_DEVICES_MAX, Fabric, Pairing, Share, containers};
use crate::compute_domain::AUTO;
use crate::denial::Denial;
use cluster_model::fabric_level::{BadLevels, LevelRequests};
use cluster_model::names::annotation;
use k8s_openapi::api::core::v1::Pod;
use std::collections::HashSet;
use topology_graph::{Level, NicRole};

/// Value for as many NICs as GPUs.
const PER_GPU: &str = "per-gpu";

/// Value for the fabric of the pod's own job.
pub(super) const SAME: &str = "same";

/// Longest label value, which the name of a group can become.
const LABEL_MAX: usize = 63;

/// The smallest group of pods.
const GROUP_MIN: u32 = 2;

/// Longest DNS subdomain, which a class name is.
const NAME_MAX: usize = 253;

/// Parses the number of NICs; `None` means `per-gpu`.
pub(super) fn nics(value: &str) -> Result<Option<u32>, Denial> {
    if value == PER_GPU {
        return Ok(None);
    }
    let allowed = format!(
        "a whole number from 1 to {}, for example \"2\", or \"{PER_GPU}\"",
        CLAIM_DEVICES_MAX - 1
    );
    count(annotation::ALIGNED_NICS, value, "NICs", &allowed).map(Some)
}

/// Parses the number of GPUs; 0 for a pod that wants NICs only.
pub(super) fn gpus(value: &str) -> Result<u32, Denial> {
    if value == "0" {
        return Ok(0);
    }
    let allowed = format!("a whole number from 0 to {}", CLAIM_DEVICES_MAX - 1);
    count(annotation::GPUS, value, "GPUs", &allowed)
}

/// Parses the number of NVMe devices. The claim also contains `others` other devices.
pub(super) fn nvmes(
    value: &str,
    others: u32,
    shares: &[Share],
    policy: AlignmentPolicy,
) -> Result<u32, Denial> {
    let deny = |why: String| Denial::new(annotation::ALIGNED_NVMES, value, why);
    let allowed = format!("a whole number from 1 to {}", CLAIM_DEVICES_MAX - others);
    let nvmes = count(annotation::ALIGNED_NVMES, value, "NVMe devices", &allowed)?;
    if nvmes + others > CLAIM_DEVICES_MAX {
        return Err(deny(format!(
            "too many beside {others} GPUs and NICs; a claim holds at most \
             {CLAIM_DEVICES_MAX} devices"
        )));
    }
    if policy == AlignmentPolicy::Preferred {
        return Err(deny(format!(
            "aligned NVMe devices must be on the NUMA node of the NICs, so they cannot be \
             combined with {}: \"preferred\"",
            annotation::ALIGNMENT_POLICY
        )));
    }
    if shares.len() != 1 {
        return Err(deny(format!(
            "NVMe devices go to one container, and {} containers of the pod get devices",
            shares.len()
        )));
    }
    Ok(nvmes)
}

/// Parses a count. The claim needs room for at least one device of the other kind.
fn count(name: &'static str, value: &str, noun: &str, allowed: &str) -> Result<u32, Denial> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let why = match value.parse() {
        Ok(count @ 1..CLAIM_DEVICES_MAX) if digits => return Ok(count),
        _ if digits && value.bytes().all(|byte| byte == b'0') => {
            "invalid value: zero asks for nothing".to_owned()
        }
        _ if digits => {
            format!("a claim holds at most {CLAIM_DEVICES_MAX} devices, GPUs and NICs together")
        }
        _ => format!("invalid value: not a number of {noun}"),
    };
    Err(Denial::new(name, value, why).allowed(allowed))
}

pub(super) fn level(value: &str) -> Result<Level, Denial> {
    let deny = |_| Denial::new(annotation::ALIGNMENT, value, "invalid value");
    value.parse().map_err(|error| {
        deny(error).allowed("\"switch\", \"root-port\", \"root\", \"numa\" or \"socket\"")
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

/// Parses the rail.
pub(super) fn same_rail(value: Option<&str>) -> Result<bool, Denial> {
    match value {
        None => Ok(false),
        Some(SAME) => Ok(true),
        Some(value) => {
            Err(Denial::new(annotation::RAIL, value, "invalid value")
                .allowed(format!("\"{SAME}\"")))
        }
    }
}

/// Parses the wish for a `ComputeDomain`.
pub(super) fn compute_domain(value: Option<&str>) -> Result<bool, Denial> {
    match value {
        None => Ok(false),
        Some(AUTO) => Ok(true),
        Some(value) => {
            let denial = Denial::new(annotation::COMPUTE_DOMAIN, value, "invalid value");
            Err(denial.allowed(format!("\"{AUTO}\"")))
        }
    }
}

pub(super) fn class(name: &'static str, value: &str) -> Result<String, Denial> {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        label.bytes().all(|byte| inner(byte) || byte == b'-')
            && label.bytes().next().is_some_and(inner)
            && label.bytes().last().is_some_and(inner)
    };
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

/// Parses the levels below the fabric that the group asks for.
pub(super) fn fabric_levels(
    value: Option<&str>,
    size: Option<&str>,
) -> Result<LevelRequests, Denial> {
    let requests = match value {
        None => LevelRequests::NONE,
        Some(value) => LevelRequests::parse(value).map_err(|bad| bad_levels(value, bad))?,
    };
    match size {
        Some(size) if requests.is_empty() => {
            let why = format!(
                "without a level in {}, slices have no domain to share; add it or remove this",
                annotation::FABRIC_LEVEL
            );
            Err(Denial::new(annotation::DOMAIN_SIZE, size, why))
        }
        _ => Ok(requests),
    }
}

fn bad_levels(value: &str, bad: BadLevels) -> Denial {
    let denial = Denial::new(annotation::FABRIC_LEVEL, value, format!("invalid value: {bad}"));
    denial.allowed(
        "\"nvlink\" or \"block\", each also with \"=required\" or \"=preferred\", or both \
         separated by a comma; or \"fabric\"",
    )
}

/// Parses the fabric, and checks the size of the group and how long it waits, which the fabric
/// controller reads from the pod itself.
pub(super) fn fabric<'p>(get: impl Fn(&str) -> Option<&'p str>) -> Result<Option<Fabric>, Denial> {
    let Some(value) = get(annotation::FABRIC) else {
        for (name, why) in [
            (annotation::FABRIC_SIZE, ", which names the group, the size has no effect"),
            (annotation::FABRIC_LEVEL, ", which names the group, the level has no effect"),
            (annotation::DOMAIN_SIZE, ", which names the group, the size has no effect"),
            (annotation::FABRIC_WAIT, ", which names the group, the time has no effect"),
        ] {
            if let Some(value) = get(name) {
                let why = format!("without {}{why}; add it or remove this", annotation::FABRIC);
                return Err(Denial::new(name, value, why));
            }
        }
        return Ok(None);
    };
    for (name, why, min) in [
        (annotation::FABRIC_SIZE, "invalid value: not a number of pods", GROUP_MIN),
        (annotation::DOMAIN_SIZE, "invalid value: not a number of pods", GROUP_MIN),
        (annotation::FABRIC_WAIT, "invalid value: not a number of seconds", 1),
    ] {
        let wrong = |number: &&str| number.parse::<u32>().map_or(true, |number| number < min);
        if let Some(number) = get(name).filter(wrong) {
            let allowed = format!("a whole number of {min} or more");
            return Err(Denial::new(name, number, why).allowed(allowed));
        }
    }
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends =
        value.bytes().next().is_some_and(letters) && value.bytes().last().is_some_and(letters);
    let is_name =
        ends && value.len() <= LABEL_MAX && value.bytes().all(|byte| letters(byte) || byte == b'-');
    match value {
        SAME => Ok(Some(Fabric::Same)),
        name if is_name => Ok(Some(Fabric::Named(name.to_owned()))),
        _ => Err(Denial::new(annotation::FABRIC, value, "invalid value: not a name of a group")
            .allowed(format!(
                "\"{SAME}\" for the pod's own job, or a name of at most {LABEL_MAX} lowercase \
                 letters, digits and hyphens"
            ))),
    }
}
