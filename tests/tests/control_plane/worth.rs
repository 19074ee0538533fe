//! The simulator schedules as kube-scheduler does. It replays jobs of a trace, and each of their
//! pods is also created on the real control plane. kube-scheduler must choose one of the nodes that
//! the simulator ranks highest, and the same devices, also if both call the extender.
//!
//! `DRANET_TRACE` names the trace (60 jobs in the fixtures), `DRANET_TRACE_PODS` the number of its
//! pods for each policy (30).

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use clap::Parser as _;
use k8s_openapi::api::{
    core::v1::Pod as WirePod,
    resource::v1::{ResourceClaim, ResourceSlice},
};
use kube::{
    Api, Resource as _,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use serde_json::{Value, json};
use simulator::{
    args::Args,
    claims::{ClaimError, Placer},
    cluster::{Cluster, fabric_name, node_name},
    compare::{Scene, claims, machines},
    machine::{Devices, SimulatedMachine},
    policies::{KubeScheduler, PolicyKind, SchedulerExt, Strategy},
    policy::{Candidate, POD_CPUS_PER_GPU, POD_GIB_PER_GPU, Pod, Policy},
    replay::{Binder, replay},
    trace::Trace,
};
use tests::{
    Check, ControlPlane, SchedulerConfig, Scope, eventually, installation::Installation, setting,
    suite::Test, with_scope,
};
use tokio::{runtime::Handle, task::block_in_place};
use topology_graph::NodeTopology;

const SOON: Duration = Duration::from_mins(1);
const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/traces/jobs.csv");
/// Nodes of the cluster, and of each of its fabrics.
const NODES: [&str; 4] = ["--nodes", "24", "--fabric-nodes", "8"];
const FABRIC_NODES: usize = 8;
/// Load that makes jobs wait.
const LOAD: f64 = 0.9;
/// The value of an extender's point with the weight in `deploy`.
const POINT: i64 = 180;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![the_simulator_schedules_as_kube_scheduler];
    all.into_iter().map(Test::alone).collect()
}

