//! Reads and checks what a pod requests: its annotations and its containers' GPU limits. The only
//! cluster state used is the DeviceClasses, for extended resources that stand for GPUs
//! (`resources`).

mod containers;
mod demand;
pub mod limit_defaults;
mod resources;
mod values;
mod warnings;

use crate::denial::Denial;
use crate::wishes::{Asker, Wishes};
use cluster_model::gpu_drivers;
use cluster_model::names::annotation;
use cluster_model::pod_containers::{DEFAULT_CONTAINER, workloads};
use cluster_model::view::ClusterView;
use containers::Limits;
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, HashSet};
use topology_graph::{Level, NicRole};

pub use crate::alignment::{AlignmentPolicy, CLAIM_DEVICES_MAX, Pairing, Share};
pub use crate::group::Fabric;
pub(crate) use containers::unasked;
pub(crate) use resources::of_driver;
pub use resources::{GpuResource, GpuResources};
pub use warnings::warnings;
pub(crate) use warnings::{memlock, preemption};

/// What a pod with the trigger annotation requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// What the NICs are for.
    pub nic_role: NicRole,
    /// Whether the pod waits while no machine is known that it can run on, if the user says so.
    pub waits_for_unknown: Option<bool>,
    /// What the pod asks for besides GPUs and NICs.
    pub wishes: Wishes,
    /// The trigger's value as the user wrote it, for messages.
    pub trigger: String,
}

impl Intent {
    /// The intent with what depends on the pods of the same group.
    pub(crate) fn resolved(mut self, pod: &Pod, view: &ClusterView) -> Result<Self, Denial> {
        self.wishes.resolve(pod, view)?;
        Ok(self)
    }

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

    /// Denies a pod with more GPUs and NICs than a claim holds.
    pub(crate) fn check_claim_size(&self) -> Result<(), Denial> {
        check_size(&self.trigger, self.gpus, self.nics)
    }

    /// Creates a denial that names the trigger annotation with its value.
    pub(crate) fn deny(&self, why: impl Into<String>) -> Denial {
        deny(&self.trigger, why)
    }

    /// Returns true if each GPU would have its own NICs by default, but the claim has no room for
    /// pairs and requests one group. So it is true only where [`plan`](crate::plan::plan) falls back
    /// to a group.
    pub(crate) fn are_pairs_grouped(&self) -> bool {
        let is_default_each = self.gpus > 1 && self.nics.is_multiple_of(self.gpus);
        is_default_each && self.pairing == Pairing::Group && !self.is_pairing_named
    }

    /// The GPUs of containers that stay. An init container that ends can have more.
    pub(crate) fn lasting_gpus(&self) -> u32 {
        let staying = self.shares.iter().filter(|share| share.stays);
        staying.map(|share| share.gpus.end).max().unwrap_or_default()
    }

    /// NICs per GPU, if each GPU has its own.
    pub(crate) fn nics_per_gpu(&self) -> u32 {
        self.nics.checked_div(self.gpus).unwrap_or_default()
    }
}

/// Creates a denial that names the trigger annotation with this value.
fn deny(trigger: &str, why: impl Into<String>) -> Denial {
    Denial::new(annotation::ALIGNED_NICS, trigger, why)
}

/// Returns true if the pod has the trigger annotation.
pub fn is_triggered(pod: &Pod) -> bool {
    annotations(pod).contains_key(annotation::ALIGNED_NICS)
}

