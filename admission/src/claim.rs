//! Small builders for the parts of a claim, in the form that the API server returns: defaults are
//! written out, so that an existing template compares equal.

use crate::selector::Selector;
use dra_allocator::Settings;
use k8s_openapi::api::resource::v1::{
    CELDeviceSelector, CapacityRequirements, DeviceClaim, DeviceConstraint, DeviceRequest,
    DeviceSelector, DeviceSubRequest, ExactDeviceRequest, ResourceClaimSpec,
};

const EXACT_COUNT: &str = "ExactCount";

/// The maximum number of requests, and of constraints, of a claim (`DeviceRequestsMaxSize`,
/// `DeviceConstraintsMaxSize`).
pub(crate) const CLAIM_PARTS_MAX: usize = 32;

/// The maximum number of devices of one request that schedulers before 1.37 keep distinct: they
/// remember only the last device of a request (Kubernetes issue 140438).
const APART_BEFORE_1_37: i64 = 2;

/// The parts of a claim.
#[derive(Clone, Debug)]
pub(crate) struct ClaimParts {
    pub(crate) requests: Vec<DeviceRequest>,
    pub(crate) constraints: Vec<DeviceConstraint>,
    /// The names of the requests for NICs.
    pub(crate) nic_requests: Vec<String>,
}

impl ClaimParts {
    /// The claim without configuration.
    pub(crate) fn claim(&self) -> ResourceClaimSpec {
        let Self { requests, constraints, .. } = self;
        ResourceClaimSpec {
            devices: Some(DeviceClaim {
                requests: Some(requests.clone()),
                constraints: (!constraints.is_empty()).then(|| constraints.clone()),
                config: None,
            }),
        }
    }

    /// The requests for NICs.
    pub(crate) fn nics(&self) -> impl Iterator<Item = &DeviceRequest> {
        self.requests.iter().filter(|request| self.nic_requests.contains(&request.name))
    }

    /// Returns true if the scheduler would not keep all NICs of a request distinct.
    pub(crate) fn outgrows_distinct(&self, settings: &Settings) -> bool {
        settings.quirks.distinct_by_request
            && self.nics().any(|request| {
                let ways = request.first_available.iter().flatten().map(|way| way.count);
                let all = ways.chain(request.exactly.iter().map(|ask| ask.count));
                all.into_iter().any(|count| count.unwrap_or(1) > APART_BEFORE_1_37)
            })
    }
}

/// `count` devices of a class that match a selector.
#[derive(Clone, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) class: &'a str,
    pub(crate) count: u32,
    pub(crate) selector: Selector,
    /// The capacity to request from each device, if claims share them.
    pub(crate) capacity: Option<&'a CapacityRequirements>,
}

/// The DeviceClasses that a request names.
pub(crate) fn class_names(request: &DeviceRequest) -> impl Iterator<Item = &str> {
    let exactly = request.exactly.iter().map(|ask| ask.device_class_name.as_str());
    let tiers = request.first_available.iter().flatten();
    exactly.chain(tiers.map(|ask| ask.device_class_name.as_str()))
}

/// A request with a single alternative.
pub(crate) fn exactly(name: &str, ask: Ask<'_>) -> DeviceRequest {
    let Ask { class, count, selector, capacity } = ask;
    DeviceRequest {
        name: name.to_owned(),
        exactly: Some(ExactDeviceRequest {
            device_class_name: class.to_owned(),
            allocation_mode: Some(EXACT_COUNT.to_owned()),
            count: Some(count.into()),
            selectors: Some(vec![cel(selector)]),
            capacity: capacity.cloned(),
            ..Default::default()
        }),
        first_available: None,
    }
}

/// A request with several named alternatives, best first.
pub(crate) fn first_available<'a>(
    name: &str,
    asks: impl IntoIterator<Item = (String, Ask<'a>)>,
) -> DeviceRequest {
    DeviceRequest {
        name: name.to_owned(),
        exactly: None,
        first_available: Some(asks.into_iter().map(subrequest).collect()),
    }
}

fn subrequest((name, ask): (String, Ask<'_>)) -> DeviceSubRequest {
    let Ask { class, count, selector, capacity } = ask;
    DeviceSubRequest {
        name,
        device_class_name: class.to_owned(),
        allocation_mode: Some(EXACT_COUNT.to_owned()),
        count: Some(count.into()),
        selectors: Some(vec![cel(selector)]),
        capacity: capacity.cloned(),
        ..Default::default()
    }
}

/// A constraint that all devices of these requests have the same value of the attribute.
pub(crate) fn match_attribute(requests: Vec<String>, attribute: &str) -> DeviceConstraint {
    DeviceConstraint {
        requests: Some(requests),
        match_attribute: Some(attribute.to_owned()),
        distinct_attribute: None,
    }
}

/// A constraint that all devices of these requests have different values of the attribute. Some
/// schedulers do not keep it; see [`ClaimParts::outgrows_distinct`].
pub(crate) fn distinct_attribute(requests: Vec<String>, attribute: &str) -> DeviceConstraint {
    DeviceConstraint {
        requests: Some(requests),
        match_attribute: None,
        distinct_attribute: Some(attribute.to_owned()),
    }
}

pub(crate) fn cel(selector: Selector) -> DeviceSelector {
    DeviceSelector { cel: Some(CELDeviceSelector { expression: selector.into_text() }) }
}
