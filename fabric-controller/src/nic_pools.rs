//! Addresses of `NicPool`s: which ones their claims do not hold, and how many of each pool are
//! taken. Pure.
//!
//! A claim holds one address of each IP family of a pool for each of its devices, on the node where
//! it is allocated. A token of any node can create addresses in the name of any claim; those that
//! the claim does not hold are deleted.

use cluster_model::names::DRIVER;
use cluster_model::network_config::IpPrefix;
use cluster_model::network_config::NetworkConfig;
use cluster_model::nic_pool::{NicAddress, NicAddressSpec, NicPool, NicPoolStatus};
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use k8s_openapi::jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// The pools and addresses from the watches, by name.
#[derive(Clone, Debug, Default)]
pub struct NicPools {
    pools: BTreeMap<String, NicPool>,
    addresses: BTreeMap<String, HeldAddress>,
    /// Names of addresses, by the claim's UID and the pool.
    of_claim: BTreeMap<(String, String), BTreeSet<String>>,
}

/// An address that is reserved for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAddress {
    /// UID of the object.
    pub uid: Option<String>,
    /// When it was created.
    pub created: Option<Timestamp>,
    /// The address and its claim.
    pub spec: NicAddressSpec,
    /// Whether the claim was allocated when the API server confirmed that it holds the address.
    confirmed: Option<bool>,
}

/// An address that its claim may not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoubtfulAddress {
    /// Name of the object.
    pub name: String,
    /// The address.
    pub held: HeldAddress,
    /// The number of older addresses for the same device, pool and IP family of the claim.
    pub rank: usize,
}

impl HeldAddress {
    fn claim(&self) -> ObjectKey {
        let claim = &self.spec.claim;
        ObjectKey { namespace: claim.namespace.clone(), name: claim.name.clone() }
    }

    /// Whether its claim has the device that it was taken for, according to the view.
    fn has_device(&self, view: &ClusterView) -> bool {
        let own = (DRIVER, &*self.spec.node, &*self.spec.device);
        view.held_by(&self.claim()).any(|it| (&*it.driver, &*it.pool, &*it.device) == own)
    }
}

impl DoubtfulAddress {
    /// Whether the claim holds the address. `claim` is what the API server has now under the
    /// claim's name.
    ///
    /// A claim without an allocation keeps the addresses that it had when its allocation was
    /// removed.
    pub fn is_held_by(&self, claim: &ResourceClaim) -> bool {
        let Self { name, held, rank } = self;
        let is_claim = claim.metadata.uid.as_deref() == Some(&held.spec.claim.uid);
        if !is_claim || *name != held.spec.name() {
            return false;
        }
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        match allocation {
            Some(allocation) => {
                *rank < devices(allocation, &held.spec) && names_pool(allocation, &held.spec.pool)
            }
            None => *rank == 0 && was_created_before(held, status_written(claim)),
        }
    }
}

/// How often the claim has the device that the address was taken for.
fn devices(allocation: &AllocationResult, spec: &NicAddressSpec) -> usize {
    let devices = allocation.devices.as_ref();
    let results = devices.and_then(|devices| devices.results.as_ref()).into_iter().flatten();
    let own = (DRIVER, &*spec.node, &*spec.device);
    results.filter(|it| (&*it.driver, &*it.pool, &*it.device) == own).count()
}

/// Whether the configuration of the claim or of its classes names the pool.
fn names_pool(allocation: &AllocationResult, pool: &str) -> bool {
    let devices = allocation.devices.as_ref();
    let configs = devices.and_then(|devices| devices.config.as_ref()).into_iter().flatten();
    let ours = configs.filter_map(|it| it.opaque.as_ref()).filter(|it| it.driver == DRIVER);
    let mut configs = ours.filter_map(|it| NetworkConfig::parse(&it.parameters.0).ok());
    configs.any(|config| config.interface.pool.as_deref() == Some(pool))
}

/// When the claim's status was written last. The removal of its allocation is such a write.
fn status_written(claim: &ResourceClaim) -> Option<Timestamp> {
    let writes = claim.metadata.managed_fields.iter().flatten();
    let of_status = writes.filter(|it| it.subresource.as_deref() == Some("status"));
    of_status.filter_map(|it| it.time.as_ref()).map(|time| time.0).max()
}

