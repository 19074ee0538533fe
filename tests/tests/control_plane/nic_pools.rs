//! Addresses of NicPools, with the driver's code and permissions. Racing drivers never get an
//! address twice, and the fabric controller frees the addresses of deleted claims.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use cluster_model::{
    network_config::NetworkConfig,
    nic_pool::{NicAddress, NicPool},
};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{
    Api, Client, Error, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use node_driver::prepare::{claim::AllocatedClaim, error::PrepareError, pools::reserve};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, control_plane::client, eventually, installation::Installation,
    nic_claims, suite::Test, with_scope,
};

/// Longest time until the controller has freed and counted, on a busy machine.
const SOON: Duration = Duration::from_mins(3);
const CLAIMS: usize = 1000;
/// The number of claims whose driver dies while it takes an address.
const DYING: usize = 100;
const NODES: usize = 8;
/// The number of parallel requests.
const TOGETHER: usize = 64;

pub(crate) fn tests() -> Vec<Test> {
    tests::tests![
        racing_drivers_take_no_address_twice,
        pools_are_limited_to_namespaces_and_drivers_to_their_node,
    ]
    .into_iter()
    .map(Test::alone)
    .collect()
}

/// 1,000 claims by eight drivers, of which 100 are dropped halfway and their claims deleted.
async fn racing_drivers_take_no_address_twice(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let (pools, addresses) = (Api::<NicPool>::all(plane.client()), plane.client());
        let addresses: Api<NicAddress> = Api::all(addresses);
        // 1,022 addresses, of which one is the gateway's and ten are excluded.
        let name = pool(
            &pools,
            scope,
            "race",
            json!({
                "ranges": [{"cidr": "10.20.0.0/22", "gateway": "10.20.0.1"}],
                "exclude": ["10.20.3.240/28"],
            }),
        )
        .await?;
        let drivers = drivers(&installation, scope).await?;
        let claims = claims(scope, CLAIMS).await?;
        let api: Api<ResourceClaim> = scope.api();
        let nodes: Vec<&str> = drivers.iter().map(|(node, _)| node.as_str()).collect();
        allocate(&api, &claims, &nodes, &name).await?;

        let (dying, living) = claims.split_at(DYING);
        let mut tasks = Vec::new();
        for (number, claim) in claims.iter().enumerate() {
            let ((node, client), name) = (drivers[number % NODES].clone(), name.clone());
            let mut claim = nic_claims::as_read(claim, &node, &name);
            let task = async move { reserve(&client, &node, &mut claim).await.map(|()| claim) };
            tasks.push((number < DYING, task));
        }
        // Requests of dying drivers are polled a few times, and then dropped wherever they are.
        let run = stream::iter(tasks).map(|(is_dying, task)| async move {
            if is_dying {
                let _ = tokio::time::timeout(Duration::from_millis(4), task).await;
                return Ok::<_, PrepareError>(None);
            }
            task.await.map(Some)
        });
        let taken: Vec<_> = run.buffer_unordered(TOGETHER).try_collect().await?;
        let taken: Vec<AllocatedClaim> = taken.into_iter().flatten().collect();
        assert_eq!(taken.len(), living.len());
        let mut owners: BTreeMap<String, &str> = BTreeMap::new();
        for claim in &taken {
            let address = nic_claims::address(claim)?;
            let before = owners.insert(address.clone(), &claim.claim.uid);
            anyhow::ensure!(before.is_none(), "{address} twice");
            anyhow::ensure!(address != "10.20.0.1/22", "the gateway's");
        }

        // A claim that is prepared again keeps its address.
        let (node, driver) = &drivers[DYING % NODES];
        let mut again = nic_claims::as_read(&living[0], node, &name);
        reserve(driver, node, &mut again).await?;
        assert_eq!(owners.get(&nic_claims::address(&again)?), Some(&again.claim.uid.as_str()));

        // Addresses that dead drivers took are freed when their claims are deleted; others are
        // kept.
        installation.start_fabric_controllers(2, &[]).await?;
        for claim in dying {
            api.delete(&claim.name_any(), &DeleteParams::default()).await?;
        }
        let left = living.len();
        eventually(SOON, async || {
            let there = addresses.list(&of_pool(&name)).await?.items;
            for address in &there {
                let address = &address.spec;
                let owner = owners.get(&address.address.to_string());
                let is_dead =
                    dying.iter().any(|claim| claim.uid() == Some(address.claim.uid.clone()));
                anyhow::ensure!(
                    is_dead || owner == Some(&address.claim.uid.as_str()),
                    "{address:?}"
                );
            }
            let status = pools.get(&name).await?.status.unwrap_or_default();
            let free = i64::try_from(1022 - 1 - 15 - left)?;
            let is_done = there.len() == left && status.free == free;
            Ok(Check::that(is_done, || format!("{} of {left}, {status:?}", there.len())))
        })
        .await?;

        let other = &drivers[(DYING + 2) % NODES];
        let address = moved(&api, &living[1], other, &name).await?;
        assert_eq!(owners.get(&address).copied(), living[1].metadata.uid.as_deref(), "{address}");

        // A pool that shrinks leaves claims their addresses, and assigns none that it no longer
        // has.
        let shrunk =
            json!({"spec": {"ranges": [{"cidr": "10.20.0.0/30", "gateway": "10.20.0.1"}]}});
        pools.patch(&name, &PatchParams::default(), &Patch::Merge(shrunk)).await?;
        reserve(driver, node, &mut again_of(&again, &name)).await?;
        let more = claims_named(scope, "late", 2).await?;
        allocate(&api, &more, &[node.as_str()], &name).await?;
        let mut outcomes = Vec::new();
        for claim in &more {
            outcomes
                .push(reserve(driver, node, &mut nic_claims::as_read(claim, node, &name)).await);
        }
        let full = outcomes.iter().filter_map(|it| it.as_ref().err()).map(text).next_back();
        let full = full.context("two claims had one address")?;
        anyhow::ensure!(full.contains("has no free address among 1"), "{full}");

        api.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        eventually(SOON, async || {
            let there = addresses.list(&of_pool(&name)).await?.items.len();
            Ok(Check::that(there == 0, || format!("{there} left")))
        })
        .await
    })
    .await
}