async fn the_simulator_schedules_as_kube_scheduler(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let pods = setting("DRANET_TRACE_PODS", 30)?;
    let scene = scene(pods)?;
    let outcome = async {
        for kind in [PolicyKind::KubeScheduler, PolicyKind::SchedulerExt] {
            with_scope(plane.client(), async |scope| {
                let agreed = compare(&plane, scope, &scene, kind).await?;
                report(&format!("{}: {agreed:?}", kind.name()));
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
    .await;
    plane.restart_scheduler(&SchedulerConfig::default()).await?;
    outcome
}

/// The first jobs of the trace, with this number of pods in total.
fn scene(pods: usize) -> anyhow::Result<Scene> {
    let path = setting("DRANET_TRACE", TRACE.to_owned())?;
    let args = ["worth", "--trace", &path, "--repeats", "1"].into_iter().chain(NODES);
    let args = Args::try_parse_from(args)?;
    let mut trace = Trace::load(&args.scene.trace)?;
    let mut left = pods;
    trace.jobs.retain(|job| {
        let pods = job.gpus.div_ceil(8) as usize;
        let is_in = left >= pods && pods <= FABRIC_NODES;
        left -= if is_in { pods } else { 0 };
        is_in
    });
    let claims = claims(machines(&args.scene.machine)?, &trace, args.alignment)?;
    let scene = Scene::new(&args.scene, &trace, &Arc::new(claims), Some(LOAD))?;
    anyhow::ensure!(
        scene.workloads[0].pods().count() == pods,
        "the trace has fewer than {pods} pods"
    );
    Ok(scene)
}

/// Counts of how kube-scheduler compares with the simulation.
#[derive(Clone, Copy, Debug, Default)]
struct Agreed {
    /// Pods that were bound to one of the highest-ranked nodes, with the same devices.
    pods: usize,
    /// Those of them with a single best node.
    of_one: usize,
    /// Nodes that were ranked highest, of all pods.
    best: usize,
    /// Nodes on which a pod fitted, of all pods.
    candidates: usize,
}

async fn compare(
    plane: &ControlPlane,
    scope: &Scope,
    scene: &Scene,
    kind: PolicyKind,
) -> anyhow::Result<Agreed> {
    let mut installation = Installation::install(plane, scope).await?;
    let names = cluster(scope, scene).await?;
    let points = Rc::default();
    let mut policy: Box<dyn Policy> = if kind == PolicyKind::SchedulerExt {
        installation.start_extender().await?;
        Box::new(Seen {
            policy: SchedulerExt::new(Arc::clone(&scene.claims)),
            kube: KubeScheduler { strategy: Strategy::LeastAllocated },
            points: Rc::clone(&points),
        })
    } else {
        plane.restart_scheduler(&SchedulerConfig::default()).await?;
        scene.policy(kind)
    };
    let mut real = Real {
        scope,
        installation: &installation,
        scene,
        names,
        points,
        agreed: Agreed::default(),
    };
    let mut placer = Placer::new(Arc::clone(&scene.claims));
    let (workload, idle) = (&scene.workloads[0], scene.cluster.clone());
    // The replay is synchronous, so its binder blocks while it waits for the cluster.
    block_in_place(|| {
        replay(workload, idle, &mut *policy, &mut real, &mut placer, scene.communication, None)
    })?;
    anyhow::ensure!(real.agreed.pods >= workload.pods().count(), "{:?}", real.agreed);
    Ok(real.agreed)
}

/// Creates the nodes of the scene; returns their names.
async fn cluster(scope: &Scope, scene: &Scene) -> anyhow::Result<Vec<String>> {
    let claims = &scene.claims;
    for class in claims.machines.iter().flat_map(SimulatedMachine::classes) {
        scope.apply(serde_json::from_value(serde_json::to_value(class)?)?).await?;
    }
    let mut names = Vec::new();
    for (index, node) in scene.cluster.nodes.iter().enumerate() {
        let machine = &claims.machines[node.kind];
        let made = scope.node(&node_name(index)).await?;
        let owner = made.owner_ref(&()).context("a node has an identity")?;
        let name = made.metadata.name.context("a node has a name")?;
        let with_owner = |metadata: ObjectMeta| ObjectMeta {
            owner_references: Some(vec![owner.clone()]),
            ..metadata
        };
        let mut graph = machine.node_topology(&name, &fabric_name(node.fabric));
        graph.metadata = with_owner(graph.metadata);
        let params = PostParams::default();
        Api::<NodeTopology>::all(scope.client()).create(&params, &graph).await?;
        for mut slice in machine.slices(&name) {
            slice.metadata = with_owner(slice.metadata);
            Api::<ResourceSlice>::all(scope.client()).create(&params, &slice).await?;
        }
        names.push(name);
    }
    Ok(names)
}

/// Records the points that the extender must give.
struct Seen {
    policy: SchedulerExt,
    kube: KubeScheduler,
    points: Rc<RefCell<Vec<i64>>>,
}

impl Policy for Seen {
    fn scores(&mut self, pod: Pod, candidates: &[Candidate], cluster: &Cluster) -> Vec<i64> {
        let all = self.policy.scores(pod, candidates, cluster);
        let kube = self.kube.scores(pod, candidates, cluster);
        *self.points.borrow_mut() =
            all.iter().zip(kube).map(|(all, kube)| (all - kube) / POINT).collect();
        all
    }

    fn bound(&mut self, pod: Pod, chosen: &Candidate) -> Result<(), ClaimError> {
        self.policy.bound(pod, chosen)
    }

    fn ended(&mut self, pod: Pod) {
        self.policy.ended(pod);
    }
}

/// Binds pods by kube-scheduler.
struct Real<'a> {
    scope: &'a Scope,
    installation: &'a Installation<'a>,
    scene: &'a Scene,
    /// The names of the nodes.
    names: Vec<String>,
    /// The points of the candidates; empty without the extender.
    points: Rc<RefCell<Vec<i64>>>,
    agreed: Agreed,
}

impl Binder for Real<'_> {
    fn bind(
        &mut self,
        pod: Pod,
        allowed: &dyn Fn(usize) -> bool,
        candidates: &[Candidate],
        best: &[usize],
    ) -> usize {
        let chosen = Handle::current().block_on(self.schedule(pod, allowed, candidates));
        let chosen = chosen.unwrap_or_else(|error| panic!("{pod:?}: {error:#}"));
        assert!(
            best.contains(&chosen),
            "{pod:?} went to node {}, the simulator ranks {:?} highest",
            candidates[chosen].node,
            best.iter().map(|best| candidates[*best].node).collect::<Vec<_>>(),
        );
        self.agreed.pods += 1;
        self.agreed.of_one += usize::from(best.len() == 1 && candidates.len() > 1);
        self.agreed.best += best.len();
        self.agreed.candidates += candidates.len();
        chosen
    }

    fn ended(&mut self, pod: Pod) {
        let ended = Handle::current().block_on(self.remove(&name(pod)));
        ended.unwrap_or_else(|error| panic!("{pod:?}: {error:#}"));
    }
}

impl Real<'_> {
    /// Returns the candidate that kube-scheduler chose. It must have allocated the devices of the
    /// simulator.
    async fn schedule(
        &self,
        pod: Pod,
        allowed: &dyn Fn(usize) -> bool,
        candidates: &[Candidate],
    ) -> anyhow::Result<usize> {
        let claims: Api<ResourceClaim> = self.scope.api();
        let planned = self.scene.claims.planned(pod.gpus)?;
        let claim = json!({
            "metadata": {"name": name(pod), "labels": planned.labels}, "spec": *planned.spec,
        });
        let params = PostParams::default();
        claims.create(&params, &serde_json::from_value(claim)?).await?;
        let object = self.pod(pod, allowed);
        if candidates.len() > 1 && !self.points.borrow().is_empty() {
            self.wait_for_the_extender(&object, candidates).await?;
        }
        let pods: Api<WirePod> = self.scope.api();
        pods.create(&params, &serde_json::from_value(object)?).await?;
        let bound = self.scope.bound(&name(pod), SOON).await?;
        let node = bound.spec.and_then(|spec| spec.node_name).context("a bound pod has a node")?;
        let of = |candidate: &Candidate| self.names[candidate.node] == node;
        let chosen = candidates.iter().position(of);
        let chosen = chosen.with_context(|| format!("no candidate is on `{node}`"))?;
        let allocated = self.devices(&claims.get(&name(pod)).await?)?;
        let expected = candidates[chosen].placement.devices;
        anyhow::ensure!(allocated == expected, "{node}: {allocated:b} and not {expected:b}");
        Ok(chosen)
    }

    /// The pod as a controller would make it, for the nodes that it may go to.
    fn pod(&self, pod: Pod, allowed: &dyn Fn(usize) -> bool) -> Value {
        let gpus = i64::from(pod.gpus);
        let requests = json!({
            "cpu": (gpus * POD_CPUS_PER_GPU).to_string(),
            "memory": format!("{}Gi", gpus * POD_GIB_PER_GPU),
        });
        let names: Vec<_> =
            (0..self.names.len()).filter(|node| allowed(*node)).map(|it| &self.names[it]).collect();
        json!({
            "metadata": {"name": name(pod), "namespace": self.scope.namespace()},
            "spec": {
                "containers": [
                    {"name": "job", "image": "none", "resources": {"requests": requests}},
                ],
                "resourceClaims": [{"name": "devices", "resourceClaimName": name(pod)}],
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{
                        "key": "kubernetes.io/hostname", "operator": "In", "values": names,
                    }]}],
                }}},
            },
        })
    }

    /// Waits until the extender has seen what the simulator knows: it gives the same points.
    async fn wait_for_the_extender(
        &self,
        pod: &Value,
        candidates: &[Candidate],
    ) -> anyhow::Result<()> {
        let names: Vec<_> = candidates.iter().map(|it| &self.names[it.node]).collect();
        let points = self.points.borrow().clone();
        let expected: BTreeMap<&str, i64> =
            names.iter().map(|name| name.as_str()).zip(points).collect();
        let extender = self.installation.extender()?;
        let asked = json!({"Pod": pod, "NodeNames": names});
        eventually(SOON, async || {
            let answer = extender.prioritize(&asked).await?;
            let given: BTreeMap<&str, i64> =
                answer.iter().map(|(node, points)| (node.as_str(), *points)).collect();
            Ok(Check::that(given == expected, || format!("{given:?} and not {expected:?}")))
        })
        .await
    }

    fn devices(&self, claim: &ResourceClaim) -> anyhow::Result<Devices> {
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let devices = allocation.and_then(|allocation| allocation.devices.as_ref());
        let results = devices.and_then(|devices| devices.results.as_deref()).unwrap_or_default();
        let machine = &self.scene.claims.machines[0];
        let bits: Option<BTreeSet<Devices>> =
            results.iter().map(|result| machine.bit(&result.driver, &result.device)).collect();
        Ok(bits.context("a device is not one of the machine")?.into_iter().sum())
    }

    /// Ends a pod, and waits until its devices are free.
    async fn remove(&self, name: &str) -> anyhow::Result<()> {
        self.scope.delete_pod(name).await?;
        let claims: Api<ResourceClaim> = self.scope.api();
        claims.delete(name, &DeleteParams::default()).await?;
        eventually(SOON, async || {
            let left = claims.get_opt(name).await?;
            Ok(Check::that(left.is_none(), || format!("claim `{name}` is still there")))
        })
        .await
    }
}

fn name(pod: Pod) -> String {
    format!("job-{}", pod.uid)
}

#[expect(clippy::print_stderr, reason = "people read the results")]
fn report(text: &str) {
    eprintln!("{text}");
}
