//! A machine, an API server with claims, a kubelet with a device plugin, and the driver's preparation.

use super::characters::plant_characters;
use super::dice::Dice;
use super::kubelet::Listed;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use cluster_model::published_device::is_place;
use kube::Client;
use node_driver::claims::preparer::Preparer;
use node_driver::facts::network::server::ApiServers;
use node_driver::facts::network::uplinks::Uplinks;
use node_driver::facts::ports::KnownPorts;
use node_driver::kernel::attach::AttachMode;
use node_driver::kernel::attach::dhcp::keeper::Keepers;
use node_driver::kernel::attach::namespaces::Namespaces;
use node_driver::kernel::attach::node_network::KernelNetwork;
use node_driver::model::checkpoint::Checkpoint;
use node_driver::model::claim::ClaimRef;
use node_driver::model::plan::Plan;
use node_driver::prepare::Abandoned;
use node_driver::prepare::cdi;
use node_driver::prepare::effects::{Effects, Faults, devices_file};
use node_driver::prepare::late::LateNics;
use node_driver::prepare::local::{Ended, LocalPreparer};
use node_driver::prepare::metrics::PluginMetrics;
use node_driver::prepare::notices::Notices;
use node_driver::prepare::plan::Policy;
use node_driver::publish::claim_status::{Progress, render};
use node_files::paths::Paths;
use process::chain::Chain;
use publication::cloud::CloudMetadata;
use publication::health::Problem;
use publication::health::taint::TaintArgs;
use publication::held::Holding;
use publication::judge::{BindNics, Rules};
use publication::machine::{Facts, Machine, Usage};
use publication::network::NetworkFacts;
use publication::rails::KnownRails;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use topology_graph::{HostRoot, Level, PciAddress, Topology, fixture};

const NODE: &str = "node-1";

/// A pod with a claim for places.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) number: usize,
    pub(crate) gpus: Vec<PciAddress>,
    pub(crate) nics: usize,
    pub(crate) within: Option<Level>,
    /// The number of GPUs that its claim is for.
    pub(crate) expected: Option<usize>,
    /// The number of pods that its claim is reserved for.
    pub(crate) pods: usize,
}

impl Pod {
    fn name(&self) -> String {
        format!("pod-{}", self.number)
    }

    fn reference(&self) -> ClaimRef {
        let name = format!("claim-{}", self.number);
        ClaimRef { namespace: "team".to_owned(), uid: format!("uid-{name}"), name }
    }

    fn object(&self, places: &[String]) -> Value {
        let result =
            |place| json!({"driver": "dra.net", "pool": NODE, "device": place, "request": "nics"});
        let config = json!({"lateBinding": {"gpus": self.expected, "within": self.within}});
        let user = |index| json!({"resource": "pods", "name": self.name(), "uid": format!("uid-{}-{index}", self.name())});
        let ClaimRef { namespace, name, uid } = self.reference();
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": namespace, "name": name, "uid": uid},
            "spec": {},
            "status": {
                "reservedFor": (0..self.pods).map(user).collect::<Vec<_>>(),
                "allocation": {"devices": {
                    "results": places.iter().map(result).collect::<Vec<_>>(),
                    "config": [{"source": "FromClaim", "requests": ["nics"],
                        "opaque": {"driver": "dra.net", "parameters": config}}],
                }},
            },
        })
    }
}

pub(crate) struct Stage {
    pub(crate) folder: TempDir,
    pub(crate) topology: Topology,
    pub(crate) list: Listed,
    machine: Machine,
    broken: BTreeSet<String>,
    late: LateNics,
    claims: Arc<Mutex<BTreeMap<String, Value>>>,
    /// Places of claims, by claim name.
    allocated: BTreeMap<String, Vec<String>>,
    uuids: BTreeMap<PciAddress, String>,
    node: Arc<LocalPreparer>,
    preparer: Preparer,
    kubelet: JoinHandle<()>,
}

