//! Our programs on the real control plane, as an operator would run them: the objects of `deploy`,
//! each program with the permissions of its own service account, and GB300 nodes whose NICs our
//! driver publishes.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::{Node, ServiceAccount},
        resource::v1::ResourceSlice,
    },
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use topology_graph::{NodeTopology, fixture};

use crate::{
    ControlPlane, Process, Scope, binaries, certificates, control_plane, gb300, imds::Imds,
    machine::Machine, manifest,
};

pub use controllers::ControllerReplica;
pub use extender::RunningExtender;
pub use webhook::{Replica, Webhook, review};

mod clock;
mod controllers;
mod copies;
mod extender;
mod webhook;

/// The VM size of the machine whose slices were recorded.
pub const VM_SIZE: &str = "Standard_ND128isr_GB300_v6";
/// Its placement group.
pub const PLACEMENT_GROUP: &str = "c6c749e8-a38b-470e-8c94-2a7d00001bf0";

/// The namespace of our programs.
pub const NAMESPACE: &str = "dranet-system";
const READY: Duration = Duration::from_secs(20);
/// The least lease duration that programs take, in seconds.
const LEASE_SECONDS_MIN: u32 = 3;
/// The lifetime of tokens: nobody renews them, and a campaign takes hours.
const TOKEN_SECONDS: i64 = 86_400;

/// An installation on the control plane.
#[derive(Debug)]
pub struct Installation<'a> {
    plane: &'a ControlPlane,
    scope: &'a Scope,
    admission: Vec<Replica>,
    /// Writes the authority of admission into its webhook configurations.
    authority: Option<Process>,
    fabric_controllers: Vec<ControllerReplica>,
    preemptors: Vec<ControllerReplica>,
    /// The URL of the API server for our programs.
    api: String,
    /// What the clocks of programs that are started from now on are ahead by, in seconds.
    clock: i64,
    /// The `--lease-seconds` of programs that are started from now on; `None` for their default.
    lease_seconds: Option<u32>,
    extender: Option<RunningExtender>,
}

impl<'a> Installation<'a> {
    /// Applies the objects of `deploy/manifests` except the webhook. Classes are removed with the
    /// scope. The other objects stay, since a namespace or a resource definition that is being
    /// deleted would block the next test.
    pub async fn install(plane: &'a ControlPlane, scope: &'a Scope) -> anyhow::Result<Self> {
        let installation = Self::installed(plane, scope);
        for name in [
            "manifests/namespace.yaml",
            "manifests/crd-nicaddresses.yaml",
            "manifests/crd-nicpools.yaml",
            "manifests/crd-nodetopologies.yaml",
            "manifests/node-driver-rbac.yaml",
            "manifests/node-driver-policy.yaml",
            "manifests/admission-rbac.yaml",
            "manifests/admission-policy.yaml",
            "manifests/admission-state.yaml",
            "manifests/admission-authority.yaml",
            "components/kubeadm-scheduler/events-policy.yaml",
            "manifests/fabric-controller-rbac.yaml",
            "manifests/fabric-controller-policy.yaml",
            "components/kubeadm-scheduler/scheduler-ext-rbac.yaml",
        ] {
            installation.apply(name).await?;
        }
        scope.apply_file(&gb300::file("device-classes.yaml")).await?;
        scope.apply_file(&deploy("manifests/device-class.yaml")).await?;
        Ok(installation)
    }

    /// Applies the objects of a file of `deploy`, except Deployments. They stay, as roles do.
    pub async fn apply(&self, name: &str) -> anyhow::Result<()> {
        for object in without_deployments(&deploy(name))? {
            manifest::apply(&self.plane.client(), object, NAMESPACE).await?;
        }
        Ok(())
    }

    /// An installation whose objects of `deploy` exist already.
    pub fn installed(plane: &'a ControlPlane, scope: &'a Scope) -> Self {
        let api = plane.url().to_owned();
        Self {
            plane,
            scope,
            admission: Vec::new(),
            authority: None,
            fabric_controllers: Vec::new(),
            preemptors: Vec::new(),
            api,
            clock: 0,
            lease_seconds: Some(LEASE_SECONDS_MIN),
            extender: None,
        }
    }

    /// Applies the objects of a component of `deploy`. They stay, as roles do.
    pub async fn apply_component(&self, name: &str) -> anyhow::Result<()> {
        for file in fs::read_dir(deploy(&format!("components/{name}")))? {
            let file = file?.path();
            if !file.ends_with("kustomization.yaml") {
                for object in manifest::read(&file)? {
                    manifest::apply(&self.plane.client(), object, NAMESPACE).await?;
                }
            }
        }
        Ok(())
    }

