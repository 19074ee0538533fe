//! The claims of pods, and their allocation on a node by Kubernetes' algorithm. Admission writes
//! the claims for these machines, unless others are given, or kubelet chooses devices without any.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher as _;
use std::sync::Arc;

use admission::admit::{AdmitError, admit};
use admission::plan::Policy;
use cluster_model::names::annotation;
use cluster_model::view::{ClusterView, Index as _, ViewError};
use dra_allocator::{
    AllocatedState, Claim, ClaimAllocation, ClaimName, DeviceId, Limits, Outcome, allocate,
};
use fastrand::Rng;
use foldhash::fast::{FixedState, RandomState};
use k8s_openapi::api::resource::v1::{DeviceRequest, ResourceClaimSpec};
use serde_json::{Value, json};
use topology_graph::{PathKind, PlanRequest};

use crate::kubelet;
use crate::machine::{Devices, SimulatedMachine};
use cluster_model::topology_policy::TopologyPolicy;

/// The namespace of all pods.
pub const NAMESPACE: &str = "default";

/// The maximum number of subrequests of a request (`FirstAvailableDeviceRequestMaxSize`).
const SUBREQUESTS_MAX: i64 = 8;

/// Whether the alignment of NICs is mandatory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Alignment {
    /// The pod gets any devices if no aligned ones are free.
    Preferred,
    /// A pod waits for aligned devices.
    Required,
}

/// A claim could not be created or allocated.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Admission denies the pod.
    #[error("admission refuses a pod with {gpus} GPUs and as many NICs")]
    Refused {
        /// GPUs of the pod.
        gpus: u32,
        /// The reason.
        source: AdmitError,
    },
    /// Admission plans no claim.
    #[error("admission plans no claim for a pod with {gpus} GPUs")]
    NoClaim {
        /// GPUs of the pod.
        gpus: u32,
    },
    /// The allocator does not support the claim, or fails on it.
    #[error("failed to allocate the claim of a pod with {gpus} GPUs: {why}")]
    Allocate {
        /// GPUs of the pod.
        gpus: u32,
        /// The reason.
        why: String,
    },
    /// The objects of the machines cannot be indexed.
    #[error("failed to index the machines")]
    View(#[source] Box<ViewError>),
}

impl From<ViewError> for ClaimError {
    fn from(error: ViewError) -> Self {
        Self::View(Box::new(error))
    }
}

/// The machines of a cluster and the claims for each number of GPUs.
#[derive(Debug)]
pub struct Claims {
    /// The kinds of machines.
    pub machines: Vec<SimulatedMachine>,
    /// One node of each kind; see [`kind_node`].
    view: ClusterView,
    /// Several claims for one number of GPUs are alternatives, of which a user chooses one.
    planned: BTreeMap<u32, Vec<PlannedPod>>,
    /// If set, devices come from device plugins, without claims.
    kubelet: Option<TopologyPolicy>,
}

/// What a pod asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// Its GPUs, each with a NIC.
    pub gpus: u32,
    /// Which of several claims its user chose.
    pub template: usize,
}

/// The claim for pods with a number of GPUs.
#[derive(Debug)]
pub struct PlannedPod {
    /// The claim's spec.
    pub spec: Arc<ResourceClaimSpec>,
    /// The labels of claims from the template.
    pub labels: BTreeMap<String, String>,
    claims: Vec<Claim>,
}

/// What a pod gets on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The devices.
    pub devices: Devices,
    /// The raw score of the plugin `DynamicResources`: eight minus the index of the
    /// chosen subrequest, summed over all requests with subrequests.
    pub tiers: i64,
    /// The path of each GPU to its NIC, in the nearest assignment.
    pub pairs: Vec<PathKind>,
    /// The allocation on the representative node; see [`kind_node`].
    pub allocations: Vec<ClaimAllocation>,
}

/// Places claims on nodes, and caches results by the node's state.
#[derive(Debug)]
pub struct Placer {
    claims: Arc<Claims>,
    known: HashMap<(usize, Devices, Shape), Option<Arc<Placement>>, RandomState>,
}

/// The spec of a claim, and its labels.
type Template = (ResourceClaimSpec, BTreeMap<String, String>);

/// The name of the node that represents a kind.
pub fn kind_node(kind: usize) -> String {
    format!("kind-{kind}")
}

impl Claims {
    /// Prepares claims for pods of 1 GPU up to the number of GPUs of the largest machine. Denials
    /// by admission are only errors when the claim is used.
    pub fn new(machines: Vec<SimulatedMachine>) -> Result<Self, ClaimError> {
        let mut view = ClusterView::default();
        for (kind, machine) in machines.iter().enumerate() {
            machine.classes().into_iter().try_for_each(|class| view.apply(class))?;
            let name = kind_node(kind);
            view.apply(machine.node(&name, "fabric"))?;
            view.apply(machine.node_topology(&name, "fabric"))?;
            machine.slices(&name).into_iter().try_for_each(|slice| view.apply(slice))?;
        }
        Ok(Self { machines, view, planned: BTreeMap::new(), kubelet: None })
    }