impl Stage {
    /// Needs a runtime, for the kubelet's socket.
    pub(crate) fn start(machine: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        // InfiniBand NICs need no interfaces, which a recorded machine does not have.
        let text = fixture::machine(machine).unwrap();
        let text = text.replace("link_layer = Ethernet", "link_layer = InfiniBand");
        fixture::plant(&text, &root).unwrap();
        plant_characters(&root);
        let snapshot = topology_graph::read(&HostRoot::at(&root)).unwrap();
        let (topology, _) = Topology::build(&snapshot, None);
        let network = NetworkFacts::default();
        let facts = Facts { snapshot, network, cloud: CloudMetadata::default(), rails: None };
        let machine = Machine::read(&facts, &rules(), &KnownRails::default());
        let list = Listed::default();
        let kubelet = list.serve(&paths(folder.path()).kubelet);
        let late = LateNics::default();
        let claims: Arc<Mutex<BTreeMap<String, Value>>> = Arc::default();
        let uuid = |(number, address): (usize, &PciAddress)| {
            let gpu = topology.gpu(*address).unwrap();
            (*address, gpu.uuid.clone().unwrap_or_else(|| format!("none-{number}")))
        };
        let gpus: Vec<PciAddress> = topology.gpus().iter().map(|gpu| gpu.address).collect();
        let uuids = gpus.iter().enumerate().map(uuid).collect();
        let (node, preparer) = driver(folder.path(), &late, &claims);
        let (broken, allocated) = (BTreeSet::new(), BTreeMap::new());
        let stage = Self {
            folder,
            topology,
            list,
            machine,
            broken,
            late,
            claims,
            allocated,
            uuids,
            node,
            preparer,
            kubelet,
        };
        stage.publish();
        stage
    }

    /// Starts the driver again, which repairs what the last one left.
    pub(crate) fn restart(&mut self) {
        self.late = LateNics::default();
        (self.node, self.preparer) = driver(self.folder.path(), &self.late, &self.claims);
        self.node.reconcile().unwrap();
        self.publish();
    }

    pub(crate) fn forget_publication(&mut self) {
        self.late = LateNics::default();
        (self.node, self.preparer) = driver(self.folder.path(), &self.late, &self.claims);
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.node.effects.paths.checkpoint()
    }

    fn plans(&self) -> Vec<Plan> {
        let checkpoint = Checkpoint::peek(&self.checkpoint()).unwrap_or_default();
        checkpoint.claims.into_values().map(|record| record.plan).collect()
    }

    /// Publishes; returns the places.
    fn publish(&self) -> BTreeSet<String> {
        let plans = self.plans();
        let devices = || plans.iter().flat_map(|plan| plan.devices.clone());
        let places = devices().filter_map(|it| Some((it.place?, it.device))).collect();
        let held = devices().map(|it| (it.device, Holding::default())).collect();
        let mut machine = self.machine.clone();
        machine.settle(&Usage { held, ..Usage::default() }, &rules());
        for nic in machine.nics.iter_mut().filter(|it| self.broken.contains(&it.name)) {
            nic.now.problems = BTreeSet::from([Problem::PortDown]);
        }
        let decision = machine.decide(&rules(), &places);
        self.late.set(decision.late);
        decision.devices.into_iter().map(|it| it.name).filter(|name| is_place(name)).collect()
    }

    /// Breaks or repairs a NIC now and then.
    pub(crate) fn break_some(&mut self, dice: &mut Dice) {
        if dice.below(10) > 0 {
            return;
        }
        self.broken.clear();
        let rules = rules();
        let nics: Vec<_> = self.machine.given(&rules).collect();
        for _ in 0..dice.below(3) {
            self.broken.insert(nics[dice.below(nics.len())].name.clone());
        }
        self.publish();
    }

    /// The NICs that no pod has and that are not broken.
    pub(crate) fn free(&self) -> BTreeSet<String> {
        let held: BTreeSet<String> =
            self.plans().into_iter().flat_map(|plan| plan.devices).map(|it| it.device).collect();
        let nics = self.late.get().unwrap();
        let names = nics.iter().map(|nic| nic.device.name.clone());
        names.filter(|name| !held.contains(name) && !self.broken.contains(name)).collect()
    }

