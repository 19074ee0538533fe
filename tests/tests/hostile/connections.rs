//! Idle connections, half requests and unfinished bodies, ten thousand at a time, to each port of
//! each program. Meanwhile the program does its work and stays within its memory.

use std::{
    io::Write as _,
    net::{self, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::{Api, Client, ResourceExt, api::ListParams};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::{ClientConfig, ClientConnection as Tls, RootCertStore, pki_types::ServerName};
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, binaries, eventually, figures,
    installation::{Installation, Webhook, gb300_machine, review},
    ports,
    suite::Test,
    with_scope,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const SOON: Duration = Duration::from_mins(1);
/// Connections to each port.
const CONNECTIONS: usize = 10_000;
/// Unfinished bodies to each port that takes bodies.
const BODIES: usize = 500;
/// The number of parallel connection attempts.
const TOGETHER: usize = 128;
/// Requests whose time is measured.
const MEASURED: usize = 100;
/// The kubelet waits one second; this machine may be busy.
const PROBE: Duration = Duration::from_secs(3);
const MIB: u64 = 1 << 20;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::attempts![
        idle_connections_and_slow_bodies_do_not_stop_the_webhook,
        idle_connections_do_not_stop_the_fabric_controller,
        idle_connections_and_slow_bodies_do_not_stop_the_extender,
        idle_connections_do_not_stop_the_driver,
    ];
    all.into_iter().map(Test::alone).collect()
}

async fn idle_connections_and_slow_bodies_do_not_stop_the_webhook(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        installation.start_admission().await?;
        let webhook = installation.webhook().await?;
        let client = webhook.client()?;
        // As kube-apiserver, which has its connection.
        measure(&client, scope.namespace()).await?;
        let operations = loopback(installation.replicas()[0].operations);
        let address = webhook.url.trim_start_matches("https://").parse()?;
        let flood = Flood::new(&[address, operations]).await?;
        let slow = unfinished_reviews(webhook.clone()).await?;
        let took = measure(&client, scope.namespace()).await?;
        let new = measure(&webhook.client()?, scope.namespace()).await?;
        healthy(operations).await?;
        let memory = within(webhook.pid(), 512)?;
        drop((flood, slow));
        anyhow::ensure!(took.max(new) < longest(), "{took:?}, new connections {new:?}");
        Ok(format!(
            "99 of 100 reviews within {took:.0?} ({new:.0?} on new connections), health ok, {memory} MiB"
        ))
    })
    .await
}

async fn idle_connections_do_not_stop_the_fabric_controller(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.start_fabric_controllers(1, &[]).await?;
        let controller = &installation.fabric_controllers()[0];
        let operations = loopback(controller.operations());
        let flood = Flood::new(&[operations]).await?;
        healthy(operations).await?;
        let memory = within(controller.process().pid(), 512)?;
        drop(flood);
        Ok(format!("health ok, {memory} MiB"))
    })
    .await
}

async fn idle_connections_and_slow_bodies_do_not_stop_the_extender(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        let address = installation.start_plain_extender(&[]).await?;
        let extender = installation.extender()?;
        let operations = loopback(extender.operations());
        let flood = Flood::new(&[address, operations]).await?;
        let slow = unfinished_requests(address, "/prioritize").await?;
        let args = json!({"Pod": {"metadata": {"name": "p"}, "spec": {"containers": []}}, "NodeNames": []});
        let mut took = Vec::new();
        for _ in 0..MEASURED {
            let begin = Instant::now();
            extender.prioritize(&args).await?;
            took.push(begin.elapsed());
        }
        let took = p99(took)?;
        healthy(operations).await?;
        let memory = within(extender.process().pid(), 512)?;
        drop((flood, slow));
        anyhow::ensure!(took < longest(), "{took:?}");
        Ok(format!("99 of 100 requests within {took:.0?}, health ok, {memory} MiB"))
    })
    .await
}

