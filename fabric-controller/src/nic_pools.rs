//! Addresses of `NicPool`s: which ones are free again because their claims are gone, and
//! how many of each pool are taken. Pure.

use cluster_model::network_config::IpPrefix;
use cluster_model::nic_pool::{NicAddress, NicAddressSpec, NicPool, NicPoolStatus};
use cluster_model::view::{ClusterView, ObjectKey};
use std::collections::BTreeMap;

/// The pools and addresses from the watches, by name.
#[derive(Clone, Debug, Default)]
pub struct NicPools {
    pools: BTreeMap<String, NicPool>,
    addresses: BTreeMap<String, HeldAddress>,
}

/// An address that is reserved for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAddress {
    /// UID of the object.
    pub uid: Option<String>,
    /// The address and its claim.
    pub spec: NicAddressSpec,
}

impl NicPools {
    /// Adds a pool, or replaces it.
    pub fn apply_pool(&mut self, pool: NicPool) {
        self.pools.insert(pool.metadata.name.clone().unwrap_or_default(), pool);
    }

    /// Removes a pool. Its addresses stay until their claims are deleted.
    pub fn delete_pool(&mut self, name: &str) {
        self.pools.remove(name);
    }

    /// Adds an address.
    pub fn apply_address(&mut self, address: NicAddress) {
        let held = HeldAddress { uid: address.metadata.uid, spec: address.spec };
        self.addresses.insert(address.metadata.name.unwrap_or_default(), held);
    }

    /// Removes an address.
    pub fn delete_address(&mut self, name: &str) {
        self.addresses.remove(name);
    }

    /// The addresses whose claims are not in the view. The claim may still exist, because
    /// the view may be outdated.
    pub fn without_claim(&self, view: &ClusterView) -> Vec<(String, HeldAddress)> {
        let is_gone = |held: &HeldAddress| {
            let claim = &held.spec.claim;
            let key = ObjectKey { namespace: claim.namespace.clone(), name: claim.name.clone() };
            view.claim(&key).is_none_or(|known| !known.is(&claim.uid))
        };
        let gone = self.addresses.iter().filter(|(_, held)| is_gone(held));
        gone.map(|(name, held)| (name.clone(), held.clone())).collect()
    }

    /// The pools whose status differs from the wanted one, which is returned too.
    pub fn due_statuses(&self) -> Vec<(String, NicPoolStatus)> {
        let mut taken: BTreeMap<&str, Vec<IpPrefix>> = BTreeMap::new();
        for held in self.addresses.values() {
            taken.entry(&held.spec.pool).or_default().push(held.spec.address);
        }
        let due = self.pools.iter().filter_map(|(name, pool)| {
            let taken = taken.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
            let status = pool.spec.status(taken);
            (pool.status != Some(status)).then(|| (name.clone(), status))
        });
        due.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::view::Index as _;
    use k8s_openapi::api::resource::v1::ResourceClaim;
    use serde_json::json;

    const UIDS: [&str; 2] =
        ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"];

    fn pools(addresses: &[(&str, &str)]) -> NicPools {
        let mut pools = NicPools::default();
        let pool = json!({"metadata": {"name": "rdma"}, "spec": {
            "ranges": [{"cidr": "10.0.0.0/29"}]}});
        pools.apply_pool(serde_json::from_value(pool).unwrap());
        for (last, (claim, uid)) in (1..).zip(addresses) {
            let address = json!({"metadata": {"name": format!("rdma.10-0-0-{last}")}, "spec": {
                "pool": "rdma", "address": format!("10.0.0.{last}/29"), "node": "n", "device": "d",
                "claim": {"namespace": "team", "name": claim, "uid": uid}}});
            pools.apply_address(serde_json::from_value(address).unwrap());
        }
        pools
    }

    fn view(claims: &[(&str, &str)]) -> ClusterView {
        let mut view = ClusterView::default();
        for (name, uid) in claims {
            let claim = json!({"metadata": {"name": name, "namespace": "team", "uid": uid}});
            view.apply(serde_json::from_value::<ResourceClaim>(claim).unwrap()).unwrap();
        }
        view
    }

    #[test]
    fn an_address_is_free_if_its_claim_is_gone_or_recreated() {
        let pools = pools(&[("a", UIDS[0]), ("b", UIDS[0]), ("c", UIDS[0])]);
        let gone = pools.without_claim(&view(&[("a", UIDS[0]), ("c", UIDS[1])]));
        let names: Vec<_> = gone.iter().map(|(_, held)| held.spec.claim.name.as_str()).collect();
        assert_eq!(names, ["b", "c"]);
    }

    #[test]
    fn a_status_is_due_if_it_differs() {
        let mut pools = pools(&[("a", UIDS[0]), ("b", UIDS[0])]);
        let due = pools.due_statuses();
        let status = NicPoolStatus { size: 6, used: 2, free: 4 };
        assert_eq!(due, [("rdma".to_owned(), status)]);
        let mut pool = pools.pools["rdma"].clone();
        pool.status = Some(status);
        pools.apply_pool(pool);
        assert_eq!(pools.due_statuses(), []);
        pools.delete_address("rdma.10-0-0-2");
        assert_eq!(pools.due_statuses()[0].1.used, 1);
    }
}