    /// Schedules a random pod as the scheduler and the kubelet would: as many places as it needs, and
    /// any free GPUs.
    pub(crate) fn admit(&mut self, dice: &mut Dice, number: usize) -> Option<Pod> {
        let used = self.list.ids();
        let mut gpus: Vec<PciAddress> = self.uuids.keys().copied().collect();
        gpus.retain(|gpu| !used.contains(&self.uuids[gpu]));
        dice.shuffle(&mut gpus);
        gpus.truncate(dice.below(5));
        let nics = 1 + dice.below(4);
        let within = [None, Some(Level::Numa), Some(Level::Switch), Some(Level::Socket)];
        let within = within[dice.below(4)].filter(|_| !gpus.is_empty());
        let pod = Pod { number, expected: Some(gpus.len()), gpus, nics, within, pods: 1 };
        self.schedule(&pod)?;
        Some(pod)
    }

    pub(crate) fn pod_on(
        &mut self,
        number: usize,
        gpus: &[&str],
        nics: usize,
        within: Option<Level>,
    ) -> Pod {
        let gpus: Vec<_> = gpus.iter().map(|name| self.topology.device(name).unwrap()).collect();
        let pod = Pod { number, expected: Some(gpus.len()), gpus, nics, within, pods: 1 };
        self.schedule(&pod);
        pod
    }

    pub(crate) fn pod_with(&mut self, number: usize, devices: &[(&str, &str)], nics: usize) -> Pod {
        let pod = self.pod_on(number, &[], nics, None);
        let pod = Pod { expected: None, ..pod };
        self.list.remove(&pod.name());
        let owned = |(resource, id): &(&str, &str)| ((*resource).to_owned(), (*id).to_owned());
        self.list.add(pod.name(), devices.iter().map(owned).collect());
        pod
    }

    fn schedule(&mut self, pod: &Pod) -> Option<()> {
        let taken: BTreeSet<&String> = self.allocated.values().flatten().collect();
        let places = self.publish();
        let free: Vec<String> =
            places.into_iter().filter(|place| !taken.contains(place)).take(pod.nics).collect();
        let id = |gpu| ("nvidia.com/gpu".to_owned(), self.uuids[gpu].clone());
        if free.len() == pod.nics {
            self.allocated.insert(pod.reference().name, free);
            self.list.add(pod.name(), pod.gpus.iter().map(id).collect());
            return Some(());
        }
        // For a test of what the driver says then.
        let beyond = (0..pod.nics).map(|number| format!("late-{}", 100 + number));
        let is_random = pod.number > 9;
        if !is_random {
            self.allocated.insert(pod.reference().name, beyond.collect());
            self.list.add(pod.name(), pod.gpus.iter().map(id).collect());
        }
        (!is_random).then_some(())
    }

    /// Prepares the pod's claim; returns the NICs.
    pub(crate) async fn prepare(&self, pod: &Pod) -> Result<BTreeSet<String>, String> {
        let reference = pod.reference();
        let places = self.allocated.get(&reference.name).cloned().unwrap_or_default();
        let places = if places.is_empty() { vec!["late-0".to_owned()] } else { places };
        self.claims.lock().unwrap().insert(reference.name.clone(), pod.object(&places));
        let prepared = self.preparer.prepare(&reference).await;
        let prepared = prepared.map_err(|error| Chain(&error).to_string())?;
        let told: BTreeSet<&String> = prepared.iter().map(|device| &device.device).collect();
        assert_eq!(told, places.iter().collect(), "the kubelet knows the places");
        self.publish();
        Ok(self.nics_of(pod))
    }

    pub(crate) fn nics_of(&self, pod: &Pod) -> BTreeSet<String> {
        let uid = pod.reference().uid;
        let plans = self.plans().into_iter().filter(|plan| plan.claim.uid == uid);
        plans.flat_map(|plan| plan.devices).map(|device| device.device).collect()
    }

    pub(crate) async fn end(&mut self, pod: &Pod) {
        self.preparer.unprepare(&pod.reference()).await.unwrap();
        self.claims.lock().unwrap().remove(&pod.reference().name);
        self.allocated.remove(&pod.reference().name);
        self.list.remove(&pod.name());
        self.publish();
    }

