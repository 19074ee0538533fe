//! The driver starts before its API server: it waits and says so, serves the kubelet and
//! the operator, and publishes as soon as the server is there.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "../src/fake_server.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod fake_server;

use fake_server::{FakeServer, SLICES};
use node_driver::kubelet::wire::registration_v1::RegistrationStatus;
use node_driver::kubelet::wire::registration_v1::registration_client::RegistrationClient;
use serde_json::json;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::{interval, timeout};
use tonic::transport::Endpoint;
use topology_graph::fixture::{machine, plant};

const NODE: &str = "n1";
/// Longest wait for an expected event, on a busy machine.
const SOON: Duration = Duration::from_mins(1);

/// A socket that refuses connections until it listens.
fn refusing() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    socket
}

/// An address that was free a moment ago.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn kubeconfig(server: SocketAddr) -> String {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "users": [{"name": "it", "user": {}}],
        "clusters": [{"name": "it", "cluster": {"server": format!("http://{server}")}}],
    });
    config.to_string()
}

/// The running program, on a machine made of files.
struct Driver {
    child: Child,
    log: Lines<BufReader<ChildStderr>>,
}

impl Driver {
    fn start(folder: &Path, server: SocketAddr, operations: SocketAddr) -> Self {
        let (root, config) = (folder.join("host"), folder.join("kubeconfig"));
        plant(machine("azure-gb300").unwrap(), &root).unwrap();
        fs::write(&config, kubeconfig(server)).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_node-driver"))
            .args(["--node-name", NODE, "--cloud", "none"])
            .args(["--log", "info,serve::readiness=debug", "--root"])
            .arg(root)
            .arg("--kubeconfig")
            .arg(config)
            .arg("--kubelet-dir")
            .arg(folder.join("kubelet"))
            .arg("--cdi-dir")
            .arg(folder.join("cdi"))
            .arg("--run-dir")
            .arg(folder.join("run"))
            .args(["--operations-listen", &operations.to_string()])
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, log }
    }

    /// Waits for a log line with this text.
    async fn says(&mut self, text: &str) {
        let mut seen = Vec::new();
        let said = async {
            while let Some(line) = self.log.next_line().await.unwrap() {
                if line.contains(text) {
                    return true;
                }
                seen.push(line);
            }
            false
        };
        let said = timeout(SOON, said).await;
        assert!(matches!(said, Ok(true)), "`{text}` was not logged, but {seen:#?}");
    }
}

/// Waits until a file exists.
async fn created(path: &Path) {
    let mut tick = interval(Duration::from_millis(10));
    while !path.exists() {
        tick.tick().await;
    }
}

/// The answer of the readiness endpoint.
async fn ready(operations: SocketAddr) -> String {
    let mut stream = TcpStream::connect(operations).await.unwrap();
    let question = b"GET /readyz HTTP/1.1\r\nHost: it\r\nConnection: close\r\n\r\n";
    stream.write_all(question).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_driver_waits_for_its_api_server() {
    // A short path, because socket paths are limited to 107 bytes.
    let folder = tempfile::Builder::new().prefix("a").tempdir_in("/tmp").unwrap();
    let (socket, operations) = (refusing(), free());
    let server = FakeServer::with_node(NODE);
    let mut driver = Driver::start(folder.path(), socket.local_addr().unwrap(), operations);
    driver.says("API server not reached").await;
    // It logs a second time, so it keeps trying.
    driver.says("API server not reached").await;
    assert!(driver.child.try_wait().unwrap().is_none(), "it keeps running");
    let registration = folder.path().join("kubelet/plugins_registry/dra.net-reg.sock");
    let is_there = timeout(SOON, created(&registration)).await;
    assert!(is_there.is_ok(), "the kubelet is served");
    let answer = ready(operations).await;
    assert!(answer.contains(" 503 ") && answer.contains("the first publication"), "{answer}");

    let listener = socket.listen(16).unwrap();
    let router = server.router();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let published = server.until(SLICES, |slices| slices.len() == 1);
    timeout(SOON, published).await.unwrap();
    // The log lists this condition when it is met.
    driver.says("the first publication").await;
    let answer = ready(operations).await;
    assert!(answer.contains("waiting for the registration with the kubelet"), "{answer}");
    register(&registration).await;
    driver.says("the registration with the kubelet").await;
    let answer = ready(operations).await;
    assert!(answer.contains(" 200 "), "{answer}");
}

/// Registers the plugin as the kubelet does.
async fn register(socket: &Path) {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    let mut client = RegistrationClient::new(endpoint.connect().await.unwrap());
    let status = RegistrationStatus { plugin_registered: true, error: String::new() };
    client.notify_registration_status(status).await.unwrap();
}

#[tokio::test]
async fn an_unknown_node_ends_the_driver() {
    let folder = tempfile::Builder::new().prefix("a").tempdir_in("/tmp").unwrap();
    let socket = refusing();
    let address = socket.local_addr().unwrap();
    let listener = socket.listen(16).unwrap();
    let router = FakeServer::with_node("another").router();
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let mut driver = Driver::start(folder.path(), address, free());
    driver.says("the cluster has no node `n1`").await;
    let status = timeout(SOON, driver.child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(1));
}