/// Times are to the second.
fn was_created_before(held: &HeldAddress, time: Option<Timestamp>) -> bool {
    held.created.zip(time).is_some_and(|(created, time)| created <= time)
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
        let name = address.metadata.name.clone().unwrap_or_default();
        let created = address.created();
        let NicAddress { metadata, spec } = address;
        self.of_claim.entry(claim_and_pool(&spec)).or_default().insert(name.clone());
        let held = HeldAddress { uid: metadata.uid, created, spec, confirmed: None };
        self.addresses.insert(name, held);
    }

    /// Removes an address.
    pub fn delete_address(&mut self, name: &str) {
        let Some(held) = self.addresses.remove(name) else { return };
        let key = claim_and_pool(&held.spec);
        if let Some(names) = self.of_claim.get_mut(&key) {
            names.remove(name);
            if names.is_empty() {
                self.of_claim.remove(&key);
            }
        }
    }

    /// The addresses that their claims may not hold according to the view, which may be outdated.
    /// Those that [`DoubtfulAddress::is_held_by`] has confirmed are left out until the claim changes.
    pub fn doubtful(&self, view: &ClusterView) -> Vec<DoubtfulAddress> {
        let doubtful = self.addresses.iter().filter_map(|(name, held)| {
            let rank = self.rank(name, held);
            let known = view.claim(&held.claim()).filter(|known| known.is(&held.spec.claim.uid));
            let is_allocated = known.map(|known| known.is_allocated);
            let confirmed = held.confirmed.as_ref() == is_allocated.as_ref();
            let is_held = match is_allocated {
                Some(true) => held.has_device(view) && (rank == 0 || confirmed),
                Some(false) => confirmed,
                None => false,
            };
            let is_held = is_held && name == &held.spec.name();
            (!is_held).then(|| DoubtfulAddress { name: name.clone(), held: held.clone(), rank })
        });
        doubtful.collect()
    }

    /// Records that the claim holds the address while it is allocated, or while it is not.
    pub fn confirm(&mut self, doubtful: &DoubtfulAddress, is_allocated: bool) {
        let held = self.addresses.get_mut(&doubtful.name);
        if let Some(held) = held.filter(|held| held.uid == doubtful.held.uid) {
            held.confirmed = Some(is_allocated);
        }
    }

    /// The number of older addresses for the same device, pool and IP family of the claim.
    fn rank(&self, name: &str, held: &HeldAddress) -> usize {
        let names = self.of_claim.get(&claim_and_pool(&held.spec)).into_iter().flatten();
        let others = names.filter_map(|name| Some((name, self.addresses.get(name)?)));
        let others =
            others.filter(|(_, it)| device_and_family(&it.spec) == device_and_family(&held.spec));
        let own = (held.created, name);
        others.filter(|(name, it)| (it.created, name.as_str()) < own).count()
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

/// What an address is for: a node, its device, and whether it is of IPv4.
fn device_and_family(spec: &NicAddressSpec) -> (&str, &str, bool) {
    (&spec.node, &spec.device, spec.address.address.is_ipv4())
}

fn claim_and_pool(spec: &NicAddressSpec) -> (String, String) {
    (spec.claim.uid.clone(), spec.pool.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::view::Index as _;
    use serde_json::json;

    const UIDS: [&str; 4] = [
        "11111111-1111-4111-8111-111111111111",
        "22222222-2222-4222-8222-222222222222",
        "33333333-3333-4333-8333-333333333333",
        "44444444-4444-4444-8444-444444444444",
    ];

    fn pools(addresses: &[(&str, &str)]) -> NicPools {
        let mut pools = NicPools::default();
        let pool = json!({"metadata": {"name": "rdma"}, "spec": {
            "ranges": [{"cidr": "10.0.0.0/29"}]}});
        pools.apply_pool(serde_json::from_value(pool).unwrap());
        for (last, (claim, uid)) in (1..).zip(addresses) {
            let address = json!({"metadata": {"name": format!("rdma.10-0-0-{last}"),
                "creationTimestamp": "2026-01-01T00:00:10Z"}, "spec": {
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

    /// A claim that is allocated to NIC `d` of node `n`, with a pool in its configuration.
    fn allocated(name: &str, uid: &str, node: &str) -> ResourceClaim {
        let parameters = json!({"interface": {"pool": "rdma"}});
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "team", "uid": uid},
            "status": {"allocation": {"devices": {
                "results": [{"request": "r", "driver": DRIVER, "pool": node, "device": "d"}],
                "config": [{"source": "FromClaim", "requests": [],
                    "opaque": {"driver": DRIVER, "parameters": parameters}}],
            }}},
        }))
        .unwrap()
    }

    fn names(doubtful: &[DoubtfulAddress]) -> Vec<&str> {
        doubtful.iter().map(|it| it.held.spec.claim.name.as_str()).collect()
    }

    #[test]
    fn an_address_is_free_if_its_claim_is_gone_or_recreated() {
        let pools = pools(&[("a", UIDS[0]), ("b", UIDS[1]), ("c", UIDS[2])]);
        let mut view = view(&[("c", UIDS[3])]);
        view.apply(allocated("a", UIDS[0], "n")).unwrap();
        let doubtful = pools.doubtful(&view);
        assert_eq!(names(&doubtful), ["b", "c"]);
        assert!(!doubtful[1].is_held_by(&allocated("c", UIDS[3], "n")));
        assert!(doubtful[1].is_held_by(&allocated("c", UIDS[2], "n")), "the view was outdated");
    }

    #[test]
    fn a_claim_holds_one_address_for_each_device_on_its_node() {
        let pools = pools(&[("a", UIDS[0]), ("a", UIDS[0]), ("b", UIDS[1])]);
        let mut view = ClusterView::default();
        view.apply(allocated("a", UIDS[0], "n")).unwrap();
        view.apply(allocated("b", UIDS[1], "other")).unwrap();
        let doubtful = pools.doubtful(&view);
        let found: Vec<_> = doubtful.iter().map(|it| (it.name.as_str(), it.rank)).collect();
        assert_eq!(found, [("rdma.10-0-0-2", 1), ("rdma.10-0-0-3", 0)]);
        assert!(!doubtful[0].is_held_by(&allocated("a", UIDS[0], "n")), "a second address");
        assert!(!doubtful[1].is_held_by(&allocated("b", UIDS[1], "other")), "another node's");
        let first = DoubtfulAddress { rank: 0, ..doubtful[0].clone() };
        assert!(first.is_held_by(&allocated("a", UIDS[0], "n")));
        let mut no_pool = allocated("a", UIDS[0], "n");
        no_pool
            .status
            .as_mut()
            .unwrap()
            .allocation
            .as_mut()
            .unwrap()
            .devices
            .as_mut()
            .unwrap()
            .config = None;
        assert!(!first.is_held_by(&no_pool), "the claim names no pool");
        let misnamed = DoubtfulAddress { name: "rdma.evil".to_owned(), ..first };
        assert!(!misnamed.is_held_by(&allocated("a", UIDS[0], "n")));
    }

    #[test]
    fn a_claim_without_allocation_keeps_what_it_had_before() {
        let mut pools = pools(&[("a", UIDS[0])]);
        let view = view(&[("a", UIDS[0])]);
        let [doubtful] = &pools.doubtful(&view)[..] else { panic!("one is doubtful") };
        let doubtful = doubtful.clone();
        let claim = |written: Option<&str>| {
            let fields = written.map(|time| {
                json!([{"manager": "kube-controller-manager", "operation": "Update",
                    "subresource": "status", "time": time}])
            });
            serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "team",
                "uid": UIDS[0], "managedFields": fields}}))
            .unwrap()
        };
        assert!(!doubtful.is_held_by(&claim(None)), "it was never allocated");
        assert!(!doubtful.is_held_by(&claim(Some("2026-01-01T00:00:09Z"))), "taken later");
        assert!(doubtful.is_held_by(&claim(Some("2026-01-01T00:00:10Z"))));
        pools.confirm(&doubtful, false);
        assert_eq!(pools.doubtful(&view), []);
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
