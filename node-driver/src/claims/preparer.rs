//! Prepares and unprepares claims: [`LocalPreparer`] does the machine's part, [`Preparer`] gets
//! the claim from the API server.

use crate::claims::pod_events::PodEvents;
use crate::facts::node::get_node;
use crate::facts::pod_resources::{self, PodDevices};
use crate::model::claim::ClaimRef;
use crate::model::plan::Plan;
use crate::prepare::addresses;
use crate::prepare::claim::{self, AllocatedClaim, ClaimError};
use crate::prepare::error::{API_PATIENCE, PrepareError};
use crate::prepare::late::has_places;
use crate::prepare::local::{LocalPreparer, PreparedDevice};
use crate::prepare::metrics::PluginMetrics;
use crate::prepare::pools;
use crate::prepare::published::SliceDevices;
use crate::publish::claim_status::{Progress, StatusWriter};
use crate::publish::events::{NodeEvents, Notice};
use futures::future::{self, Either};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::ListParams;
use kube::{Api, Client};
use process::chain::Chain;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use topology_graph::Snapshot;

/// Longest wait for the slices. Claims can be prepared without them.
const SLICES_PATIENCE: Duration = Duration::from_secs(5);

/// The machine's part and the API server's.
#[derive(Clone)]
pub struct Preparer {
    client: Client,
    name: String,
    node: Arc<LocalPreparer>,
    events: PodEvents,
    statuses: StatusWriter,
}

/// What is read of the machine and the pod beside the claim. An error counts only if the claim is valid.
struct Read {
    facts: Result<(SliceDevices, Snapshot), PrepareError>,
    pod_devices: Result<Option<PodDevices>, PrepareError>,
}

impl Preparer {
    /// Creates the preparer for the node of this name.
    pub fn new(client: Client, name: impl Into<String>, node: Arc<LocalPreparer>) -> Self {
        let name = name.into();
        let events = PodEvents::new(client.clone(), &name);
        let statuses = StatusWriter::new(client.clone(), &node.effects.paths.driver);
        Self { client, name, node, events, statuses }
    }

    /// Prepares a claim, or returns what was already prepared. The latter works without
    /// the API server.
    pub async fn prepare(&self, claim: &ClaimRef) -> Result<Vec<PreparedDevice>, PrepareError> {
        if !claim.has_safe_uid() {
            return Err(ClaimError::MalformedUid { claim: Box::new(claim.clone()) }.into());
        }
        let uid = claim.uid.clone();
        let prepared = pin!(self.on_node(move |node| node.prepared(&uid)));
        // Read at the same time, because most claims are not prepared yet.
        let read = pin!(async { tokio::join!(self.asked(claim), self.facts()) });
        let (asked, facts) = match future::select(prepared, read).await {
            Either::Left((prepared, read)) => match prepared? {
                Some(devices) => return Ok(devices),
                None => read.await,
            },
            Either::Right((read, prepared)) => match prepared.await? {
                Some(devices) => return Ok(devices),
                None => read,
            },
        };
        let (object, pod_devices) = asked?;
        match self.prepare_new(&object, claim, Read { facts, pod_devices }).await {
            Ok(plan) => {
                self.events.forget(&claim.uid);
                let devices = self.node.devices(&plan);
                self.publish_status(plan, Progress::Prepared);
                Ok(devices)
            }
            Err(error) => {
                let reason = Chain(&error).to_string();
                self.events.say(claim, claim::pods(&object), &reason);
                Err(error)
            }
        }
    }

    async fn prepare_new(
        &self,
        object: &ResourceClaim,
        claim: &ClaimRef,
        Read { facts, pod_devices }: Read,
    ) -> Result<Plan, PrepareError> {
        let driver = &self.node.effects.paths.driver;
        let mut allocated = AllocatedClaim::read(object, claim, driver, &self.name)?;
        allocated.check_namespace(&self.node.network_namespaces)?;
        let (mut published, machine) = facts?;
        if published.is_read() && !allocated.is_served_by(&published, driver) {
            published = self.published(ListParams::default()).await;
        }
        allocated.mark_whole(driver, &published)?;
        addresses::reserve(&self.client, driver, &mut allocated).await?;
        pools::reserve(&self.client, &self.name, &mut allocated).await?;
        let facts = Arc::new((allocated, published, machine, pod_devices?));
        let prepared = self.prepare_on_node(&facts).await;
        let Some(holder) = prepared.as_ref().err().and_then(PrepareError::holder).cloned() else {
            return prepared;
        };
        // The kubelet may have lost its state, so that nobody ever unprepares the holder.
        if self.undo_if_abandoned(&holder).await? {
            return self.prepare_on_node(&facts).await;
        }
        prepared
    }

    async fn prepare_on_node(
        &self,
        facts: &Arc<(AllocatedClaim, SliceDevices, Snapshot, Option<PodDevices>)>,
    ) -> Result<Plan, PrepareError> {
        let facts = Arc::clone(facts);
        self.on_node(move |node| {
            let (allocated, published, machine, devices) = &*facts;
            node.prepare_for(allocated, published, machine, devices.as_ref())
        })
        .await
    }

    /// The claim as the API server has it, and the devices of its pod.
    async fn asked(
        &self,
        claim: &ClaimRef,
    ) -> Result<(ResourceClaim, Result<Option<PodDevices>, PrepareError>), PrepareError> {
        let object = self.get(claim).await?;
        let driver = &self.node.effects.paths.driver;
        let devices = match AllocatedClaim::read(&object, claim, driver, &self.name) {
            Ok(allocated) => self.pod_devices(&allocated).await,
            // It is read again, and refused, when all is known.
            Err(_) => Ok(None),
        };
        Ok((object, devices))
    }

