//! One pod on each of some nodes.

use super::Room;
use super::ask::Ask;
use super::domain::{Domain, KeptClear};
use super::extended::Extended;
use super::node_facts::NodeFacts;
use super::nodes::{NodeInfo, Usage};
use super::spread::Spreading;
use super::volumes::ResolvedVolumes;
use super::why_not::WhyNot;
use crate::names::label;
use crate::predict::{Fit, Prediction, STEPS_MAX, prediction};
use crate::view::ObjectKey;
use dra_allocator::{Budget, Claim, Limits, Outcome, Survey, survey};
use std::collections::{BTreeMap, BTreeSet};

/// What a pod asks for in this cluster, looked up once for all nodes.
pub(super) struct ResolvedAsk<'k> {
    pub(super) ask: &'k Ask,
    /// The claims that have no devices yet.
    pub(super) claims: Vec<Claim>,
    /// The others, with their pools.
    elsewhere: Vec<(ObjectKey, BTreeSet<String>)>,
    /// Extended resources that claims can stand for.
    extended: Option<Extended>,
    pub(super) domains: Vec<Domain<'k>>,
    pub(super) spreading: Vec<Spreading<'k>>,
    /// Where other pods do not let it be.
    kept_clear: KeptClear,
    /// Its volumes, or why it has them nowhere.
    pub(super) volumes: Result<ResolvedVolumes<'k>, WhyNot>,
}

/// What happens to a pod on each node.
#[derive(Debug)]
pub struct Attempt<'r, 'n> {
    budget: &'r Budget<'r>,
    /// A node on which the allocator fails, so that the scheduler places the pod nowhere.
    failing: Option<&'n str>,
    /// Nodes that something else than devices excludes.
    barred: Vec<(&'n str, WhyNot)>,
    /// Nodes on which the pod needs no devices.
    open: Vec<&'n str>,
    /// Other nodes, by the claims that the pod has there.
    surveys: Vec<(Vec<Claim>, Survey<'r, 'n>)>,
}

/// Nodes with one result, in the names of the first.
#[derive(Debug)]
pub struct Alike<'a, 'n> {
    /// The nodes; at least one.
    pub nodes: &'a [&'n str],
    /// The claims that the pod has there and that have no devices yet.
    pub claims: &'a [Claim],
    /// The result.
    pub result: Prediction,
}