/// Reads the intent of a pod, where `resources` count as GPUs. `None` if the pod does not have the
/// trigger annotation.
pub fn read(pod: &Pod, resources: &GpuResources) -> Result<Option<Intent>, Denial> {
    let Some(trigger) = text(pod, annotation::ALIGNED_NICS) else { return Ok(None) };
    let asked_nics = values::nics(trigger)?;
    let asked_gpus = text(pod, annotation::GPUS).map(values::gpus).transpose()?;
    let limits = containers::limits(pod, trigger, resources, asked_gpus.is_some())?;
    let named = text(pod, annotation::CONTAINERS).map(|value| values::containers(value, pod));
    let shares = shares(pod, &limits, asked_gpus, named.transpose()?.as_deref(), trigger)?;
    check_containers(&shares, trigger)?;
    let gpus = shares.iter().map(|share| share.gpus.end).max().unwrap_or_default();
    if gpus == 0 && asked_nics.is_none() {
        return Err(deny(trigger, "the pod asks for no GPU")
            .allowed("the number of NICs, for example \"2\""));
    }
    let nics = asked_nics.unwrap_or(gpus);
    // Whether the claim is also for the GPUs depends on the nodes.
    check_size(trigger, 0, nics)?;
    let policy = values::policy(text(pod, annotation::ALIGNMENT_POLICY))?;
    let asker = Asker { pod, gpus, nics, shares: &shares, policy };
    let wishes = Wishes::read(&asker)?;
    Ok(Some(Intent {
        nics,
        gpus,
        resource: limits.resource,
        level: text(pod, annotation::ALIGNMENT).map(values::level).transpose()?,
        policy,
        pairing: values::pairing(text(pod, annotation::PAIRING), gpus, nics)?,
        is_pairing_named: text(pod, annotation::PAIRING).is_some(),
        gpu_class: class(pod, annotation::GPU_CLASS)?,
        nic_class: class(pod, annotation::NIC_CLASS)?,
        host_network: asker.is_on_host_network(),
        nic_role: values::nic_role(text(pod, annotation::NIC_ROLE))?,
        waits_for_unknown: text(pod, annotation::UNKNOWN_SHAPE)
            .map(values::unknown_shape)
            .transpose()?,
        shares,
        wishes,
        trigger: trigger.to_owned(),
    }))
}

/// Assigns GPUs to containers: those whose limits name GPUs, otherwise those that the annotation
/// names, otherwise the workload's.
fn shares(
    pod: &Pod,
    limits: &Limits,
    asked: Option<u32>,
    named: Option<&[String]>,
    trigger: &str,
) -> Result<Vec<Share>, Denial> {
    let Some(GpuResource { name: resource, .. }) = &limits.resource else {
        let Some(gpus) = asked else { return Err(no_gpus(trigger)) };
        let takers = match named {
            Some(named) => named.to_vec(),
            None => match *workloads(pod) {
                [only] => vec![only.to_owned()],
                ref several => return Err(unclear(several, gpus)),
            },
        };
        return Ok(takers.iter().map(|name| Share::of_main(name, 0..gpus)).collect());
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
        shares.extend(more.map(|name| Share::of_main(name, 0..0)));
    }
    Ok(shares)
}

fn no_gpus(trigger: &str) -> Denial {
    let known = extended_resources().collect::<Vec<_>>().join(", ");
    let why = format!(
        "the pod asks for no GPU to align with; set a limit of one of {known} in a container, or \
         the annotation {}",
        annotation::GPUS
    );
    deny(trigger, why)
}

/// The denial of a pod of which several containers could get the devices.
fn unclear(several: &[&str], gpus: u32) -> Denial {
    let why = format!(
        "containers {} could get the devices; name one in the annotation {}, set GPU limits in it, or \
         name the workload's in {}",
        several.join(", "),
        annotation::CONTAINERS,
        DEFAULT_CONTAINER,
    );
    Denial::new(annotation::GPUS, gpus.to_string(), why)
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
    Err(deny(trigger, why))
}

/// Denies a claim with more devices than Kubernetes allows. Without GPUs it is for NICs alone.
fn check_size(trigger: &str, gpus: u32, nics: u32) -> Result<(), Denial> {
    let devices = gpus.saturating_add(nics);
    if devices <= CLAIM_DEVICES_MAX {
        return Ok(());
    }
    let asked = match gpus {
        0 => format!("asks for {nics} NICs"),
        gpus => format!("{nics} NICs and {gpus} GPUs are {devices} devices"),
    };
    let why = format!("{asked}; a claim holds at most {CLAIM_DEVICES_MAX}");
    Err(deny(trigger, why))
}

/// Names of the extended resources of device plugins that our claims replace.
fn extended_resources() -> impl Iterator<Item = &'static str> {
    gpu_drivers::all().iter().flat_map(|driver| driver.extended_resources.iter().copied())
}

fn class(pod: &Pod, annotation: &'static str) -> Result<Option<String>, Denial> {
    text(pod, annotation).map(|value| values::class(annotation, value)).transpose()
}

/// The value of an annotation.
fn text<'p>(pod: &'p Pod, annotation: &str) -> Option<&'p str> {
    annotations(pod).get(annotation).map(String::as_str)
}

fn annotations(pod: &Pod) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    pod.metadata.annotations.as_ref().unwrap_or(&NONE)
}

#[cfg(test)]
mod tests;
