//! Converts `ResourceClaims`, the devices that they hold, and `DeviceClasses`.

use std::sync::Arc;

use k8s_openapi::api::resource::v1;

use super::amounts::quantities;
use super::error::WireError;
use super::interner::Interner;
use crate::cel::Selector;
use crate::claim::{
    AllocationMode, Ask, Claim, ClaimConfig, Class, Constraint, ConstraintKind, OpaqueConfig,
    Request, RequestKind, Toleration,
};
use crate::name::{ClaimName, DeviceId, QualifiedName};
use crate::quantity::Quantity;

pub(crate) fn class(wire: &v1::DeviceClass, texts: &mut Interner) -> Result<Class, WireError> {
    let name = wire.metadata.name.as_ref().ok_or(WireError::NoName("DeviceClass"))?;
    let spec = wire.spec.as_ref();
    let selectors = selectors(spec.and_then(|spec| spec.selectors.as_ref()), texts).into_iter();
    let config = spec.and_then(|spec| spec.config.as_ref()).into_iter().flatten();
    Ok(Class {
        name: texts.text(name),
        // Kubernetes checks for unknown kinds of selectors only in requests.
        selectors: selectors.flatten().collect(),
        config: config.map(|config| opaque(config.opaque.as_ref(), texts)).collect(),
    })
}

fn opaque(wire: Option<&v1::OpaqueDeviceConfiguration>, texts: &mut Interner) -> OpaqueConfig {
    OpaqueConfig {
        driver: wire.map(|wire| texts.text(&wire.driver)),
        parameters: Arc::new(wire.map(|wire| wire.parameters.0.clone()).unwrap_or_default()),
    }
}

fn selectors(
    wire: Option<&Vec<v1::DeviceSelector>>,
    texts: &mut Interner,
) -> Vec<Option<Selector>> {
    let selectors = wire.into_iter().flatten();
    let selectors = selectors
        .map(|wire| wire.cel.as_ref().map(|cel| Selector::new(texts.text(&cel.expression))));
    selectors.collect()
}

impl Claim {
    /// Converts the spec of a claim that is to be allocated.
    pub fn from_spec(name: ClaimName, spec: &v1::ResourceClaimSpec) -> Result<Self, WireError> {
        let texts = &mut Interner::default();
        let Some(devices) = &spec.devices else {
            let (requests, constraints, config) = Default::default();
            return Ok(Self { name, requests, constraints, config });
        };
        let requests = devices.requests.iter().flatten();
        let requests = requests.map(|wire| request(wire, &name, texts));
        let requests = requests.collect::<Result<_, _>>()?;
        let constraints = devices.constraints.iter().flatten();
        let constraints = constraints.map(|wire| constraint(wire, texts)).collect();
        let config = devices.config.iter().flatten();
        let config = config.map(|wire| ClaimConfig {
            requests: texts.texts(wire.requests.as_ref()),
            config: opaque(wire.opaque.as_ref(), texts),
        });
        Ok(Self { requests, constraints, config: config.collect(), name })
    }
}

impl TryFrom<&v1::ResourceClaim> for Claim {
    type Error = WireError;

    fn try_from(wire: &v1::ResourceClaim) -> Result<Self, WireError> {
        let empty = v1::ResourceClaimSpec::default();
        Self::from_spec(claim_name(wire)?, wire.spec.as_ref().unwrap_or(&empty))
    }
}

pub(crate) fn claim_name(wire: &v1::ResourceClaim) -> Result<ClaimName, WireError> {
    let name = wire.metadata.name.as_deref().ok_or(WireError::NoName("ResourceClaim"))?;
    Ok(ClaimName::new(wire.metadata.namespace.as_deref().unwrap_or_default(), name))
}

fn request(
    wire: &v1::DeviceRequest,
    claim: &ClaimName,
    texts: &mut Interner,
) -> Result<Request, WireError> {
    let at = format!("ResourceClaim {claim}: request {}", wire.name);
    // A request with subrequests is a prioritized list, whatever else is set.
    let subrequests = wire.first_available.iter().flatten();
    let asks = subrequests.map(|wire| subrequest(wire, &at, texts));
    let asks: Vec<_> = asks.collect::<Result<_, _>>()?;
    let kind = match &wire.exactly {
        _ if !asks.is_empty() => RequestKind::FirstAvailable(asks),
        Some(exactly) => RequestKind::Exactly(exact(&wire.name, exactly, &at, texts)?),
        None => RequestKind::Unknown,
    };
    Ok(Request { name: texts.text(&wire.name), kind })
}

