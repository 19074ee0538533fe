//! Our programs on the real control plane, as an operator would run them: the
//! objects of `deploy`, each program with the rights of its own service
//! account, and GB300 nodes whose NICs our driver publishes.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        core::v1::{Node, ServiceAccount},
    },
};
use kube::{
    Api,
    api::{DynamicObject, PostParams},
};
use serde_json::json;
use tempfile::TempDir;
use topology_graph::fixture;

use crate::{
    ControlPlane, Extender, Process, SchedulerConfig, Scope, binaries, certificates, gb300,
    imds::Imds, manifest, ports,
};

/// Size of the machine whose slices were taken live.
pub const VM_SIZE: &str = "Standard_ND128isr_GB300_v6";
/// Its placement group.
pub const PLACEMENT_GROUP: &str = "c6c749e8-a38b-470e-8c94-2a7d00001bf0";

const NAMESPACE: &str = "dranet-system";
const READY: Duration = Duration::from_secs(20);

/// What is installed beside the control plane.
#[derive(Debug)]
pub struct Rig<'a> {
    plane: &'a ControlPlane,
    scope: &'a Scope,
    admission: Option<Process>,
    extender: Option<Process>,
}

impl<'a> Rig<'a> {
    /// Applies the objects of `deploy/manifests` except the webhook. Classes go
    /// with the scope; the rest stays, as a namespace and a resource definition
    /// that are being deleted would be in the way of the next test.
    pub async fn install(plane: &'a ControlPlane, scope: &'a Scope) -> anyhow::Result<Self> {
        for name in [
            "namespace.yaml",
            "crd-nodetopologies.yaml",
            "node-driver-rbac.yaml",
            "admission-rbac.yaml",
            "scheduler-ext-rbac.yaml",
        ] {
            for object in manifest::read(&deploy(&format!("manifests/{name}")))? {
                manifest::apply(&plane.client(), object, NAMESPACE).await?;
            }
        }
        scope.apply_file(&gb300::file("device-classes.yaml")).await?;
        scope.apply_file(&deploy("manifests/device-class.yaml")).await?;
        Ok(Self { plane, scope, admission: None, extender: None })
    }

    /// Makes a GB300 node: GPUs as published live, NICs by a run of our driver.
    /// Returns its name.
    pub async fn gb300(&self, name: &str) -> anyhow::Result<String> {
        let node: Node = self.scope.node(name).await?;
        let node = node.metadata.name.context("a node has a name")?;
        self.scope.apply(gb300::gpu_slice(&node)?).await?;
        let imds = Imds::start(VM_SIZE, PLACEMENT_GROUP).await?;
        let machine = gb300_machine(&node)?;
        self.publish(&node, machine.path(), &imds).await?;
        Ok(node)
    }

    /// Runs our driver once for a node whose machine lies below `root`; returns
    /// what it wrote to its log.
    pub async fn publish(&self, node: &str, root: &Path, imds: &Imds) -> anyhow::Result<String> {
        let kubeconfig = self.kubeconfig("node-driver").await?;
        let driver = self
            .plane
            .program("node-driver")?
            .named(&format!("node-driver-{node}"))
            .args(["--once", "--node-name", node, "--cloud", "azure", "--imds-url", &imds.url()])
            .args(["--root".into(), root.display().to_string()])
            .args(["--kubeconfig".into(), kubeconfig.display().to_string()])
            .spawn()?;
        driver.wait_for_success(READY).await
    }

    /// Starts admission and registers its webhook.
    pub async fn start_admission(&mut self) -> anyhow::Result<()> {
        let (port, operations) = (ports::free()?, ports::free()?);
        let process = self.serve("admission", port, operations).await?;
        let url = format!("https://127.0.0.1:{port}/mutate");
        self.scope.apply(self.webhook(&url)?).await?;
        self.admission = Some(process);
        Ok(())
    }

