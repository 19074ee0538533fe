//! What stolen tokens of the node driver can do. Every attack uses the token of a pod on one node,
//! with the permissions of `deploy`, against what belongs to another node.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use cluster_model::nic_pool::{NicAddress, NicPool};
use k8s_openapi::api::{
    events::v1::Event,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{
    Api, Client, Error, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
};
use node_driver::prepare::pools::reserve;
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, Scope, control_plane::client, eventually, installation::Installation,
    nic_claims, suite::Test, with_scope,
};

const SOON: Duration = Duration::from_secs(30);
const POLICY: &str = "node-driver.dranet.io";

pub(crate) fn tests() -> Vec<Test> {
    let alone = tests::attempts![
        a_node_token_gives_no_address_to_a_claim_of_another_node,
        a_node_token_empties_no_pool,
    ];
    let mut all = tests::attempts![
        a_node_token_takes_no_address_under_another_name_or_label,
        a_node_token_publishes_no_slice_in_the_pool_of_another_node,
        a_node_token_reports_no_event_of_another,
    ];
    all.extend(alone.into_iter().map(Test::alone));
    all
}

/// Two nodes, and the driver's client of each.
struct Nodes {
    own: String,
    other: String,
    /// The client with the stolen token of `own`.
    stolen: Client,
    /// The driver of `other`.
    victim: Client,
}

impl Nodes {
    async fn new(installation: &Installation<'_>, scope: &Scope) -> anyhow::Result<Self> {
        let own = scope.node("own").await?.name_any();
        let other = scope.node("other").await?.name_any();
        let stolen = client(&installation.node_kubeconfig("node-driver", &own).await?).await?;
        let victim = client(&installation.node_kubeconfig("node-driver", &other).await?).await?;
        let nodes = Self { own, other, stolen, victim };
        nodes.in_force().await?;
        Ok(nodes)
    }

    /// A policy takes effect some time after it is written.
    async fn in_force(&self) -> anyhow::Result<()> {
        let api: Api<ResourceSlice> = Api::all(self.stolen.clone());
        eventually(SOON, async || {
            let answer = api.create(&dry_run(), &slice(&self.own, &self.other)?).await;
            Ok(Check::that(is_refused(&answer), || format!("{answer:?}")))
        })
        .await
    }
}

async fn a_node_token_takes_no_address_under_another_name_or_label(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let nodes = Nodes::new(&installation, scope).await?;
        let addresses: Api<NicAddress> = Api::all(nodes.stolen.clone());
        for (name, address) in [
            ("rdma.10-50-0-9", "10.50.0.9/24"),
            ("rdma.fd00-0000-0000-0000-0000-0000-0000-0001", "fd00::1/64"),
            ("rdma.0000-0000-0000-0000-0000-0000-0000-0001", "::1/64"),
            ("rdma.fd00-00ab-0001-0002-0003-0004-0005-0000", "fd00:ab:1:2:3:4:5:0/64"),
            ("rdma.fd00-0000-0000-0000-0000-0000-0000-0000", "fd00::/64"),
        ] {
            let own = reserved(&nodes.own, "u", name, address)?;
            addresses.create(&dry_run(), &own).await.with_context(|| name.to_owned())?;
        }
        let own = || reserved(&nodes.own, "u", "rdma.10-50-0-9", "10.50.0.9/24");
        let labelled = |key: &str, value: Option<&str>| {
            let mut address = own()?;
            let labels = address.metadata.labels.get_or_insert_default();
            match value {
                Some(value) => labels.insert(key.to_owned(), value.to_owned()),
                None => labels.remove(key),
            };
            anyhow::Ok(address)
        };
        let mut kept = own()?;
        kept.metadata.finalizers = Some(vec!["example.com/never".to_owned()]);
        let forged = [
            ("another name", reserved(&nodes.own, "u", "rdma.evil", "10.50.0.9/24")?),
            ("another address", reserved(&nodes.own, "u", "rdma.10-50-0-8", "10.50.0.9/24")?),
            ("another pool", reserved(&nodes.own, "u", "other.10-50-0-9", "10.50.0.9/24")?),
            ("a short form", reserved(&nodes.own, "u", "rdma.fd00-1", "fd00::1/64")?),
            ("another claim", labelled("topology.dranet.io/claim-uid", Some("v"))?),
            ("no claim", labelled("topology.dranet.io/claim-uid", None)?),
            ("another pool's label", labelled("topology.dranet.io/nic-pool", Some("other"))?),
            ("one more label", labelled("example.com/a", Some("b"))?),
            ("another node", reserved(&nodes.other, "u", "rdma.10-50-0-9", "10.50.0.9/24")?),
            ("a finalizer", kept),
        ];
        for (what, forged) in &forged {
            refused(what, &addresses.create(&dry_run(), forged).await)?;
        }
        Ok(format!("{} refused by the policy", forged.len()))
    })
    .await
}

