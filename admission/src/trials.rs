//! What claims get on machines, kept from plan to plan. On a large cluster something changes all the time, and
//! most machines stay as they are.

use crate::demand::Demand;
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The most results that are kept: those of some dozen plans, in about ten megabytes.
#[cfg(feature = "server")]
const KEPT_MAX: u64 = 1 << 15;

/// What a claim gets on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Empty {
    /// It does not fit.
    Nothing,
    /// Only any devices, by the last alternative of its requests.
    LastResort,
    /// What it asks for.
    All,
}

/// What a claim gets on a machine, as far as the allocator has said it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnMachine {
    /// It was searched in each state.
    Searched {
        /// The most steps in any state.
        steps: u64,
        /// What it gets while nothing is in use and no device has a problem.
        empty: Empty,
        /// How many of its paths are within a NUMA node, if it fits now while nothing is in use.
        near_paths: Option<u32>,
    },
    /// The search takes more steps than allowed.
    OverBudget,
}

/// The digest of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClaimDigest([u8; 32]);

impl ClaimDigest {
    pub(crate) fn new(claim: &ResourceClaimSpec) -> Self {
        Self(Sha256::digest(serde_json::to_vec(claim).unwrap_or_default()).into())
    }
}

/// The digest of everything that a result depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TrialKey([u8; 32]);

impl TrialKey {
    /// `demands` are those by which states are made and paths are counted.
    pub(crate) fn new(
        view: &ClusterView,
        machine: &Machine<'_>,
        claim: ClaimDigest,
        demands: [&Demand; 2],
        (nearness, budget): (Nearness, u64),
    ) -> Self {
        let devices = &machine.devices;
        let version = view.node_version(devices.node);
        // Claims are none of a trial's inputs.
        let version = (version.devices, version.classes);
        let of_machine = (devices.node, version, devices.gpus.keys(), devices.nics.keys());
        let text = format!("{of_machine:?} {demands:?} {nearness:?} {budget}");
        Self(Sha256::new().chain_update(claim.0).chain_update(text).finalize().into())
    }
}

/// The results of one cluster. Versions of nodes say which are outdated, so it must not be used with a view
/// of another one.
#[derive(Clone)]
#[cfg_attr(not(feature = "server"), derive(Default))]
pub(crate) struct Trials {
    #[cfg(feature = "server")]
    kept: moka::sync::Cache<TrialKey, OnMachine>,
}

#[cfg(feature = "server")]
impl Default for Trials {
    fn default() -> Self {
        Self { kept: moka::sync::Cache::new(KEPT_MAX) }
    }
}

#[cfg(feature = "server")]
impl Trials {
    pub(crate) fn get(&self, key: &TrialKey) -> Option<OnMachine> {
        self.kept.get(key)
    }

    pub(crate) fn keep(&self, key: TrialKey, result: OnMachine) {
        self.kept.insert(key, result);
    }
}

/// A program that makes one plan keeps nothing.
#[cfg(not(feature = "server"))]
#[expect(clippy::unused_self, reason = "the same calls as those of the server")]
impl Trials {
    pub(crate) fn get(&self, _key: &TrialKey) -> Option<OnMachine> {
        None
    }

    pub(crate) fn keep(&self, _key: TrialKey, _result: OnMachine) {}
}

impl fmt::Debug for Trials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trials").finish_non_exhaustive()
    }
}