    /// Ends admission and leaves its webhook registered.
    pub fn kill_admission(&mut self) {
        self.admission = None;
    }

    /// Starts the extender and a scheduler that asks it.
    pub async fn start_extender(&mut self) -> anyhow::Result<()> {
        let (port, operations) = (ports::free()?, ports::free()?);
        let process = self.serve("scheduler-ext", port, operations).await?;
        let url = format!("https://127.0.0.1:{port}");
        let extender = Extender::new(&url, &self.plane.authority().pem());
        self.plane.restart_scheduler(&SchedulerConfig::with_extenders(vec![extender])).await?;
        self.extender = Some(process);
        Ok(())
    }

    /// Ends the extender; the scheduler goes on asking it.
    pub fn kill_extender(&mut self) {
        self.extender = None;
    }

    /// The log of the running extender.
    pub fn extender_log(&self) -> String {
        self.extender.as_ref().map(|process| process.tail(usize::MAX)).unwrap_or_default()
    }

    async fn serve(&self, name: &str, port: u16, operations: u16) -> anyhow::Result<Process> {
        let identity = self.plane.authority().issue(name, self.plane.directory())?;
        let kubeconfig = self.kubeconfig(name).await?;
        let process = self
            .plane
            .program(name)?
            .args(["--log", "debug,hyper_util=info,tower=info,kube_client=info,rustls=info"])
            .args([format!("--listen=127.0.0.1:{port}")])
            .args([format!("--operations-listen=127.0.0.1:{operations}")])
            .args([format!("--tls-cert={}", identity.certificate.display())])
            .args([format!("--tls-key={}", identity.key.display())])
            .args([format!("--kubeconfig={}", kubeconfig.display())])
            .spawn()?;
        let ready = format!("http://127.0.0.1:{operations}/readyz");
        process.wait_until_ready(&ready, READY).await?;
        Ok(process)
    }

    /// The webhook of `deploy`, reached by URL: there are no Services here.
    fn webhook(&self, url: &str) -> anyhow::Result<DynamicObject> {
        let mut objects = manifest::read(&deploy("manifests/webhook.yaml"))?;
        let mut webhook = objects.pop().context("webhook.yaml holds an object")?;
        webhook.data["webhooks"][0]["clientConfig"] = json!({
            "url": url,
            "caBundle": ByteString(self.plane.authority().pem().into_bytes()),
        });
        Ok(webhook)
    }

    /// A kubeconfig with the rights of a service account of `deploy`.
    async fn kubeconfig(&self, account: &str) -> anyhow::Result<PathBuf> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.plane.client(), NAMESPACE);
        let request = TokenRequest {
            spec: Some(TokenRequestSpec { expiration_seconds: Some(3600), ..Default::default() }),
            ..Default::default()
        };
        let answer =
            accounts.create_token_request(account, &PostParams::default(), &request).await?;
        let token = answer.status.context("a token request is answered with a token")?.token;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "users": [{"name": "it", "user": {"token": token}}],
            "clusters": [{"name": "it", "cluster": {
                "server": self.plane.url(),
                "certificate-authority-data":
                    ByteString(self.plane.authority().pem().into_bytes()),
            }}],
        });
        let path = self.plane.directory().join(format!("{account}.kubeconfig"));
        certificates::write(&path, &config.to_string())?;
        Ok(path)
    }
}

/// The GB300 machine as a folder, with the GPU UUIDs that `node` has here.
pub fn gb300_machine(node: &str) -> anyhow::Result<TempDir> {
    let mut text = fixture::machine("azure-gb300").context("the fixture is there")?.to_owned();
    for live in gb300::live_gpu_uuids()? {
        text = text.replace(&live, &gb300::gpu_uuid(&live, node));
    }
    let folder = tempfile::tempdir()?;
    fixture::plant(&text, folder.path())?;
    Ok(folder)
}

fn deploy(path: &str) -> PathBuf {
    binaries::in_tests("../deploy").join(path)
}
