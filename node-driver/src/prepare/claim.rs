//! Reads a ResourceClaim for this driver on this node, or returns why it may not be
//! prepared. Pure.
//!
//! Follows `k8s.io/api/resource/v1` and the rules of the kubelet's DRA manager.

use crate::model::claim::{ClaimRef, OtherDevice, PodRef};
use crate::prepare::capacities::{Capacities, amounts, bandwidth};
use crate::prepare::published::SliceDevices;
use cluster_model::network_config::{IpPrefix, NetworkConfig};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceRequestAllocationResult, ResourceClaim,
};
use serde_json::Value;

/// Annotation on a claim from a template: the claim's name in the pod
/// (`PodResourceClaimAnnotation`).
const POD_CLAIM_NAME: &str = "resource.kubernetes.io/pod-claim-name";

/// A claim that is allocated to devices of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatedClaim {
    /// The claim.
    pub claim: ClaimRef,
    /// The pods that it is reserved for.
    pub pods: Vec<PodRef>,
    /// Its name in the pod, if it was created from a template.
    pub pod_claim_name: Option<String>,
    /// This driver's devices, in the order of the allocation.
    pub devices: Vec<AllocatedDevice>,
    /// Devices of other drivers in the same claim, such as the GPUs beside the NICs.
    pub others: Vec<OtherDevice>,
}

/// One of this driver's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatedDevice {
    /// The request that it satisfies, `nics` or `nics/near`.
    pub request: String,
    /// Its pool.
    pub pool: String,
    /// Its name.
    pub device: String,
    /// The device in the allocation for which it was chosen, if that names no NIC.
    pub place: Option<String>,
    /// The ID of its share, if claims can share the device.
    pub share_id: Option<String>,
    /// The part of its capacities that the claim consumes, if claims can share the device.
    pub consumed: Capacities,
    /// Whether the claim has all of a device that claims can share.
    pub is_whole: bool,
    /// Admin access: the claim gets the device in addition to its holder, for monitoring.
    pub admin_access: bool,
    /// The opaque parameters that apply to it: those of the claim, and above them those of its
    /// device class, that is of the operator.
    pub parameters: Option<Value>,
    /// The part of them that the claim sets itself.
    pub claimed: Option<Value>,
    /// The address that was reserved from the range in its parameters.
    pub address: Option<IpPrefix>,
}

impl AllocatedClaim {
    /// Whether slices from the API server's cache, which may be old, suffice: they contain every
    /// device, including those of other drivers, and no device is shared, since the capacity of a
    /// shared device must be the latest.
    pub fn is_served_by(&self, published: &SliceDevices, driver: &str) -> bool {
        self.devices
            .iter()
            .all(|it| it.consumed.is_empty() && published.knows(driver, &it.pool, &it.device))
            && self.others.iter().all(|it| published.knows(&it.driver, &it.pool, &it.device))
    }
}

impl AllocatedDevice {
    /// Whether other claims can have parts of it.
    pub fn is_shared(&self) -> bool {
        self.share_id.is_some() && !self.is_whole
    }

    /// The claim's part of its bandwidth, in bits per second, if it has one.
    pub fn bandwidth(&self) -> Option<u64> {
        bandwidth(&self.consumed)
    }

    /// Whether its parameters have this field.
    pub fn asks_for(&self, field: &str) -> bool {
        self.parameters.as_ref().is_some_and(|parameters| parameters.get(field).is_some())
    }
}

