//! Claims, reduced to what decisions read: the spec of each, and whether it is allocated. The
//! inventory has the devices that claims hold.
//!
//! A large cluster has tens of thousands of claims from a few templates, so each distinct spec is
//! stored once.

use super::{ClusterView, Index, ObjectKey, ViewError, inventory_error};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimSpec};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Weak};

/// The parts of a claim that the view stores.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownClaim {
    /// The UID as a number, which takes less memory. `None` if it is not a UUID.
    pub uid: Option<u128>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The spec.
    pub spec: Option<Arc<ResourceClaimSpec>>,
    /// Whether it is allocated.
    pub is_allocated: bool,
    /// Why no further pod can use it.
    pub closed: Option<ClosedClaim>,
    /// The first pod that may use it, with its UID.
    pub pod: Option<(String, String)>,
}

/// Why no further pod can use a claim (`PreEnqueue` and `PreFilter` in `plugins/dynamicresources`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedClaim {
    /// It is being deleted.
    BeingDeleted,
    /// As many pods use it as can.
    Full,
}

/// The most pods that can use a claim (`ResourceClaimReservedForMaxSize`).
const USERS_MAX: usize = 256;

impl ClosedClaim {
    fn of(claim: &ResourceClaim) -> Option<Self> {
        if claim.metadata.deletion_timestamp.is_some() {
            return Some(Self::BeingDeleted);
        }
        let users = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref());
        users.is_some_and(|users| users.len() >= USERS_MAX).then_some(Self::Full)
    }
}

impl fmt::Display for ClosedClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeingDeleted => f.write_str("is being deleted"),
            Self::Full => write!(f, "is used by {USERS_MAX} pods, and no more can use it"),
        }
    }
}

/// Claims by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    all: BTreeMap<ObjectKey, Arc<KnownClaim>>,
    specs: Specs,
}

impl Claims {
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&KnownClaim> {
        self.all.get(key).map(|claim| &**claim)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &KnownClaim)> {
        self.all.iter().map(|(key, claim)| (key, &**claim))
    }

    pub(super) fn after(
        &self,
        key: Option<&ObjectKey>,
    ) -> impl Iterator<Item = (&ObjectKey, &KnownClaim)> {
        let start = key.map_or(Bound::Unbounded, Bound::Excluded);
        self.all.range((start, Bound::Unbounded)).map(|(key, claim)| (key, &**claim))
    }

    fn put(&mut self, object: ResourceClaim) {
        let (key, closed) = (ObjectKey::new(&object.metadata), ClosedClaim::of(&object));
        let status = object.status.unwrap_or_default();
        let pods = status.reserved_for.into_iter().flatten();
        let mut pods = pods.filter(|consumer| consumer.resource == "pods");
        let known = KnownClaim {
            uid: object.metadata.uid.as_deref().and_then(number),
            labels: object.metadata.labels.unwrap_or_default(),
            spec: object.spec.map(|spec| self.specs.share(spec)),
            is_allocated: status.allocation.is_some(),
            closed,
            pod: pods.next().map(|pod| (pod.name, pod.uid)),
        };
        self.all.insert(key, Arc::new(known));
    }
}

impl KnownClaim {
    /// Returns true if the claim has this UID, as far as known.
    pub fn is(&self, uid: &str) -> bool {
        self.uid.zip(number(uid)).is_none_or(|(own, uid)| own == uid)
    }
}

/// Parses a UUID into a number.
fn number(uid: &str) -> Option<u128> {
    u128::from_str_radix(&uid.replace('-', ""), 16).ok()
}

/// The specs in use, by their text.
#[derive(Clone, Debug, Default)]
struct Specs {
    known: HashMap<String, Weak<ResourceClaimSpec>>,
    /// The number of known specs at which the next clean-up runs.
    limit: usize,
}

impl Specs {
    fn share(&mut self, spec: ResourceClaimSpec) -> Arc<ResourceClaimSpec> {
        // A spec that cannot be written as text is not shared.
        let Ok(text) = serde_json::to_string(&spec) else { return Arc::new(spec) };
        if let Some(known) = self.known.get(&text).and_then(Weak::upgrade) {
            return known;
        }
        if self.known.len() >= self.limit {
            self.known.retain(|_, spec| spec.strong_count() > 0);
            self.limit = 2 * self.known.len().max(64);
        }
        let spec = Arc::new(spec);
        self.known.insert(text, Arc::downgrade(&spec));
        spec
    }
}

impl Index<ResourceClaim> for ClusterView {
    fn apply(&mut self, object: ResourceClaim) -> Result<(), ViewError> {
        self.revision.claims += 1;
        let applied = self.inventory.apply_claim(&object);
        applied.map_err(|source| inventory_error("ResourceClaim", &object.metadata, source))?;
        self.versions.apply_claim(&object);
        self.late_claims.apply(&object);
        self.claims.put(object);
        Ok(())
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.revision.claims += 1;
        self.inventory.delete_claim(&key.into());
        self.versions.delete_claim(key);
        self.late_claims.remove(key);
        self.claims.all.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(name: &str, class: &str) -> ResourceClaim {
        serde_json::from_value(json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "devices": { "requests": [
                { "name": "r", "exactly": { "deviceClassName": class } },
            ] } },
        }))
        .unwrap()
    }

    fn spec(view: &ClusterView, name: &str) -> Arc<ResourceClaimSpec> {
        let key = ObjectKey { namespace: "default".to_owned(), name: name.to_owned() };
        view.claim(&key).unwrap().spec.clone().unwrap()
    }

    #[test]
    fn equal_claim_specs_are_stored_once() {
        let mut view = ClusterView::default();
        for (name, class) in [("a", "gpu"), ("b", "gpu"), ("c", "nic")] {
            view.apply(claim(name, class)).unwrap();
        }
        assert!(Arc::ptr_eq(&spec(&view, "a"), &spec(&view, "b")));
        assert!(!Arc::ptr_eq(&spec(&view, "a"), &spec(&view, "c")));
    }

    #[test]
    fn claims_after_iterates_in_name_order() {
        let mut view = ClusterView::default();
        for name in ["b", "a", "c"] {
            view.apply(claim(name, "gpu")).unwrap();
        }
        let next = |key: Option<&ObjectKey>| {
            let mut after = view.claims_after(key);
            after.next().map(|(key, _)| key.clone())
        };
        let keys = std::iter::successors(next(None), |key| next(Some(key)));
        let names: Vec<_> = keys.map(|key| key.name).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn unused_claim_specs_are_forgotten() {
        let mut specs = Specs::default();
        for index in 0..1_000 {
            specs.share(claim("a", &index.to_string()).spec.unwrap());
        }
        assert!(specs.known.len() <= 128, "{} are known", specs.known.len());
    }
}