async fn a_node_token_gives_no_address_to_a_claim_of_another_node(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let nodes = Nodes::new(&installation, scope).await?;
        let range = json!({"ranges": [{"cidr": "10.50.0.0/24", "gateway": "10.50.0.1"}]});
        let pool = pool(scope, range).await?;
        let claims: Api<ResourceClaim> = scope.api();
        nic_claims::create(&claims, "theirs").await?;
        let claim = nic_claims::allocate(&claims, "theirs", &nodes.other, &pool).await?;
        let addresses: Api<NicAddress> = Api::all(nodes.stolen.clone());
        for (name, address) in [
            ("8-8-8-8", "8.8.8.8/1"),
            ("10-50-0-1", "10.50.0.1/24"),
            ("10-50-0-77", "10.50.0.77/24"),
        ] {
            let name = format!("{pool}.{name}");
            let forged = for_claim(&claim, &nodes.own, &name, address)?;
            addresses.create(&PostParams::default(), &forged).await?;
        }
        installation.start_fabric_controllers(1, &[]).await?;
        let mut read = nic_claims::as_read(&claim, &nodes.other, &pool);
        reserve(&nodes.victim, &nodes.other, &mut read).await?;
        let address = nic_claims::address(&read)?;
        anyhow::ensure!(address.starts_with("10.50.0.") && address != "10.50.0.1/24", "{address}");
        let all: Api<NicAddress> = Api::all(plane.client());
        eventually(SOON, async || {
            let left = all.list(&of_pool(&pool)).await?.items;
            let nodes_of: Vec<_> = left.iter().map(|it| it.spec.node.as_str()).collect();
            Ok(Check::that(nodes_of == [nodes.other.as_str()], || format!("{left:?}")))
        })
        .await?;
        Ok(format!("it has {address} of its own driver; all three forged ones are deleted"))
    })
    .await
}

async fn a_node_token_empties_no_pool(plane: Arc<ControlPlane>) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let nodes = Nodes::new(&installation, scope).await?;
        let pool = pool(scope, json!({"ranges": [{"cidr": "10.51.0.0/26"}]})).await?;
        let claims: Api<ResourceClaim> = scope.api();
        let mut living = Vec::new();
        for (name, node) in
            [("mine", Some(&nodes.own)), ("theirs", Some(&nodes.other)), ("new", None)]
        {
            let created = nic_claims::create(&claims, name).await?;
            living.push(match node {
                Some(node) => nic_claims::allocate(&claims, name, node, &pool).await?,
                None => created,
            });
        }
        let addresses: Api<NicAddress> = Api::all(nodes.stolen.clone());
        for last in 1..=62_usize {
            let name = format!("{pool}.10-51-0-{last}");
            let claim = &living[last % living.len()];
            let forged = for_claim(claim, &nodes.own, &name, &format!("10.51.0.{last}/26"))?;
            addresses.create(&PostParams::default(), &forged).await?;
        }
        installation.start_fabric_controllers(1, &[]).await?;
        let all: Api<NicAddress> = Api::all(plane.client());
        let pools: Api<NicPool> = Api::all(plane.client());
        eventually(SOON, async || {
            let left = all.list(&of_pool(&pool)).await?.items.len();
            let status = pools.get(&pool).await?.status.unwrap_or_default();
            Ok(Check::that(left == 1 && status.free == 61, || format!("{left} left, {status:?}")))
        })
        .await?;
        let mut read = nic_claims::as_read(&living[1], &nodes.other, &pool);
        reserve(&nodes.victim, &nodes.other, &mut read).await?;
        Ok("61 of 62 addresses are free again; one is kept, for the claim on that node".to_owned())
    })
    .await
}

async fn a_node_token_publishes_no_slice_in_the_pool_of_another_node(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let nodes = Nodes::new(&installation, scope).await?;
        let slices: Api<ResourceSlice> = Api::all(nodes.stolen.clone());
        let created =
            slices.create(&PostParams::default(), &slice(&nodes.own, &nodes.other)?).await;
        refused("another node's pool", &created)?;
        let mut own =
            slices.create(&PostParams::default(), &slice(&nodes.own, &nodes.own)?).await?;
        let name = own.name_any();
        own.spec.pool.generation = 2;
        slices.replace(&name, &PostParams::default(), &own).await?;
        slices.delete(&name, &DeleteParams::default()).await?;
        Ok("refused by the policy; in its own pool allowed".to_owned())
    })
    .await
}

