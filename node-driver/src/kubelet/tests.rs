//! The plugin over its own sockets, as the kubelet talks to it.

use super::*;
use crate::facts::network::server::ApiServers;
use crate::facts::network::uplinks::Uplinks;
use crate::facts::ports::KnownPorts;
use crate::kernel::attach::AttachMode;
use crate::kernel::attach::dhcp::keeper::Keepers;
use crate::kernel::attach::namespaces::Namespaces;
use crate::kernel::attach::node_network::KernelNetwork;
use crate::kubelet::health::{DeviceHealth, HealthState};
use crate::kubelet::wire::dra_v1::dra_plugin_client::DraPluginClient as ClientV1;
use crate::kubelet::wire::health_v1::dra_resource_health_client::DraResourceHealthClient;
use crate::kubelet::wire::registration_v1::registration_client::RegistrationClient;
use crate::kubelet::wire::registration_v1::{InfoRequest, RegistrationStatus};
use crate::model::checkpoint::Checkpoint;
use crate::model::claim::ClaimRef;
use crate::prepare::Abandoned;
use crate::prepare::cdi;
use crate::prepare::effects::{Effects, Faults};
use crate::prepare::late::LateNics;
use crate::prepare::local::Ended;
use crate::prepare::metrics::PluginMetrics;
use crate::prepare::notices::Notices;
use crate::prepare::plan::Policy;
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use topology_graph::{HostRoot, fixture};

const NODE: &str = "node-1";

/// A machine, an API server with some claims, and the plugin.
struct Bench {
    folder: TempDir,
    stop: CancellationToken,
    health: watch::Sender<Vec<DeviceHealth>>,
    task: JoinHandle<Result<(), PluginError>>,
    readiness: Readiness,
}

type Running = (
    JoinHandle<Result<(), PluginError>>,
    CancellationToken,
    watch::Sender<Vec<DeviceHealth>>,
    Readiness,
);

impl Bench {
    async fn start(instance: Option<&str>) -> Self {
        Self::start_on("azure-gb300", instance).await
    }

    async fn start_on(machine: &str, instance: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fixture::plant(fixture::machine(machine).unwrap(), &root).unwrap();
        plant_characters(&root);
        let (task, stop, health, readiness) = Self::run(&folder, instance);
        let bench = Self { folder, stop, health, task, readiness };
        bench.appears(&registry_name(&bench.paths(), instance)).await;
        bench
    }

    fn node(folder: &TempDir) -> LocalPreparer {
        let paths = paths(folder);
        let settings = cdi::SpecSettings {
            runtime_root: folder.path().join("root"),
            attach: AttachMode::Hook,
            environment: cdi::Environment::default(),
            locked_memory: true,
        };
        let namespaces = Arc::new(Namespaces::new(&paths.netns));
        let effects = Effects {
            paths,
            settings,
            network: Box::new(KernelNetwork),
            namespaces,
            leases: Keepers::default(),
            notices: Notices::default(),
            faults: Faults::default(),
        };
        let host = HostRoot::at(folder.path().join("root"));
        LocalPreparer {
            host,
            ports: KnownPorts::default(),
            servers: ApiServers::default(),
            uplinks: Uplinks::default(),
            loading: None,
            policy: Policy::default(),
            network_namespaces: Vec::new(),
            ended: Ended::default(),
            abandoned: Abandoned::default(),
            late: LateNics::default(),
            effects,
            metrics: PluginMetrics::default(),
        }
    }

    fn run(folder: &TempDir, instance: Option<&str>) -> Running {
        let paths = paths(folder);
        let node = Arc::new(Self::node(folder));
        let client = Client::new(Router::new().fallback(claims), "default");
        let preparer = Preparer::new(client, NODE, Arc::clone(&node));
        let (health, watched) = watch::channel(Vec::new());
        let instance = instance.map(str::to_owned);
        let readiness = Readiness::default();
        let awaited = Awaited::new(&readiness, false);
        let counts = Vec::new();
        let plugin =
            Plugin { paths, instance, nri: None, node, preparer, health: watched, counts, awaited };
        let stop = CancellationToken::new();
        (tokio::spawn(plugin.serve(stop.clone())), stop, health, readiness)
    }

