//! kube-scheduler with our extender: the extender's own code on a view of the whole cluster,
//! which learns of every pod's claim as it would from a watch.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use cluster_model::view::{ClusterView, Index, ObjectKey};
use k8s_openapi::api::core::v1::Pod as WirePod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use scheduler_ext::expected::Expected;
use scheduler_ext::prioritize::Ranker;
use scheduler_ext::score::Mix;
use serde_json::{Value, json};

use crate::claims::{ClaimError, Claims, NAMESPACE};
use crate::cluster::{Cluster, fabric_name, node_name};
use crate::policy::{Candidate, KubeScheduler, Pod, Policy, Strategy};

/// The extender's weight in the scheduler's configuration that `deploy` carries.
const WEIGHT: i64 = 18;
/// What a point of an extender is worth: `MaxNodeScore / MaxExtenderPriority`.
const POINT: i64 = 10;

/// kube-scheduler as it comes, with the extender.
#[derive(Debug)]
pub struct SchedulerExt {
    kube: KubeScheduler,
    claims: Arc<Claims>,
    view: ClusterView,
    ranker: Ranker,
    /// The extender assumes that a pod is on its way for some time after it was asked. Here a
    /// pod is bound at once, so that the time may stand still.
    now: Instant,
    names: Vec<String>,
    kinds: Vec<usize>,
}

impl SchedulerExt {
    /// The extender of an idle cluster.
    pub fn new(claims: Arc<Claims>, cluster: &Cluster) -> Result<Self, ClaimError> {
        let mut view = ClusterView::default();
        for machine in &claims.machines {
            machine.classes().into_iter().try_for_each(|class| view.apply(class))?;
        }
        let names: Vec<_> = (0..cluster.nodes.len()).map(node_name).collect();
        for (name, node) in names.iter().zip(&cluster.nodes) {
            let (machine, fabric) = (&claims.machines[node.kind], fabric_name(node.fabric));
            view.apply(machine.node(name, &fabric))?;
            view.apply(machine.node_topology(name, &fabric))?;
            machine.slices(name).into_iter().try_for_each(|slice| view.apply(slice))?;
        }
        let kube = KubeScheduler { strategy: Strategy::LeastAllocated };
        let kinds = cluster.nodes.iter().map(|node| node.kind).collect();
        let ranker = Ranker::new(Expected::new(Mix::default()));
        Ok(Self { kube, claims, view, ranker, now: Instant::now(), names, kinds })
    }

    fn claim(&self, pod: Pod, allocation: Option<Value>) -> Result<ResourceClaim, ClaimError> {
        let failed = |why: String| ClaimError::Allocate { gpus: pod.gpus, why };
        let spec = self.claims.spec(pod.gpus).ok_or(ClaimError::NoClaim { gpus: pod.gpus })?;
        let mut object = json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": { "name": claim_name(pod), "namespace": NAMESPACE },
            "spec": spec,
        });
        if let Some(allocation) = allocation {
            object["status"] = json!({ "allocation": allocation });
        }
        serde_json::from_value(object).map_err(|error| failed(error.to_string()))
    }
}

fn claim_name(pod: Pod) -> String {
    format!("job-{}", pod.uid)
}

fn wire_pod(pod: Pod) -> WirePod {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": claim_name(pod), "namespace": NAMESPACE, "uid": pod.uid.to_string() },
        "spec": {
            "containers": [{ "name": "job" }],
            "resourceClaims": [{ "name": "devices", "resourceClaimName": claim_name(pod) }],
        },
    });
    serde_json::from_value(object).expect("this is a Pod")
}

impl Policy for SchedulerExt {
    fn scores(&mut self, pod: Pod, candidates: &[Candidate], cluster: &Cluster) -> Vec<i64> {
        let kube = self.kube.scores(pod, candidates, cluster);
        // With one node left the scheduler asks nobody.
        if candidates.len() < 2 {
            return kube;
        }
        // The claim is made before the pod is scheduled.
        let claim = self.claim(pod, None).expect("the claim of a candidate was planned");
        self.view.apply(claim).expect("the claim was allocated on the candidates");
        self.ranker.learn(&self.view);
        let names: Vec<_> = candidates.iter().map(|it| self.names[it.node].clone()).collect();
        let answer =
            self.ranker.prioritize(&wire_pod(pod), &names, &self.view, self.now, &|| false);
        let by_host: HashMap<&str, i64> =
            answer.nodes.iter().map(|it| (it.node.as_str(), it.score)).collect();
        let points = names.iter().map(|name| by_host.get(name.as_str()).copied().unwrap_or(0));
        kube.iter().zip(points).map(|(kube, points)| kube + points * WEIGHT * POINT).collect()
    }

    fn bound(&mut self, pod: Pod, chosen: &Candidate) -> Result<(), ClaimError> {
        let machine = &self.claims.machines[self.kinds[chosen.node]];
        let pool = &self.names[chosen.node];
        let results = chosen.placement.results.iter().map(|(request, device)| {
            let device = &machine.devices[*device];
            json!({
                "request": **request,
                "driver": device.driver,
                "pool": pool,
                "device": device.name,
            })
        });
        let allocation = json!({ "devices": { "results": results.collect::<Vec<_>>() } });
        let claim = self.claim(pod, Some(allocation))?;
        self.view.apply(claim)?;
        self.ranker.settle(&self.view, self.now);
        Ok(())
    }

    fn ended(&mut self, pod: Pod) {
        let key = ObjectKey { namespace: NAMESPACE.to_owned(), name: claim_name(pod) };
        Index::<ResourceClaim>::delete(&mut self.view, &key);
    }
}