impl<'r> Room<'r> {
    /// Tries a pod on each of these nodes, as kube-scheduler's filters do.
    ///
    /// # Errors
    /// Returns a reason if a claim of the pod is unknown.
    pub fn attempt<'n>(
        &self,
        ask: &Ask,
        nodes: impl IntoIterator<Item = &'n str>,
    ) -> Result<Attempt<'r, 'n>, String> {
        let room = self.beside_nominated(ask);
        Ok(room.attempt_resolved(&room.resolve(ask)?, nodes))
    }

    /// Why a pod does not fit on a node; `None` if it does.
    ///
    /// # Errors
    /// Returns a reason if a claim of the pod is unknown.
    pub fn why_not(&self, node: &str, ask: &Ask) -> Result<Option<WhyNot>, String> {
        let attempt = self.attempt(ask, [node])?;
        let result = attempt.each().next().map(|(_, result)| result);
        Ok(match result {
            Some(Prediction::No(why)) => Some(why),
            Some(Prediction::Fits(_)) | None => None,
        })
    }

    pub(super) fn attempt_resolved<'n>(
        &self,
        resolved: &ResolvedAsk<'_>,
        nodes: impl IntoIterator<Item = &'n str>,
    ) -> Attempt<'r, 'n> {
        let (mut barred, mut candidates) = (Vec::new(), Vec::new());
        for node in nodes {
            let why = self.times(node, resolved).err();
            let why = why.or_else(|| self.why_not_spread(node, &resolved.spreading));
            match why.or_else(|| self.why_not_beside(node, resolved)) {
                None => candidates.push(node),
                Some(why) => barred.push((node, why)),
            }
        }
        let (mut open, mut surveys) = (Vec::new(), Vec::new());
        let (inventory, settings) = (self.view.inventory(), self.view.settings());
        let limits = Limits::within(STEPS_MAX, self.budget);
        let mut failing = None;
        for (nodes, claims) in self.by_claims(resolved, candidates.into_iter()) {
            if claims.is_empty() {
                open.extend(nodes);
                continue;
            }
            let answers = survey(inventory, nodes, &claims, &self.state, settings, limits);
            let mut groups = answers.groups().iter();
            let failed = groups.find(|group| matches!(group.attempt.outcome, Outcome::Failed(_)));
            failing = failing.or_else(|| failed.map(|group| group.nodes[0]));
            surveys.push((claims, answers));
        }
        Attempt { budget: self.budget, failing, barred, open, surveys }
    }

    pub(super) fn resolve<'k>(&self, ask: &'k Ask) -> Result<ResolvedAsk<'k>, String>
    where
        'r: 'k,
    {
        let (claims, allocated) = ask.parsed(self.view)?;
        let elsewhere = allocated.into_iter().map(|key| {
            let pools = self.view.held_by(&key).map(|device| device.pool.to_string()).collect();
            (key, pools)
        });
        Ok(ResolvedAsk {
            ask,
            claims,
            elsewhere: elsewhere.collect(),
            extended: Extended::new(&ask.requests, self.view),
            domains: self.domains(ask),
            spreading: self.spreading(ask),
            kept_clear: self.kept_clear(ask),
            volumes: self.volumes(ask),
        })
    }

    /// How many times the pod fits on a node, but for its devices and other pods; at least once.
    pub(super) fn times(&self, node: &str, resolved: &ResolvedAsk<'_>) -> Result<usize, WhyNot> {
        let ask = resolved.ask;
        let volumes = resolved.volumes.as_ref().map_err(Clone::clone)?;
        // In the order of kube-scheduler's filters, since the first reason counts.
        if ask.placement.affinity.as_ref().is_some_and(|it| it.names_others(node)) {
            return Err(WhyNot::NotSelected);
        }
        let info = self.nodes.get(node);
        let facts = info.and_then(NodeInfo::facts);
        if let Some(why) = facts.and_then(|facts| facts.kept_off(&ask.tolerations)) {
            return Err(why);
        }
        if !ask.placement.allows(self.view, node) {
            return Err(WhyNot::NotSelected);
        }
        if let Some(chosen) = ask.fabric()
            && self.label(node, label::NODE_FABRIC) != Some(chosen)
        {
            return Err(WhyNot::OtherFabric { chosen: chosen.into() });
        }
        let times = self.times_by_ports(node, ask)?;
        let times = match info.zip(facts) {
            Some((info, facts)) => self.times_in_amounts(node, (info, facts), resolved)?.min(times),
            None => times,
        };
        self.why_no_volumes(node, (ask, volumes)).map_or(Ok(times), Err)
    }

    /// Why other pods, or devices that the pod has already, exclude a node; after spread constraints.
    pub(super) fn why_not_beside(&self, node: &str, resolved: &ResolvedAsk<'_>) -> Option<WhyNot> {
        let mut domains = resolved.domains.iter();
        let closed = domains
            .find_map(|domain| domain.why_not(self.label(node, domain.key())))
            .or_else(|| resolved.kept_clear.why_not(|key| self.label(node, key)));
        let mut elsewhere = resolved.elsewhere.iter();
        closed.or_else(|| {
            let (claim, pools) = elsewhere.find(|(_, pools)| !self.has_devices_of(node, pools))?;
            let pools = pools.iter().cloned().collect();
            Some(WhyNot::ClaimElsewhere { claim: claim.clone(), pools })
        })
    }

    /// Why one of these constraints excludes a node now.
    pub(super) fn why_not_spread<'s>(
        &self,
        node: &str,
        constraints: impl IntoIterator<Item = &'s Spreading<'s>>,
    ) -> Option<WhyNot> {
        constraints.into_iter().find_map(|spread| spread.why_not(self.label(node, spread.key())))
    }

    /// Whether the node has devices of all these pools.
    fn has_devices_of(&self, node: &str, pools: &BTreeSet<String>) -> bool {
        if pools.iter().all(|pool| pool == node) {
            return true;
        }
        let devices = self.view.inventory().devices_on(node, self.view.settings());
        let there: BTreeSet<&str> =
            devices.unwrap_or_default().into_iter().map(|device| &*device.id().pool).collect();
        pools.iter().all(|pool| there.contains(&**pool))
    }

    /// How many times the node has room for the pod's requests.
    fn times_in_amounts(
        &self,
        node: &str,
        (info, facts): (&NodeInfo, &NodeFacts),
        resolved: &ResolvedAsk<'_>,
    ) -> Result<usize, WhyNot> {
        let Some(allocatable) = &facts.allocatable else { return Ok(usize::MAX) };
        if facts.pods == 0 {
            return Err(WhyNot::TakesNoPods);
        }
        let used = self.used_on(node, info, resolved.ask);
        let pods = usize::try_from(facts.pods - used.pods).unwrap_or(0);
        if pods == 0 {
            return Err(WhyNot::Full);
        }
        let by_claim =
            resolved.extended.as_ref().map(|it| it.missing_on(facts)).unwrap_or_default();
        let requests = resolved.ask.requests.without(&by_claim);
        let free = |name: &str| allocatable.get(name) - used.amounts.get(name);
        match requests.first_short(free) {
            None => Ok(requests.times_in(free, pods)),
            Some(name) => Err(WhyNot::TooLittle {
                resource: name.into(),
                also_when_empty: requests.units(name) > allocatable.units(name),
            }),
        }
    }

    /// What is used on a node by pods that do not give way.
    pub(super) fn used_on(&self, node: &str, info: &NodeInfo, ask: &Ask) -> Usage {
        let mut used = match (self.is_idle, ask.gives_way_below) {
            (true, _) => Usage::default(),
            (false, None) if self.left.is_empty() => info.usage().clone(),
            (false, _) => info.usage_of(|key, pod| !self.is_away(key, pod, ask)),
        };
        if let Some(added) = self.used.get(node) {
            used.amounts.add(&added.amounts);
            used.non_zero.add(added.non_zero, 1);
            used.pods += added.pods;
        }
        used
    }

    /// How many times the pod's host ports are free: once, if it has any.
    fn times_by_ports(&self, node: &str, ask: &Ask) -> Result<usize, WhyNot> {
        if ask.ports.is_empty() {
            return Ok(usize::MAX);
        }
        let bound = self.nodes.get(node).into_iter().flat_map(NodeInfo::pods);
        let bound = bound.filter(|(key, pod)| !self.is_idle && !self.is_away(key, pod, ask));
        let added = self.added.iter().filter(|added| *added.node == *node);
        let taken: Vec<_> = bound
            .flat_map(|(_, pod)| &*pod.ports)
            .chain(added.flat_map(|added| &added.ask.ports))
            .collect();
        let busy = ask.ports.iter().find(|own| taken.iter().any(|it| it.conflicts_with(own)));
        busy.map_or(Ok(1), |port| Err(WhyNot::PortInUse { number: port.number }))
    }

    /// The claims that the pod has on each of these nodes: where no device plugin offers an extended
    /// resource, a claim stands for it.
    pub(super) fn by_claims<'n>(
        &self,
        resolved: &ResolvedAsk<'_>,
        nodes: impl Iterator<Item = &'n str>,
    ) -> Vec<(Vec<&'n str>, Vec<Claim>)> {
        let Some(extended) = &resolved.extended else {
            return vec![(nodes.collect(), resolved.claims.clone())];
        };
        let mut by_missing: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
        for node in nodes {
            let missing = self.nodes.facts(node).map(|facts| extended.missing_on(facts));
            by_missing.entry(missing.unwrap_or_default()).or_default().push(node);
        }
        by_missing
            .into_iter()
            .filter_map(|(missing, nodes)| {
                let mut claims = resolved.claims.clone();
                if !missing.is_empty() {
                    claims.push(extended.claim(&missing).ok()?.0);
                }
                Some((nodes, claims))
            })
            .collect()
    }
}

