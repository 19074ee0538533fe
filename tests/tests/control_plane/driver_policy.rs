//! The driver of a node can write and delete only what belongs to that node. The test uses tokens
//! of pods on two nodes, with all permissions that RBAC can grant, so that only the admission
//! policy restricts them.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    admissionregistration::v1::ValidatingAdmissionPolicy,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{
    Api, Client, Error, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, control_plane::client, eventually, installation::Installation,
    suite::Test, with_scope,
};
use topology_graph::{NodeTopology, NodeTopologySpec};

const SOON: Duration = Duration::from_secs(30);
const POLICY: &str = "node-driver.dranet.io";

pub(crate) fn tests() -> Vec<Test> {
    // Each grants all permissions to the driver, and revokes them at its end.
    let alone = tests::tests![
        a_driver_writes_for_its_own_node_only,
        a_driver_writes_the_status_of_its_own_devices_only,
    ];
    let mut all = tests::tests![the_policy_is_valid];
    all.extend(alone.into_iter().map(Test::alone));
    all
}

async fn a_driver_writes_for_its_own_node_only(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        scope.apply_yaml(ALL_RIGHTS).await?;
        let own = scope.node("own").await?.name_any();
        let other = scope.node("other").await?.name_any();
        let driver = |node| {
            let installation = &installation;
            async move { client(&installation.node_kubeconfig("node-driver", node).await?).await }
        };
        let unbound = installation.client_as("node-driver").await?;
        let cluster = Cluster { own: &own, other: &other };
        in_force(&unbound, cluster).await?;

        // Objects of both nodes, each written by its own driver.
        for node in [&own, &other] {
            let client = driver(node).await?;
            slices(&client).create(&once(), &slice(node, node)).await?;
            topologies(&client).create(&once(), &topology(node)).await?;
        }
        let (own_client, admin) = (driver(&own).await?, plane.client());
        cluster.forbids_what_is_not_its_own(&own_client, &admin).await?;
        cluster.forbids_everything(&unbound).await?;
        cluster.allows_its_own(&own_client).await?;
        slices(&admin).delete(&format!("{other}-slice"), &DeleteParams::default()).await?;
        topologies(&admin).delete(&other, &DeleteParams::default()).await?;
        Ok(())
    })
    .await
}

