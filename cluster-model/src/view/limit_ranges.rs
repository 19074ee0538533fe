//! The resources of which a `LimitRange` demands a limit or a request of every pod or container.

use super::{ClusterView, Index, ObjectKey, ViewError};
use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem};
use std::collections::{BTreeMap, BTreeSet};

/// The `LimitRange`s of all namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitRanges(BTreeMap<ObjectKey, BTreeSet<String>>);

impl LimitRanges {
    /// The `LimitRange`s of a namespace that refuse a pod or container without this resource.
    pub fn demanding<'a>(
        &'a self,
        namespace: &'a str,
        resource: &'a str,
    ) -> impl Iterator<Item = &'a ObjectKey> {
        self.everywhere(resource).filter(move |key| key.namespace == namespace)
    }

    /// The same in all namespaces.
    pub fn everywhere<'a>(&'a self, resource: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        let demanding = self.0.iter().filter(move |(_, demanded)| demanded.contains(resource));
        demanding.map(|(key, _)| key)
    }
}

/// What an item demands (`minConstraint`, `maxConstraint` and `limitRequestRatioConstraint` in
/// `k8s.io/kubernetes/plugin/pkg/admission/limitranger/admission.go`): each bound refuses an amount
/// that is missing.
fn demanded(item: LimitRangeItem) -> impl Iterator<Item = String> {
    let is_for_pods = matches!(item.type_.as_str(), "Pod" | "Container");
    let bounds = [item.max, item.min, item.max_limit_request_ratio];
    let bounds = bounds.into_iter().filter(move |_| is_for_pods).flatten();
    bounds.flat_map(BTreeMap::into_keys)
}

impl Index<LimitRange> for ClusterView {
    fn apply(&mut self, object: LimitRange) -> Result<(), ViewError> {
        let key = ObjectKey::new(&object.metadata);
        let items = object.spec.map(|spec| spec.limits).unwrap_or_default();
        self.limit_ranges.0.insert(key, items.into_iter().flat_map(demanded).collect());
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.limit_ranges.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bounds_demand_an_amount_and_defaults_do_not() {
        let cases = [
            (json!({ "type": "Container", "max": { "nvidia.com/gpu": "8" } }), true),
            (json!({ "type": "Pod", "min": { "nvidia.com/gpu": "1" } }), true),
            (json!({ "type": "Pod", "maxLimitRequestRatio": { "nvidia.com/gpu": "1" } }), true),
            (json!({ "type": "Container", "default": { "nvidia.com/gpu": "1" } }), false),
            (json!({ "type": "Container", "max": { "cpu": "8" } }), false),
            (json!({ "type": "PersistentVolumeClaim", "max": { "nvidia.com/gpu": "8" } }), false),
        ];
        for (item, is_demanded) in cases {
            let mut view = ClusterView::default();
            let object = json!({
                "metadata": { "name": "gpus", "namespace": "team" },
                "spec": { "limits": [&item] },
            });
            view.apply(serde_json::from_value::<LimitRange>(object).unwrap()).unwrap();
            let in_namespace =
                |name| view.limit_ranges().demanding(name, "nvidia.com/gpu").count() == 1;
            assert_eq!(in_namespace("team"), is_demanded, "{item}");
            assert!(!in_namespace("other"), "{item}");
        }
    }
}