async fn pools_are_limited_to_namespaces_and_drivers_to_their_node(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let pools: Api<NicPool> = Api::all(plane.client());
        let ranges = json!([{"cidr": "10.21.0.0/24"}, {"cidr": "fd21::/64", "gateway": "fd21::1"}]);
        let routes = json!([{"destination": "fd00::/8"}]);
        let own = json!({"ranges": ranges, "routes": routes, "namespaces": [scope.namespace()],
            "interface": {"type": "ipvlan", "mtu": 4000}});
        let own = pool(&pools, scope, "own", own).await?;
        let closed =
            pool(&pools, scope, "closed", json!({"ranges": ranges, "namespaces": ["net"]}));
        let closed = closed.await?;
        let drivers = drivers(&installation, scope).await?;
        let (node, driver) = &drivers[0];
        let claims = claims(scope, 2).await?;

        let mut claim = nic_claims::as_read(&claims[0], node, &own);
        reserve(driver, node, &mut claim).await?;
        let config = NetworkConfig::parse(claim.devices[0].parameters.as_ref().context("some")?)?;
        let families: Vec<_> =
            config.interface.addresses.iter().map(|it| it.address.is_ipv4()).collect();
        assert_eq!(families, [true, false]);
        assert_eq!(config.interface.mtu, Some(4000));
        assert_eq!(config.routes[0].gateway, Some("fd21::1".parse()?));

        for (name, expected) in [
            (closed.as_str(), "is for namespaces net, and the claim is in"),
            ("absent", "names NicPool `absent`, which does not exist"),
        ] {
            let error =
                reserve(driver, node, &mut nic_claims::as_read(&claims[1], node, name)).await;
            let error = text(&error.err().context("it is refused")?);
            anyhow::ensure!(error.contains(expected), "{error}");
        }

        // A driver takes addresses only for its own node, and a taken address is immutable.
        let (other, _) = &drivers[1];
        let theirs: Api<NicAddress> = Api::all(driver.clone());
        let probe = PostParams { dry_run: true, ..PostParams::default() };
        let forged: NicAddress = serde_json::from_value(json!({
            "metadata": {"name": format!("{own}.10-21-0-9")},
            "spec": {"pool": own, "address": "10.21.0.9/24", "node": other, "device": "net1",
                "claim": {"namespace": "a", "name": "b", "uid": "c"}},
        }))?;
        eventually(SOON, async || {
            let answer = theirs.create(&probe, &forged).await;
            let is_refused = matches!(&answer, Err(Error::Api(status))
                if status.message.contains("only for that node"));
            Ok(Check::that(is_refused, || format!("{answer:?}")))
        })
        .await?;
        let taken = theirs.list(&of_pool(&own)).await?.items.remove(0).name_any();
        let deleted = theirs.delete(&taken, &DeleteParams::default()).await;
        anyhow::ensure!(matches!(&deleted, Err(Error::Api(it)) if it.code == 403), "{deleted:?}");
        let all: Api<NicAddress> = Api::all(plane.client());
        let stolen = Patch::Merge(json!({"spec": {"node": other}}));
        let stolen = all.patch(&taken, &PatchParams::default(), &stolen).await;
        anyhow::ensure!(matches!(&stolen, Err(Error::Api(it)) if it.code == 422), "{stolen:?}");
        let malformed = json!({"ranges": [{"cidr": "10.21.0.0"}]});
        let malformed = pool(&pools, scope, "malformed", malformed).await;
        anyhow::ensure!(malformed.is_err(), "the API server took a range without a length");
        all.delete_collection(&DeleteParams::default(), &of_pool(&own)).await?;
        Ok(())
    })
    .await
}

