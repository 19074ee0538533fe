//! Reserves addresses from `NicPool`s. Each address is an object on the API server, named
//! by pool and address. Creating it is the reservation: if two drivers choose the same
//! address, the API server refuses one. Only the claim's own addresses are listed, and
//! those of the pool after several attempts in a row found their address taken.
//!
//! A claim keeps its address. When it is prepared again on this node, with the same device, the
//! object is still there. On another node, or with another device, the fabric controller deletes
//! the object and the claim reserves the same address again, unless another claim is faster. The
//! fabric controller also deletes the address when the claim is gone.

mod choice;
mod error;

pub use error::PoolError;

use crate::prepare::claim::AllocatedClaim;

use crate::model::claim::ClaimRef;
use crate::prepare::error::PrepareError;
use choice::{AddressSearch, Reserved, SearchStep};
use cluster_model::names::label;
use cluster_model::network_config::{IpPrefix, NetworkConfig};
use cluster_model::nic_pool::{
    Addresses, NicAddress, NicAddressClaim, NicAddressSpec, NicPool, address_name,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest time for the whole reservation; below the kubelet's limit of 45 s.
const PATIENCE: Duration = Duration::from_secs(25);
/// Longest time to wait for the fabric controller to free the address that the claim had before on
/// another node. It compares addresses with claims every two seconds.
const FREEING: Duration = Duration::from_secs(6);
/// The time between attempts to get that address.
const RETRY: Duration = Duration::from_millis(500);

/// Assigns addresses and the pool's other settings to the claim's devices whose
/// configuration names a pool.
pub async fn reserve(
    client: &Client,
    node: &str,
    claim: &mut AllocatedClaim,
) -> Result<(), PrepareError> {
    let wanted: Vec<_> = wanted(claim).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let asked = claim.claim.clone();
    let reservation = Reservation::new(client, node, &asked);
    let reserved = tokio::time::timeout(PATIENCE, reservation.reserve(claim, wanted)).await;
    reserved
        .unwrap_or(Err(PoolError::Late))
        .map_err(|source| PrepareError::Pool { claim: asked.clone(), source: Box::new(source) })
}

/// A device with a pool: its index, the pool and its configuration.
type Wanted = (usize, String, NetworkConfig);

/// Devices with a pool. The plan rejects malformed configurations.
fn wanted(claim: &AllocatedClaim) -> impl Iterator<Item = Wanted> {
    let devices = claim.devices.iter().enumerate().filter(|(_, device)| !device.admin_access);
    devices.filter_map(|(index, device)| {
        let config = NetworkConfig::parse(device.parameters.as_ref()?).ok()?;
        Some((index, config.interface.pool.clone()?, config))
    })
}

/// The addresses of one claim.
struct Reservation<'a> {
    pools: Api<NicPool>,
    addresses: Api<NicAddress>,
    node: &'a str,
    claim: &'a ClaimRef,
}

impl<'a> Reservation<'a> {
    fn new(client: &Client, node: &'a str, claim: &'a ClaimRef) -> Self {
        let (pools, addresses) = (Api::all(client.clone()), Api::all(client.clone()));
        Self { pools, addresses, node, claim }
    }

    async fn reserve(
        &self,
        claim: &mut AllocatedClaim,
        wanted: Vec<Wanted>,
    ) -> Result<(), PoolError> {
        let devices: Vec<String> = claim.devices.iter().map(|it| it.device.clone()).collect();
        let mut reserved = Reserved::new(self.own().await?, self.claim, self.node, &devices);
        let until = Instant::now() + FREEING;
        let mut pools: BTreeMap<String, NicPool> = BTreeMap::new();
        let (mut indices, mut completed) = (Vec::new(), Vec::new());
        for (index, name, config) in wanted {
            let pool = if let Some(pool) = pools.get(&name) {
                pool
            } else {
                let pool = self.pool(&name).await?;
                pools.entry(name.clone()).or_insert(pool)
            };
            let device = claim.devices[index].device.clone();
            let mut addresses = Vec::new();
            for family in pool.spec.addresses() {
                let address = match reserved.keep(pool, &family, &device) {
                    Some(address) => Some(address),
                    None => match reserved.former(&name, &family) {
                        Some(former) => self.take_again(&name, former, &device, until).await?,
                        None => None,
                    },
                };
                addresses.push(match address {
                    Some(address) => address,
                    None => self.take(&name, &family, &device).await?,
                });
            }
            indices.push(index);
            completed.push(pool.spec.complete(config, addresses));
        }
        for (index, config) in indices.into_iter().zip(completed) {
            let parameters = serde_json::to_value(config).map_err(PoolError::Config)?;
            claim.devices[index].parameters = Some(parameters);
        }
        Ok(())
    }

