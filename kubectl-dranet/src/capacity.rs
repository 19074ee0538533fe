//! `capacity`: how many more pods of a shape fit, and what would have to move for one more.

mod count;

use crate::Output;
use crate::answer::{Barred, Capacity, CapacityRoom, CapacityShape, ToMove};
use crate::args::CapacityArgs;
use crate::in_use::InUse;
use crate::kinds::{PODS, USE};
use crate::moves::fewest;
use crate::own_pods::TOLERATED;
use crate::predicted::add_planned;
use crate::settings;
use crate::shape::{PodShape, USUAL};
use crate::source::{ReadCluster, Source};
use crate::text::{self, Short, counted, of_nodes, table};
use admission::admit::{AdmitError, admit};
use admission::plan::{Policy, drivers};
use cluster_model::gpu_drivers;
use cluster_model::late_node::LateDemand;
use cluster_model::predict::budget;
use cluster_model::room::{Ask, Nodes, Tolerated};
use cluster_model::view::ClusterView;
use count::{most_plugin_gpus, rooms};
use k8s_openapi::api::core::v1::{Pod, Toleration};
use serde::Deserialize as _;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The GPUs that are counted: those of one driver, if the cluster has several.
struct Gpus {
    /// The driver, if there are several.
    driver: Option<&'static str>,
    /// The DeviceClass that a pod names for them.
    class: Option<String>,
    /// The extended resource of device plugins, if no DRA driver publishes any GPU.
    plugin: Option<&'static str>,
}

impl CapacityShape {
    /// `1gpu:1nic`, with the driver of the GPUs if there are several.
    pub(crate) fn name(&self) -> String {
        match &self.gpu_driver {
            Some(driver) => format!("{} of {driver}", self.shape),
            None => self.shape.clone(),
        }
    }
}

impl Gpus {
    /// Those of each driver, or without a name if there is only one driver or none.
    fn all(view: &ClusterView, policy: &Policy) -> Vec<Self> {
        let drivers = drivers(view, policy);
        if drivers.len() < 2 {
            let mut plugins = gpu_drivers::all().iter().flat_map(|it| it.extended_resources);
            let plugin = plugins.find(|name| view.nodes_with_plugin(name).next().is_some());
            let plugin = plugin.copied().filter(|_| drivers.is_empty());
            return vec![Self { driver: None, class: None, plugin }];
        }
        let of_driver = drivers.into_iter().map(|(driver, class)| Self {
            driver: Some(driver.driver),
            class: Some(class),
            plugin: None,
        });
        of_driver.collect()
    }

    /// A pod with such GPUs.
    fn pod(&self, shape: PodShape, namespace: &str) -> Value {
        match self.plugin {
            Some(resource) => shape.pod_by_limit(namespace, resource),
            None => shape.pod(namespace, self.class.as_deref()),
        }
    }

    /// The most GPUs of any node, at most 16.
    fn most(&self, view: &ClusterView) -> u32 {
        let most = self.plugin.map(|resource| most_plugin_gpus(view, resource));
        // A claim has at most 32 devices, so 16 GPUs with a NIC each.
        most.unwrap_or_else(|| count::most_gpus(view)).min(16)
    }
}