    /// Plans the claims of pods with these numbers of GPUs, as admission writes them.
    pub fn plan(
        mut self,
        gpus: impl IntoIterator<Item = u32>,
        alignment: Alignment,
    ) -> Result<Self, ClaimError> {
        for gpus in gpus {
            let (spec, labels) = self.write(gpus, alignment)?;
            self.planned.insert(gpus, vec![planned(gpus, spec, labels)?]);
        }
        Ok(self)
    }

    /// Uses claims that people or other programs write: alternatives for each number of GPUs.
    pub fn with_specs(
        mut self,
        gpus: impl IntoIterator<Item = u32>,
        write: impl Fn(&SimulatedMachine, u32) -> Vec<ResourceClaimSpec>,
    ) -> Result<Self, ClaimError> {
        for gpus in gpus {
            let machine = self.machines.first().ok_or(ClaimError::NoClaim { gpus })?;
            let specs = write(machine, gpus).into_iter();
            let planned = specs.map(|spec| planned(gpus, spec, BTreeMap::new()));
            self.planned.insert(gpus, planned.collect::<Result<_, _>>()?);
        }
        Ok(self)
    }

    /// Gives devices by device plugins, without claims.
    #[must_use]
    pub fn with_device_plugins(mut self, policy: TopologyPolicy) -> Self {
        self.kubelet = Some(policy);
        self
    }

    /// The first claim of a pod with this many GPUs, if it was planned.
    pub fn planned(&self, gpus: u32) -> Result<&PlannedPod, ClaimError> {
        let planned = self.planned.get(&gpus).and_then(|planned| planned.first());
        planned.ok_or(ClaimError::NoClaim { gpus })
    }

    /// The number of claims from which a user of this many GPUs chooses; at least 1.
    pub fn templates(&self, gpus: u32) -> usize {
        self.planned.get(&gpus).map_or(1, Vec::len).max(1)
    }

    /// One unused node of each kind; see [`kind_node`].
    pub fn view(&self) -> &ClusterView {
        &self.view
    }

    /// The allocation state of a kind's representative node with these devices in use.
    pub fn state(&self, kind: usize, busy: Devices) -> AllocatedState {
        let node = kind_node(kind);
        self.machines[kind]
            .of(busy)
            .map(|device| {
                DeviceId::new(device.driver.as_str(), node.as_str(), device.name.as_str())
            })
            .collect()
    }

    /// Numbers of GPUs that were planned.
    pub fn sizes(&self) -> impl Iterator<Item = u32> {
        self.planned.keys().copied()
    }

    /// A claim with a separate NIC for each GPU. If admission says that this is too large for a
    /// claim, all GPUs and NICs together, as its denial suggests.
    fn write(&self, gpus: u32, alignment: Alignment) -> Result<Template, ClaimError> {
        let driver = self.machines.first().map(|machine| machine.gpu_driver);
        let resource = driver.and_then(|driver| driver.extended_resources.first());
        let mut pod = annotated_pod(resource.unwrap_or(&""), gpus, alignment);
        self.admit(&pod, gpus).or_else(|refused| {
            pod["metadata"]["annotations"][annotation::PAIRING] = json!("group");
            pod["metadata"]["annotations"][annotation::ALIGNED_NICS] = json!(gpus.to_string());
            self.admit(&pod, gpus).map_err(|_| refused)
        })
    }

    fn admit(&self, pod: &Value, gpus: u32) -> Result<Template, ClaimError> {
        let verdict = admit(pod, &self.view, &Policy::default());
        let verdict = verdict.map_err(|source| ClaimError::Refused { gpus, source })?;
        let template = verdict.planned.and_then(|planned| planned.template.spec);
        let template = template.ok_or(ClaimError::NoClaim { gpus })?;
        let labels = template.metadata.and_then(|metadata| metadata.labels).unwrap_or_default();
        Ok((template.spec.ok_or(ClaimError::NoClaim { gpus })?, labels))
    }

    fn place(
        &self,
        kind: usize,
        busy: Devices,
        shape: Shape,
    ) -> Result<Option<Placement>, ClaimError> {
        if let Some(policy) = self.kubelet {
            return Ok(self.by_kubelet(kind, busy, shape.gpus, policy));
        }
        let gpus = shape.gpus;
        let planned = self.planned.get(&gpus).ok_or(ClaimError::NoClaim { gpus })?;
        // Who writes the claims has none for this number of GPUs.
        let Some(PlannedPod { spec, claims, .. }) = planned.get(shape.template) else {
            return Ok(None);
        };
        let machine = &self.machines[kind];
        let (node, state) = (kind_node(kind), self.state(kind, busy));
        let (inventory, settings) = (self.view.inventory(), self.view.settings());
        let attempt = allocate(inventory, &node, claims, &state, settings, Limits::default());
        match attempt.outcome {
            Outcome::Allocated(allocations) => {
                let placed = placement(machine, spec, allocations).map(Some);
                placed.ok_or_else(|| "it gets a device that the machine does not have".to_owned())
            }
            Outcome::NoFit(_) => Ok(None),
            Outcome::Failed(error) => Err(error.in_full()),
            Outcome::OverBudget => Err("the search has no end".to_owned()),
        }
        .map_err(|why| ClaimError::Allocate { gpus, why })
    }

