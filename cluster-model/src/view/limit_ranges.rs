//! The resources of which a `LimitRange` demands a limit or a request of every pod or container, or
//! sets one.

use super::{ClusterView, Index, ObjectKey, ViewError};
use k8s_openapi::api::core::v1::{LimitRange, LimitRangeItem};
use std::collections::{BTreeMap, BTreeSet};

/// The `LimitRange`s of all namespaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitRanges(BTreeMap<ObjectKey, Resources>);

/// The resources that a `LimitRange` names.
#[derive(Clone, Debug, Default, PartialEq)]
struct Resources {
    /// Those that every pod or container must have.
    demanded: BTreeSet<String>,
    /// Those of which containers without a limit get one.
    set: BTreeSet<String>,
}

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
        let demanding = self.0.iter().filter(move |(_, it)| it.demanded.contains(resource));
        demanding.map(|(key, _)| key)
    }

    /// The `LimitRange`s of a namespace that set a limit on this resource in containers without one.
    pub fn setting<'a>(
        &'a self,
        namespace: &'a str,
        resource: &'a str,
    ) -> impl Iterator<Item = &'a ObjectKey> {
        let setting = self.0.iter().filter(move |(_, it)| it.set.contains(resource));
        setting.map(|(key, _)| key).filter(move |key| key.namespace == namespace)
    }
}

/// What an item demands (`minConstraint`, `maxConstraint` and `limitRequestRatioConstraint` in
/// `k8s.io/kubernetes/plugin/pkg/admission/limitranger/admission.go`): each bound refuses an amount
/// that is missing.
fn demanded(item: &LimitRangeItem) -> impl Iterator<Item = String> {
    let is_for_pods = matches!(item.type_.as_str(), "Pod" | "Container");
    let bounds = [&item.max, &item.min, &item.max_limit_request_ratio];
    let bounds = bounds.into_iter().filter(move |_| is_for_pods).flatten();
    bounds.flat_map(BTreeMap::keys).cloned()
}

/// What an item sets in containers without a limit: its defaults, of which the API server makes its
/// maximum one (`SetDefaults_LimitRangeItem` in `k8s.io/kubernetes/pkg/apis/core/v1/defaults.go`).
fn set(item: &LimitRangeItem) -> impl Iterator<Item = String> {
    let is_for_containers = item.type_ == "Container";
    let limits = [&item.default, &item.max];
    let limits = limits.into_iter().filter(move |_| is_for_containers).flatten();
    limits.flat_map(BTreeMap::keys).cloned()
}

impl Index<LimitRange> for ClusterView {
    fn apply(&mut self, object: LimitRange) -> Result<(), ViewError> {
        let key = ObjectKey::new(&object.metadata);
        let items = object.spec.map(|spec| spec.limits).unwrap_or_default();
        let resources = Resources {
            demanded: items.iter().flat_map(demanded).collect(),
            set: items.iter().flat_map(set).collect(),
        };
        self.limit_ranges.0.insert(key, resources);
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
    fn bounds_demand_an_amount_and_defaults_set_one() {
        let cases = [
            (json!({ "type": "Container", "max": { "nvidia.com/gpu": "8" } }), true, true),
            (json!({ "type": "Pod", "min": { "nvidia.com/gpu": "1" } }), true, false),
            (
                json!({ "type": "Pod", "maxLimitRequestRatio": { "nvidia.com/gpu": "1" } }),
                true,
                false,
            ),
            (json!({ "type": "Container", "default": { "nvidia.com/gpu": "1" } }), false, true),
            (json!({ "type": "Container", "max": { "cpu": "8" } }), false, false),
            (
                json!({ "type": "PersistentVolumeClaim", "max": { "nvidia.com/gpu": "8" } }),
                false,
                false,
            ),
        ];
        for (item, is_demanded, is_set) in cases {
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
            let setting = |name| view.limit_ranges().setting(name, "nvidia.com/gpu").count() == 1;
            assert_eq!(setting("team"), is_set, "{item}");
            assert!(!setting("other"), "{item}");
        }
    }
}