/// A claim with devices of two nodes and two drivers.
async fn a_driver_writes_the_status_of_its_own_devices_only(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        scope.apply_yaml(ALL_RIGHTS).await?;
        let own = scope.node("own").await?.name_any();
        let other = scope.node("other").await?.name_any();
        let unbound = installation.client_as("node-driver").await?;
        in_force(&unbound, Cluster { own: &own, other: &other }).await?;

        let admin: Api<ResourceClaim> = scope.api();
        let claim = serde_json::from_value(json!({
            "metadata": {"name": "nics"},
            "spec": {"devices": {"requests": [{"name": "nic", "exactly": {
                "deviceClassName": "dranet.net", "count": 3}}]}},
        }))?;
        admin.create(&once(), &claim).await?;
        let result = |driver: &str, pool: &str, device: &str| {
            json!({"request": "nic", "driver": driver, "pool": pool, "device": device})
        };
        let entry = |driver: &str, pool: &str, device: &str| {
            json!({"driver": driver, "pool": pool, "device": device, "conditions": []})
        };
        let results = [
            result("dra.net", &own, "nic-0"),
            result("dra.net", &other, "nic-1"),
            result("gpu.example.com", &own, "gpu-0"),
        ];
        let foreign =
            [entry("dra.net", &other, "nic-1"), entry("gpu.example.com", &own, "gpu-0")];
        let user = json!({"resource": "pods", "name": "user", "uid": "u-1"});
        let status = json!({"status": {
            "allocation": {"devices": {"results": results}},
            "devices": foreign,
        }});
        let merge = (PatchParams::default(), |status: Value| Patch::Merge(json!({"status": status})));
        admin.patch_status("nics", &merge.0, &Patch::Merge(status)).await?;

        let client = client(&installation.node_kubeconfig("node-driver", &own).await?).await?;
        let claims: Api<ResourceClaim> = Api::namespaced(client, scope.namespace());
        let networked = |device: &Value| {
            let mut device = device.clone();
            device["networkData"] = json!({"ips": ["10.0.0.5/24"]});
            device
        };
        // The API itself refuses to replace a device by another one.
        for (what, status) in [
            ("the allocation", json!({"allocation": null, "reservedFor": null, "devices": null})),
            ("who uses it", json!({"reservedFor": [user]})),
            ("another node's entry", json!({"devices": [networked(&foreign[0]), foreign[1]]})),
            ("another driver's entry", json!({"devices": [foreign[0], networked(&foreign[1])]})),
            ("entries go", json!({"devices": [foreign[1]]})),
        ] {
            let answer = claims.patch_status("nics", &merge.0, &(merge.1)(status)).await;
            forbidden(what, answer);
        }
        // As the driver writes it.
        let applied = |devices: Value| {
            Patch::Apply(json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "nics"}, "status": {"devices": devices},
            }))
        };
        let params = PatchParams::apply("dra.net").force();
        let mine = networked(&entry("dra.net", &own, "nic-0"));
        let written = claims.patch_status("nics", &params, &applied(json!([mine]))).await?;
        let devices = written.status.and_then(|status| status.devices).unwrap_or_default();
        assert_eq!(devices.len(), 3, "{devices:?}");
        let others = networked(&foreign[0]);
        let forged = claims.patch_status("nics", &params, &applied(json!([mine, others]))).await;
        forbidden("another node's entry, applied", forged);
        claims.patch_status("nics", &params, &applied(json!([]))).await?;
        let none = json!({"status": {"allocation": null, "reservedFor": null, "devices": null}});
        admin.patch_status("nics", &merge.0, &Patch::Merge(none)).await?;
        Ok(())
    })
    .await
}

/// Kubernetes checks the types of a policy's expressions and reports the result in its status.
async fn the_policy_is_valid(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let _rig = Installation::install(&plane, scope).await?;
        let policies: Api<ValidatingAdmissionPolicy> = Api::all(plane.client());
        eventually(SOON, async || {
            let policy = policies.get(POLICY).await?;
            let status = policy.status.unwrap_or_default();
            let is_current = status.observed_generation == policy.metadata.generation;
            let checking = status.type_checking.unwrap_or_default();
            let warnings = checking.expression_warnings.unwrap_or_default();
            anyhow::ensure!(warnings.is_empty(), "{warnings:#?}");
            Ok(Check::that(is_current, || "it is not checked yet".to_owned()))
        })
        .await
    })
    .await
}

const ALL_RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: node-driver-with-all-rights}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: node-driver, namespace: dranet-system}]
";

/// A policy takes effect some time after it is written.
async fn in_force(unbound: &Client, cluster: Cluster<'_>) -> anyhow::Result<()> {
    let probe = PostParams { dry_run: true, ..PostParams::default() };
    let slice = slice("probe", cluster.own);
    eventually(SOON, async || {
        let answer = slices(unbound).create(&probe, &slice).await;
        let refused = answer.as_ref().is_err_and(is_by_policy);
        Ok(Check::that(refused, || format!("{answer:?}")))
    })
    .await
}

fn slices(client: &Client) -> Api<ResourceSlice> {
    Api::all(client.clone())
}

fn topologies(client: &Client) -> Api<NodeTopology> {
    Api::all(client.clone())
}

fn once() -> PostParams {
    PostParams::default()
}

fn topology(node: &str) -> NodeTopology {
    let mut spec = NodeTopologySpec::default();
    "0123456789abcdef".clone_into(&mut spec.shape.hash);
    NodeTopology::new(node, spec)
}

fn is_by_policy(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 403 && status.message.contains(POLICY))
}

/// Checks that the policy refuses a request.
#[track_caller]
fn forbidden<T>(what: &str, answer: Result<T, Error>) {
    match answer {
        Err(error) => assert!(is_by_policy(&error), "{what}: {error}"),
        Ok(_) => panic!("{what}: allowed"),
    }
}

