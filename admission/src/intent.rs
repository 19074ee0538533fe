//! Reads and checks what a pod requests: its annotations and its containers' GPU limits. The only
//! cluster state used is the DeviceClasses, for extended resources that stand for GPUs
//! (`resources`).

mod containers;
mod cpus;
pub(crate) mod nic_config;
mod resources;
mod values;
mod warnings;

use crate::denial::Denial;
use crate::sharing::NicShare;
use cluster_model::fabric_level::LevelRequests;
use cluster_model::gpu_drivers;
use cluster_model::names::annotation;
use containers::Limits;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;
use topology_graph::{Level, NicRole};

pub(crate) use resources::of_driver;
pub use resources::{GpuResource, GpuResources};
pub use warnings::warnings;
pub(crate) use warnings::{memlock, preemption};

/// The maximum number of devices of a claim (`AllocationResultsMaxSize` of `resource.k8s.io/v1`).
pub const CLAIM_DEVICES_MAX: u32 = 32;

/// Whether alignment is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlignmentPolicy {
    /// The pod is scheduled only with aligned devices.
    Required,
    /// Devices are aligned if possible, otherwise any that fit.
    Preferred,
}

/// How NICs are assigned to GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairing {
    /// Every GPU has its own NICs near it.
    Each,
    /// All GPUs and all NICs are near each other.
    Group,
    /// Every NIC is near as many GPUs, which share it. Never named by a user: it is tried for a group
    /// that is on no node as near as that.
    Shared,
}

/// The pods that must be on one fabric.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Fabric {
    /// The pods of the pod's job.
    Same,
    /// The pods of the group with this name.
    Named(String),
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Same => values::SAME,
            Self::Named(name) => name,
        })
    }
}

/// A container that gets devices of the claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    /// The name of the container.
    pub container: String,
    /// Its GPUs, as a range of the pod's GPUs. Every container with a share gets the NICs.
    pub gpus: Range<u32>,
}

/// What a pod with the trigger annotation requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate wish")]
pub struct Intent {
    /// NICs for the pod, at least 1.
    pub nics: u32,
    /// GPUs for the pod, at least 1.
    pub gpus: u32,
    /// The extended resource of the GPUs, if container limits name it.
    pub resource: Option<GpuResource>,
    /// The alignment level, if the user set it.
    pub level: Option<Level>,
    /// Whether alignment is required.
    pub policy: AlignmentPolicy,
    /// How NICs are assigned to GPUs.
    pub pairing: Pairing,
    /// True if the user set the pairing.
    pub is_pairing_named: bool,
    /// The DeviceClass of the GPUs, if the user set it.
    pub gpu_class: Option<String>,
    /// The DeviceClass of the NICs, if the user set it.
    pub nic_class: Option<String>,
    /// The containers that get devices.
    pub shares: Vec<Share>,
    /// True if the pod uses the host network.
    pub host_network: bool,
    /// The driver's network configuration as JSON.
    pub nic_config: Option<String>,
    /// The pods with which the pod shares a fabric.
    pub fabric: Option<Fabric>,
    /// The level below the fabric that the group asks for.
    pub fabric_levels: LevelRequests,
    /// Whether slices of the group each share a domain of the level, and not the whole group.
    pub is_sliced: bool,
    /// True if the pods of the job get a channel of a `ComputeDomain` that is made for it.
    pub compute_domain: bool,
    /// True if all pods of the job must have NICs of the same rails.
    pub same_rail: bool,
    /// The group whose rail the pod shares. It is set after the annotations are read, since it
    /// depends on the whole pod.
    pub rail_group: Option<String>,
    /// CPUs on the NUMA node of the GPUs and NICs, if requested.
    pub cpus: Option<u32>,
    /// NVMe devices on the NUMA node of the GPUs and NICs, if requested.
    pub nvmes: Option<u32>,
    /// What the NICs are for.
    pub nic_role: NicRole,
    /// The pod's share of each NIC, if it shares them with other pods.
    pub share: Option<NicShare>,
    /// The trigger's value as the user wrote it, for messages.
    pub trigger: String,
}

