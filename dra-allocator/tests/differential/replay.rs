//! Replays conformance cases: inputs of Kubernetes' allocator with its results.
//!
//! The format is the test table of `structured/internal/allocatortesting`, exported as JSON with
//! one object per case. Inputs are Kubernetes objects; outputs are the results in order, the error
//! text, and the number of search steps.

#![allow(dead_code, reason = "each test and example uses a part of it")]

mod orders;

use std::collections::BTreeMap;
use std::error::Error;

use dra_allocator::quantity::QuantityError;
use dra_allocator::{
    AllocatedState, Attempt, Claim, ClaimAllocation, DeviceId, FeatureGates, Inventory,
    InventoryError, Limits, MinorVersion, NoFit, Outcome, QualifiedName, Quantity, Settings,
    Variant, WireError, allocate,
};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice,
};
use serde::Deserialize;
use serde_json::Value;

/// Replaces the random ID of a share.
const SHARE: &str = "SHARE";

/// A conformance case.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Case {
    /// The name, for cases of the test table.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// The seed, for random cases.
    #[serde(default)]
    pub(crate) seed: Option<u64>,
    kubernetes: String,
    channel: String,
    features: Option<Vec<String>>,
    node: Node,
    slices: Option<Vec<ResourceSlice>>,
    #[serde(default)]
    taint_rules: Option<Vec<DeviceTaintRule>>,
    classes: Option<Vec<DeviceClass>>,
    claims: Option<Vec<ResourceClaim>>,
    allocated_devices: Option<Vec<String>>,
    allocated_shared: Option<Vec<String>>,
    aggregated_capacity: Option<BTreeMap<String, BTreeMap<String, String>>>,
    #[serde(flatten)]
    expected: Answer,
}

/// A case cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The JSON is not a case.
    #[error("failed to read a case")]
    Json(#[from] serde_json::Error),
    /// An unknown version.
    #[error("unsupported Kubernetes version `{0}`: must be 1.34 to 1.37")]
    Version(String),
    /// An unknown variant.
    #[error("unknown allocator variant `{0}`: must be stable, incubating or experimental")]
    Channel(String),
    /// An unknown feature gate.
    #[error("unknown feature gate `{0}`")]
    Feature(String),
    /// The name of a device in use is not `driver/pool/device`.
    #[error("invalid device `{0}`: must be `driver/pool/device`")]
    Device(String),
    /// A capacity in use is invalid.
    #[error("failed to read the capacity in use of `{device}`")]
    Capacity {
        /// The device.
        device: String,
        /// The error.
        source: QuantityError,
    },
    /// A slice, class or node is invalid.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// A claim is invalid.
    #[error("failed to read a claim")]
    Claim(#[from] WireError),
}

/// The result of a case, from Kubernetes or from this crate.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Answer {
    /// The allocations as JSON; `None` if there are none.
    #[serde(default)]
    pub(crate) results: Option<Vec<Value>>,
    /// The error; empty if there is none.
    #[serde(default)]
    pub(crate) error: String,
    /// The number of search steps; −1 if unknown.
    #[serde(default, rename = "numAllocateOne")]
    pub(crate) steps: i64,
}

impl Answer {
    /// Parses a result from JSON.
    pub(crate) fn from_json(json: &str) -> Result<Self, ReplayError> {
        Ok(serde_json::from_str(json)?)
    }

    /// Returns true if the allocations are equal, and both or neither are errors.
    pub(crate) fn same_results(&self, other: &Self) -> bool {
        let results = |answer: &'_ Self| answer.results.clone().filter(|r| !r.is_empty());
        results(self) == results(other) && self.error.is_empty() == other.error.is_empty()
    }

    /// Returns true if the steps are equal, or one of them is unknown.
    pub(crate) fn same_steps(&self, other: &Self) -> bool {
        self.steps == other.steps || self.steps < 0 || other.steps < 0
    }
}

/// A case whose inputs are all parsed.
#[derive(Debug)]
pub(crate) struct Replay {
    inventory: Inventory,
    node: String,
    claims: Vec<Claim>,
    state: AllocatedState,
    settings: Settings,
}

impl Case {
    /// Parses a case from JSON.
    pub(crate) fn from_json(json: &str) -> Result<Self, ReplayError> {
        Ok(serde_json::from_str(json)?)
    }

    /// The result from Kubernetes.
    pub(crate) fn expected(&self) -> Answer {
        self.expected.clone()
    }

    /// The name or the seed.
    pub(crate) fn label(&self) -> String {
        match (&self.name, self.seed) {
            (Some(name), _) => name.clone(),
            (None, Some(seed)) => format!("seed {seed}"),
            (None, None) => "a case without a name".to_owned(),
        }
    }