    /// Creates a GB300 node: GPUs as recorded, NICs published by a run of our driver. Returns its
    /// name.
    pub async fn gb300(&self, name: &str) -> anyhow::Result<String> {
        self.gb300_in(name, PLACEMENT_GROUP).await
    }

    /// Like [`Self::gb300`], in a placement group, which is its fabric.
    pub async fn gb300_in(&self, name: &str, placement_group: &str) -> anyhow::Result<String> {
        let node: Node = self.scope.node(name).await?;
        let node = node.metadata.name.context("a node has a name")?;
        self.publish_gb300_in(&node, placement_group).await?;
        Ok(node)
    }

    /// Publishes the devices of a GB300 machine for an existing node.
    pub async fn publish_gb300(&self, node: &str) -> anyhow::Result<()> {
        self.publish_gb300_in(node, PLACEMENT_GROUP).await
    }

    /// Publishes the devices of a machine of another type for an existing node.
    pub async fn publish_as(&self, node: &str, machine: Machine) -> anyhow::Result<()> {
        let folder = machine.plant()?;
        self.scope.apply(machine.gpu_slice(node, folder.path())?).await?;
        self.publish_machine(node, machine, folder.path(), &[]).await
    }

    async fn publish_gb300_in(&self, node: &str, placement_group: &str) -> anyhow::Result<()> {
        self.scope.apply(gb300::gpu_slice(node)?).await?;
        let imds = Imds::start(VM_SIZE, placement_group).await?;
        let machine = gb300_machine(node)?;
        self.publish(node, machine.path(), &imds).await?;
        Ok(())
    }

    /// Creates a GB300 node whose driver gets these additional flags.
    pub async fn gb300_by(&self, name: &str, flags: &[&str]) -> anyhow::Result<String> {
        let node: Node = self.scope.node(name).await?;
        let node = node.metadata.name.context("a node has a name")?;
        self.scope.apply(gb300::gpu_slice(&node)?).await?;
        let imds = Imds::start(VM_SIZE, PLACEMENT_GROUP).await?;
        let (machine, url) = (gb300_machine(&node)?, imds.url());
        let cloud = ["--cloud=azure", "--imds-url", &url];
        self.publish_by(&node, machine.path(), &[&cloud, flags].concat()).await?;
        Ok(node)
    }

    /// Creates a node of another machine type, as its drivers publish it.
    pub async fn machine(&self, name: &str, machine: Machine) -> anyhow::Result<String> {
        let node: Node = self.scope.node(name).await?;
        let node = node.metadata.name.context("a node has a name")?;
        self.publish_as(&node, machine).await?;
        Ok(node)
    }

    /// Creates a node whose NICs another driver publishes; ours publishes its graph only. RDMA devices
    /// at these addresses get these names. Returns the node's name and its machine.
    pub async fn machine_with_other_nics(
        &self,
        name: &str,
        machine: Machine,
        names: &[(&str, &str)],
    ) -> anyhow::Result<(String, TempDir)> {
        let node: Node = self.scope.node(name).await?;
        let node = node.metadata.name.context("a node has a name")?;
        let folder = machine.plant_named(names)?;
        self.scope.apply(machine.gpu_slice(&node, folder.path())?).await?;
        self.publish_by(&node, folder.path(), &["--cloud=none", "--mode=topology"]).await?;
        Ok((node, folder))
    }

    /// Creates a node of another machine type whose GPUs a device plugin offers.
    pub async fn plugin_machine(
        &self,
        name: &str,
        machine: Machine,
        gpus: u32,
    ) -> anyhow::Result<String> {
        let folder = machine.plant()?;
        let node = self.plugin_node(name, machine, gpus).await?;
        self.publish_machine(&node, machine, folder.path(), &[]).await?;
        Ok(node)
    }

    /// The same, with NICs that are bound late.
    pub async fn late_machine(
        &self,
        name: &str,
        machine: Machine,
        gpus: u32,
    ) -> anyhow::Result<String> {
        let folder = machine.plant()?;
        let node = self.plugin_node(name, machine, gpus).await?;
        self.publish_machine(&node, machine, folder.path(), &["--bind-nics=late"]).await?;
        Ok(node)
    }