/// The claim cannot be prepared here.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The claim was deleted and created again.
    #[error("claim `{claim}` has UID `{found}`, not `{}`: it was deleted and created again", claim.uid)]
    OtherUid {
        /// The requested claim.
        claim: Box<ClaimRef>,
        /// The UID of the existing claim.
        found: String,
    },
    /// The UID is malformed.
    #[error("claim `{claim}` has a malformed UID")]
    MalformedUid {
        /// The claim.
        claim: Box<ClaimRef>,
    },
    /// The scheduler has not allocated it, or the allocation was removed.
    #[error("claim `{claim}` is not allocated")]
    NotAllocated {
        /// The claim.
        claim: Box<ClaimRef>,
    },
    /// The device belongs to another node.
    #[error(
        "claim `{claim}` has device `{device}` of pool `{pool}`, which does not belong to node `{node}`"
    )]
    OtherNode {
        /// The claim.
        claim: Box<ClaimRef>,
        /// The device.
        device: String,
        /// Its pool.
        pool: String,
        /// This node.
        node: String,
    },
    /// Whether the claim has all of a device that claims can share is unknown.
    #[error(
        "claim `{claim}`: the ResourceSlices of this node could not be read, so it is not known whether the claim has all of device `{device}`; the driver tries again"
    )]
    UnknownCapacity {
        /// The claim.
        claim: Box<ClaimRef>,
        /// The device.
        device: String,
    },
    /// The claim's namespace may not set this field.
    #[error(
        "claim `{claim}` sets `{field}`, which is allowed only in the namespaces of --network-namespace ({allowed})"
    )]
    Guarded {
        /// The claim.
        claim: Box<ClaimRef>,
        /// The field.
        field: &'static str,
        /// The namespaces, or `none`.
        allowed: String,
    },
}

impl AllocatedClaim {
    /// Reads a claim for this driver. Pools have the name of their node.
    pub fn read(
        claim: &ResourceClaim,
        asked: &ClaimRef,
        driver: &str,
        node: &str,
    ) -> Result<Self, ClaimError> {
        let found = claim.metadata.uid.as_deref().unwrap_or_default();
        if found != asked.uid {
            return Err(ClaimError::OtherUid {
                claim: Box::new(asked.clone()),
                found: found.to_owned(),
            });
        }
        if !asked.has_safe_uid() {
            return Err(ClaimError::MalformedUid { claim: Box::new(asked.clone()) });
        }
        let status = claim.status.as_ref();
        let allocation = status
            .and_then(|status| status.allocation.as_ref())
            .ok_or_else(|| ClaimError::NotAllocated { claim: Box::new(asked.clone()) })?;
        let (ours, others) = results(allocation).partition(|result| result.driver == driver);
        let devices = Self::devices(ours, allocation, asked, driver, node)?;
        let others: Vec<&DeviceRequestAllocationResult> = others;
        Ok(Self {
            claim: asked.clone(),
            pods: pods(claim),
            pod_claim_name: claim
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(POD_CLAIM_NAME).cloned()),
            devices,
            others: others.into_iter().map(OtherDevice::from).collect(),
        })
    }

    /// Marks the shareable devices that the claim has entirely: it consumes all of each
    /// capacity, so that nothing is left for other claims.
    ///
    /// # Errors
    /// The node's slices could not be read.
    pub fn mark_whole(&mut self, driver: &str, published: &SliceDevices) -> Result<(), ClaimError> {
        for device in self.devices.iter_mut().filter(|device| !device.consumed.is_empty()) {
            if !published.is_read() {
                let (claim, device) = (Box::new(self.claim.clone()), device.device.clone());
                return Err(ClaimError::UnknownCapacity { claim, device });
            }
            let all = published.capacities(driver, &device.pool, &device.device);
            device.is_whole = all.is_some_and(|all| {
                !all.is_empty()
                    && all.iter().all(|(name, all)| device.consumed.get(name) >= Some(all))
            });
        }
        Ok(())
    }

    /// Refuses parameters that users in this namespace may not set. Parameters of a device class
    /// come from the operator and are allowed. The plan rejects malformed ones.
    pub fn check_namespace(&self, allowed: &[String]) -> Result<(), ClaimError> {
        let claimed = self.devices.iter().filter_map(|device| device.claimed.as_ref());
        let mut configs = claimed.filter_map(|claimed| NetworkConfig::parse(claimed).ok());
        let namespace = &self.claim.namespace;
        let field = configs.find_map(|config| config.forbidden_field(namespace, allowed));
        let Some(field) = field else { return Ok(()) };
        let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
        Err(ClaimError::Guarded { claim: Box::new(self.claim.clone()), field, allowed })
    }

    fn devices(
        ours: Vec<&DeviceRequestAllocationResult>,
        allocation: &AllocationResult,
        asked: &ClaimRef,
        driver: &str,
        node: &str,
    ) -> Result<Vec<AllocatedDevice>, ClaimError> {
        let devices = ours.into_iter().map(|result| {
            if result.pool != node {
                return Err(ClaimError::OtherNode {
                    claim: Box::new(asked.clone()),
                    device: result.device.clone(),
                    pool: result.pool.clone(),
                    node: node.to_owned(),
                });
            }
            let Parameters { all, claimed } = Parameters::new(allocation, driver, &result.request);
            Ok(AllocatedDevice {
                request: result.request.clone(),
                pool: result.pool.clone(),
                device: result.device.clone(),
                place: None,
                share_id: result.share_id.clone(),
                consumed: amounts(result.consumed_capacity.iter().flatten()),
                is_whole: false,
                admin_access: result.admin_access.unwrap_or_default(),
                parameters: all,
                claimed,
                address: None,
            })
        });
        devices.collect()
    }
}