    /// The settings for the version, the gates and the variant of the case.
    pub(crate) fn settings(&self) -> Result<Settings, ReplayError> {
        let version = MinorVersion::parse(&self.kubernetes)
            .ok_or_else(|| ReplayError::Version(self.kubernetes.clone()))?;
        let mut gates = FeatureGates::default();
        for feature in self.features.iter().flatten() {
            if !gates.set(feature, true) {
                return Err(ReplayError::Feature(feature.clone()));
            }
        }
        let variant = match self.channel.as_str() {
            "stable" => Variant::Stable,
            "incubating" => Variant::Incubating,
            "experimental" => Variant::Experimental,
            other => return Err(ReplayError::Channel(other.to_owned())),
        };
        Ok(Settings::with_variant(version, gates, variant))
    }

    /// Parses all inputs of the case.
    pub(crate) fn replay(&self) -> Result<Replay, ReplayError> {
        let mut inventory = Inventory::new();
        inventory.apply_node(&self.node)?;
        for (number, slice) in self.slices.iter().flatten().enumerate() {
            let mut slice = slice.clone();
            let name = slice.metadata.name.clone().unwrap_or_default();
            if inventory.slice(&name).is_some() {
                // The table has several slices with one name, which no API server would accept. The
                // new name sorts directly after the shared one.
                slice.metadata.name = Some(format!("{name}\u{1}{number:04}"));
            }
            inventory.apply_slice(&slice)?;
        }
        for rule in self.taint_rules.iter().flatten() {
            inventory.apply_taint_rule(rule);
        }
        for class in self.classes.iter().flatten() {
            inventory.apply_class(class)?;
        }
        let claims = self.claims.iter().flatten().map(Claim::try_from).collect::<Result<_, _>>()?;
        let node = self.node.metadata.name.clone().unwrap_or_default();
        let (state, settings) = (self.state()?, self.settings()?);
        Ok(Replay { inventory, node, claims, state, settings })
    }

    fn state(&self) -> Result<AllocatedState, ReplayError> {
        let mut state = AllocatedState::new();
        for device in self.allocated_devices.iter().flatten() {
            state.insert(device_id(device)?);
        }
        for share in self.allocated_shared.iter().flatten() {
            let device = share.rsplit_once('/').map_or(share.as_str(), |(device, _)| device);
            state.insert_share_id(device_id(device)?);
        }
        for (device, amounts) in self.aggregated_capacity.iter().flatten() {
            let amounts = amounts.iter().map(|(name, amount)| {
                Ok((QualifiedName::new(name.as_str()), amount.parse::<Quantity>()?))
            });
            let amounts: Result<Vec<_>, _> = amounts.collect();
            let device = device.as_str();
            let amounts = amounts
                .map_err(|source| ReplayError::Capacity { device: device.to_owned(), source })?;
            state.add_capacity(device_id(device)?, &amounts);
        }
        Ok(state)
    }
}

impl Replay {
    /// Runs the case.
    pub(crate) fn attempt(&self, limits: Limits<'_>) -> Attempt {
        let Self { inventory, node, claims, state, settings } = self;
        allocate(inventory, node, claims, state, settings, limits)
    }

    /// Runs the case and returns its result.
    pub(crate) fn run(&self, limits: Limits<'_>) -> Answer {
        let attempt = self.attempt(limits);
        let (results, error) = match attempt.outcome {
            Outcome::Allocated(allocations) => {
                (Some(allocations.iter().map(result).collect()), String::new())
            }
            Outcome::NoFit(NoFit::NoSolution) => (None, String::new()),
            Outcome::NoFit(NoFit::InvalidPools(_)) => {
                (None, "invalid resource pools were encountered".to_owned())
            }
            Outcome::Failed(error) => (None, chain(&*error)),
            Outcome::OverBudget => (None, "the step budget ended the search".to_owned()),
        };
        Answer { results, error, steps: i64::try_from(attempt.steps).unwrap_or(i64::MAX) }
    }
}

fn result(own: &ClaimAllocation) -> Value {
    let mut wire = AllocationResult::from(own);
    let results = wire.devices.iter_mut().flat_map(|devices| devices.results.iter_mut().flatten());
    for (wire, own) in results.zip(&own.results) {
        wire.share_id = own.is_share.then(|| SHARE.to_owned());
    }
    serde_json::to_value(&wire).unwrap_or_default()
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Parses `driver/pool/device`. A pool name may contain slashes.
fn device_id(text: &str) -> Result<DeviceId, ReplayError> {
    let parts = text.split_once('/').and_then(|(driver, rest)| {
        rest.rsplit_once('/').map(|(pool, device)| DeviceId::new(driver, pool, device))
    });
    parts.ok_or_else(|| ReplayError::Device(text.to_owned()))
}