    fn paths(&self) -> Paths {
        paths(&self.folder)
    }

    async fn appears(&self, socket: &str) {
        let path = self.paths().registry().join(socket);
        let mut look = tokio::time::interval(Duration::from_millis(5));
        let there = async {
            while !path.exists() {
                look.tick().await;
            }
        };
        let waited = timeout(Duration::from_secs(20), there).await;
        assert!(waited.is_ok(), "`{}` does not appear", path.display());
    }

    async fn channel(&self, path: PathBuf) -> Channel {
        Endpoint::from_shared(format!("unix:{}", path.display())).unwrap().connect().await.unwrap()
    }

    async fn service(&self) -> Channel {
        self.channel(self.paths().plugin().join("dra.sock")).await
    }

    async fn end(self) -> Result<(), PluginError> {
        self.stop.cancel();
        self.task.await.unwrap()
    }
}

fn paths(folder: &TempDir) -> Paths {
    Paths {
        kubelet: folder.path().join("kubelet"),
        driver: "dra.net".into(),
        cdi: folder.path().join("cdi"),
        run: folder.path().join("run"),
        netns: folder.path().join("netns"),
        sysctl: "/proc/sys/net".into(),
    }
}

/// Creates device files. The fixture's are plain files, so links to a character device
/// that every machine has replace them.
fn plant_characters(root: &Path) {
    let folder = root.join("dev/infiniband");
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    let names = (0..4).flat_map(|n| ["uverbs", "umad", "issm"].map(|kind| format!("{kind}{n}")));
    for name in names.chain(["rdma_cm".to_owned()]) {
        symlink("/dev/null", folder.join(name)).unwrap();
    }
}

/// Claim `nic-N` holds NIC N; `both` holds 0 and 1; `free` nothing.
async fn claims(request: Request<Body>) -> (StatusCode, String) {
    let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let devices: Option<Vec<u32>> = match name.as_str() {
        "both" => Some(vec![0, 1]),
        "free" => None,
        _ => name.strip_prefix("nic-").map(|number| vec![number.parse().unwrap()]),
    };
    let results = devices.map(|numbers| {
        let result = |number: u32| {
            // On AWS's machine, NIC 9 is the first EFA.
            let device = match number {
                9 => "pci-0000-10-1b-0".to_owned(),
                _ => format!("pci-010{}-00-00-0", number + 1),
            };
            json!({"driver": "dra.net", "pool": NODE, "device": device, "request": "nics/near"})
        };
        json!({"devices": {"results": numbers.into_iter().map(result).collect::<Vec<_>>()}})
    });
    if name == "absent" {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
            "message": "no such claim", "reason": "NotFound", "code": 404});
        return (StatusCode::NOT_FOUND, status.to_string());
    }
    let claim = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": "team", "name": name, "uid": format!("uid-{name}")},
        "spec": {}, "status": {"allocation": results}
    });
    (StatusCode::OK, claim.to_string())
}

fn claim(name: &str) -> dra_v1::Claim {
    dra_v1::Claim { namespace: "team".into(), name: name.into(), uid: format!("uid-{name}") }
}

async fn prepare(
    client: &mut ClientV1<Channel>,
    names: &[&str],
) -> dra_v1::NodePrepareResourcesResponse {
    let claims = names.iter().map(|name| claim(name)).collect();
    let request = dra_v1::NodePrepareResourcesRequest { claims };
    client.node_prepare_resources(request).await.unwrap().into_inner()
}

async fn unprepare(client: &mut ClientV1<Channel>, name: &str) -> String {
    let request = dra_v1::NodeUnprepareResourcesRequest { claims: vec![claim(name)] };
    let answer = client.node_unprepare_resources(request).await.unwrap().into_inner();
    answer.claims[&format!("uid-{name}")].error.clone()
}

fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_registration_names_endpoint_and_versions() {
    let bench = Bench::start(Some("pod-1")).await;
    let registry = bench.paths().registry();
    assert_eq!(files(&registry), ["dra.net-pod-1-reg.sock"]);
    let channel = bench.channel(registry.join("dra.net-pod-1-reg.sock")).await;
    let mut client = RegistrationClient::new(channel);
    let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("DRAPlugin", "dra.net"));
    assert_eq!(info.endpoint, bench.paths().plugin().join("dra-pod-1.sock").display().to_string());
    assert_eq!(info.supported_versions, SUPPORTED_VERSIONS);
    let status = RegistrationStatus { plugin_registered: true, error: String::new() };
    assert_eq!(bench.readiness.waiting(), ["the registration with the kubelet"]);
    client.notify_registration_status(status).await.unwrap();
    timeout(Duration::from_secs(20), bench.readiness.ready()).await.unwrap();
    bench.end().await.unwrap();
    assert_eq!(files(&registry), [""; 0], "its sockets are removed");
}

#[tokio::test]
async fn a_refused_plugin_ends_with_the_reason() {
    let bench = Bench::start(None).await;
    let channel = bench.channel(bench.paths().registry().join("dra.net-reg.sock")).await;
    let status = RegistrationStatus { plugin_registered: false, error: "too old".into() };
    RegistrationClient::new(channel).notify_registration_status(status).await.unwrap();
    let error = bench.task.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the kubelet refused the registration: too old");
}

