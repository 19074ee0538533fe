//! What is seen of a preemption: its pods and victims, read directly from the API server, and what the
//! room says.

use super::Controller;
use super::watch::{Objects, Watched};
use crate::PlacedClaim;
use crate::protocol::record::{Begun, RecordedPod};
use crate::protocol::room::{self, Facts, has_devices};
use crate::protocol::step::{PodSeen, RoomSeen, Seen, VictimSeen};
use cluster_model::predict::budget;
use cluster_model::room::pod_claims;
use cluster_model::view::ObjectKey;
use futures::stream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use process::requests::{ApiError, reading};

/// How many objects are read concurrently.
const TOGETHER: usize = 16;

/// What is seen, and what the claims of each pod get that have no devices yet.
#[derive(Debug)]
pub(super) struct Looked {
    pub(super) seen: Seen,
    pub(super) claims: Vec<Vec<PlacedClaim>>,
}

impl Controller {
    /// Looks at a preemption.
    pub(super) async fn look(&self, begun: &Begun, watched: &Watched) -> Result<Looked, ApiError> {
        let pods = self.pods(&begun.record.pods).await?;
        let victims = self.pods(&begun.record.victims).await?;
        let seen = self.each_seen(&pods).await?;
        let without_node: Vec<Option<Pod>> =
            pods.into_iter().map(|pod| pod.filter(|pod| node(pod).is_none())).collect();
        let (mut room, claims) = self.check(begun, without_node, watched).await;
        let victims: Vec<_> = victims.iter().map(|pod| victim_seen(pod.as_ref())).collect();
        if victims.iter().all(|victim| *victim == VictimSeen::Runs)
            && let Some(budget) = self.violated(begun, watched)
        {
            room = RoomSeen::No(format!("PodDisruptionBudget {budget} lets no more pods leave"));
        }
        Ok(Looked { seen: Seen { pods: seen, victims, room }, claims })
    }

    /// A budget that does not let the victims leave as it is now. It counts a pod from when that runs, which
    /// may be after the decision.
    fn violated(&self, begun: &Begun, watched: &Watched) -> Option<ObjectKey> {
        let Objects { pods, budgets, .. } = watched.objects();
        let keys = begun.record.victims.iter().map(|pod| (pod.node.as_str(), pod.pod_key()));
        let keys: Vec<_> = keys.collect();
        let victims = keys.iter().filter_map(|(node, key)| Some((key, pods.on_node(node, key)?)));
        budgets.violated(victims, &self.view.read()).into_iter().flatten().next()
    }

    /// The pods with these UIDs; `None` for those that do not exist any more.
    async fn pods(&self, recorded: &[RecordedPod]) -> Result<Vec<Option<Pod>>, ApiError> {
        let read = stream::iter(recorded).map(async |pod| {
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace);
            let found = api.get_opt(&pod.name).await.map_err(reading("Pod", &pod.name))?;
            Ok(found.filter(|found| found.metadata.uid.as_ref() == Some(&pod.uid)))
        });
        read.buffered(TOGETHER).try_collect().await
    }

    /// What is seen of these pods.
    pub(super) async fn pods_seen(
        &self,
        recorded: &[RecordedPod],
    ) -> Result<Vec<PodSeen>, ApiError> {
        self.each_seen(&self.pods(recorded).await?).await
    }

    async fn each_seen(&self, pods: &[Option<Pod>]) -> Result<Vec<PodSeen>, ApiError> {
        let seen = stream::iter(pods).map(async |pod| self.pod_seen(pod.as_ref()).await);
        seen.buffered(TOGETHER).try_collect().await
    }

    async fn pod_seen(&self, pod: Option<&Pod>) -> Result<PodSeen, ApiError> {
        // A pod that was bound may have ended since.
        if let Some(node) = pod.and_then(node) {
            return Ok(PodSeen::Bound(node.to_owned()));
        }
        let Some(pod) = pod.filter(|pod| !has_ended(pod) && !is_ending(pod)) else {
            return Ok(PodSeen::Gone);
        };
        let claims = {
            let view = self.view.read();
            let claims = pod_claims(pod, &view).ok().filter(|_| has_devices(pod, &view));
            claims.map(|claims| claims.allocated)
        };
        // The last claim is written last.
        let Some(key) = claims.and_then(|claims| claims.into_iter().next_back()) else {
            return Ok(PodSeen::Waits { allocated: None });
        };
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &key.namespace);
        let claim = api.get_opt(&key.name).await.map_err(reading("ResourceClaim", &key.name))?;
        let allocation = claim.and_then(|claim| claim.status?.allocation);
        let allocated = allocation.map(|allocation| {
            allocation.allocation_timestamp.map_or_else(|| self.view.now(), |time| time.0)
        });
        Ok(PodSeen::Waits { allocated })
    }

    /// Asks the room on a separate thread, because it may take a second.
    async fn check(
        &self,
        begun: &Begun,
        pods: Vec<Option<Pod>>,
        watched: &Watched,
    ) -> (RoomSeen, Vec<Vec<PlacedClaim>>) {
        let (view, nodes, begun) = (self.view.clone(), watched.nodes(), begun.clone());
        let checked = tokio::task::spawn_blocking(move || {
            let view = view.read();
            let budget = budget(&view);
            let facts = Facts { view: &view, nodes: &nodes, pods: &pods, budget: &budget };
            room::check(&begun, &facts)
        });
        match checked.await {
            Ok(checked) => (checked.room, checked.claims),
            Err(error) => (RoomSeen::No(error.to_string()), Vec::new()),
        }
    }
}

fn victim_seen(pod: Option<&Pod>) -> VictimSeen {
    match pod {
        Some(pod) if has_ended(pod) => VictimSeen::Gone,
        Some(pod) if is_ending(pod) => VictimSeen::Ends,
        Some(_) => VictimSeen::Runs,
        None => VictimSeen::Gone,
    }
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn is_ending(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