pub(crate) fn run(args: &CapacityArgs) -> anyhow::Result<Output> {
    let kinds = &["Deployment", "Node", "Pod"];
    let pods = PODS.all("CPU, memory and GPUs of device plugins that pods use are not known");
    let mut seen =
        Source::open(&args.source)?.read_as_admission(&args.admission, kinds, &[pods], &[])?;
    seen.must_know(&USE)?;
    let policy = settings::policy(&args.policy, &seen.kept);
    let gpus = Gpus::all(&seen.view, &policy);
    if gpus.iter().any(|gpus| gpus.plugin.is_some()) {
        seen.must_know(&[PODS])?;
    }
    let tolerated = tolerated(&seen.pods(None)?);
    let in_use = seen.in_use()?;
    let ReadCluster { view, namespace, notes, .. } = seen;
    let namespace = namespace.as_deref().unwrap_or("default");
    let shapes = if args.shapes.is_empty() { USUAL.to_vec() } else { args.shapes.clone() };
    let left_out = left_out(&view, &in_use.nodes, &tolerated);
    let closed: BTreeSet<&str> = left_out.values().flatten().copied().collect();
    let asked = Asked { view: &view, in_use: &in_use, policy: &policy, namespace, closed: &closed };
    let (mut answers, mut largest) = (Vec::new(), Vec::new());
    for gpus in gpus {
        for shape in &shapes {
            answers.push(asked.answer(*shape, &gpus)?);
        }
        largest.push((gpus.driver, asked.largest(&gpus)?));
    }
    let barred = left_out.iter().map(|(why, nodes)| Barred {
        why: why.clone(),
        nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
    });
    let answer = Capacity { left_out: barred.collect(), ..program(answers, &largest) };
    let text = args.output.write(&answer, || {
        let text = person(&answer.shapes, &largest)?;
        let left_out = left_out.iter().map(|(why, nodes)| of_nodes(nodes, why));
        Ok(text + &text::lines(left_out) + &tainted(&view, &in_use.nodes, &closed))
    })?;
    Ok(Output { notes, ..Output::from(text) })
}

/// A pod of a shape, with GPUs as this cluster offers them: of its first driver if there are several.
#[cfg(feature = "live")]
pub(crate) fn pod(view: &ClusterView, policy: &Policy, shape: PodShape, namespace: &str) -> Value {
    let gpus = Gpus::all(view, policy).into_iter().next();
    gpus.map_or_else(|| shape.pod(namespace, None), |gpus| gpus.pod(shape, namespace))
}

/// How many pods of the usual shapes fit, with the GPUs of each driver.
pub(crate) fn usual(
    (view, in_use): (&ClusterView, &InUse),
    policy: &Policy,
    namespace: &str,
    pods: &[Pod],
) -> anyhow::Result<Vec<CapacityShape>> {
    let left_out = left_out(view, &in_use.nodes, &tolerated(pods));
    let closed = left_out.values().flatten().copied().collect();
    let asked = Asked { view, in_use, policy, namespace, closed: &closed };
    let mut answers = Vec::new();
    for gpus in Gpus::all(view, policy) {
        for shape in USUAL {
            answers.push(asked.counted(shape, &gpus)?.0);
        }
    }
    Ok(answers)
}

/// The tolerations of taints by name, of pods of the cluster and of GPU operators' usual pods. A
/// toleration of every taint says nothing about a pod with GPUs, and neither do those of DaemonSets.
fn tolerated(pods: &[Pod]) -> Vec<Tolerated> {
    let specs = pods.iter().filter(|pod| !serves_nodes(pod)).filter_map(|pod| pod.spec.as_ref());
    let own = specs.flat_map(|spec| spec.tolerations.iter().flatten());
    let usual: Vec<Toleration> = TOLERATED.map(of_key).into();
    let named = own.chain(&usual).filter(|it| it.key.as_ref().is_some_and(|key| !key.is_empty()));
    named.filter_map(Tolerated::new).collect()
}

/// Whether a pod is one of a DaemonSet.
fn serves_nodes(pod: &Pod) -> bool {
    pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "DaemonSet")
}

fn of_key(key: &str) -> Toleration {
    let (key, operator) = (Some(key.to_owned()), Some("Exists".to_owned()));
    Toleration { key, operator, ..Toleration::default() }
}

/// Nodes on which no pod fits now, whatever its devices, by the reason.
fn left_out<'v>(
    view: &'v ClusterView,
    facts: &Nodes,
    tolerated: &[Tolerated],
) -> BTreeMap<String, Vec<&'v str>> {
    let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in view.present_nodes() {
        let Some(facts) = facts.facts(node) else { continue };
        let why = match (facts.closed(), facts.untolerated(tolerated)) {
            (Some(closed), _) => format!("is {closed}, so no pod fits there now"),
            (None, Some(taint)) => format!("has the taint {taint}, which no pod here tolerates"),
            (None, None) => continue,
        };
        all.entry(why).or_default().push(node);
    }
    all
}

