//! The four processes: their flags, their files, and their readiness.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use kube::{Client, Config};
use rcgen::KeyPair;
use serde_json::{Value, json};

use super::{kubeconfig, scheduler_config::SchedulerConfig};
use crate::{
    binaries,
    certificates::{Authority, Identity, write},
    ports,
    process::{Process, Program},
};

/// The common name of kube-apiserver's certificate for webhooks that ask for one.
pub const WEBHOOK_CLIENT: &str = "kube-apiserver-webhook-client";

/// The longest wait until a process is ready, on a busy machine.
const READY: Duration = Duration::from_secs(90);

/// The number of attempts if another process took the port.
const ATTEMPTS: usize = 3;

/// What the processes share: directories, certificates and addresses.
#[derive(Debug)]
pub(super) struct Site {
    directory: PathBuf,
    authority: Authority,
    serving: Identity,
    etcd_url: String,
    /// The ports of etcd for clients, peers and metrics.
    etcd_ports: [u16; 3],
    apiserver_url: String,
    feature_gates: Vec<String>,
    tokens: bool,
}

impl Site {
    /// Creates the directories, certificates and keys.
    pub(super) fn prepare(
        directory: &Path,
        feature_gates: Vec<String>,
        tokens: bool,
    ) -> anyhow::Result<Self> {
        let authority = Authority::generate()?;
        let serving = authority.issue("control-plane", directory)?;
        write(&directory.join("ca.crt"), &authority.pem())?;
        write(&directory.join("tokens"), &kubeconfig::token_file())?;
        let webhooks = authority.issue(WEBHOOK_CLIENT, directory)?;
        write(&directory.join("webhook-client"), &kubeconfig::webhook_client(&webhooks))?;
        let clients = kubeconfig::admission_control(&directory.join("webhook-client"));
        write(&directory.join("admission-control"), &clients)?;
        let service_accounts = KeyPair::generate()?;
        write(&directory.join("service-accounts.key"), &service_accounts.serialize_pem())?;
        write(&directory.join("service-accounts.pub"), &service_accounts.public_key_pem())?;
        let logs = directory.join("logs");
        fs::create_dir(&logs).with_context(|| format!("failed to make `{}`", logs.display()))?;
        Ok(Self {
            directory: directory.to_owned(),
            authority,
            serving,
            etcd_url: String::new(),
            etcd_ports: [0; 3],
            apiserver_url: String::new(),
            feature_gates,
            tokens,
        })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    pub(super) fn apiserver_url(&self) -> &str {
        &self.apiserver_url
    }

    pub(super) async fn etcd(&mut self) -> anyhow::Result<Process> {
        let used = Cell::new([0; 3]);
        let (process, port) = on_free_port(async |port| {
            used.set([port, ports::free()?, ports::free()?]);
            self.etcd_program(used.get())
        })
        .await?;
        self.etcd_ports = used.get();
        self.etcd_url = format!("https://127.0.0.1:{port}");
        Ok(process)
    }

    /// Restarts etcd at its former address, with its data.
    pub(super) async fn etcd_again(&self) -> anyhow::Result<Process> {
        let (program, health) = self.etcd_program(self.etcd_ports)?;
        let process = program.spawn()?;
        process.wait_until_ready(&health, READY).await?;
        Ok(process)
    }

    /// Removes all revisions before the current one.
    pub(super) async fn compact_etcd(&self) -> anyhow::Result<()> {
        let mut config = Config::new(self.etcd_url.parse()?);
        config.root_cert = Some(vec![self.authority.der()]);
        config.auth_info.client_certificate = Some(self.serving.certificate.display().to_string());
        config.auth_info.client_key = Some(self.serving.key.display().to_string());
        let client = Client::try_from(config)?;
        // What etcd's gRPC gateway makes of `etcdserverpb.KV`: 64-bit numbers are strings, and keys are in base 64.
        let range = etcd_request("range", &json!({"key": "AA==", "limit": "1"}))?;
        let answer: Value = client.request(range).await?;
        let revision = answer["header"]["revision"].as_str().context("etcd has a revision")?;
        let compaction =
            etcd_request("compaction", &json!({"revision": revision, "physical": true}))?;
        client.request::<Value>(compaction).await?;
        Ok(())
    }

    /// The program with its ports for clients, peers and metrics, and its health URL.
    fn etcd_program(&self, ports: [u16; 3]) -> anyhow::Result<(Program, String)> {
        let [client, peer, metrics] = ports;
        let client = format!("https://127.0.0.1:{client}");
        let [peer, metrics] = [peer, metrics].map(|port| format!("http://127.0.0.1:{port}"));
        let program = Program::new(binaries::kubernetes("etcd")?, self.logs()).args([
            format!("--data-dir={}", self.file("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-metrics-urls={metrics}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            format!("--cert-file={}", self.serving.certificate.display()),
            format!("--key-file={}", self.serving.key.display()),
            format!("--trusted-ca-file={}", self.file("ca.crt")),
            "--client-cert-auth".into(),
            "--unsafe-no-fsync".into(),
        ]);
        Ok((program, format!("{metrics}/readyz")))
    }

    pub(super) async fn apiserver(&mut self, more: &[String]) -> anyhow::Result<Process> {
        let (process, port) = on_free_port(async |port| self.apiserver_program(port, more)).await?;
        self.apiserver_url = format!("https://127.0.0.1:{port}");
        let kubeconfig = kubeconfig::kubeconfig(&self.apiserver_url, &self.authority.pem());
        write(&self.kubeconfig(), &format!("{kubeconfig:#}\n"))?;
        Ok(process)
    }

    /// Restarts kube-apiserver at its former address.
    pub(super) async fn apiserver_again(&self, more: &[String]) -> anyhow::Result<Process> {
        let (_, port) = self.apiserver_url.rsplit_once(':').context("it was started before")?;
        let (program, health) = self.apiserver_program(port.parse()?, more)?;
        let process = program.spawn()?;
        process.wait_until_ready(&health, READY).await?;
        Ok(process)
    }

    /// The program and its health URL.
    fn apiserver_program(&self, port: u16, more: &[String]) -> anyhow::Result<(Program, String)> {
        let without_tokens = if self.tokens { "" } else { "ServiceAccount," };
        let program = Program::new(binaries::kubernetes("kube-apiserver")?, self.logs())
            .args([
                format!("--etcd-servers={}", self.etcd_url),
                format!("--etcd-cafile={}", self.file("ca.crt")),
                format!("--etcd-certfile={}", self.serving.certificate.display()),
                format!("--etcd-keyfile={}", self.serving.key.display()),
                format!("--token-auth-file={}", self.file("tokens")),
                format!("--admission-control-config-file={}", self.file("admission-control")),
                format!("--service-account-key-file={}", self.file("service-accounts.pub")),
                format!("--service-account-signing-key-file={}", self.file("service-accounts.key")),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                // As kubeadm sets it: the container of a vendor's driver is privileged.
                "--allow-privileged=true".into(),
                "--service-cluster-ip-range=10.96.0.0/16".into(),
                "--authorization-mode=Node,RBAC".into(),
                format!("--disable-admission-plugins={without_tokens}TaintNodesByCondition"),
                // The address is only used to advertise it.
                "--advertise-address=127.0.0.1".into(),
                "--endpoint-reconciler-type=none".into(),
                // Calls webhooks at their endpoints, since nothing here routes the addresses of
                // Services.
                "--enable-aggregator-routing=true".into(),
            ])
            .args(self.secure_serving(port))
            .args(self.gates())
            .args(more.iter().cloned());
        Ok((program, format!("https://127.0.0.1:{port}/readyz")))
    }

    /// The process and its health URL.
    pub(super) async fn controller_manager(&self) -> anyhow::Result<(Process, String)> {
        let (process, port) = on_free_port(async |port| {
            let binary = binaries::kubernetes("kube-controller-manager")?;
            let program = Program::new(binary, self.logs())
                .args([
                    "--leader-elect=false".into(),
                    "--controllers=*,-node-lifecycle-controller".into(),
                    "--kube-api-qps=1000".into(),
                    "--kube-api-burst=2000".into(),
                    format!(
                        "--service-account-private-key-file={}",
                        self.file("service-accounts.key")
                    ),
                    format!("--root-ca-file={}", self.file("ca.crt")),
                    format!("--kubeconfig={}", self.file("kubeconfig")),
                ])
                .args(self.secure_serving(port))
                .args(self.gates())
                .args(self.delegated_authentication());
            Ok((program, format!("https://127.0.0.1:{port}/healthz")))
        })
        .await?;
        Ok((process, format!("https://127.0.0.1:{port}/healthz")))
    }

    pub(super) async fn scheduler(&self, config: &SchedulerConfig) -> anyhow::Result<Process> {
        let file = self.directory.join("scheduler.yaml");
        write(&file, &format!("{:#}\n", config.render(&self.kubeconfig())))?;
        let (process, _) = on_free_port(async |port| {
            let program = Program::new(binaries::kubernetes("kube-scheduler")?, self.logs())
                .args([format!("--config={}", file.display()), "-v=2".into()])
                .args(self.secure_serving(port))
                .args(self.gates())
                .args(self.delegated_authentication());
            Ok((program, format!("https://127.0.0.1:{port}/readyz")))
        })
        .await?;
        Ok(process)
    }

    /// The flag for feature gates, if any are set.
    fn gates(&self) -> Option<String> {
        let gates = self.feature_gates.join(",");
        (!gates.is_empty()).then(|| format!("--feature-gates={gates}"))
    }

    fn secure_serving(&self, port: u16) -> [String; 4] {
        [
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", self.serving.certificate.display()),
            format!("--tls-private-key-file={}", self.serving.key.display()),
        ]
    }

    /// Allows reading `/metrics` with the token of the kubeconfig.
    fn delegated_authentication(&self) -> [String; 2] {
        let kubeconfig = self.file("kubeconfig");
        [
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
        ]
    }

    fn file(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }
}

fn etcd_request(method: &str, body: &Value) -> anyhow::Result<http::Request<Vec<u8>>> {
    Ok(http::Request::post(format!("/v3/kv/{method}")).body(serde_json::to_vec(body)?)?)
}

/// Starts a program on a free port and waits until it is ready. Tries another port if another
/// process took this one first.
async fn on_free_port(
    program: impl AsyncFn(u16) -> anyhow::Result<(Program, String)>,
) -> anyhow::Result<(Process, u16)> {
    let mut attempt = 1;
    loop {
        let port = ports::free()?;
        let (program, url) = program(port).await?;
        let process = program.spawn()?;
        match process.wait_until_ready(&url, READY).await {
            Ok(()) => return Ok((process, port)),
            Err(_) if attempt < ATTEMPTS && lost_its_port(&process) => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

fn lost_its_port(process: &Process) -> bool {
    process.has_ended() && process.tail(50).contains("address already in use")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    /// Responds to every request with an empty success.
    async fn serve(listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        }
    }

    #[tokio::test]
    async fn only_a_lost_port_is_retried() {
        let logs = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let ready = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(serve(listener));
        let nowhere = "http://127.0.0.1:1/".to_owned();
        let cases = [
            ("echo bind: address already in use; exit 1", true, 2),
            ("echo a wrong flag; exit 1", false, 1),
        ];
        for (first, succeeds, expected) in cases {
            let attempts = Cell::new(0);
            let started = on_free_port(async |_| {
                attempts.set(attempts.get() + 1);
                let is_first = attempts.get() == 1;
                let script = if is_first { first } else { "exec sleep 1000" };
                let program = Program::new("/bin/sh", logs.path()).args(["-c", script]);
                Ok((program, if is_first { nowhere.clone() } else { ready.clone() }))
            })
            .await;
            assert_eq!((started.is_ok(), attempts.get()), (succeeds, expected), "{first}");
        }
    }
}