impl Intent {
    /// The same request with GPUs that share NICs: the GPUs divide evenly among several NICs, and no
    /// container has a part of the GPUs of one NIC. `None` if the request is not of this kind, or if
    /// the user named another pairing.
    pub(crate) fn with_shared_nics(&self) -> Option<Self> {
        let is_divisible =
            self.nics > 1 && self.gpus > self.nics && self.gpus.is_multiple_of(self.nics);
        let each = self.gpus.checked_div(self.nics)?;
        let is_kind = is_divisible
            && !self.is_pairing_named
            && !self.shares.iter().any(|share| {
                !share.gpus.start.is_multiple_of(each) || !share.gpus.end.is_multiple_of(each)
            });
        let is_kind = is_kind && self.pairing == Pairing::Group;
        is_kind.then(|| Self { pairing: Pairing::Shared, ..self.clone() })
    }

    /// The profile of the parts of GPUs, if the limits name one.
    pub(crate) fn gpu_profile(&self) -> Option<&str> {
        self.resource.as_ref()?.profile.as_deref()
    }

    /// Creates a denial that names the trigger annotation with its value.
    pub(crate) fn deny(&self, why: impl Into<String>) -> Denial {
        Denial::new(annotation::ALIGNED_NICS, self.trigger.clone(), why)
    }

    /// Returns true if each GPU would have its own NICs by default, but the claim has no room for
    /// pairs and requests one group. So it is true only where [`plan`](crate::plan::plan) falls back
    /// to a group.
    pub(crate) fn are_pairs_grouped(&self) -> bool {
        let is_default_each = self.gpus > 1 && self.nics.is_multiple_of(self.gpus);
        is_default_each && self.pairing == Pairing::Group && !self.is_pairing_named
    }

    /// NICs per GPU, if each GPU has its own.
    pub(crate) fn nics_per_gpu(&self) -> u32 {
        self.nics.checked_div(self.gpus).unwrap_or_default()
    }
}

/// Returns true if the pod has the trigger annotation.
pub fn is_triggered(pod: &Pod) -> bool {
    annotations(pod).contains_key(annotation::ALIGNED_NICS)
}

/// Reads the intent of a pod, where `resources` count as GPUs. `None` if the pod does not have the
/// trigger annotation.
pub fn read(pod: &Pod, resources: &GpuResources) -> Result<Option<Intent>, Denial> {
    let annotations = annotations(pod);
    let get = |name: &str| annotations.get(name).map(String::as_str);
    let Some(trigger) = get(annotation::ALIGNED_NICS) else { return Ok(None) };
    let fabric = values::fabric(get)?;
    let level = get(annotation::FABRIC_LEVEL);
    let fabric_levels = values::fabric_levels(level, get(annotation::DOMAIN_SIZE))?;
    let asked_nics = values::nics(trigger)?;
    let limits = containers::limits(pod, trigger, resources)?;
    let asked_gpus = get(annotation::GPUS).map(values::gpus).transpose()?;
    let named = get(annotation::CONTAINERS).map(|value| values::containers(value, pod));
    let shares = shares(pod, &limits, asked_gpus, named.transpose()?.as_deref(), trigger)?;
    check_containers(&shares, trigger)?;
    let gpus = shares.iter().map(|share| share.gpus.end).max().unwrap_or_default();
    if gpus == 0 && asked_nics.is_none() {
        let denial = Denial::new(annotation::ALIGNED_NICS, trigger, "the pod asks for no GPU");
        return Err(denial.allowed("the number of NICs, for example \"2\""));
    }
    let nics = asked_nics.unwrap_or(gpus);
    check_size(trigger, gpus, nics)?;
    let class = |name: &'static str| get(name).map(|value| values::class(name, value)).transpose();
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    let nic_config = get(annotation::NIC_CONFIG);
    let nic_config = nic_config.map(|value| nic_config::read(value, nics, host_network));
    let nic_config = nic_config.transpose()?;
    let nic_config = match get(annotation::NIC_POOL) {
        Some(pool) => Some(nic_config::with_pool(pool, nic_config.as_deref(), host_network)?),
        None => nic_config,
    };
    let share = NicShare::read(get(annotation::NIC_SHARING), get(annotation::NIC_BANDWIDTH))?;
    if share.is_some() {
        nic_config::check_shared(nic_config.as_deref())?;
    }
    let policy = values::policy(get(annotation::ALIGNMENT_POLICY))?;
    let cpus = get(annotation::ALIGNED_CPUS).map(|value| cpus::read(value, pod, &shares, policy));
    let nvmes = get(annotation::ALIGNED_NVMES);
    let nvmes = nvmes.map(|value| values::nvmes(value, gpus + nics, &shares, policy));
    Ok(Some(Intent {
        nics,
        gpus,
        resource: limits.resource,
        level: get(annotation::ALIGNMENT).map(values::level).transpose()?,
        policy,
        pairing: values::pairing(get(annotation::PAIRING), gpus, nics)?,
        is_pairing_named: get(annotation::PAIRING).is_some(),
        gpu_class: class(annotation::GPU_CLASS)?,
        nic_class: class(annotation::NIC_CLASS)?,
        shares,
        host_network,
        nic_config,
        fabric,
        fabric_levels,
        is_sliced: get(annotation::DOMAIN_SIZE).is_some(),
        compute_domain: values::compute_domain(get(annotation::COMPUTE_DOMAIN))?,
        same_rail: values::same_rail(get(annotation::RAIL))?,
        rail_group: None,
        cpus: cpus.transpose()?,
        nvmes: nvmes.transpose()?,
        nic_role: values::nic_role(get(annotation::NIC_ROLE))?,
        share,
        trigger: trigger.to_owned(),
    }))
}

