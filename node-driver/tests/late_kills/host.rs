//! A machine whose node is selected for late binding, its API server and kubelet, and a driver that dies.

use crate::characters::plant_characters;
use crate::dice::Dice;
use crate::fake_server::{FakeServer, NODES, SLICES, TEAM_CLAIMS};
use crate::kubelet::Listed;
use node_driver::kubelet::wire::dra_v1 as wire;
use node_driver::model::checkpoint::{Checkpoint, Phase};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::{interval, timeout};
use tonic::transport::Endpoint;
use topology_graph::{HostRoot, PciAddress, Topology, fixture, read};
use wire::dra_plugin_client::DraPluginClient;

const NODE: &str = "n1";
/// Longest wait for an expected event, on a busy machine.
const SOON: Duration = Duration::from_mins(1);
/// The time after the begin of a call within which a driver is killed, wherever it is.
const ANY_MOMENT: usize = 30;
/// Kills in a row after which a driver is left alone, so that a call can succeed.
const PATIENCE: usize = 2;
/// The most GPUs and NICs of a pod.
const MOST: usize = 3;
/// `SIGKILL`.
const KILL: i32 = 9;

/// A pod with GPUs of a device plugin and a claim for places.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    number: usize,
    gpus: Vec<PciAddress>,
    pub(crate) places: Vec<String>,
    /// What its claim got.
    pub(crate) nics: BTreeSet<String>,
}

impl Pod {
    fn name(&self) -> String {
        format!("pod-{}", self.number)
    }

    pub(crate) fn uid(&self) -> String {
        format!("uid-{}", self.number)
    }

    fn reference(&self) -> wire::Claim {
        wire::Claim { namespace: "team".to_owned(), name: self.name(), uid: self.uid() }
    }

    fn claim(&self) -> Value {
        let result =
            |place| json!({"driver": "dra.net", "pool": NODE, "device": place, "request": "nics"});
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": "team", "name": self.name(), "uid": self.uid()},
            "spec": {},
            "status": {
                "reservedFor": [{"resource": "pods", "name": self.name(), "uid": "p"}],
                "allocation": {"devices": {
                    "results": self.places.iter().map(result).collect::<Vec<_>>(),
                    "config": [{"source": "FromClaim", "requests": ["nics"], "opaque": {
                        "driver": "dra.net",
                        "parameters": {"lateBinding": {"gpus": self.gpus.len()}},
                    }}],
                }},
            },
        })
    }
}

/// The answer of a driver.
enum Answer {
    Done,
    Refused(String),
    /// It ended meanwhile.
    Lost,
}

/// What the kubelet asks for.
#[derive(Clone, Copy)]
enum Ask {
    Prepare,
    Unprepare,
}

pub(crate) struct Host {
    folder: TempDir,
    server: FakeServer,
    address: SocketAddr,
    list: Listed,
    gpus: Vec<PciAddress>,
    /// The places that are published while no pod has one.
    places: Vec<String>,
    pub(crate) dice: Dice,
    pub(crate) kills: usize,
    /// Points at which the driver has not died yet.
    pub(crate) left: BTreeSet<&'static str>,
    driver: Option<Child>,
    /// The point at which the running driver must die.
    point: Option<&'static str>,
}