/// A pool of the scope.
async fn pool(
    pools: &Api<NicPool>,
    scope: &Scope,
    name: &str,
    spec: Value,
) -> anyhow::Result<String> {
    let name = format!("{}-{name}", scope.namespace());
    let object = json!({"apiVersion": "topology.dranet.io/v1alpha1", "kind": "NicPool",
        "metadata": {"name": name}, "spec": spec});
    scope.apply(serde_json::from_value(object)?).await?;
    pools.get(&name).await?;
    Ok(name)
}

/// Nodes and the clients of their drivers.
async fn drivers(
    installation: &Installation<'_>,
    scope: &Scope,
) -> anyhow::Result<Vec<(String, Client)>> {
    let mut drivers = Vec::new();
    for number in 0..NODES {
        let node = scope.node(&format!("pool-{number}")).await?.name_any();
        let client = client(&installation.node_kubeconfig("node-driver", &node).await?).await?;
        drivers.push((node, client));
    }
    Ok(drivers)
}

async fn claims(scope: &Scope, number: usize) -> anyhow::Result<Vec<ResourceClaim>> {
    claims_named(scope, "nic", number).await
}

/// The address of a claim that loses its allocation and gets one on another node.
async fn moved(
    api: &Api<ResourceClaim>,
    claim: &ResourceClaim,
    (node, driver): &(String, Client),
    pool: &str,
) -> anyhow::Result<String> {
    let name = claim.name_any();
    nic_claims::deallocate(api, &name).await?;
    let claim = nic_claims::allocate(api, &name, node, pool).await?;
    let mut read = nic_claims::as_read(&claim, node, pool);
    reserve(driver, node, &mut read).await?;
    nic_claims::address(&read)
}

/// Allocates the NIC of one node after the other.
async fn allocate(
    api: &Api<ResourceClaim>,
    claims: &[ResourceClaim],
    nodes: &[&str],
    pool: &str,
) -> anyhow::Result<()> {
    let allocate = |(claim, node): (&ResourceClaim, &str)| {
        let (api, name) = (api.clone(), claim.name_any());
        let (node, pool) = (node.to_owned(), pool.to_owned());
        async move { nic_claims::allocate(&api, &name, &node, &pool).await }
    };
    let nodes = nodes.iter().copied().cycle();
    let all = stream::iter(claims.iter().zip(nodes)).map(allocate).buffered(TOGETHER);
    all.try_collect::<Vec<_>>().await.map(drop)
}

async fn claims_named(
    scope: &Scope,
    name: &str,
    number: usize,
) -> anyhow::Result<Vec<ResourceClaim>> {
    let api: Api<ResourceClaim> = scope.api();
    let create = |number: usize| {
        let api = api.clone();
        async move { nic_claims::create(&api, &format!("{name}-{number}")).await }
    };
    stream::iter(0..number).map(create).buffered(TOGETHER).try_collect().await
}

/// The same claim before it is prepared.
fn again_of(claim: &AllocatedClaim, pool: &str) -> AllocatedClaim {
    let mut again = claim.clone();
    again.devices[0].parameters = Some(json!({"interface": {"pool": pool}}));
    again
}

fn of_pool(name: &str) -> ListParams {
    ListParams::default().labels(&format!("topology.dranet.io/nic-pool={name}"))
}

/// An error with all its causes.
fn text(error: &PrepareError) -> String {
    let error: &dyn std::error::Error = error;
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