/// Assigns GPUs to containers: those whose limits name GPUs, otherwise those that the annotation
/// names, otherwise the first.
fn shares(
    pod: &Pod,
    limits: &Limits,
    asked: Option<u32>,
    named: Option<&[String]>,
    trigger: &str,
) -> Result<Vec<Share>, Denial> {
    let share = |container: &String, gpus| Share { container: container.clone(), gpus };
    let Some(GpuResource { name: resource, .. }) = &limits.resource else {
        let Some(gpus) = asked else { return Err(no_gpus(trigger)) };
        let first = || containers::first(pod).into_iter().collect();
        let takers = named.map_or_else(first, <[String]>::to_vec);
        return Ok(takers.iter().map(|name| share(name, 0..gpus)).collect());
    };
    let total = limits.shares.iter().map(|share| share.gpus.end).max().unwrap_or_default();
    if let Some(asked) = asked.filter(|asked| *asked != total) {
        return Err(Denial::new(
            annotation::GPUS,
            asked.to_string(),
            format!("the limits of the containers ask for {total} of {resource}"),
        )
        .allowed(format!("\"{total}\", or no such annotation")));
    }
    let mut shares = limits.shares.clone();
    if let Some(named) = named {
        let listed: HashSet<&String> = named.iter().collect();
        if let Some(left_out) = shares.iter().find(|share| !listed.contains(&share.container)) {
            return Err(Denial::new(
                annotation::CONTAINERS,
                named.join(","),
                format!(
                    "container `{}` has a limit on {resource}, which the claim replaces, and is \
                     not in the list",
                    left_out.container
                ),
            ));
        }
        let limited = limits.containers();
        let more = named.iter().filter(|name| !limited.contains(name.as_str()));
        shares.extend(more.map(|name| share(name, 0..0)));
    }
    Ok(shares)
}

fn no_gpus(trigger: &str) -> Denial {
    let known = extended_resources().collect::<Vec<_>>().join(", ");
    Denial::new(
        annotation::ALIGNED_NICS,
        trigger,
        format!(
            "the pod asks for no GPU to align with; set a limit of one of {known} in a container, \
             or the annotation {}",
            annotation::GPUS
        ),
    )
}

/// The maximum number of containers of a pod that get devices.
const CONTAINERS_MAX: usize = 256;

fn check_containers(shares: &[Share], trigger: &str) -> Result<(), Denial> {
    if shares.len() <= CONTAINERS_MAX {
        return Ok(());
    }
    let why = format!(
        "{} containers would get devices; at most {CONTAINERS_MAX} containers of a pod can",
        shares.len()
    );
    Err(Denial::new(annotation::ALIGNED_NICS, trigger, why))
}

fn check_size(trigger: &str, gpus: u32, nics: u32) -> Result<(), Denial> {
    let devices = gpus.saturating_add(nics);
    if devices <= CLAIM_DEVICES_MAX {
        return Ok(());
    }
    Err(Denial::new(
        annotation::ALIGNED_NICS,
        trigger,
        format!(
            "{nics} NICs and {gpus} GPUs are {devices} devices; a claim holds at most \
             {CLAIM_DEVICES_MAX}"
        ),
    ))
}

/// Names of the extended resources of device plugins that our claims replace.
fn extended_resources() -> impl Iterator<Item = &'static str> {
    gpu_drivers::all().iter().flat_map(|driver| driver.extended_resources.iter().copied())
}

fn annotations(pod: &Pod) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    pod.metadata.annotations.as_ref().unwrap_or(&NONE)
}

#[cfg(test)]
mod tests;
