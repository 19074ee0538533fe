//! Admission behind its Service, as `deploy` installs it. Its replicas are local processes: each is
//! an endpoint of the Service and uses the certificate that the leader issues.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    coordination::v1::Lease,
    core::v1::{ConfigMap, Pod, Secret},
    discovery::v1::EndpointSlice,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{Installation, NAMESPACE, deploy, without_deployments};
use crate::{Check, Process, eventually, manifest, metrics, ports};

pub(super) const SOON: Duration = Duration::from_secs(30);
const SERVICE: &str = "admission";
const AUTHORITY: &str = "admission-authority";
const MACHINES: &str = "admission-machines";
/// The label on endpoints that the tests create.
const OURS: &str = "dranet-tests=admission";

/// A running replica; it is killed when dropped.
#[derive(Debug)]
pub struct Replica {
    process: Process,
    /// The port of `/metrics`.
    pub operations: u16,
    endpoints: String,
    url: String,
}

impl Replica {
    /// The process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Its current metrics, by name and labels, from `/metrics`.
    pub async fn metrics(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        metrics::samples(self.operations).await
    }
}

impl Installation<'_> {
    /// Starts admission and registers its webhooks.
    pub async fn start_admission(&mut self) -> anyhow::Result<()> {
        self.start_replicas(1, &[]).await
    }

    /// Starts replicas with additional flags and registers the webhooks. Returns when
    /// kube-apiserver has received a response from one.
    pub async fn start_replicas(&mut self, count: usize, args: &[&str]) -> anyhow::Result<()> {
        self.forget_replicas().await?;
        for object in without_deployments(&deploy("manifests/admission.yaml"))? {
            manifest::apply(&self.plane.client(), object, NAMESPACE).await?;
        }
        self.scope.apply_file(&deploy("manifests/webhook.yaml")).await?;
        for index in 0..count {
            self.start_replica(index, args).await?;
        }
        self.answers().await
    }

    /// Starts what writes the authority into the webhook configurations; returns when it has.
    async fn start_authority(&mut self) -> anyhow::Result<()> {
        let (operations, flag) = (ports::free()?, ["--write-authority".to_owned()]);
        let process = self.spawn_as(AUTHORITY, SERVICE, AUTHORITY, operations, &flag).await?;
        self.authority = Some(process);
        Ok(())
    }

    /// Starts one more replica.
    pub async fn start_replica(&mut self, index: usize, args: &[&str]) -> anyhow::Result<()> {
        let (address, port, operations) = (ports::address()?, ports::free()?, ports::free()?);
        let name = format!("{SERVICE}-{index}");
        let mut all = vec![format!("--listen={address}:{port}")];
        all.extend(self.lease_flag());
        all.extend(args.iter().map(|arg| (*arg).to_owned()));
        let process = self.spawn(SERVICE, &name, operations, &all).await?;
        let endpoints = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": {
                "kubernetes.io/service-name": SERVICE,
                "dranet-tests": "admission",
            }},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}}],
            "ports": [{"name": "webhook", "port": port}],
        });
        manifest::apply(&self.plane.client(), serde_json::from_value(endpoints)?, NAMESPACE)
            .await?;
        let url = format!("https://{address}:{port}");
        self.admission.push(Replica { process, operations, endpoints: name, url });
        match self.authority {
            Some(_) => Ok(()),
            None => self.start_authority().await,
        }
    }

    /// Kills every replica; the webhooks stay registered.
    pub fn kill_admission(&mut self) {
        self.admission.clear();
    }

    /// Kills a replica with SIGKILL, then removes its endpoint as its kubelet would.
    pub async fn kill_replica(&mut self, index: usize) -> anyhow::Result<()> {
        let replica = self.admission.remove(index);
        let endpoints = replica.endpoints.clone();
        drop(replica);
        self.slices().delete(&endpoints, &DeleteParams::default()).await?;
        Ok(())
    }

    /// The running replicas.
    pub fn replicas(&self) -> &[Replica] {
        &self.admission
    }

    /// Waits until the API server has received a response: it reads configurations and endpoints
    /// from its own watches.
    pub async fn answers(&self) -> anyhow::Result<()> {
        let pods: Api<Pod> = self.scope.api();
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let probe: Pod = serde_json::from_value(json!({
            "metadata": {"name": "probe", "annotations": {"dranet.io/aligned-nics": "probe"}},
            "spec": {"containers": [{"name": "probe", "image": "none"}]},
        }))?;
        eventually(SOON, async || match pods.create(&dry_run, &probe).await {
            Err(kube::Error::Api(status)) if status.message.contains("denied the request") => {
                Ok(Check::Done(()))
            }
            other => Ok(Check::NotYet(format!("the webhook: {other:?}"))),
        })
        .await?;
        let linted: Api<ValidatingWebhookConfiguration> = Api::all(self.plane.client());
        eventually(SOON, async || {
            let webhooks = linted.get("lint.dranet.io").await?.webhooks.unwrap_or_default();
            let trusts = webhooks.iter().all(|hook| hook.client_config.ca_bundle.is_some());
            Ok(Check::that(trusts, || "lint.dranet.io has no CA bundle".into()))
        })
        .await
    }

    /// Removes the authority from the webhook for pods.
    pub async fn distrust(&self) -> anyhow::Result<()> {
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.plane.client());
        let patch = json!({"webhooks": [
            {"name": "admission.dranet.io", "clientConfig": {"caBundle": null}},
        ]});
        let params = PatchParams::default();
        api.patch("admission.dranet.io", &params, &Patch::Strategic(patch)).await?;
        Ok(())
    }

    /// The Secret with the certificates.
    pub async fn certificates(&self) -> anyhow::Result<Secret> {
        let secrets: Api<Secret> = Api::namespaced(self.plane.client(), NAMESPACE);
        Ok(secrets.get("admission-certificates").await?)
    }

    /// The identity of the leader, as soon as there is one.
    pub async fn leader(&self) -> anyhow::Result<String> {
        let leases: Api<Lease> = Api::namespaced(self.plane.client(), NAMESPACE);
        eventually(SOON, async || {
            let spec = leases.get(SERVICE).await?.spec.unwrap_or_default();
            Ok(spec
                .holder_identity
                .map_or_else(|| Check::NotYet("there is no leader".into()), Check::Done))
        })
        .await
    }

    /// The index of the replica that leads, as soon as one of them leads.
    pub async fn leading_replica(&self) -> anyhow::Result<usize> {
        self.index_of_leader(SERVICE, self.admission.iter().map(Replica::process)).await
    }

    /// Removes what the killed replicas of the previous test have left: endpoints and the lease.
    async fn forget_replicas(&mut self) -> anyhow::Result<()> {
        self.admission.clear();
        self.authority = None;
        self.forget_endpoints().await?;
        let leases: Api<Lease> = Api::namespaced(self.plane.client(), NAMESPACE);
        let free = Patch::Merge(json!({"spec": {"holderIdentity": null}}));
        leases.patch(SERVICE, &PatchParams::default(), &free).await.context("the lease")?;
        let empty = Patch::Merge(json!({"binaryData": null}));
        self.machines().patch(MACHINES, &PatchParams::default(), &empty).await?;
        Ok(())
    }

    /// Removes the endpoints of all replicas, as their kubelets would.
    pub async fn forget_endpoints(&self) -> anyhow::Result<()> {
        let ours = ListParams::default().labels(OURS);
        self.slices().delete_collection(&DeleteParams::default(), &ours).await?;
        Ok(())
    }

    /// Waits until a machine is remembered.
    pub async fn remembered(&self) -> anyhow::Result<()> {
        eventually(SOON, async || {
            let entries = self.machines().get(MACHINES).await?.binary_data.unwrap_or_default();
            Ok(Check::that(!entries.is_empty(), || "no machine is remembered".into()))
        })
        .await
    }

    fn machines(&self) -> Api<ConfigMap> {
        Api::namespaced(self.plane.client(), NAMESPACE)
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.plane.client(), NAMESPACE)
    }
}