impl<'n> Attempt<'_, 'n> {
    /// The nodes on which the scheduler can place the pod.
    pub fn fits(&self) -> Vec<&'n str> {
        let fitting = self.alike().filter(|alike| matches!(alike.result, Prediction::Fits(_)));
        let mut nodes: Vec<_> = fitting.flat_map(|alike| alike.nodes.iter().copied()).collect();
        nodes.sort_unstable();
        nodes
    }

    /// A node on which the allocator fails, so that the scheduler places the pod nowhere.
    pub fn failing(&self) -> Option<&'n str> {
        self.failing
    }

    /// The nodes that something else than devices excludes.
    pub fn barred(&self) -> &[(&'n str, WhyNot)] {
        &self.barred
    }

    /// The results of the other nodes; equal nodes share one.
    pub fn alike(&self) -> impl Iterator<Item = Alike<'_, 'n>> {
        let open = Some(Alike { nodes: &self.open, claims: &[], result: self.nothing() });
        let open = open.filter(|open| !open.nodes.is_empty());
        let surveyed = self.surveys.iter().flat_map(|(claims, survey)| {
            survey.groups().iter().map(|group| Alike {
                nodes: &group.nodes,
                claims,
                result: self.result(prediction(group.attempt.clone(), self.budget)),
            })
        });
        open.into_iter().chain(surveyed)
    }

    /// The result of each node, in its own names.
    pub fn each(&self) -> impl Iterator<Item = (&'n str, Prediction)> {
        let barred = self.barred.iter().map(|(node, why)| (*node, Prediction::No(why.clone())));
        let open = self.open.iter().map(|node| (*node, self.nothing()));
        let surveyed = self.surveys.iter().flat_map(|(_, survey)| survey.attempts());
        let surveyed =
            surveyed.map(|(node, attempt)| (node, self.result(prediction(attempt, self.budget))));
        barred.chain(open).chain(surveyed)
    }

    /// The result of a pod that needs no devices.
    fn nothing(&self) -> Prediction {
        self.result(Prediction::Fits(Fit { allocations: Vec::new(), is_exact: true }))
    }

    /// A failure on one node stops the pod on all.
    fn result(&self, prediction: Prediction) -> Prediction {
        match (prediction, self.failing) {
            (Prediction::Fits(_), Some(node)) => {
                Prediction::No(WhyNot::FailsElsewhere { node: node.into() })
            }
            (prediction, _) => prediction,
        }
    }
}