/// The cluster and the namespace of the pods.
struct Asked<'c> {
    view: &'c ClusterView,
    in_use: &'c InUse,
    policy: &'c Policy,
    namespace: &'c str,
    /// Nodes that take no pods now.
    closed: &'c BTreeSet<&'c str>,
}

/// What admission makes for a pod.
struct Admitted {
    /// The cluster with the pod's template.
    view: ClusterView,
    /// What the pod asks for; it is assumed to tolerate the taints of nodes.
    ask: Ask,
    /// What it demands of nodes that bind NICs late.
    late: Option<LateDemand>,
}

impl Asked<'_> {
    fn answer(&self, shape: PodShape, gpus: &Gpus) -> anyhow::Result<CapacityShape> {
        let (mut answer, admitted) = self.counted(shape, gpus)?;
        // Moving claims frees no GPU of a device plugin.
        if let Some(Admitted { view, ask, .. }) = admitted
            && answer.fit_now == 0
            && answer.fit_empty > 0
            && gpus.plugin.is_none()
        {
            let budget = budget(&view);
            let open = view.present_nodes().filter(|node| !self.closed.contains(node));
            let room = self.in_use.room(&view, &budget);
            answer.to_move = fewest(&room, open, &ask, &BTreeSet::new());
        }
        Ok(answer)
    }

    /// How many such pods fit, and what admission makes of one.
    fn counted(
        &self,
        shape: PodShape,
        gpus: &Gpus,
    ) -> anyhow::Result<(CapacityShape, Option<Admitted>)> {
        let mut answer = CapacityShape {
            shape: shape.to_string(),
            gpu_driver: gpus.driver.map(str::to_owned),
            ..CapacityShape::default()
        };
        let admitted = match self.admitted(shape, gpus)? {
            Ok(admitted) => admitted,
            Err(denied) => return Ok((CapacityShape { denied: Some(denied), ..answer }, None)),
        };
        answer.rooms = self.rooms(&admitted);
        answer.fit_now = answer.rooms.iter().map(|room| room.fit_now).sum();
        answer.fit_empty = answer.rooms.iter().map(|room| room.fit_empty).sum();
        let near = answer.rooms.iter().filter_map(|room| room.surely_near);
        answer.surely_near = near.reduce(|sum, near| sum + near);
        Ok((answer, Some(admitted)))
    }

    /// Where such pods fit.
    fn rooms(&self, Admitted { view, ask, late }: &Admitted) -> Vec<CapacityRoom> {
        let budget = budget(view);
        rooms(&self.in_use.room(view, &budget), ask, *late, self.closed)
    }

    /// Returns what admission would make for such a pod, or its denial.
    fn admitted(&self, shape: PodShape, gpus: &Gpus) -> anyhow::Result<Result<Admitted, String>> {
        let pod = gpus.pod(shape, self.namespace);
        let verdict = match admit(&pod, self.view, self.policy) {
            Ok(verdict) => verdict,
            Err(AdmitError::Denied(denial)) => return Ok(Err(denial.to_string())),
            Err(error) => return Err(error.into()),
        };
        let Some(planned) = verdict.planned else {
            anyhow::bail!("admission made no claim for a pod of shape {shape}");
        };
        let mut view = self.view.clone();
        add_planned(&mut view, &planned, self.namespace)?;
        let ask = Ask::new(&Pod::deserialize(&verdict.pod)?).tolerating_all();
        let late = LateDemand::new(&planned.plan.claim, shape.nics as usize);
        Ok(Ok(Admitted { view, ask, late }))
    }

    /// The largest pod, with as many NICs as GPUs, that fits now.
    fn largest(&self, gpus: &Gpus) -> anyhow::Result<Option<PodShape>> {
        for number in (1..=gpus.most(self.view)).rev() {
            let shape = PodShape { gpus: number, nics: number, level: None };
            if let Ok(admitted) = self.admitted(shape, gpus)?
                && self.rooms(&admitted).iter().any(|room| room.fit_now > 0)
            {
                return Ok(Some(shape));
            }
        }
        Ok(None)
    }
}