async fn idle_connections_do_not_stop_the_driver(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<String> {
    with_scope(plane.client(), async |scope| {
        let installation = Installation::install(&plane, scope).await?;
        let node = scope.node("flooded").await?.name_any();
        let kubeconfig = installation.node_kubeconfig("node-driver", &node).await?;
        let machine = gb300_machine(&node)?;
        let operations = loopback(ports::free()?);
        let driver = plane
            .program("node-driver")?
            .named("driver-flooded")
            .args(["--node-name", &node, "--cloud", "none", "--rescan-seconds", "1"])
            .args(["--root".into(), machine.path().display().to_string()])
            .args([format!("--operations-listen={operations}")])
            .args([format!("--kubeconfig={}", kubeconfig.display())])
            .spawn()?;
        let tainted = async || {
            let own = ListParams::default().fields(&format!("spec.nodeName={node}"));
            let slices = Api::<ResourceSlice>::all(plane.client()).list(&own).await?.items;
            let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
            let tainted = devices.clone().filter(|device| device.taints.is_some()).count();
            anyhow::Ok((devices.count(), tainted))
        };
        eventually(SOON, async || {
            let (all, tainted) = tainted().await?;
            Ok(Check::that(all > 0 && tainted == 0, || format!("{all} NICs, {tainted} tainted")))
        })
        .await?;
        let flood = Flood::new(&[operations]).await?;
        // A change of the machine is published.
        let state = machine.path().join("sys/class/infiniband/mlx5_0/ports/1/state");
        std::fs::write(state, "1: DOWN\n")?;
        eventually(SOON, async || {
            let (_, tainted) = tainted().await?;
            Ok(Check::that(tainted > 0, || "no NIC is tainted".into()))
        })
        .await?;
        healthy(operations).await?;
        let memory = within(driver.pid(), 128)?;
        drop(flood);
        Ok(format!("published that a port is down, health ok, {memory} MiB"))
    })
    .await
}

/// Connections of which every second sends half a request.
struct Flood {
    _sockets: Vec<TcpStream>,
}

impl Flood {
    async fn new(addresses: &[SocketAddr]) -> anyhow::Result<Self> {
        let files = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files })?;
        let all = addresses.iter().flat_map(|address| {
            (0..CONNECTIONS / addresses.len()).map(move |number| (*address, number % 2 == 0))
        });
        let connect = async |(address, is_half): (SocketAddr, bool)| {
            let mut socket = TcpStream::connect(address).await?;
            if is_half {
                // It may be closed already.
                let _ = socket.write_all(b"POST /mutate HTTP/1.1\r\nhost: a\r\ncontent-le").await;
            }
            anyhow::Ok(socket)
        };
        let sockets = stream::iter(all).map(connect).buffer_unordered(TOGETHER).try_collect();
        Ok(Self { _sockets: sockets.await? })
    }
}

/// A request whose body never ends.
fn unfinished(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
         content-length: 1000000\r\n\r\n{{\"a\":"
    )
}

/// Such requests over TLS. They are open until this is dropped.
async fn unfinished_reviews(webhook: Webhook) -> anyhow::Result<Vec<(Tls, net::TcpStream)>> {
    let open = move || (0..BODIES).map(|_| unfinished_review(&webhook)).collect();
    tokio::task::spawn_blocking(open).await?
}

fn unfinished_review(webhook: &Webhook) -> anyhow::Result<(Tls, net::TcpStream)> {
    let mut roots = RootCertStore::empty();
    roots.add(webhook.authority.clone().into())?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from(webhook.name.clone())?;
    let mut tls = Tls::new(Arc::new(config), name)?;
    let mut socket = net::TcpStream::connect(webhook.url.trim_start_matches("https://"))?;
    rustls::Stream::new(&mut tls, &mut socket).write_all(unfinished("/mutate").as_bytes())?;
    Ok((tls, socket))
}

/// Such requests to a plain port.
async fn unfinished_requests(address: SocketAddr, path: &str) -> anyhow::Result<Vec<TcpStream>> {
    let text = unfinished(path);
    let mut open = Vec::new();
    for _ in 0..BODIES {
        let mut socket = TcpStream::connect(address).await?;
        // It may be closed already.
        let _ = socket.write_all(text.as_bytes()).await;
        open.push(socket);
    }
    Ok(open)
}

/// The time in which 99 of 100 reviews are answered.
pub(super) async fn measure(webhook: &Client, namespace: &str) -> anyhow::Result<Duration> {
    let pod = json!({
        "metadata": {"name": "p", "annotations": {"dranet.io/aligned-nics": "2"}},
        "spec": {"containers": [
            {"name": "nccl", "image": "nccl", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
        ]},
    });
    let mut took = Vec::new();
    for _ in 0..MEASURED {
        let body = serde_json::to_vec(&review(namespace, pod.clone()))?;
        let request = Request::post("/mutate").header("content-type", "application/json");
        let begin = Instant::now();
        let answer: Value = webhook.request(request.body(body)?).await?;
        took.push(begin.elapsed());
        anyhow::ensure!(answer["response"]["allowed"] == true, "{answer}");
    }
    p99(took)
}

/// The longest time of 99 of 100 answers. Programs of development are not optimised, and other work
/// may run beside the suite.
pub(super) fn longest() -> Duration {
    Duration::from_millis(if binaries::are_shipped() { 50 } else { 1_000 })
}

fn p99(mut took: Vec<Duration>) -> anyhow::Result<Duration> {
    took.sort_unstable();
    let last = took.len() * 99 / 100;
    took.get(last.saturating_sub(1)).copied().context("nothing was measured")
}

pub(super) async fn healthy(operations: SocketAddr) -> anyhow::Result<()> {
    let ask = async {
        let mut socket = TcpStream::connect(operations).await?;
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        anyhow::ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Ok(())
    };
    tokio::time::timeout(PROBE, ask).await.context("no answer of /healthz")?
}

/// The most memory that the process has had, in MiB; fails if it is above the limit.
pub(super) fn within(pid: u32, limit: u64) -> anyhow::Result<u64> {
    let most = figures::memory(pid, "VmHWM")? / MIB;
    anyhow::ensure!(most < limit, "{most} MiB of {limit}");
    Ok(most)
}

pub(super) fn loopback(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}