    /// The devices of device plugins that the pod has, if the claim's NICs are chosen for them. The
    /// kubelet gave them to the pod before it prepares claims, and the pod keeps them.
    async fn pod_devices(
        &self,
        claim: &AllocatedClaim,
    ) -> Result<Option<PodDevices>, PrepareError> {
        let [pod] = &claim.pods[..] else { return Ok(None) };
        if !has_places(claim) {
            return Ok(None);
        }
        let kubelet = &self.node.effects.paths.kubelet;
        let read = pod_resources::read(kubelet, &claim.claim.namespace, &pod.name).await;
        read.map(Some).map_err(|source| PrepareError::PodResources {
            claim: claim.claim.clone(),
            source: Box::new(source),
        })
    }

    /// Undoes a claim if its object does not exist and no sandbox has it. Returns whether it is
    /// undone. Without an answer of the API server it is left alone.
    async fn undo_if_abandoned(&self, claim: &ClaimRef) -> Result<bool, PrepareError> {
        let is_gone = match self.get(claim).await {
            Ok(object) => object.metadata.uid.as_deref() != Some(&claim.uid),
            Err(PrepareError::Absent { .. }) => true,
            Err(_) => false,
        };
        if !is_gone {
            self.node.abandoned.forget(&claim.uid);
            return Ok(false);
        }
        let claim = claim.clone();
        self.on_node(move |node| node.undo_abandoned(&claim, Instant::now())).await
    }

    /// Undoes all claims that nobody will unprepare. Asks only about those that no sandbox is known
    /// to use.
    pub async fn undo_abandoned(&self) -> Result<(), PrepareError> {
        for claim in self.on_node(LocalPreparer::without_sandbox).await? {
            self.undo_if_abandoned(&claim).await?;
        }
        Ok(())
    }

    /// Facts that the claim is checked against. Read while the API server looks up the
    /// claim.
    async fn facts(&self) -> Result<(SliceDevices, Snapshot), PrepareError> {
        // From the API server's cache. The latest state would make it ask etcd and wait until its
        // cache is as new, which takes up to 100 ms while other objects of any kind change.
        let published = async { Ok(self.published(ListParams::default().match_any()).await) };
        tokio::try_join!(published, self.on_node(LocalPreparer::read))
    }

    /// Writes the claim's status in the background.
    pub fn publish_status(&self, plan: Plan, progress: Progress) {
        self.statuses.publish(plan, progress);
    }

    /// Sends warnings on the Node.
    pub async fn warn_on_node(&self, reason: &'static str, texts: &[String]) {
        match get_node(&self.client, &self.name).await {
            Ok(node) => {
                let notices = texts.iter().map(|text| Notice::warning(reason, text)).collect();
                NodeEvents::new(&self.client, node).say(notices).await;
            }
            Err(error) => tracing::warn!(reason, error = %Chain(&error), "Event not written"),
        }
    }

    /// Unprepares a claim. The claim object may already be gone.
    pub async fn unprepare(&self, claim: &ClaimRef) -> Result<(), PrepareError> {
        let uid = claim.uid.clone();
        self.events.forget(&uid);
        self.on_node(move |node| node.unprepare(&uid)).await
    }

    /// The slices of this node. If they cannot be read, the claim is still prepared, with
    /// less information in its files.
    async fn published(&self, params: ListParams) -> SliceDevices {
        let slices: Api<ResourceSlice> = Api::all(self.client.clone());
        let of_node = params.fields(&format!("spec.nodeName={}", self.name));
        match tokio::time::timeout(SLICES_PATIENCE, slices.list(&of_node)).await {
            Ok(Ok(list)) => return SliceDevices::new(list.items),
            Ok(Err(error)) => tracing::warn!(%error, "Failed to read ResourceSlices"),
            Err(_) => tracing::warn!("Failed to read ResourceSlices in time"),
        }
        SliceDevices::default()
    }

    /// The plugin's metrics.
    pub fn metrics(&self) -> &PluginMetrics {
        &self.node.metrics
    }

    async fn get(&self, claim: &ClaimRef) -> Result<ResourceClaim, PrepareError> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
        tokio::time::timeout(API_PATIENCE, claims.get(&claim.name))
            .await
            .map_err(|_| PrepareError::NoAnswer { claim: claim.clone() })?
            .map_err(|error| refusal(claim, error))
    }

    /// Runs work on files and interfaces, which blocks, outside the runtime's workers.
    pub(crate) async fn on_node<T: Send + 'static>(
        &self,
        work: impl FnOnce(&LocalPreparer) -> Result<T, PrepareError> + Send + 'static,
    ) -> Result<T, PrepareError> {
        let node = Arc::clone(&self.node);
        let work = tokio::task::spawn_blocking(move || work(&node));
        work.await.unwrap_or(Err(PrepareError::Stopped))
    }
}

impl std::fmt::Debug for Preparer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preparer").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Converts a refusal of the server to its message, without repetition.
fn refusal(claim: &ClaimRef, error: kube::Error) -> PrepareError {
    let claim = claim.clone();
    match error {
        kube::Error::Api(status) if status.code == 404 => PrepareError::Absent { claim },
        kube::Error::Api(status) => {
            PrepareError::Refused { claim, message: status.message.clone() }
        }
        other => PrepareError::Get { claim, source: Box::new(other) },
    }
}