/// Says that nodes take only pods that tolerate their taints, which the counted pods are assumed to do.
fn tainted(view: &ClusterView, facts: &Nodes, closed: &BTreeSet<&str>) -> String {
    let mut nodes_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in view.present_nodes().filter(|node| !closed.contains(node)) {
        if let Some(taint) = facts.facts(node).and_then(|facts| facts.untolerated(&[])) {
            nodes_of.entry(taint).or_default().push(node);
        }
    }
    text::lines(nodes_of.iter().map(|(taint, nodes)| {
        of_nodes(nodes, &format!("has the taint {taint}; only pods that tolerate it fit there"))
    }))
}

/// The largest pods that fit now, by the driver of their GPUs if there are several.
type Largest = [(Option<&'static str>, Option<PodShape>)];

fn person(answers: &[CapacityShape], largest: &Largest) -> anyhow::Result<String> {
    let is_late = answers.iter().any(|answer| answer.surely_near.is_some());
    let mut rows = Vec::new();
    let rooms = answers.iter().flat_map(|answer| &answer.rooms);
    let fabrics = Short::of(rooms.filter_map(|room| room.fabric.as_deref()), false);
    for answer in answers {
        for room in &answer.rooms {
            rows.push(vec![
                answer.name(),
                room.machine.clone(),
                room.fabric.as_deref().map_or_else(|| "-".to_owned(), |it| fabrics.name(it)),
                room.nodes.to_string(),
                room.fit_now.to_string(),
                room.fit_empty.to_string(),
            ]);
            if is_late && let Some(row) = rows.last_mut() {
                row.push(room.surely_near.map_or_else(|| "-".to_owned(), |near| near.to_string()));
            }
        }
    }
    let mut out = String::new();
    if !rows.is_empty() {
        let mut heading = vec!["SHAPE", "MACHINE", "FABRIC", "NODES", "FIT NOW", "FIT EMPTY"];
        heading.extend(is_late.then_some("SURELY NEAR"));
        out += &table(&heading, &rows);
        out.push('\n');
    }
    for answer in answers {
        if let Some(denied) = &answer.denied {
            writeln!(out, "{}: admission denies such pods: {denied}", answer.name())?;
        }
        if answer.denied.is_none() && answer.rooms.is_empty() {
            writeln!(
                out,
                "{}: fits on no node, also if nothing were in use; `kubectl dranet top -o wide` \
                 names devices that are down or tainted",
                answer.name()
            )?;
        }
        if let Some(ToMove { node, claims }) = &answer.to_move {
            let who = claims.join(", ");
            writeln!(
                out,
                "{}: none fits now; one would on node {node} without {}: {who}",
                answer.name(),
                counted(claims.len(), "claim"),
            )?;
        }
    }
    for (driver, largest) in largest {
        let of = driver.map(|driver| format!(" with GPUs of {driver}")).unwrap_or_default();
        match largest {
            Some(shape) => writeln!(out, "largest aligned pod{of} that fits now: {shape}")?,
            None => writeln!(out, "no aligned pod{of} fits now")?,
        }
    }
    Ok(out)
}

fn program(shapes: Vec<CapacityShape>, largest: &Largest) -> Capacity {
    let largest = largest.iter().filter_map(|(_, shape)| *shape).max_by_key(|shape| shape.gpus);
    Capacity { shapes, largest: largest.map(|shape| shape.to_string()), left_out: Vec::new() }
}
