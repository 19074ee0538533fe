//! The kinds that an API server may or may not serve, where decisions depend on it.

use crate::compute_domain::ComputeDomain;
use crate::view::{ClusterView, Index};
use k8s_openapi::Resource as _;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use serde::{Deserialize, Serialize};

/// The optional kinds that the API server serves, which may have no object. In the head of a
/// snapshot each is a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Served {
    pod_groups: bool,
    compute_domains: bool,
}

impl Served {
    /// Adds a kind by its name, for example `PodGroup`. Kinds that every API server serves, and
    /// those on which no decision depends, change nothing.
    pub fn add(&mut self, kind: &str) {
        match kind {
            PodGroup::KIND => self.pod_groups = true,
            ComputeDomain::KIND => self.compute_domains = true,
            _ => {}
        }
    }

    /// Tells a view.
    pub(super) fn apply(self, view: &mut ClusterView) {
        if self.pod_groups {
            Index::<PodGroup>::served(view);
        }
        if self.compute_domains {
            Index::<ComputeDomain>::served(view);
        }
    }
}