impl From<&DeviceRequestAllocationResult> for OtherDevice {
    fn from(result: &DeviceRequestAllocationResult) -> Self {
        Self {
            request: result.request.clone(),
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
        }
    }
}

/// The request's name without the subrequest, as the kubelet knows it.
pub fn base_request(request: &str) -> &str {
    request.split_once('/').map_or(request, |(base, _)| base)
}

fn results(allocation: &AllocationResult) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let devices = allocation.devices.as_ref();
    devices.and_then(|devices| devices.results.as_ref()).into_iter().flatten()
}

/// The parameters that apply to a request.
#[derive(Debug, Default)]
struct Parameters {
    all: Option<Value>,
    claimed: Option<Value>,
}

/// Whether a configuration applies to a request: one that names no requests applies to all of them.
fn applies(config: &DeviceAllocationConfiguration, request: &str) -> bool {
    let requests = config.requests.as_deref().unwrap_or_default();
    requests.is_empty()
        || requests.iter().any(|name| name == request || name == base_request(request))
}

impl Parameters {
    /// Of several configurations of a claim the last one counts. Each field that the class sets
    /// takes precedence over the claim's.
    fn new(allocation: &AllocationResult, driver: &str, request: &str) -> Self {
        let devices = allocation.devices.as_ref();
        let configs = devices.and_then(|devices| devices.config.as_ref()).into_iter().flatten();
        let mut parameters = Self::default();
        let mut class = None;
        for config in configs.filter(|config| applies(config, request)) {
            let Some(opaque) = config.opaque.as_ref().filter(|it| it.driver == driver) else {
                continue;
            };
            let value = opaque.parameters.0.clone();
            if config.source == "FromClaim" {
                parameters.claimed = Some(value);
            } else {
                class = Some(overlay(class, value));
            }
        }
        parameters.all = match (parameters.claimed.clone(), class) {
            // The plan rejects what is not an object.
            (Some(claimed), Some(class)) if claimed.is_object() => {
                Some(overlay(Some(claimed), class))
            }
            (Some(claimed), _) => Some(claimed),
            (None, class) => class,
        };
        parameters
    }
}

/// Puts a value over another one: field by field if both are objects, otherwise in its place.
fn overlay(below: Option<Value>, above: Value) -> Value {
    match (below, above) {
        (Some(Value::Object(mut fields)), Value::Object(above)) => {
            for (field, value) in above {
                let value = overlay(fields.remove(&field), value);
                fields.insert(field, value);
            }
            Value::Object(fields)
        }
        // As the parser reads it: not set.
        (Some(below), Value::Null) => below,
        (_, above) => above,
    }
}

/// The pods that a claim is reserved for.
pub(crate) fn pods(claim: &ResourceClaim) -> Vec<PodRef> {
    let consumers = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref());
    consumers
        .into_iter()
        .flatten()
        .filter(|consumer| consumer.resource == "pods")
        .map(|consumer| PodRef { name: consumer.name.clone(), uid: consumer.uid.clone() })
        .collect()
}

#[cfg(test)]
mod tests;
