//! The parts of the kubelet and the container runtime, run by the test: gRPC over the plugin's own
//! socket, named network namespaces as sandboxes, and the hook in the CDI spec. Everything else is
//! real. The whole life of a claim then takes a moment instead of seconds, so that tests can repeat
//! it many times.

use std::{
    fmt,
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
    sync::mpsc,
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::Api;
use node_driver::{
    kubelet::wire::dra_v1::{Claim, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest},
    runtime::nri::wire::nri::{LinuxNamespace, LinuxPodSandbox, PodSandbox},
};
use rustix::{
    fd::AsFd,
    thread::{LinkNameSpaceType, gettid, move_into_link_name_space},
};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};

use crate::{
    Scope,
    node::{Machine, links::shell, pods},
};

/// The longest time for the driver to listen, or to end.
pub const SOON: Duration = Duration::from_mins(1);

/// The directory where `ip netns` keeps its names, and the container runtime those of its pods.
pub(super) const NAMED: &str = "/run/netns";

/// The result of a call.
#[derive(Debug)]
pub enum Call<T> {
    /// The call succeeded.
    Done(T),
    /// The driver refused, with this error.
    Refused(String),
    /// The driver ended during the call, or was not running.
    Lost,
}

impl<T: fmt::Debug> Call<T> {
    /// The result of a call that must succeed.
    pub fn done(self) -> anyhow::Result<T> {
        match self {
            Self::Done(value) => Ok(value),
            Self::Refused(error) => anyhow::bail!("refused: {error}"),
            Self::Lost => anyhow::bail!("the driver did not answer"),
        }
    }

    /// The error of a call that must be refused.
    pub fn refused(self) -> anyhow::Result<String> {
        match self {
            Self::Refused(error) => Ok(error),
            other => anyhow::bail!("not refused: {other:?}"),
        }
    }
}

/// Creates a claim that is allocated to one device.
pub async fn claim(
    scope: &Scope,
    name: &str,
    [node, device]: [&str; 2],
    parameters: Option<Value>,
) -> anyhow::Result<Claim> {
    pods::allocated_claim(scope, name, node, device, parameters).await?;
    reference(scope, name).await
}

/// Creates a claim that is allocated to several devices.
pub async fn claim_of(
    scope: &Scope,
    name: &str,
    node: &str,
    devices: &[&str],
) -> anyhow::Result<Claim> {
    pods::allocated_devices(scope, name, node, devices, None).await?;
    reference(scope, name).await
}

/// Creates a claim that is allocated to a share of a device.
pub async fn share(
    scope: &Scope,
    name: &str,
    place: [&str; 3],
    parameters: Value,
) -> anyhow::Result<Claim> {
    pods::allocated_share(scope, name, place, Some(parameters)).await?;
    reference(scope, name).await
}

/// The claim in the kubelet's form.
pub async fn reference(scope: &Scope, name: &str) -> anyhow::Result<Claim> {
    let claims: Api<ResourceClaim> = scope.api();
    let uid = claims.get(name).await?.metadata.uid.context("a claim has a UID")?;
    Ok(Claim { namespace: scope.namespace().to_owned(), name: name.to_owned(), uid })
}

/// Prepares a claim as the kubelet does. `Done` has the CDI names.
pub async fn prepare(machine: &Machine, claim: &Claim) -> Call<Vec<String>> {
    let Ok(mut plugin) = machine.connect().await else { return Call::Lost };
    let request = NodePrepareResourcesRequest { claims: vec![claim.clone()] };
    let Ok(answer) = plugin.node_prepare_resources(request).await else { return Call::Lost };
    match answer.into_inner().claims.remove(&claim.uid) {
        Some(answer) if answer.error.is_empty() => {
            Call::Done(answer.devices.into_iter().flat_map(|it| it.cdi_device_ids).collect())
        }
        Some(answer) => Call::Refused(answer.error),
        None => Call::Refused("the claim is not in the answer".to_owned()),
    }
}

/// Unprepares a claim as the kubelet does.
pub async fn unprepare(machine: &Machine, claim: &Claim) -> Call<()> {
    let Ok(mut plugin) = machine.connect().await else { return Call::Lost };
    let request = NodeUnprepareResourcesRequest { claims: vec![claim.clone()] };
    let Ok(answer) = plugin.node_unprepare_resources(request).await else { return Call::Lost };
    match answer.into_inner().claims.remove(&claim.uid) {
        Some(answer) if answer.error.is_empty() => Call::Done(()),
        Some(answer) => Call::Refused(answer.error),
        None => Call::Refused("the claim is not in the answer".to_owned()),
    }
}

/// A pod's network namespace, with a thread in it that acts as its processes.
#[derive(Debug)]
pub struct Sandbox {
    name: String,
    thread: u32,
    stay: Option<mpsc::Sender<()>>,
    inside: Option<JoinHandle<()>>,
}

