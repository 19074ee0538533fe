//! ResourceClaimTemplates that are named by their content: the same demand in the same
//! namespace always gives the same object, whoever creates it.

use cluster_model::names::label;
use k8s_openapi::api::resource::v1::{
    ResourceClaimSpec, ResourceClaimTemplate, ResourceClaimTemplateSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Label on templates and on the claims created from them, with the template's name.
/// Claims have no other reference to their template.
pub const TEMPLATE_LABEL: &str = label::TEMPLATE;
/// Standard label that names the component that manages an object.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Its value on objects that admission creates.
pub const MANAGED_BY: &str = "dranet-admission";

const PREFIX: &str = "dranet-";

/// Hex digits of the content's hash in the name.
const HASH_DIGITS: usize = 16;

/// The template with this claim, without a namespace.
pub fn build(claim: &ResourceClaimSpec) -> ResourceClaimTemplate {
    let name = name(claim);
    let labels = BTreeMap::from([(TEMPLATE_LABEL.to_owned(), name.clone())]);
    let own = BTreeMap::from([(MANAGED_BY_LABEL.to_owned(), MANAGED_BY.to_owned())]);
    ResourceClaimTemplate {
        metadata: ObjectMeta {
            name: Some(name),
            labels: Some(labels.iter().chain(&own).map(|(k, v)| (k.clone(), v.clone())).collect()),
            ..Default::default()
        },
        spec: Some(ResourceClaimTemplateSpec {
            metadata: Some(ObjectMeta { labels: Some(labels), ..Default::default() }),
            spec: Some(claim.clone()),
        }),
    }
}

/// Whether the name of a template is the hash of its content, as of all that admission makes.
pub fn is_named_by_content(template: &ResourceClaimTemplate) -> bool {
    let claim = template.spec.as_ref().and_then(|spec| spec.spec.as_ref());
    claim.is_some_and(|claim| template.metadata.name.as_ref() == Some(&name(claim)))
}

/// Whether the name has the form of a managed template.
pub fn is_ours(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|hash| {
        hash.len() == HASH_DIGITS
            && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// `dranet-` and the first digits of the SHA-256 of the claim's JSON, whose keys are in
/// the order of the API's fields.
fn name(claim: &ResourceClaimSpec) -> String {
    let json = serde_json::to_vec(claim).expect("a claim's JSON has string keys only");
    let mut name = PREFIX.to_owned();
    for byte in Sha256::digest(&json).iter().take(HASH_DIGITS / 2) {
        write!(name, "{byte:02x}").expect("writing to a string cannot fail");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::resource::v1::DeviceClaim;

    #[test]
    fn the_name_follows_the_content() {
        let one = build(&ResourceClaimSpec::default());
        let same = build(&ResourceClaimSpec::default());
        let other = build(&ResourceClaimSpec { devices: Some(DeviceClaim::default()) });
        assert_eq!(one, same);
        assert_ne!(one.metadata.name, other.metadata.name);
        assert!(is_named_by_content(&one));
        let taken = ResourceClaimTemplate { metadata: one.metadata.clone(), ..other };
        assert!(!is_named_by_content(&taken));
        assert!(is_ours(&one.metadata.name.unwrap()));
    }

    #[test]
    fn other_names_are_not_ours() {
        for name in ["dranet-", "dranet-mine", "dranet-00112233445566zz", "2nic-aligned"] {
            assert!(!is_ours(name), "{name}");
        }
    }
}