    /// The addresses that were reserved in the claim's name.
    async fn own(&self) -> Result<Vec<NicAddress>, PoolError> {
        let selector = format!("{}={}", label::CLAIM_UID, self.claim.uid);
        self.list(&selector).await
    }

    async fn list(&self, selector: &str) -> Result<Vec<NicAddress>, PoolError> {
        let params = ListParams::default().labels(selector);
        Ok(self.addresses.list(&params).await?.items)
    }

    /// Gets the pool, if the claim's namespace may use it.
    async fn pool(&self, name: &str) -> Result<NicPool, PoolError> {
        let Some(pool) = self.pools.get_opt(name).await? else {
            return Err(PoolError::Absent { pool: name.to_owned() });
        };
        pool.spec.check().map_err(|source| PoolError::Invalid { pool: name.to_owned(), source })?;
        if !pool.spec.allows(&self.claim.namespace) {
            let allowed = pool.spec.namespaces.unwrap_or_default();
            let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
            let (pool, namespace) = (name.to_owned(), self.claim.namespace.clone());
            return Err(PoolError::Namespace { pool, namespace, allowed });
        }
        Ok(pool)
    }

    /// Reserves an address that the claim had before, when the fabric controller has freed it.
    /// `None` if that takes too long, or another claim got it.
    async fn take_again(
        &self,
        pool: &str,
        former: IpPrefix,
        device: &str,
        until: Instant,
    ) -> Result<Option<IpPrefix>, PoolError> {
        while Instant::now() < until {
            if self.create(pool, former, device).await? {
                return Ok(Some(former));
            }
            tokio::time::sleep(RETRY).await;
        }
        Ok(None)
    }

    /// Reserves a free address.
    async fn take(
        &self,
        pool: &str,
        family: &Addresses,
        device: &str,
    ) -> Result<IpPrefix, PoolError> {
        let mut choice = AddressSearch::new(family, format!("{}/{device}", self.claim.uid));
        loop {
            match choice.step() {
                SearchStep::Create(address) if self.create(pool, address, device).await? => {
                    return Ok(address);
                }
                SearchStep::Create(address) => choice.is_taken(address.address),
                SearchStep::List => {
                    let listed = self.list(&format!("{}={pool}", label::NIC_POOL)).await?;
                    choice.are_taken(listed.iter().map(|it| it.spec.address.address));
                }
                SearchStep::Full => {
                    let size = family.count();
                    return Err(PoolError::Full { pool: pool.to_owned(), size });
                }
            }
        }
    }

    /// Tries to reserve an address. Returns false if another claim has it.
    async fn create(&self, pool: &str, address: IpPrefix, device: &str) -> Result<bool, PoolError> {
        let object = self.object(pool, address, device);
        match self.addresses.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn object(&self, pool: &str, address: IpPrefix, device: &str) -> NicAddress {
        let ClaimRef { namespace, name, uid } = self.claim.clone();
        let labels = [(label::NIC_POOL, pool), (label::CLAIM_UID, &uid)];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let metadata = ObjectMeta {
            name: Some(address_name(pool, address.address)),
            labels: Some(labels.into()),
            ..ObjectMeta::default()
        };
        let spec = NicAddressSpec {
            pool: pool.to_owned(),
            address,
            claim: NicAddressClaim { namespace, name, uid },
            node: self.node.to_owned(),
            device: device.to_owned(),
        };
        NicAddress { metadata, spec }
    }
}