impl Sandbox {
    /// Creates the namespace.
    pub fn open(name: &str) -> anyhow::Result<Self> {
        shell(&format!("ip netns add {name}"))?;
        let namespace = File::open(Path::new(NAMED).join(name))?;
        let (entered, enter) = mpsc::channel();
        let (stay, stop) = mpsc::channel::<()>();
        let inside = thread::spawn(move || {
            let network = Some(LinkNameSpaceType::Network);
            let moved = move_into_link_name_space(namespace.as_fd(), network);
            let _ = entered.send(moved.map(|()| gettid()));
            // Ends when the sender is dropped.
            let _ = stop.recv();
        });
        let thread = enter.recv()??.as_raw_nonzero().get().unsigned_abs();
        Ok(Self { name: name.to_owned(), thread, stay: Some(stay), inside: Some(inside) })
    }

    /// The sandbox of a pod as the container runtime describes it by NRI.
    pub fn of_pod(&self, pod: &Pod) -> PodSandbox {
        let Pod { metadata, .. } = pod.clone();
        let path = Path::new(NAMED).join(&self.name).display().to_string();
        let network = LinuxNamespace { r#type: "network".to_owned(), path };
        PodSandbox {
            id: self.name.clone(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            namespace: metadata.namespace.unwrap_or_default(),
            linux: Some(LinuxPodSandbox { namespaces: vec![network] }),
            pid: self.thread,
        }
    }

    /// The names and addresses of its interfaces, as text.
    pub fn addresses(&self) -> anyhow::Result<String> {
        shell(&format!("ip -n {} -o addr", self.name))
    }

    /// Runs an `ip` command in it.
    pub fn ip(&self, line: &str) -> anyhow::Result<String> {
        shell(&format!("ip -n {} {line}", self.name))
    }

    /// Runs a command in it.
    pub fn run(&self, line: &str) -> anyhow::Result<String> {
        shell(&format!("ip netns exec {} {line}", self.name))
    }

    /// Returns true if a host at this address responds to a process in it.
    pub fn reaches(&self, address: &str) -> bool {
        self.run(&format!("busybox ping -c 1 -W 5 {address}")).is_ok()
    }

    /// Removes it, as a runtime does before the kubelet unprepares a claim.
    pub fn close(mut self) -> anyhow::Result<()> {
        self.end()
    }

    fn end(&mut self) -> anyhow::Result<()> {
        self.stay = None;
        let Some(inside) = self.inside.take() else { return Ok(()) };
        inside.join().ok().context("the thread in the namespace panicked")?;
        shell(&format!("ip netns del {}", self.name)).map(drop)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The test has failed already; its error is the one to report.
        let _ = self.end();
    }
}

/// The result of a hook.
#[derive(Debug, PartialEq, Eq)]
pub enum Hook {
    /// It succeeded.
    Attached,
    /// It failed with this output.
    Failed(String),
    /// It was killed.
    Killed,
}

/// Starts a container, which must succeed.
pub async fn starts(machine: &Machine, claim: &Claim, sandbox: &Sandbox) -> anyhow::Result<()> {
    let started = start_container(machine, claim, sandbox, None).await?;
    anyhow::ensure!(started == Hook::Attached, "{}: {started:?}", claim.name);
    Ok(())
}

/// Starts a container, which must fail; returns the hook's output.
pub async fn fails_to_start(
    machine: &Machine,
    claim: &Claim,
    sandbox: &Sandbox,
) -> anyhow::Result<String> {
    match start_container(machine, claim, sandbox, None).await? {
        Hook::Failed(error) => Ok(error),
        other => anyhow::bail!("{}: {other:?}", claim.name),
    }
}

/// Starts a container of the sandbox as the runtime does: with the hook of the claim's CDI spec. If
/// a time is given, the hook is killed after it.
pub async fn start_container(
    machine: &Machine,
    claim: &Claim,
    sandbox: &Sandbox,
    killed_after: Option<Duration>,
) -> anyhow::Result<Hook> {
    let (path, arguments) = hook_of(machine, claim)?;
    let mut hook = Command::new(path)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("failed to start the hook")?;
    let state = json!({"ociVersion": "1.2.0", "pid": sandbox.thread, "status": "creating"});
    let mut stdin = hook.stdin.take().context("it is piped")?;
    stdin.write_all(state.to_string().as_bytes()).await?;
    drop(stdin);
    let ended = match killed_after {
        Some(time) => {
            let Ok(status) = timeout(time, hook.wait()).await else {
                hook.kill().await?;
                return Ok(Hook::Killed);
            };
            status?
        }
        None => timeout(SOON, hook.wait()).await.context("the hook does not end")??,
    };
    if ended.success() {
        return Ok(Hook::Attached);
    }
    let output = hook.wait_with_output().await?;
    Ok(Hook::Failed(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// The program and its arguments; the first argument is the program's own name.
fn hook_of(machine: &Machine, claim: &Claim) -> anyhow::Result<(PathBuf, Vec<String>)> {
    let path = machine.cdi_spec(&claim.uid);
    let text = fs::read(&path).with_context(|| format!("failed to read `{}`", path.display()))?;
    let spec: Value = serde_json::from_slice(&text)?;
    let hook = &spec["containerEdits"]["hooks"][0];
    anyhow::ensure!(hook["hookName"] == "createRuntime", "no hook in {spec:#}");
    let words = hook["args"].as_array().context("arguments")?.iter().skip(1);
    let words = words.filter_map(|word| word.as_str().map(str::to_owned)).collect();
    Ok((hook["path"].as_str().context("a path")?.into(), words))
}