/// The webhook for clients other than kube-apiserver.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// `https://ADDRESS:PORT`.
    pub url: String,
    /// The name that its certificate is for.
    pub name: String,
    /// The authority of its certificate, as DER.
    pub authority: Vec<u8>,
    /// Its process.
    pid: u32,
}

impl Webhook {
    /// A client that trusts the webhook's authority, as kube-apiserver does.
    pub fn client(&self) -> anyhow::Result<Client> {
        let mut config = Config::new(self.url.parse().context("its URL")?);
        config.root_cert = Some(vec![self.authority.clone()]);
        config.tls_server_name = Some(self.name.clone());
        Ok(Client::try_from(config)?)
    }

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.pid
    }
}

/// The `AdmissionReview` that kube-apiserver sends when a pod is created.
pub fn review(namespace: &str, mut pod: Value) -> Value {
    pod["metadata"]["name"] = "p".into();
    pod["metadata"]["namespace"] = namespace.into();
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "p",
            "namespace": namespace,
            "operation": "CREATE",
            "userInfo": {},
            "object": pod,
            "dryRun": false,
        },
    })
}

impl Installation<'_> {
    /// The first replica, for the test's own clients.
    pub async fn webhook(&self) -> anyhow::Result<Webhook> {
        let replica = self.admission.first().context("a replica runs")?;
        let data = self.certificates().await?.data.unwrap_or_default();
        let pem = data.get("ca.crt").context("it holds an authority")?;
        Ok(Webhook {
            url: replica.url.clone(),
            name: format!("{SERVICE}.{NAMESPACE}.svc"),
            authority: pem::parse(&pem.0)?.into_contents(),
            // setpriv replaces itself with the program.
            pid: replica.process.pid(),
        })
    }
}
