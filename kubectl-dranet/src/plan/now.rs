//! What a planned pod would get if it were created now.

use crate::explain::{not_there, quota};
use crate::in_use::InUse;
use crate::predicted::{AlikeNodes, alike_nodes};
use cluster_model::closed::Closed;
use cluster_model::predict::{Prediction, budget};
use cluster_model::room::{Ask, NodeFacts, PodClaims, pod_claims};
use cluster_model::view::ClusterView;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::collections::BTreeMap;

/// What a planned pod would get now.
pub(crate) struct Now<'v> {
    /// Its claims that have no devices yet.
    pub(crate) claims: PodClaims,
    /// The result on each node.
    pub(crate) results: BTreeMap<&'v str, Prediction>,
    /// Nodes whose devices decide.
    pub(super) open: Vec<AlikeNodes<'v>>,
    /// Other nodes, by the reason.
    pub(super) kept_off: BTreeMap<String, Vec<&'v str>>,
    /// How many of the other nodes are cordoned or not ready.
    pub(super) closed: BTreeMap<Closed, usize>,
    /// On how many nodes it would fit with nothing in use and all nodes open; only known if it fits on none
    /// now.
    pub(super) serving: usize,
    /// Why a quota refuses the pod or its claims.
    pub(super) refused: Option<String>,
    /// Why nothing is known of the pod on any node.
    pub(crate) unknown: Option<String>,
}

impl<'v> Now<'v> {
    pub(super) fn new(
        pod: &Pod,
        view: &'v ClusterView,
        (in_use, quotas): (&InUse, &[Value]),
    ) -> Self {
        let mut now = Self {
            claims: PodClaims::default(),
            results: BTreeMap::new(),
            open: Vec::new(),
            kept_off: BTreeMap::new(),
            closed: BTreeMap::new(),
            serving: 0,
            refused: None,
            unknown: None,
        };
        let budget = budget(view);
        let room = in_use.room(view, &budget);
        let tried = pod_claims(pod, view).and_then(|claims| {
            now.refused = quota::refusal(pod, &claims, quotas, view);
            match &now.refused {
                Some(refused) => Err(refused.clone()),
                None => Ok((claims, room.attempt(&Ask::new(pod), view.present_nodes())?)),
            }
        });
        match tried {
            Ok((claims, attempt)) => {
                if attempt.fits().is_empty() {
                    let empty = room
                        .emptied()
                        .attempt(&Ask::new(pod).tolerating_all(), view.present_nodes());
                    now.serving = empty.map(|empty| empty.fits().len()).unwrap_or_default();
                }
                now.open = alike_nodes(view, &attempt, &claims);
                now.claims = claims;
                now.results = attempt.each().collect();
                for (node, why) in attempt.barred() {
                    now.keep_off(node, why.to_string(), in_use);
                }
            }
            Err(reason) => {
                let unknown = not_there(pod, view).unwrap_or(reason);
                view.present_nodes().for_each(|node| now.keep_off(node, unknown.clone(), in_use));
                now.unknown = Some(unknown);
            }
        }
        now.kept_off.values_mut().for_each(|nodes| nodes.sort_unstable());
        now
    }

    fn keep_off(&mut self, node: &'v str, why: String, in_use: &InUse) {
        self.kept_off.entry(why).or_default().push(node);
        if let Some(closed) = in_use.nodes.facts(node).and_then(NodeFacts::closed) {
            *self.closed.entry(closed).or_default() += 1;
        }
    }
}
