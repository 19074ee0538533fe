//! The policy `scheduler-ext` equals the extender: in every state of a replay it gives
//! the same scores as the extender's own code on a view of the whole cluster, which
//! receives every pod's claim as from a watch.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use clap::Parser as _;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use k8s_openapi::api::core::v1::Pod as WirePod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use scheduler_ext::expected::Expected;
use scheduler_ext::prioritize::Ranker;
use scheduler_ext::score::Mix;
use serde_json::json;
use simulator::args::Args;
use simulator::claims::{ClaimError, Claims, NAMESPACE, Placer};
use simulator::cluster::{Cluster, node_name};
use simulator::compare::{Scene, claims, machines};
use simulator::objects::{self, Held};
use simulator::policies::{KubeScheduler, SchedulerExt, Strategy};
use simulator::policy::{Candidate, Pod, Policy};
use simulator::replay::{Draw, replay};
use simulator::trace::Trace;

/// The policy, and the extender that is asked the same.
struct Both {
    policy: SchedulerExt,
    kube: KubeScheduler,
    claims: Arc<Claims>,
    view: ClusterView,
    ranker: Ranker,
    now: Instant,
    asked: usize,
    /// The number of requests for which the extender scored nodes differently.
    told_apart: usize,
}

impl Both {
    fn new(claims: &Arc<Claims>, cluster: &Cluster) -> Self {
        Self {
            policy: SchedulerExt::new(Arc::clone(claims)),
            kube: KubeScheduler { strategy: Strategy::LeastAllocated },
            claims: Arc::clone(claims),
            view: objects::view(claims, cluster).unwrap(),
            ranker: Ranker::new(Expected::new(Mix::default())),
            now: Instant::now(),
            asked: 0,
            told_apart: 0,
        }
    }

    fn claim(&self, pod: Pod, held: Option<&Candidate>) -> ResourceClaim {
        let uid = pod.uid.to_string();
        let held = held.map(|it| Held { node: it.node, placement: &it.placement, uid: &uid });
        objects::claim(&name(pod), self.claims.planned(pod.gpus).unwrap(), held)
    }
}

fn name(pod: Pod) -> String {
    format!("job-{}", pod.uid)
}

fn wire(pod: Pod) -> WirePod {
    let object = json!({
        "metadata": { "name": name(pod), "namespace": NAMESPACE, "uid": pod.uid.to_string() },
        "spec": {
            "containers": [{ "name": "job" }],
            "resourceClaims": [{ "name": "devices", "resourceClaimName": name(pod) }],
        },
    });
    serde_json::from_value(object).unwrap()
}

impl Policy for Both {
    fn scores(&mut self, pod: Pod, candidates: &[Candidate], cluster: &Cluster) -> Vec<i64> {
        let scores = self.policy.scores(pod, candidates, cluster);
        if candidates.len() < 2 {
            return scores;
        }
        self.view.apply(self.claim(pod, None)).unwrap();
        self.ranker.learn(&self.view);
        let names: Vec<_> = candidates.iter().map(|it| node_name(it.node)).collect();
        let answer = self.ranker.prioritize(&wire(pod), &names, &self.view, self.now, &|| false);
        let points: HashMap<&str, i64> =
            answer.nodes.iter().map(|it| (it.node.as_str(), it.score)).collect();
        let kube = self.kube.scores(pod, candidates, cluster);
        let points: Vec<i64> = names.iter().map(|name| points[name.as_str()]).collect();
        let expected: Vec<i64> =
            kube.iter().zip(&points).map(|(kube, points)| kube + points * 180).collect();
        assert_eq!(scores, expected, "{pod:?} {:?}", answer.nodes);
        self.asked += 1;
        self.told_apart += usize::from(points.iter().any(|it| *it != points[0]));
        scores
    }

    fn bound(&mut self, pod: Pod, chosen: &Candidate) -> Result<(), ClaimError> {
        let claim = self.claim(pod, Some(chosen));
        let taken = self.view.apply(claim);
        assert!(taken.is_ok(), "{taken:?}");
        self.ranker.settle(&self.view, self.now);
        self.ranker.learn(&self.view);
        self.policy.bound(pod, chosen)
    }

    fn ended(&mut self, pod: Pod) {
        let key = ObjectKey { namespace: NAMESPACE.to_owned(), name: name(pod) };
        Index::<ResourceClaim>::delete(&mut self.view, &key);
        self.policy.ended(pod);
    }
}

/// Jobs of all sizes on a cluster that is nearly full, of two kinds of machines on two fabrics, with and
/// without NVLink domains.
#[test]
fn the_policy_scores_as_the_extender_on_a_view_of_the_cluster() {
    let sizes = [1, 1, 2, 1, 4, 3, 8, 1, 16, 5];
    let row = |job: usize| {
        let gpus = sizes[job % sizes.len()];
        format!("j{job},{},{},{gpus}\n", job * 9, 100 + job * 37 % 400)
    };
    let rows = (0..200).map(row).collect::<Vec<String>>().concat();
    let text = format!("job_id,submission_time,duration,num_gpu\n{rows}");
    let trace = Trace::parse(text.as_bytes()).unwrap();
    for (kinds, domains) in [
        (vec!["azure-ndh100v5"], &[][..]),
        (vec!["azure-ndh100v5"], &["--domain-nodes", "2"]),
        (vec!["azure-ndh100v5", "azure-nda100v4"], &["--domain-nodes", "3"]),
        (vec!["azure-ndh100v5", "azure-nda100v4"], &[]),
    ] {
        let mut line = vec!["worth", "--trace", "unused", "--nodes", "8", "--fabric-nodes", "4"];
        line.extend(kinds.iter().flat_map(|kind| ["--machine", kind]));
        line.extend(domains);
        let args = Args::try_parse_from(line).unwrap();
        let claims =
            claims(machines(&args.scene.machine).unwrap(), &trace, args.alignment).unwrap();
        let scene = Scene::new(&args.scene, &trace, &Arc::new(claims), Some(0.9)).unwrap();
        let mut both = Both::new(&scene.claims, &scene.cluster);
        let mut placer = Placer::new(Arc::clone(&scene.claims));
        let (cluster, mut draw) = (scene.cluster.clone(), Draw::new(1));
        let workload = &scene.workloads[0];
        replay(workload, cluster, &mut both, &mut draw, &mut placer, scene.communication, None)
            .unwrap();
        assert!(both.asked > 100 && both.told_apart > 50, "{} {}", both.asked, both.told_apart);
    }
}