#[tokio::test]
async fn prepare_and_unprepare_are_idempotent_and_answer_each_claim() {
    let bench = Bench::start(None).await;
    let mut client = ClientV1::new(bench.service().await);
    let names = ["both", "free", "nic-0", "absent"];
    let answer = prepare(&mut client, &names).await;
    let devices: Vec<_> = answer.claims["uid-both"]
        .devices
        .iter()
        .map(|device| (device.request_names.clone(), device.cdi_device_ids.clone()))
        .collect();
    let id = |nic: u32| vec![format!("dra.net/claim=uid-both-pci-010{nic}-00-00-0")];
    assert_eq!(devices, [(vec!["nics".to_owned()], id(1)), (vec!["nics".to_owned()], id(2))]);
    let errors: Vec<_> =
        names.map(|name| answer.claims[&format!("uid-{name}")].error.clone()).into();
    insta::assert_snapshot!(errors.join("\n"), @r"

    claim `team/free` is not allocated
    claim `team/nic-0`: device `pci-0101-00-00-0` is held by claim `team/both`, whose pod still uses it
    claim `team/absent` does not exist
    ");
    let again = prepare(&mut client, &["both"]).await;
    assert_eq!(again.claims["uid-both"], answer.claims["uid-both"]);
    assert_eq!(files(&bench.paths().cdi), ["dra.net-claim-uid-both.json"]);

    for _ in 0..2 {
        assert_eq!(unprepare(&mut client, "both").await, "");
    }
    assert_eq!(files(&bench.paths().cdi), [""; 0]);
    assert_eq!(files(&bench.paths().claims()), [""; 0]);
    let free_again = prepare(&mut client, &["nic-0"]).await;
    assert_eq!(free_again.claims["uid-nic-0"].error, "");
    bench.end().await.unwrap();
}

#[tokio::test]
async fn health_and_its_changes_are_streamed() {
    let bench = Bench::start(None).await;
    let mut client = DraResourceHealthClient::new(bench.service().await);
    let request = health_v1::NodeWatchResourcesRequest {};
    let mut stream = client.node_watch_resources(request).await.unwrap().into_inner();
    assert_eq!(stream.message().await.unwrap().unwrap().devices, []);
    bench.health.send_replace(vec![DeviceHealth {
        pool: NODE.into(),
        device: "pci-1".into(),
        state: HealthState::Unhealthy,
        message: "port 1 is down ".repeat(200),
        at: SystemTime::UNIX_EPOCH + Duration::from_secs(7),
    }]);
    let list = stream.message().await.unwrap().unwrap().devices;
    assert_eq!(list[0].health(), health_v1::HealthStatus::Unhealthy);
    assert_eq!((list[0].last_updated_time, list[0].message.len()), (7, 1024));
    bench.end().await.unwrap();
}

#[tokio::test]
async fn a_new_instance_repairs_what_the_old_one_left() {
    let mut bench = Bench::start(None).await;
    let mut client = ClientV1::new(bench.service().await);
    prepare(&mut client, &["nic-0", "nic-1"]).await;
    bench.stop.cancel();
    (&mut bench.task).await.unwrap().unwrap();
    let paths = bench.paths();
    let promised = fs::read(paths.cdi_spec("uid-nic-0")).unwrap();
    // A missing spec, a spec of an unknown claim, and a damaged checkpoint.
    fs::remove_file(paths.cdi_spec("uid-nic-1")).unwrap();
    fs::write(paths.cdi_spec("uid-orphan"), "{}").unwrap();
    let (task, stop, health, _) = Bench::run(&bench.folder, None);
    (bench.task, bench.stop, bench.health) = (task, stop, health);
    bench.appears("dra.net-reg.sock").await;
    let specs = ["dra.net-claim-uid-nic-0.json", "dra.net-claim-uid-nic-1.json"];
    assert_eq!(files(&paths.cdi), specs);

    bench.stop.cancel();
    (&mut bench.task).await.unwrap().unwrap();
    fs::write(paths.checkpoint(), "{").unwrap();
    let (task, stop, health, _) = Bench::run(&bench.folder, None);
    (bench.task, bench.stop, bench.health) = (task, stop, health);
    bench.appears("dra.net-reg.sock").await;
    assert_eq!(fs::read(paths.cdi_spec("uid-nic-0")).unwrap(), promised);
    let mut client = ClientV1::new(bench.service().await);
    assert!(prepare(&mut client, &["both"]).await.claims["uid-both"].error.contains("is held by"));
    assert_eq!(unprepare(&mut client, "nic-0").await, "");
    assert_eq!(unprepare(&mut client, "nic-1").await, "");
    assert_eq!(files(&paths.cdi), [""; 0]);
    let bench_value: Value =
        serde_json::from_slice(&fs::read(paths.checkpoint()).unwrap()).unwrap();
    assert_eq!(bench_value["data"]["claims"], json!({}));
    bench.end().await.unwrap();
}

/// An EFA has no interface, and ports whose link layer is neither Ethernet nor InfiniBand.
#[tokio::test]
async fn an_rdma_device_without_an_interface_is_prepared() {
    let bench = Bench::start_on("aws-p4d", None).await;
    let mut client = ClientV1::new(bench.service().await);
    assert_eq!(prepare(&mut client, &["nic-9"]).await.claims["uid-nic-9"].error, "");
    let spec = fs::read_to_string(bench.paths().cdi_spec("uid-nic-9")).unwrap();
    assert!(spec.contains("/dev/infiniband/uverbs"), "{spec}");
    assert_eq!(unprepare(&mut client, "nic-9").await, "");
    bench.end().await.unwrap();
}

/// Gives the character device of one NIC to another, as after a reset or a hot-plug.
fn exchange_verbs(root: &Path, [one, other]: [u32; 2]) {
    let class = root.join("sys/class/infiniband_verbs");
    let link = |number: u32| class.join(format!("uverbs{number}"));
    let [first, second] = [one, other].map(|number| fs::canonicalize(link(number)).unwrap());
    let places = [
        first.with_file_name(format!("uverbs{other}")),
        second.with_file_name(format!("uverbs{one}")),
    ];
    fs::rename(first, &places[0]).unwrap();
    fs::rename(second, &places[1]).unwrap();
    for (number, place) in [(other, &places[0]), (one, &places[1])] {
        fs::remove_file(link(number)).unwrap();
        symlink(place, link(number)).unwrap();
    }
}

#[tokio::test]
async fn a_claim_keeps_its_nic_when_the_kernel_numbers_devices_again() {
    let bench = Bench::start(None).await;
    let root = bench.folder.path().join("root");
    let mut client = ClientV1::new(bench.service().await);
    prepare(&mut client, &["nic-0", "nic-1"]).await;
    let spec = |nic: u32| {
        fs::read_to_string(bench.paths().cdi_spec(&format!("uid-nic-{nic}"))).unwrap_or_default()
    };
    assert!(spec(0).contains("uverbs0") && spec(1).contains("uverbs1"));

    exchange_verbs(&root, [0, 1]);
    let again = prepare(&mut client, &["nic-0"]).await;
    assert_eq!(again.claims["uid-nic-0"].error, "");
    assert!(spec(0).contains("uverbs1") && !spec(0).contains("uverbs0"), "{}", spec(0));
    prepare(&mut client, &["nic-1"]).await;
    assert!(spec(1).contains("uverbs0") && !spec(1).contains("uverbs1"), "{}", spec(1));

    // The NIC has no driver. No container may get the numbers that it had.
    fs::remove_file(root.join("sys/class/infiniband_verbs/uverbs1")).unwrap();
    fs::remove_file(root.join("sys/class/infiniband_mad/umad0")).unwrap();
    let lost = prepare(&mut client, &["nic-0"]).await;
    let error = &lost.claims["uid-nic-0"].error;
    assert!(error.contains("device `pci-0101-00-00-0` has no RDMA device now"), "{error}");
    assert_eq!(spec(0), "");
    assert_eq!(unprepare(&mut client, "nic-0").await, "");
    bench.end().await.unwrap();
}

/// The kubelet has lost its state, and the claim's object is gone. Without an interface no sandbox is
/// known, so the driver waits before it gives the NIC to another claim.
#[tokio::test]
async fn a_nic_of_an_abandoned_claim_is_free_again() {
    let folder = tempfile::tempdir().unwrap();
    fixture::plant(fixture::machine("azure-gb300").unwrap(), &folder.path().join("root")).unwrap();
    plant_characters(&folder.path().join("root"));
    let node = Arc::new(Bench::node(&folder));
    let client = Client::new(Router::new().fallback(claims), "default");
    let preparer = Preparer::new(client, NODE, Arc::clone(&node));
    let claim = |name: &str| ClaimRef {
        namespace: "team".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    };
    preparer.prepare(&claim("both")).await.unwrap();
    let mut checkpoint = Checkpoint::peek(&paths(&folder).checkpoint()).unwrap();
    let mut record = checkpoint.claims.remove("uid-both").unwrap();
    record.plan.claim = claim("absent");
    let uid = record.plan.claim.uid.clone();
    checkpoint.claims.insert(uid, record);
    checkpoint.store(&paths(&folder).checkpoint()).unwrap();

    let now = Instant::now();
    assert_eq!(node.without_sandbox().unwrap(), [claim("absent")]);
    let error = preparer.prepare(&claim("nic-0")).await.unwrap_err();
    assert_eq!(error.holder(), Some(&claim("absent")));
    assert!(!node.undo_abandoned(&claim("absent"), now).unwrap());
    assert!(node.undo_abandoned(&claim("absent"), now + Duration::from_mins(6)).unwrap());
    preparer.prepare(&claim("nic-0")).await.unwrap();
}

/// The driver has seen that its object is gone before the kubelet unprepares it, as of a pod that was
/// deleted by force.
#[tokio::test]
async fn nothing_is_remembered_of_a_claim_that_is_unprepared() {
    let folder = tempfile::tempdir().unwrap();
    fixture::plant(fixture::machine("azure-gb300").unwrap(), &folder.path().join("root")).unwrap();
    plant_characters(&folder.path().join("root"));
    let node = Arc::new(Bench::node(&folder));
    let client = Client::new(Router::new().fallback(claims), "default");
    let preparer = Preparer::new(client, NODE, Arc::clone(&node));
    let [namespace, name, uid] = ["team", "both", "uid-both"].map(str::to_owned);
    let claim = ClaimRef { namespace, name, uid };
    preparer.prepare(&claim).await.unwrap();
    assert!(!node.undo_abandoned(&claim, Instant::now()).unwrap());
    preparer.unprepare(&claim).await.unwrap();
    assert_eq!(format!("{:?}", node.abandoned), format!("{:?}", Abandoned::default()));
}

/// As during a rolling update of a DaemonSet with `maxSurge`.
#[tokio::test]
async fn two_instances_serve_side_by_side() {
    let old = Bench::start(Some("old")).await;
    let paths = old.paths();
    let client = async |name: &str| ClientV1::new(old.channel(paths.plugin().join(name)).await);
    let mut through_old = client("dra-old.sock").await;
    let answer = prepare(&mut through_old, &["nic-0"]).await;

    let (task, stop, _health, _) = Bench::run(&old.folder, Some("new"));
    old.appears("dra.net-new-reg.sock").await;
    assert_eq!(files(&paths.registry()), ["dra.net-new-reg.sock", "dra.net-old-reg.sock"]);
    let mut through_new = client("dra-new.sock").await;
    // Both instances share one state.
    let again = prepare(&mut through_new, &["nic-0"]).await;
    assert_eq!(again.claims["uid-nic-0"], answer.claims["uid-nic-0"]);
    prepare(&mut through_new, &["nic-1"]).await;
    let refused = prepare(&mut through_old, &["both"]).await;
    assert!(refused.claims["uid-both"].error.contains("is held by"), "{refused:?}");
    let both =
        tokio::join!(prepare(&mut through_old, &["nic-2"]), prepare(&mut through_new, &["nic-3"]));
    assert_eq!(
        [&both.0.claims["uid-nic-2"].error, &both.1.claims["uid-nic-3"].error],
        ["", ""],
        "at the same time"
    );

    let Bench { folder: _folder, stop: stop_old, task: old_task, health: _, readiness: _ } = old;
    stop_old.cancel();
    old_task.await.unwrap().unwrap();
    assert_eq!(files(&paths.registry()), ["dra.net-new-reg.sock"]);
    assert!(paths.namespaces_socket().exists(), "the new instance answers hooks");
    for name in ["nic-0", "nic-1", "nic-2", "nic-3"] {
        assert_eq!(unprepare(&mut through_new, name).await, "");
    }
    assert_eq!(files(&paths.cdi), [""; 0]);
    stop.cancel();
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn sockets_of_killed_instances_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let paths = paths(&folder);
    let dead = |folder: &Path, name: &str| {
        fs::create_dir_all(folder).unwrap();
        drop(UnixListener::bind(folder.join(name)).unwrap());
    };
    dead(&paths.registry(), "dra.net-killed-reg.sock");
    dead(&paths.registry(), "gpu.example.com-reg.sock");
    dead(&paths.plugin(), "dra-killed.sock");
    dead(&paths.run, "probe-killed.sock");
    let (task, stop, _health, _) = Bench::run(&folder, Some("new"));
    let there = async {
        while !paths.registry().join("dra.net-new-reg.sock").exists() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), there).await.unwrap();
    let sockets = ["dra.net-new-reg.sock", "gpu.example.com-reg.sock"];
    assert_eq!(files(&paths.registry()), sockets, "sockets of other drivers stay");
    assert!(!files(&paths.plugin()).contains(&"dra-killed.sock".to_owned()));
    assert!(!files(&paths.run).contains(&"probe-killed.sock".to_owned()));
    stop.cancel();
    task.await.unwrap().unwrap();
}