fn exact(
    name: &str,
    wire: &v1::ExactDeviceRequest,
    at: &str,
    texts: &mut Interner,
) -> Result<Ask, WireError> {
    Ok(Ask {
        name: texts.text(name),
        class: texts.text(&wire.device_class_name),
        mode: mode(wire.allocation_mode.as_ref(), wire.count, texts),
        admin_access: wire.admin_access,
        selectors: selectors(wire.selectors.as_ref(), texts),
        tolerations: tolerations(wire.tolerations.as_ref(), texts),
        capacity: capacity(wire.capacity.as_ref(), at, texts)?,
        derived_attributes: derived(wire.derived_attributes.as_ref(), texts),
    })
}

fn subrequest(
    wire: &v1::DeviceSubRequest,
    at: &str,
    texts: &mut Interner,
) -> Result<Ask, WireError> {
    Ok(Ask {
        name: texts.text(&wire.name),
        class: texts.text(&wire.device_class_name),
        mode: mode(wire.allocation_mode.as_ref(), wire.count, texts),
        admin_access: None,
        selectors: selectors(wire.selectors.as_ref(), texts),
        tolerations: tolerations(wire.tolerations.as_ref(), texts),
        capacity: capacity(wire.capacity.as_ref(), at, texts)?,
        derived_attributes: derived(wire.derived_attributes.as_ref(), texts),
    })
}

/// Applies the API server's defaults: `ExactCount` and 1 (`pkg/apis/resource/v1/defaults.go`).
fn mode(mode: Option<&String>, count: Option<i64>, texts: &mut Interner) -> AllocationMode {
    match mode.map(String::as_str) {
        None | Some("" | "ExactCount") => AllocationMode::ExactCount(count.unwrap_or(1)),
        Some("All") => AllocationMode::All,
        Some(other) => AllocationMode::Unknown(texts.text(other)),
    }
}

fn tolerations(wire: Option<&Vec<v1::DeviceToleration>>, texts: &mut Interner) -> Vec<Toleration> {
    let tolerations = wire.into_iter().flatten();
    let tolerations = tolerations.map(|wire| Toleration {
        key: texts.optional(wire.key.as_ref()),
        operator: texts.optional(wire.operator.as_ref()),
        value: texts.optional(wire.value.as_ref()),
        effect: texts.optional(wire.effect.as_ref()),
        seconds: wire.toleration_seconds,
    });
    tolerations.collect()
}

fn capacity(
    wire: Option<&v1::CapacityRequirements>,
    at: &str,
    texts: &mut Interner,
) -> Result<Option<Vec<(QualifiedName, Quantity)>>, WireError> {
    let Some(wire) = wire else { return Ok(None) };
    let Some(requests) = &wire.requests else { return Ok(Some(Vec::new())) };
    quantities(requests, at, texts).map(Some)
}

fn derived(
    wire: Option<&Vec<v1::DeviceDerivedAttribute>>,
    texts: &mut Interner,
) -> Vec<(Arc<str>, Selector)> {
    let attributes = wire.into_iter().flatten();
    let attributes = attributes
        .map(|wire| (texts.text(&wire.name), Selector::new(texts.text(&wire.expression))));
    attributes.collect()
}

fn constraint(wire: &v1::DeviceConstraint, texts: &mut Interner) -> Constraint {
    let kind = match (&wire.match_attribute, &wire.distinct_attribute) {
        (Some(name), _) => ConstraintKind::Match(texts.text(name)),
        (None, Some(name)) => ConstraintKind::Distinct(texts.text(name)),
        (None, None) => ConstraintKind::Unknown,
    };
    Constraint { requests: texts.texts(wire.requests.as_ref()), kind }
}

/// A device that an allocated claim holds.
#[derive(Clone, Debug)]
pub(crate) struct HeldDevice {
    pub(crate) device: DeviceId,
    /// For a share of a device: the capacity that it takes.
    pub(crate) share: Option<Vec<(QualifiedName, Quantity)>>,
}

/// The devices that a claim holds. Devices with admin access are not held (`allocateddevices.go`).
pub(crate) fn allocated_devices(
    wire: &v1::ResourceClaim,
    texts: &mut Interner,
) -> Result<Vec<HeldDevice>, WireError> {
    let allocation = wire.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref());
    let results = results.and_then(|devices| devices.results.as_ref()).into_iter().flatten();
    let held = results.filter(|result| result.admin_access != Some(true)).map(|result| {
        let at = format!("ResourceClaim {}: result {}", claim_name(wire)?, result.request);
        let device = DeviceId {
            driver: texts.text(&result.driver),
            pool: texts.text(&result.pool),
            device: texts.text(&result.device),
        };
        let consumed = result.consumed_capacity.as_ref();
        let consumed = consumed.map(|consumed| quantities(consumed, &at, texts)).transpose()?;
        let share = result.share_id.is_some().then(|| consumed.unwrap_or_default());
        Ok(HeldDevice { device, share })
    });
    held.collect()
}