    pub(crate) fn check_no_nic_twice(&self, context: &str) {
        let devices: Vec<String> =
            self.plans().into_iter().flat_map(|plan| plan.devices).map(|it| it.device).collect();
        let distinct: BTreeSet<&String> = devices.iter().collect();
        assert_eq!(distinct.len(), devices.len(), "{context}: {devices:?}");
    }

    /// The file in the container, its variables, and the claim's status.
    pub(crate) fn told(&self, pod: &Pod) -> Value {
        let uid = pod.reference().uid;
        let plan = self.plans().into_iter().find(|plan| plan.claim.uid == uid).unwrap();
        let Effects { paths, settings, .. } = &self.node.effects;
        let spec = serde_json::to_value(cdi::spec(&plan, paths, settings)).unwrap();
        let status =
            render(&plan, "dra.net", Progress::Prepared, "2026-01-01T00:00:00Z".parse().unwrap());
        json!({
            "devices.json": devices_file(&plan),
            "environment": spec["containerEdits"]["env"],
            "status": status["status"],
        })
    }

    pub(crate) async fn stop(&mut self) {
        self.kubelet.abort();
        let _ = (&mut self.kubelet).await;
    }
}

/// The node binds its NICs late.
fn rules() -> Rules {
    let taints = Some(TaintArgs::default());
    Rules { bind_nics: BindNics::Late, taints, ..Rules::default() }
}

fn driver(
    folder: &Path,
    late: &LateNics,
    claims: &Arc<Mutex<BTreeMap<String, Value>>>,
) -> (Arc<LocalPreparer>, Preparer) {
    let paths = paths(folder);
    let settings = cdi::SpecSettings {
        runtime_root: folder.join("root"),
        attach: AttachMode::Hook,
        environment: cdi::Environment {
            nccl_ib_hca: true,
            ucx_net_devices: true,
            vllm_nic_mapping: true,
            devices_file: true,
            ..cdi::Environment::default()
        },
        locked_memory: true,
    };
    let effects = Effects {
        namespaces: Arc::new(Namespaces::new(&paths.netns)),
        paths,
        settings,
        network: Box::new(KernelNetwork),
        leases: Keepers::default(),
        notices: Notices::default(),
        faults: Faults::default(),
    };
    let node = Arc::new(LocalPreparer {
        host: HostRoot::at(folder.join("root")),
        ports: KnownPorts::default(),
        servers: ApiServers::default(),
        uplinks: Uplinks::default(),
        loading: None,
        policy: Policy::default(),
        network_namespaces: Vec::new(),
        effects,
        metrics: PluginMetrics::default(),
        ended: Ended::default(),
        abandoned: Abandoned::default(),
        late: late.clone(),
    });
    let claims = Arc::clone(claims);
    let serve = move |request: Request<Body>| {
        let claims = Arc::clone(&claims);
        async move { answer(&request, &claims.lock().unwrap()) }
    };
    let client = Client::new(Router::new().fallback(serve), "default");
    let preparer = Preparer::new(client, NODE, Arc::clone(&node));
    (node, preparer)
}

fn answer(request: &Request<Body>, claims: &BTreeMap<String, Value>) -> (StatusCode, String) {
    let path = request.uri().path();
    if path.ends_with("/resourceslices") {
        let list = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList",
            "metadata": {}, "items": []});
        return (StatusCode::OK, list.to_string());
    }
    let mut names = path.rsplit('/').filter(|name| *name != "status");
    if let Some(claim) = names.next().and_then(|name| claims.get(name)) {
        return (StatusCode::OK, claim.to_string());
    }
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": "no such object", "reason": "NotFound", "code": 404});
    (StatusCode::NOT_FOUND, status.to_string())
}

fn paths(folder: &Path) -> Paths {
    Paths {
        kubelet: folder.join("kubelet"),
        driver: "dra.net".into(),
        cdi: folder.join("cdi"),
        run: folder.join("run"),
        netns: folder.join("netns"),
        sysctl: "/proc/sys/net".into(),
    }
}