impl Host {
    pub(crate) async fn start(seed: usize, points: &[&[&'static str]]) -> Self {
        // A short path, because socket paths are limited to 107 bytes.
        let folder = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
        let root = folder.path().join("host");
        // InfiniBand NICs need no interfaces, which a recorded machine does not have.
        let text = fixture::machine("dgx-h100").unwrap();
        let text = text.replace("link_layer = Ethernet", "link_layer = InfiniBand");
        fixture::plant(&text, &root).unwrap();
        plant_characters(&root);
        let (topology, _) = Topology::build(&read(&HostRoot::at(&root)).unwrap(), None);
        let server = FakeServer::with_node(NODE);
        server.edit(|objects| {
            let node = objects.get_mut(&format!("{NODES}/{NODE}")).unwrap();
            node["metadata"]["labels"] = json!({"pool": "plugin"});
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = server.router();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let list = Listed::default();
        list.serve(&folder.path().join("kubelet"));
        let gpus = topology.gpus().iter().map(|gpu| gpu.address).collect();
        let dice = Dice(u64::try_from(seed).unwrap() + 1);
        let left = points.iter().copied().flatten().copied().collect();
        let (driver, point, places, kills) = (None, None, Vec::new(), 0);
        let mut host =
            Self { folder, server, address, list, gpus, places, dice, kills, left, driver, point };
        host.write_kubeconfig();
        host.spawn();
        host.server.until(SLICES, |slices| !slices.is_empty()).await;
        host.places = host.published();
        assert!(host.places.len() >= 8, "{:?}", host.places);
        host
    }

    fn write_kubeconfig(&self) {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "users": [{"name": "it", "user": {}}],
            "clusters": [{"name": "it", "cluster": {"server": format!("http://{}", self.address)}}],
        });
        fs::write(self.folder.path().join("kubeconfig"), config.to_string()).unwrap();
    }

    /// The published places.
    fn published(&self) -> Vec<String> {
        let slices = self.server.objects(SLICES);
        let devices = slices.iter().filter_map(|it| it["spec"]["devices"].as_array()).flatten();
        let names = devices.filter_map(|device| device["name"].as_str());
        names.filter(|name| name.starts_with("late-")).map(str::to_owned).collect()
    }

    /// Waits until all places are published, as before the first pod.
    pub(crate) async fn offers_all(&self) {
        let expected = self.places.len();
        self.server
            .until(SLICES, |slices| {
                let devices = slices.iter().filter_map(|it| it["spec"]["devices"].as_array());
                let names = devices.flatten().filter_map(|device| device["name"].as_str());
                names.filter(|name| name.starts_with("late-")).count() == expected
            })
            .await;
    }

    /// A random pod, if the machine has room beside these: some GPUs and as many places.
    pub(crate) fn admit(&mut self, number: usize, living: &[Pod]) -> Option<Pod> {
        let mut gpus = self.gpus.clone();
        gpus.retain(|gpu| living.iter().all(|pod| !pod.gpus.contains(gpu)));
        self.dice.shuffle(&mut gpus);
        let mut places = self.places.clone();
        places.retain(|place| living.iter().all(|pod| !pod.places.contains(place)));
        self.dice.shuffle(&mut places);
        let count = 1 + self.dice.below(MOST);
        if gpus.len() < count || places.len() < count {
            return None;
        }
        gpus.truncate(count);
        places.truncate(count);
        Some(Pod { number, gpus, places, nics: BTreeSet::new() })
    }

    /// Prepares a pod's claim, however often the driver dies; returns its NICs.
    pub(crate) async fn prepare(&mut self, pod: &Pod, points: &[&'static str]) -> BTreeSet<String> {
        let ids = pod.gpus.iter().map(|gpu| ("nvidia.com/gpu".to_owned(), gpu.to_string()));
        self.list.remove(&pod.name());
        self.list.add(pod.name(), ids.collect());
        let path = format!("{TEAM_CLAIMS}/{}", pod.name());
        self.server.edit(|objects| drop(objects.insert(path, pod.claim())));
        self.insist(pod, Ask::Prepare, points).await;
        self.recorded().remove(&pod.uid()).unwrap_or_default()
    }

    /// Unprepares it, however often the driver dies.
    pub(crate) async fn unprepare(&mut self, pod: &Pod, points: &[&'static str]) {
        self.insist(pod, Ask::Unprepare, points).await;
        self.list.remove(&pod.name());
        let path = format!("{TEAM_CLAIMS}/{}", pod.name());
        self.server.edit(|objects| drop(objects.remove(&path)));
    }

    /// The NICs of prepared claims by the claims' UIDs.
    pub(crate) fn recorded(&self) -> BTreeMap<String, BTreeSet<String>> {
        let path = self.folder.path().join("kubelet/plugins/dra.net/checkpoint.json");
        let records = Checkpoint::peek(&path).unwrap_or_default().claims.into_iter();
        let prepared = records.filter(|(_, record)| record.phase == Phase::Prepared);
        let nics = prepared.map(|(uid, record)| {
            let places = record.plan.devices.iter().filter(|it| it.place.is_some());
            (uid, places.map(|it| it.device.clone()).collect())
        });
        nics.collect()
    }

    /// Whether a container of the pod could be started.
    pub(crate) fn has_spec(&self, pod: &Pod) -> bool {
        let name = format!("cdi/dra.net-claim-{}.json", pod.uid());
        self.folder.path().join(name).exists()
    }

    async fn insist(&mut self, pod: &Pod, ask: Ask, points: &[&'static str]) {
        if points.iter().any(|point| self.left.contains(point)) && self.dice.below(2) == 0 {
            // A call is over before most moments: for a point that is left, another driver is started.
            self.end().await;
        }
        let mut kills = 0;
        loop {
            self.ensure(points, kills).await;
            let is_cut = self.point.is_none() && kills < PATIENCE && self.dice.below(2) == 0;
            let moment = self.dice.below(ANY_MOMENT);
            let moment = Duration::from_millis(u64::try_from(moment).unwrap());
            let moment = if is_cut { moment } else { SOON };
            match timeout(moment, self.asked(pod, ask)).await {
                Ok(Answer::Done) => return,
                Ok(Answer::Refused(error)) => panic!("{pod:?}: {error}"),
                Ok(Answer::Lost) => self.has_died().await,
                Err(_) => self.kill().await,
            }
            kills += 1;
        }
    }

    /// Asks until the driver has read the machine's NICs.
    async fn asked(&self, pod: &Pod, ask: Ask) -> Answer {
        let mut tick = interval(Duration::from_millis(10));
        loop {
            tick.tick().await;
            match self.ask(pod, ask).await {
                Answer::Refused(error) if error.contains("since it started") => {}
                answer => return answer,
            }
        }
    }

    async fn ask(&self, pod: &Pod, ask: Ask) -> Answer {
        let Some(mut plugin) = self.connect().await else { return Answer::Lost };
        let claims = vec![pod.reference()];
        let error = match ask {
            Ask::Prepare => {
                let request = wire::NodePrepareResourcesRequest { claims };
                let Ok(answer) = plugin.node_prepare_resources(request).await else {
                    return Answer::Lost;
                };
                answer.into_inner().claims.remove(&pod.uid()).unwrap().error
            }
            Ask::Unprepare => {
                let request = wire::NodeUnprepareResourcesRequest { claims };
                let Ok(answer) = plugin.node_unprepare_resources(request).await else {
                    return Answer::Lost;
                };
                answer.into_inner().claims.remove(&pod.uid()).unwrap().error
            }
        };
        if error.is_empty() { Answer::Done } else { Answer::Refused(error) }
    }

    async fn connect(&self) -> Option<DraPluginClient<tonic::transport::Channel>> {
        let socket = self.folder.path().join("kubelet/plugins/dra.net/dra.sock");
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
        Some(DraPluginClient::new(endpoint.connect().await.ok()?))
    }

    /// Ensures that a driver listens; it may be one that will die at one of these points.
    async fn ensure(&mut self, points: &[&'static str], kills: usize) {
        let mut tick = interval(Duration::from_millis(10));
        loop {
            if self.has_ended() {
                let unseen = points.iter().filter(|point| self.left.contains(*point));
                let unseen: Vec<_> = unseen.copied().collect();
                let points = if unseen.is_empty() { points } else { &unseen };
                let is_left_alone =
                    points.is_empty() || kills >= PATIENCE || self.dice.below(4) == 0;
                self.point = (!is_left_alone).then(|| points[self.dice.below(points.len())]);
                self.spawn();
            }
            if self.connect().await.is_some() {
                return;
            }
            tick.tick().await;
            // It first undoes what it left, and passes points of unpreparing.
            if self.has_ended() {
                self.has_died().await;
            }
        }
    }

    fn has_ended(&mut self) -> bool {
        self.driver.as_mut().is_none_or(|driver| driver.try_wait().unwrap().is_some())
    }

    /// Waits for the end of the driver, which must have died at its point and not by itself.
    async fn has_died(&mut self) {
        let mut driver = self.driver.take().unwrap();
        let status = timeout(SOON, driver.wait()).await.expect("it ends").unwrap();
        assert_eq!(status.signal(), Some(KILL), "at {:?}", self.point);
        let point = self.point.take().expect("a point to die at");
        self.left.remove(point);
        self.kills += 1;
    }

    async fn kill(&mut self) {
        self.end().await;
        self.kills += 1;
    }

    async fn end(&mut self) {
        if let Some(mut driver) = self.driver.take() {
            driver.kill().await.unwrap();
        }
        self.point = None;
    }

    /// Ends the driver, before its folder is removed.
    pub(crate) async fn stop(mut self) {
        self.end().await;
    }

    fn spawn(&mut self) {
        let at = |name| self.folder.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_node-driver"));
        command
            .args(["--node-name", NODE, "--cloud", "none", "--log", "error"])
            .args(["--late-nodes=pool=plugin", "--operations-listen", "127.0.0.1:0"])
            .args([Path::new("--root"), &at("host"), Path::new("--kubeconfig"), &at("kubeconfig")])
            .args([Path::new("--kubelet-dir"), &at("kubelet"), Path::new("--cdi-dir"), &at("cdi")])
            .args([Path::new("--run-dir"), &at("run")])
            .stderr(Stdio::null())
            .kill_on_drop(true);
        if let Some(point) = self.point {
            command.args(["--kill-at", point]);
        }
        self.driver = Some(command.spawn().unwrap());
    }
}
