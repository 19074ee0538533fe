//! NVIDIA's `ComputeDomain` (`resource.nvidia.com/v1beta1`): the nodes of a job whose GPUs share memory
//! over NVLink. For each, NVIDIA's DRA driver creates a ResourceClaimTemplate with an IMEX channel
//! (kubernetes-sigs/dra-driver-nvidia-gpu, `api/nvidia.com/resource/v1beta1/computedomain.go`).

use crate::names::label;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The DeviceClass of channels (`deployments/helm/…/deviceclass-compute-domain-default-channel.yaml`).
/// Each node has one such device, so one pod of a node has a channel.
pub const CHANNEL_CLASS: &str = "compute-domain-default-channel.nvidia.com";

/// The name of the channel's claim in pods and containers.
pub const CHANNEL_CLAIM: &str = "dranet-compute-domain";

/// The start of the names of the objects that admission creates.
const PREFIX: &str = "dranet-compute-domain-";
/// The end of the names of their templates.
const CHANNEL: &str = "-channel";

/// A set of nodes that run one job.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ComputeDomain {
    /// Its name, and its owners.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// What it is for; immutable.
    pub spec: ComputeDomainSpec,
}

/// What a `ComputeDomain` is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComputeDomainSpec {
    /// The number of nodes that make it `Ready`; zero if that is unknown. NVIDIA deprecates the field:
    /// it holds pods back only where the driver's gate `IMEXDaemonsWithDNSNames` is off.
    #[serde(default)]
    pub num_nodes: u32,
    /// The channel that its pods get.
    pub channel: ChannelSpec,
}

/// The channel of a `ComputeDomain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelSpec {
    /// The template that the driver creates.
    pub resource_claim_template: TemplateName,
}

/// The name of a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateName {
    /// In the namespace of the `ComputeDomain`.
    pub name: String,
}

impl ComputeDomain {
    /// The `ComputeDomain` of a group of pods, without owners.
    pub fn of_group(namespace: &str, group: &str, num_nodes: u32) -> Self {
        let labels = [(label::FABRIC_GROUP.to_owned(), group.to_owned())];
        Self {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                name: Some(name(group)),
                labels: Some(labels.into()),
                ..ObjectMeta::default()
            },
            spec: ComputeDomainSpec {
                num_nodes,
                channel: ChannelSpec {
                    resource_claim_template: TemplateName { name: template(group) },
                },
            },
        }
    }
}

/// The name of the `ComputeDomain` of a group.
pub fn name(group: &str) -> String {
    format!("{PREFIX}{group}")
}

/// Whether a name is one that admission gives its `ComputeDomain`s.
pub fn is_name(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The name of the template with its channel.
pub fn template(group: &str) -> String {
    format!("{PREFIX}{group}{CHANNEL}")
}

/// The group of a template with this name, if admission has named it.
pub fn group_of_template(template: &str) -> Option<&str> {
    template.strip_prefix(PREFIX)?.strip_suffix(CHANNEL)
}

/// The template as NVIDIA's driver creates it
/// (`templates/compute-domain-workload-claim-template.tmpl.yaml`), without its configuration, to predict
/// pods whose `ComputeDomain` does not exist yet.
pub fn predicted_template(namespace: &str, name: &str) -> Option<ResourceClaimTemplate> {
    let template = json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"spec": {"devices": {"requests": [
            {"name": "channel", "exactly": {"deviceClassName": CHANNEL_CLASS}},
        ]}}},
    });
    serde_json::from_value(template).ok()
}

topology_graph::resource!(
    ComputeDomain,
    "resource.nvidia.com",
    "v1beta1",
    "computedomains",
    NamespaceResourceScope,
    written
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_name_their_group() {
        assert_eq!(group_of_template(&template("0123456789abcdef")), Some("0123456789abcdef"));
        for name in ["dranet-0123456789abcdef", "imex-channel", "dranet-compute-domain-x"] {
            assert_eq!(group_of_template(name), None, "{name}");
        }
        let made = ComputeDomain::of_group("n", "g", 4);
        let json = serde_json::to_value(&made).unwrap();
        assert_eq!(json["spec"]["channel"]["resourceClaimTemplate"]["name"], template("g"));
        assert_eq!(json["spec"]["numNodes"], 4);
        let again: ComputeDomain = serde_json::from_value(json).unwrap();
        assert_eq!(again, made);
        assert!(predicted_template("n", "t").is_some());
    }
}