    /// What kubelet gives. What it draws is drawn once for each state of a node.
    fn by_kubelet(
        &self,
        kind: usize,
        busy: Devices,
        gpus: u32,
        policy: TopologyPolicy,
    ) -> Option<Placement> {
        let machine = &self.machines[kind];
        let seed = FixedState::default().hash_one((kind, busy, gpus));
        let devices = kubelet::choose(machine, busy, gpus, policy, &mut Rng::with_seed(seed))?;
        Some(Placement { devices, tiers: 0, pairs: pairs(machine, devices), allocations: vec![] })
    }
}

fn planned(
    gpus: u32,
    spec: ResourceClaimSpec,
    labels: BTreeMap<String, String>,
) -> Result<PlannedPod, ClaimError> {
    let name = ClaimName::new(NAMESPACE, format!("gpus-{gpus}"));
    let claim = Claim::from_spec(name, &spec)
        .map_err(|error| ClaimError::Allocate { gpus, why: error.to_string() })?;
    Ok(PlannedPod { spec: Arc::new(spec), labels, claims: vec![claim] })
}

/// The pod as a user writes it.
fn annotated_pod(resource: &str, gpus: u32, alignment: Alignment) -> Value {
    let policy = match alignment {
        Alignment::Preferred => "preferred",
        Alignment::Required => "required",
    };
    let mut annotations = json!({});
    annotations[annotation::ALIGNED_NICS] = json!("per-gpu");
    annotations[annotation::ALIGNMENT_POLICY] = json!(policy);
    let mut amounts = json!({});
    amounts[resource] = json!(gpus.to_string());
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "job", "namespace": NAMESPACE, "annotations": annotations },
        "spec": { "containers": [{
            "name": "job",
            "resources": { "limits": amounts, "requests": amounts },
            "securityContext": { "capabilities": { "add": ["IPC_LOCK"] } },
        }] },
    })
}

fn placement(
    machine: &SimulatedMachine,
    spec: &ResourceClaimSpec,
    allocations: Vec<ClaimAllocation>,
) -> Option<Placement> {
    let results = allocations.iter().flat_map(|allocation| &allocation.results);
    let mut devices = 0;
    for result in results.clone() {
        devices |= machine.bit(&result.device.driver, &result.device.device)?;
    }
    let requests = spec.devices.as_ref().and_then(|devices| devices.requests.as_deref());
    let chosen: Vec<&str> = results.map(|result| &*result.request).collect();
    let tiers = requests.unwrap_or_default().iter().map(|request| tier(request, &chosen)).sum();
    Some(Placement { devices, tiers, pairs: pairs(machine, devices), allocations })
}

/// Eight minus the index of the chosen subrequest (`computeScore` in
/// `pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go`).
fn tier(request: &DeviceRequest, chosen: &[&str]) -> i64 {
    let subrequests = request.first_available.as_deref().unwrap_or_default();
    let taken = (0..SUBREQUESTS_MAX).zip(subrequests).filter(|(_, sub)| {
        let name = format!("{}/{}", request.name, sub.name);
        chosen.contains(&name.as_str())
    });
    taken.map(|(index, _)| SUBREQUESTS_MAX - index).sum()
}

/// The path of each GPU to its NIC in the best assignment. GPUs without an assigned NIC
/// get the remaining NICs.
fn pairs(machine: &SimulatedMachine, devices: Devices) -> Vec<PathKind> {
    let (gpus, nics): (Vec<_>, Vec<_>) =
        machine.of(devices).partition(|device| device.driver == machine.gpu_driver.driver);
    let mut gpus: Vec<_> = gpus.into_iter().map(|device| device.address).collect();
    let mut nics: Vec<_> = nics.into_iter().map(|device| device.address).collect();
    let plan = machine.topology.plan(&PlanRequest::each(&gpus, &nics, 1));
    gpus.retain(|gpu| !plan.iter().any(|pair| pair.gpu == *gpu));
    nics.retain(|nic| !plan.iter().any(|pair| pair.nic == *nic));
    let far = gpus.iter().zip(&nics).map(|(gpu, nic)| machine.topology.path(*gpu, *nic));
    plan.iter().map(|pair| pair.path).chain(far).collect()
}

impl Placer {
    /// Starts with an empty cache.
    pub fn new(claims: Arc<Claims>) -> Self {
        Self { claims, known: HashMap::default() }
    }

    /// The claims that it places.
    pub fn claims(&self) -> &Arc<Claims> {
        &self.claims
    }

    /// What a pod gets on a node of a kind with these devices in use; `None` if it does not fit.
    pub fn place(
        &mut self,
        kind: usize,
        busy: Devices,
        shape: Shape,
    ) -> Result<Option<Arc<Placement>>, ClaimError> {
        if let Some(known) = self.known.get(&(kind, busy, shape)) {
            return Ok(known.clone());
        }
        let placement = self.claims.place(kind, busy, shape)?.map(Arc::new);
        self.known.insert((kind, busy, shape), placement.clone());
        Ok(placement)
    }
}