    async fn plugin_node(&self, name: &str, machine: Machine, gpus: u32) -> anyhow::Result<String> {
        let node: Node = self.scope.node(name).await?;
        let node = node.metadata.name.context("a node has a name")?;
        let amounts = json!({machine.resource: gpus.to_string()});
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts}});
        let nodes: Api<Node> = Api::all(self.plane.client());
        nodes.patch_status(&node, &PatchParams::default(), &Patch::Merge(&status)).await?;
        Ok(node)
    }

    async fn publish_machine(
        &self,
        node: &str,
        machine: Machine,
        root: &Path,
        flags: &[&str],
    ) -> anyhow::Result<()> {
        if machine.size.is_empty() {
            self.publish_by(node, root, &[&["--cloud=none"], flags].concat()).await?;
        } else {
            let imds = Imds::start(machine.size, PLACEMENT_GROUP).await?;
            let url = imds.url();
            let cloud = ["--cloud=azure", "--imds-url", &url];
            self.publish_by(node, root, &[&cloud, flags].concat()).await?;
        }
        Ok(())
    }

    /// Creates a copy of node `kind`, with everything published for it. The copy is Ready and
    /// removed with the scope. Returns its name.
    pub async fn add_copy(&self, kind: &str, name: &str) -> anyhow::Result<String> {
        let node: Node = self.scope.node(name).await?;
        let owner = node.owner_ref(&()).context("a node has an identity")?;
        let name = node.metadata.name.context("a node has a name")?;
        let metadata = |name: String| ObjectMeta {
            name: Some(name),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        };
        let client = self.plane.client();
        let params = PostParams::default();
        let topologies: Api<NodeTopology> = Api::all(client.clone());
        let mut topology = topologies.get(kind).await?;
        topology.metadata = metadata(name.clone());
        topologies.create(&params, &topology).await?;
        let slices: Api<ResourceSlice> = Api::all(client);
        let of_kind = ListParams::default().fields(&format!("spec.nodeName={kind}"));
        for mut slice in slices.list(&of_kind).await? {
            slice.metadata = metadata(format!("{name}-{}", slice.spec.driver));
            slice.spec.node_name = Some(name.clone());
            slice.spec.pool.name.clone_from(&name);
            slices.create(&params, &slice).await?;
        }
        Ok(name)
    }

    /// Removes a node with everything published for it.
    pub async fn remove_node(&self, node: &str) -> anyhow::Result<()> {
        let client = self.plane.client();
        let now = DeleteParams::default();
        let of_node = ListParams::default().fields(&format!("spec.nodeName={node}"));
        Api::<ResourceSlice>::all(client.clone()).delete_collection(&now, &of_node).await?;
        Api::<NodeTopology>::all(client.clone()).delete(node, &now).await?;
        Api::<Node>::all(client).delete(node, &now).await?;
        Ok(())
    }

    /// Runs our driver once for a node whose machine is below `root`; returns its log.
    pub async fn publish(&self, node: &str, root: &Path, imds: &Imds) -> anyhow::Result<String> {
        self.publish_by(node, root, &["--cloud=azure", "--imds-url", &imds.url()]).await
    }

    async fn publish_by(&self, node: &str, root: &Path, args: &[&str]) -> anyhow::Result<String> {
        let kubeconfig = self.node_kubeconfig("node-driver", node).await?;
        let driver = self
            .plane
            .program("node-driver")?
            .named(&format!("node-driver-{node}"))
            .args(["--once", "--node-name", node])
            .args(args.iter().copied())
            .args(["--root".into(), root.display().to_string()])
            .args(["--kubeconfig".into(), kubeconfig.display().to_string()])
            .spawn()?;
        driver.wait_for_success(READY).await
    }

    /// Starts one of our servers; returns when it is ready.
    async fn spawn(
        &self,
        program: &str,
        name: &str,
        operations: u16,
        args: &[String],
    ) -> anyhow::Result<Process> {
        self.spawn_as(program, program, name, operations, args).await
    }

    /// Starts one of our servers as a service account; returns when it is ready.
    async fn spawn_as(
        &self,
        account: &str,
        program: &str,
        name: &str,
        operations: u16,
        args: &[String],
    ) -> anyhow::Result<Process> {
        let kubeconfig = self.kubeconfig(account).await?;
        let mut described = self
            .plane
            .program(program)?
            .named(name)
            .env("DRANET_LOG", "debug,hyper_util=info,tower=info,kube_client=info,rustls=info")
            .args([format!("--operations-listen=127.0.0.1:{operations}")])
            .args([format!("--kubeconfig={}", kubeconfig.display())])
            .args(args.iter().cloned());
        if self.clock != 0 {
            described = clock::ahead_by(described, self.clock)?;
        }
        let process = described.spawn()?;
        let ready = format!("http://127.0.0.1:{operations}/readyz");
        process.wait_until_ready(&ready, READY).await?;
        Ok(process)
    }

    /// Sets the URL of the API server for programs that are started from now on.
    pub fn reach_api_by(&mut self, url: String) {
        self.api = url;
    }

    /// Sets by how many seconds the clocks of programs that are started from now on are ahead.
    pub fn set_clock_ahead(&mut self, seconds: i64) {
        self.clock = seconds;
    }

    /// Lets programs that are started from now on keep their leases for as long as when deployed.
    pub fn keep_default_leases(&mut self) {
        self.lease_seconds = None;
    }

    fn lease_flag(&self) -> Option<String> {
        self.lease_seconds.map(|seconds| format!("--lease-seconds={seconds}"))
    }

    /// A client with the permissions of a service account of `deploy`.
    pub async fn client_as(&self, account: &str) -> anyhow::Result<Client> {
        control_plane::client(&self.kubeconfig(account).await?).await
    }

    /// A kubeconfig with the permissions of a service account of `deploy`.
    pub async fn kubeconfig(&self, account: &str) -> anyhow::Result<PathBuf> {
        self.token_kubeconfig(account, None).await
    }

    /// A kubeconfig with a token that is bound to a node, like that of a pod on it.
    pub async fn node_kubeconfig(&self, account: &str, node: &str) -> anyhow::Result<PathBuf> {
        let node = Api::<Node>::all(self.plane.client()).get(node).await?;
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: node.metadata.name,
            uid: node.metadata.uid,
        };
        self.token_kubeconfig(account, Some(bound)).await
    }

    async fn token_kubeconfig(
        &self,
        account: &str,
        bound_object_ref: Option<BoundObjectReference>,
    ) -> anyhow::Result<PathBuf> {
        let node = bound_object_ref.as_ref().and_then(|bound| bound.name.clone());
        let accounts: Api<ServiceAccount> = Api::namespaced(self.plane.client(), NAMESPACE);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                bound_object_ref,
                ..Default::default()
            }),
            ..Default::default()
        };
        let answer =
            accounts.create_token_request(account, &PostParams::default(), &request).await?;
        let token = answer.status.context("a token request is answered with a token")?.token;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {
                "cluster": "it", "user": "it", "namespace": NAMESPACE,
            }}],
            "users": [{"name": "it", "user": {"token": token}}],
            "clusters": [{"name": "it", "cluster": {
                "server": self.api,
                "certificate-authority-data":
                    ByteString(self.plane.authority().pem().into_bytes()),
            }}],
        });
        let name = node.map_or_else(|| account.to_owned(), |node| format!("{account}-{node}"));
        let path = self.plane.directory().join(format!("{name}.kubeconfig"));
        certificates::write(&path, &config.to_string())?;
        Ok(path)
    }
}