fn slice(name: &str, node: &str) -> ResourceSlice {
    slice_at(name, "dra.net", &json!({"nodeName": node}))
}

fn slice_at(name: &str, driver: &str, place: &Value) -> ResourceSlice {
    let pool = json!({"name": name, "generation": 1, "resourceSliceCount": 1});
    let mut spec = json!({"driver": driver, "pool": pool});
    if let (Some(spec), Some(place)) = (spec.as_object_mut(), place.as_object()) {
        spec.extend(place.clone());
    }
    let slice = json!({"metadata": {"name": format!("{name}-slice")}, "spec": spec});
    serde_json::from_value(slice).unwrap()
}

#[derive(Clone, Copy)]
struct Cluster<'a> {
    own: &'a str,
    other: &'a str,
}

impl Cluster<'_> {
    async fn forbids_what_is_not_its_own(
        self,
        driver: &Client,
        admin: &Client,
    ) -> anyhow::Result<()> {
        let (slices, topologies) = (slices(driver), topologies(driver));
        let other = self.other;
        let elsewhere = json!({"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [other]}]}]}});
        for (what, slice) in [
            ("another node's slice", slice("forged", other)),
            ("all nodes", slice_at("forged", "dra.net", &json!({"allNodes": true}))),
            ("nodes by selector", slice_at("forged", "dra.net", &elsewhere)),
            (
                "another driver's slice",
                slice_at("forged", "gpu.nvidia.com", &json!({"nodeName": self.own})),
            ),
        ] {
            forbidden(what, slices.create(&once(), &slice).await);
        }
        let name = format!("{other}-slice");
        let merge = |patch: Value| (PatchParams::default(), Patch::Merge(patch));
        let (params, patch) = merge(json!({"spec": {"pool": {"generation": 2}}}));
        forbidden("changing a slice", slices.patch(&name, &params, &patch).await);
        forbidden("deleting a slice", slices.delete(&name, &DeleteParams::default()).await);
        let (now, every) = (DeleteParams::default(), ListParams::default());
        forbidden("deleting slices", slices.delete_collection(&now, &every).await);

        forbidden("another node's graph", topologies.create(&once(), &topology("forged")).await);
        let (params, patch) = merge(json!({"spec": {"fabric": "forged"}}));
        forbidden("changing a graph", topologies.patch(other, &params, &patch).await);
        let (params, patch) = merge(json!({"status": {"conditions": []}}));
        forbidden("its status", topologies.patch_status(other, &params, &patch).await);
        forbidden("deleting a graph", topologies.delete(other, &DeleteParams::default()).await);
        forbidden("deleting graphs", topologies.delete_collection(&now, &every).await);

        let left = Api::<ResourceSlice>::all(admin.clone()).get_opt(&name).await?;
        assert!(left.is_some_and(|slice| slice.spec.pool.generation == 1), "it is unchanged");
        Ok(())
    }

    /// A token that is not bound to a node can write nothing, on any node.
    async fn forbids_everything(self, unbound: &Client) -> anyhow::Result<()> {
        let slice = slice("unbound", self.own);
        forbidden("without a node", slices(unbound).create(&once(), &slice).await);
        let deleted = topologies(unbound).delete(self.own, &DeleteParams::default()).await;
        forbidden("without a node", deleted);
        Ok(())
    }

    async fn allows_its_own(self, driver: &Client) -> anyhow::Result<()> {
        let (slices, topologies) = (slices(driver), topologies(driver));
        let name = format!("{}-slice", self.own);
        let mut slice = slices.get(&name).await?;
        slice.spec.pool.generation = 2;
        slices.replace(&name, &once(), &slice).await?;
        slices.delete(&name, &DeleteParams::default()).await?;
        let mut graph = topologies.get(self.own).await?;
        graph.spec.fabric = Some("fabric-1".to_owned());
        let graph = topologies.replace(self.own, &once(), &graph).await?;
        topologies.replace_status(self.own, &once(), &graph).await?;
        topologies.delete(self.own, &DeleteParams::default()).await?;
        Ok(())
    }
}