async fn a_node_token_reports_no_event_of_another(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let nodes = Nodes::new(&installation, scope).await?;
        let create = async |namespace: &str, event: Value| {
            let api: Api<Event> = Api::namespaced(nodes.stolen.clone(), namespace);
            let event: Event = serde_json::from_value(event)?;
            anyhow::Ok(api.create(&dry_run(), &event).await)
        };
        let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "name": name});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": "p",
            "namespace": scope.namespace(), "uid": "u"});
        let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "name": "c", "namespace": scope.namespace()});
        let own = nodes.own.as_str();
        for (namespace, regarding) in [("default", node(own)), (scope.namespace(), pod.clone())] {
            create(namespace, event(namespace, "dra.net", own, &regarding)).await??;
        }
        let forged = [
            ("another node", "default", event("default", "dra.net", own, &node(&nodes.other))),
            ("as another node", "default", event("default", "dra.net", &nodes.other, &node(own))),
            ("as the kubelet", "default", event("default", "kubelet", own, &node(own))),
            ("a claim", scope.namespace(), event(scope.namespace(), "dra.net", own, &claim)),
        ];
        for (what, namespace, event) in &forged {
            refused(what, &create(namespace, event.clone()).await?)?;
        }
        Ok(format!("{} refused by the policy", forged.len()))
    })
    .await
}

fn event(namespace: &str, controller: &str, instance: &str, regarding: &Value) -> Value {
    json!({
        "metadata": {"generateName": "forged-", "namespace": namespace},
        "eventTime": "2026-01-01T00:00:00.000000Z", "type": "Warning", "action": "Watching",
        "reason": "NICsNotPrepared", "note": "forged", "regarding": regarding,
        "reportingController": controller, "reportingInstance": instance,
    })
}

fn slice(node: &str, pool: &str) -> anyhow::Result<ResourceSlice> {
    let pool = json!({"name": pool, "generation": 1, "resourceSliceCount": 1});
    Ok(serde_json::from_value(json!({
        "metadata": {"generateName": "forged-"},
        "spec": {"driver": "dra.net", "nodeName": node, "pool": pool,
            "devices": [{"name": nic_claims::DEVICE}]},
    }))?)
}

/// An address of pool `rdma`, in the name of a claim that does not exist.
fn reserved(node: &str, uid: &str, name: &str, address: &str) -> anyhow::Result<NicAddress> {
    let claim = json!({"namespace": "team", "name": "claim", "uid": uid});
    address_of("rdma", &claim, node, name, address)
}

fn for_claim(
    claim: &ResourceClaim,
    node: &str,
    name: &str,
    address: &str,
) -> anyhow::Result<NicAddress> {
    let (pool, _) = name.rsplit_once('.').context("the name of an address has a dot")?;
    let (namespace, uid) = (claim.namespace(), claim.uid());
    let claim = json!({"namespace": namespace, "name": claim.name_any(), "uid": uid});
    address_of(pool, &claim, node, name, address)
}

fn address_of(
    pool: &str,
    claim: &Value,
    node: &str,
    name: &str,
    address: &str,
) -> anyhow::Result<NicAddress> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {
            "topology.dranet.io/nic-pool": pool, "topology.dranet.io/claim-uid": claim["uid"]}},
        "spec": {"pool": pool, "address": address, "claim": claim, "node": node,
            "device": nic_claims::DEVICE},
    }))?)
}

async fn pool(scope: &Scope, spec: Value) -> anyhow::Result<String> {
    let name = format!("{}-pool", scope.namespace());
    let pool = json!({"apiVersion": "topology.dranet.io/v1alpha1", "kind": "NicPool",
        "metadata": {"name": name}, "spec": spec});
    scope.apply(serde_json::from_value(pool)?).await?;
    Ok(name)
}

fn of_pool(name: &str) -> ListParams {
    ListParams::default().labels(&format!("topology.dranet.io/nic-pool={name}"))
}

fn dry_run() -> PostParams {
    PostParams { dry_run: true, ..PostParams::default() }
}

fn is_refused<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(Error::Api(it)) if it.code == 403 && it.message.contains(POLICY))
}

/// Fails unless the policy refused the request.
fn refused<T: std::fmt::Debug>(what: &str, answer: &Result<T, Error>) -> anyhow::Result<()> {
    anyhow::ensure!(is_refused(answer), "{what}: {answer:?}");
    Ok(())
}
