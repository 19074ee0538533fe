//! The ways by which pods get GPUs and NICs, from device plugins to the claims of admission, and
//! their comparison on the same jobs.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster_model::names::{NIC_CLASS, attribute};
use fastrand::Rng;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::SceneArgs;
use crate::claims::{Alignment, ClaimError, Claims, Placer};
use crate::cluster::pods;
use crate::compare::{CompareError, Observer, Run, Scene, replays};
use crate::machine::{Devices, SimulatedMachine, bits};
use crate::measures::{Comparison, Measures};
use crate::policies::PolicyKind;
use crate::trace::Trace;
use cluster_model::topology_policy::TopologyPolicy;

/// Number of orders in which the GPUs of nodes are published; see
/// [`SimulatedMachine::with_gpus_in_other_order`].
const ORDERS: usize = 8;

/// A way by which pods get GPUs and NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// Device plugins; kubelet has its default topology policy `none`.
    DevicePlugins,
    /// Device plugins; kubelet has the topology policy `best-effort`.
    DevicePluginsBestEffort,
    /// A claim for a number of GPUs and a number of NICs, without constraints.
    Unconstrained,
    /// A claim template for each NUMA node, as in the AKS examples of kubernetes-sigs/dranet
    /// f258477c. Users take one template after the other.
    NumaTemplates,
    /// The claims of openshift-psap/dra-rail-admission-webhook 19262fc
    /// (`internal/webhook/claim_builder.go`): pairs with one PCIe root, all on one NUMA node unless
    /// the pod takes the whole machine.
    RailWebhook,
    /// The claims of admission, on nodes that kube-scheduler ranks.
    AlignedUnranked,
    /// The claims of admission for preferred alignment, on nodes that scheduler-ext ranks.
    AlignedPreferred,
    /// The claims of admission, on nodes that scheduler-ext ranks.
    Aligned,
}

impl Way {
    /// All ways; the last is the one with which the others are compared.
    pub const ALL: [Self; 8] = [
        Self::DevicePlugins,
        Self::DevicePluginsBestEffort,
        Self::Unconstrained,
        Self::NumaTemplates,
        Self::RailWebhook,
        Self::AlignedUnranked,
        Self::AlignedPreferred,
        Self::Aligned,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::DevicePlugins => "device plugins",
            Self::DevicePluginsBestEffort => "device plugins, `best-effort`",
            Self::Unconstrained => "DRA without constraints",
            Self::NumaTemplates => "a template per NUMA node",
            Self::RailWebhook => "rail webhook",
            Self::AlignedUnranked => "annotation, without scheduler-ext",
            Self::AlignedPreferred => "annotation, `preferred`",
            Self::Aligned => "annotation",
        }
    }

    /// How it ranks nodes.
    fn kind(self) -> PolicyKind {
        match self {
            Self::Aligned | Self::AlignedPreferred => PolicyKind::SchedulerExt,
            Self::RailWebhook => PolicyKind::RailWebhook,
            _ => PolicyKind::KubeScheduler,
        }
    }

    /// Its claims for pods with these numbers of GPUs.
    fn claims(
        self,
        machines: Vec<SimulatedMachine>,
        sizes: impl IntoIterator<Item = u32>,
    ) -> Result<Claims, ClaimError> {
        let claims = Claims::new(machines)?;
        match self {
            Self::DevicePlugins => Ok(claims.with_device_plugins(TopologyPolicy::None)),
            Self::DevicePluginsBestEffort => {
                Ok(claims.with_device_plugins(TopologyPolicy::BestEffort))
            }
            Self::Unconstrained => claims.with_specs(sizes, unconstrained),
            Self::NumaTemplates => claims.with_specs(sizes, numa_templates),
            Self::RailWebhook => claims.with_specs(sizes, rail_webhook),
            Self::AlignedPreferred => claims.plan(sizes, Alignment::Preferred),
            Self::Aligned | Self::AlignedUnranked => claims.plan(sizes, Alignment::Required),
        }
    }
}

