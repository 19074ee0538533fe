//! Extended resources that DeviceClasses stand for: on a node where no device plugin offers them,
//! kube-scheduler makes a claim (`DRAExtendedResource`, `plugins/dynamicresources/extended`).

use super::amounts::Amounts;
use super::node_facts::NodeFacts;
use crate::view::ClusterView;
use dra_allocator::{Claim, ClaimName, MinorVersion, WireError};
use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceRequest, ExactDeviceRequest, ResourceClaimSpec,
};
use std::collections::BTreeMap;

/// The prefix of a class's own extended resource (`ResourceDeviceClassPrefix` of
/// `resource.k8s.io/v1`).
const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";

/// The extended resources of a pod that a claim can stand for.
#[derive(Clone, Debug)]
pub struct Extended {
    /// Class and number, by resource.
    wanted: BTreeMap<String, (String, i64)>,
}

impl Extended {
    /// Reads a pod's requests; `None` if no class stands for any of them, or if the cluster is too
    /// old: the gate is on by default since 1.36.
    pub fn new(requests: &Amounts, view: &ClusterView) -> Option<Self> {
        if view.settings().version < MinorVersion::V1_36 {
            return None;
        }
        let wanted = requests.names().filter_map(|name| {
            Some((name.to_owned(), (class_of(name, view)?.to_owned(), requests.units(name))))
        });
        let wanted: BTreeMap<_, _> = wanted.collect();
        (!wanted.is_empty()).then_some(Self { wanted })
    }

    /// Whether a claim is one that the scheduler makes for extended resources: nobody can write it.
    pub fn is_own(claim: &ClaimName) -> bool {
        claim.namespace.is_empty()
    }

    /// The resources that no device plugin of the node offers.
    pub fn missing_on(&self, node: &NodeFacts) -> Vec<&str> {
        let names = self.wanted.keys().map(String::as_str);
        names.filter(|name| node.units(name) == 0).collect()
    }

    /// The claim for these resources, with its spec.
    ///
    /// # Errors
    /// The allocator does not support it.
    pub fn claim(&self, names: &[&str]) -> Result<(Claim, ResourceClaimSpec), WireError> {
        let wanted = self.wanted.iter().filter(|(name, _)| names.contains(&name.as_str()));
        let requests = wanted
            .enumerate()
            .map(|(index, (_, (class, count)))| DeviceRequest {
                name: format!("container-0-request-{index}"),
                exactly: Some(ExactDeviceRequest {
                    device_class_name: class.clone(),
                    allocation_mode: Some("ExactCount".to_owned()),
                    count: Some(*count),
                    ..ExactDeviceRequest::default()
                }),
                ..DeviceRequest::default()
            })
            .collect();
        let devices = DeviceClaim { requests: Some(requests), ..DeviceClaim::default() };
        let spec = ResourceClaimSpec { devices: Some(devices) };
        Ok((Claim::from_spec(ClaimName::new("", "extended-resources"), &spec)?, spec))
    }
}

/// The class that stands for a resource.
fn class_of<'n>(name: &'n str, view: &'n ClusterView) -> Option<&'n str> {
    let implicit = name.strip_prefix(IMPLICIT);
    let implicit = implicit.filter(|class| view.inventory().class(class).is_some());
    implicit.or_else(|| view.class_of_extended_resource(name))
}