/// The GB300 machine as a folder, with the GPU UUIDs of `node`.
pub fn gb300_machine(node: &str) -> anyhow::Result<TempDir> {
    let mut text = fixture::machine("azure-gb300").context("the fixture is there")?.to_owned();
    for live in gb300::live_gpu_uuids()? {
        text = text.replace(&live, &gb300::gpu_uuid(&live, node));
    }
    let folder = tempfile::tempdir()?;
    fixture::plant(&text, folder.path())?;
    Ok(folder)
}

/// The files of `deploy/manifests` that are installed, in the order of its kustomization.
pub fn manifests() -> anyhow::Result<Vec<PathBuf>> {
    let kustomization = deploy("manifests/kustomization.yaml");
    let text = fs::read_to_string(&kustomization)?;
    let list: Value = serde_saphyr::from_str(&text)?;
    let names = list["resources"].as_array().context("a kustomization has resources")?;
    names
        .iter()
        .map(|name| Some(deploy("manifests").join(name.as_str()?)))
        .collect::<Option<_>>()
        .context("each is a file's name")
}

/// The objects of a file but for Deployments, whose pods would be bound to simulated nodes.
fn without_deployments(file: &Path) -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = manifest::read(file)?;
    objects.retain(|object| object.types.as_ref().is_none_or(|types| types.kind != "Deployment"));
    Ok(objects)
}

fn deploy(path: &str) -> PathBuf {
    binaries::in_tests("../deploy").join(path)
}