/// A request for some of these devices.
fn request(
    machine: &SimulatedMachine,
    name: &str,
    class: &str,
    count: u32,
    among: Devices,
) -> Value {
    let addresses = machine.of(among).map(|device| format!("\"{}\"", device.address));
    let addresses = addresses.collect::<Vec<_>>().join(", ");
    let (domain, id) = attribute::PCI_BUS_ID.split_once('/').unwrap_or_default();
    let expression = format!("device.attributes[\"{domain}\"].{id} in [{addresses}]");
    json!({
        "name": name,
        "exactly": {
            "deviceClassName": class,
            "allocationMode": "ExactCount",
            "count": count,
            "selectors": [{ "cel": { "expression": expression } }],
        },
    })
}

fn spec(requests: &[Value], constraints: &[Value]) -> ResourceClaimSpec {
    let spec = json!({ "devices": { "requests": requests, "constraints": constraints } });
    serde_json::from_value(spec).expect("this is a ResourceClaimSpec")
}

/// GPUs and NICs of these sets.
fn any_of(
    machine: &SimulatedMachine,
    count: u32,
    gpus: Devices,
    nics: Devices,
) -> ResourceClaimSpec {
    let class = machine.gpu_driver.driver;
    let gpus = request(machine, "gpu", class, count, gpus);
    spec(&[gpus, request(machine, "nic", NIC_CLASS, count, nics)], &[])
}

fn unconstrained(machine: &SimulatedMachine, count: u32) -> Vec<ResourceClaimSpec> {
    vec![any_of(machine, count, machine.gpu_devices(), machine.compute_nics())]
}

/// One template for each NUMA node on which the pod fits; if it fits on none, one for all devices.
fn numa_templates(machine: &SimulatedMachine, count: u32) -> Vec<ResourceClaimSpec> {
    let numa: BTreeSet<u32> =
        machine.topology.gpus().iter().filter_map(|gpu| Some(gpu.numa?.0)).collect();
    let templates: Vec<_> = numa
        .into_iter()
        .filter_map(|node| {
            let [gpus, nics] = [machine.gpu_devices(), machine.compute_nics()].map(|set| {
                let near = bits(set).filter(|bit| machine.numa_of(*bit) == Some(node));
                near.sum::<Devices>()
            });
            let is_enough = gpus.count_ones() >= count && nics.count_ones() >= count;
            is_enough.then(|| any_of(machine, count, gpus, nics))
        })
        .collect();
    if templates.is_empty() { unconstrained(machine, count) } else { templates }
}

/// No claim for a number of pairs between the GPUs of a NUMA node and those of the machine: the
/// webhook denies these pods (`docs/user-guide.md`).
fn rail_webhook(machine: &SimulatedMachine, count: u32) -> Vec<ResourceClaimSpec> {
    let numa: BTreeSet<_> = machine.topology.gpus().iter().map(|gpu| gpu.numa).collect();
    let per_node = machine.gpus / u32::try_from(numa.len()).unwrap_or(u32::MAX).max(1);
    let is_whole = count >= machine.gpus;
    if count > per_node && !is_whole {
        return Vec::new();
    }
    let class = machine.gpu_driver.driver;
    let (gpus, nics) = (machine.gpu_devices(), machine.compute_nics());
    let requests = (0..count).flat_map(|index| {
        [
            request(machine, &format!("gpu-{index}"), class, 1, gpus),
            request(machine, &format!("nic-{index}"), NIC_CLASS, 1, nics),
        ]
    });
    let requests: Vec<Value> = requests.collect();
    let mut constraints: Vec<Value> = (0..count)
        .map(|index| {
            let pair = [format!("gpu-{index}"), format!("nic-{index}")];
            json!({ "requests": pair, "matchAttribute": attribute::PCIE_ROOT })
        })
        .collect();
    if count > 1 && !is_whole {
        let nics: Vec<String> = (0..count).map(|index| format!("nic-{index}")).collect();
        let numa = attribute::dranet::NUMA_NODE;
        constraints.push(json!({ "requests": nics, "matchAttribute": numa }));
    }
    vec![spec(&requests, &constraints)]
}

/// What the ways give at one load.
#[derive(Clone, Debug, Serialize)]
pub struct Ways {
    /// The machine.
    pub machine: String,
    /// Share of a job's time that is communication, from 0 to 1.
    pub communication_share: f64,
    /// The load, if one was given.
    pub load: Option<f64>,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of jobs, those that never start included.
    pub jobs: usize,
    /// Share of the jobs that never start, for each way.
    pub never_start: Vec<f64>,
    /// Averages for each way, with the ways' names.
    pub ways: Vec<Measures>,
    /// The replays of each way.
    #[serde(skip)]
    pub comparison: Comparison,
}

/// The machine of all nodes, published with its GPUs in several orders.
pub fn orders(name: &str) -> Result<Vec<SimulatedMachine>, CompareError> {
    let machine = SimulatedMachine::load(name)?;
    let mut draw = Rng::with_seed(1);
    let orders = (0..ORDERS).map(|_| machine.clone().with_gpus_in_other_order(&mut draw));
    Ok(orders.collect())
}

/// Compares the ways on nodes of one machine, for each load.
pub fn compare_ways(
    args: &SceneArgs,
    machine: &str,
    trace: &Trace,
    observer: &dyn Observer,
) -> Result<Vec<Ways>, CompareError> {
    let machines = orders(machine)?;
    let whole = Claims::new(machines.clone())?;
    let sizes: BTreeSet<u32> =
        trace.mix().into_keys().flat_map(|gpus| pods(gpus, &whole)).collect();
    let mut claims = Vec::new();
    for way in Way::ALL {
        claims.push(Arc::new(way.claims(machines.clone(), sizes.clone())?));
    }
    let loads = args.loads();
    let mut scenes = Vec::new();
    for load in &loads {
        for claims in &claims {
            scenes.push(possible(Scene::new(args, trace, claims, *load)?)?);
        }
    }
    let runs: Vec<Run<'_>> = scenes
        .iter()
        .enumerate()
        .map(|(index, scene)| {
            let way = index % Way::ALL.len();
            Run { scene, placer: way, kind: Way::ALL[way].kind() }
        })
        .collect();
    let measures = replays(&runs, &claims, args.seed, observer)?;
    let loads = scenes.chunks(Way::ALL.len()).zip(measures.chunks(Way::ALL.len()));
    Ok(loads.map(|(scenes, measures)| Ways::new(args, machine, scenes, measures)).collect())
}

/// The scene without the jobs that never start.
fn possible(mut scene: Scene) -> Result<Scene, ClaimError> {
    let mut placer = Placer::new(Arc::clone(&scene.claims));
    let workloads = std::mem::take(&mut scene.workloads).into_iter();
    scene.workloads = workloads
        .map(|workload| workload.without_impossible(&mut placer))
        .collect::<Result<_, _>>()?;
    Ok(scene)
}

/// The numbers of jobs that start, and that never do.
fn jobs(scene: &Scene) -> (usize, usize) {
    scene.workloads.first().map_or((0, 0), |it| (it.tasks.len(), it.never))
}

#[allow(clippy::cast_precision_loss, reason = "numbers of jobs are far below 2^52")]
fn never_share(scene: &Scene) -> f64 {
    let (tasks, never) = jobs(scene);
    never as f64 / (tasks + never).max(1) as f64
}

impl Ways {
    fn new(args: &SceneArgs, machine: &str, scenes: &[Scene], measures: &[Vec<Measures>]) -> Self {
        let comparison = Comparison::new(
            Way::ALL
                .iter()
                .zip(measures)
                .map(|(way, replays)| {
                    replays
                        .iter()
                        .map(|one| Measures { name: way.name().to_owned(), ..one.clone() })
                        .collect()
                })
                .collect(),
        );
        Self {
            machine: machine.to_owned(),
            communication_share: args.communication_share,
            load: scenes.first().and_then(|scene| scene.load),
            nodes: scenes.first().map_or(0, |scene| scene.cluster.nodes.len()),
            jobs: scenes.first().map(jobs).map_or(0, |(tasks, never)| tasks + never),
            never_start: scenes.iter().map(never_share).collect(),
            ways: comparison.policies.clone(),
            comparison,
        }
    }
}
