//! The kubelet's and the container runtime's parts, played by the test: gRPC over
//! the plugin's own socket, named network namespaces as sandboxes, and the hook that
//! the CDI spec names. Everything else is real. A claim's whole life takes a moment
//! instead of seconds, so that it can be lived many times.

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
    kubelet::wire::dra_v1::{
        Claim, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest,
        dra_plugin_client::DraPluginClient,
    },
    runtime::nri::wire::nri::{LinuxNamespace, LinuxPodSandbox, PodSandbox},
};
use rustix::{
    fd::AsFd,
    thread::{LinkNameSpaceType, gettid, move_into_link_name_space},
};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, process::Command, time::timeout};
use tonic::transport::{Channel, Endpoint};

use crate::{
    Check, Scope, eventually,
    node::{Machine, links::shell, pods},
};

/// Longest that the driver may take to listen, or to end.
pub const SOON: Duration = Duration::from_mins(1);

/// Where `ip netns` keeps its names, and the container runtime those of its pods.
pub(super) const NAMED: &str = "/run/netns";

/// What came of a call.
#[derive(Debug)]
pub enum Call<T> {
    /// The driver did it.
    Done(T),
    /// It refused, in these words.
    Refused(String),
    /// It ended while it was at it, or was not there.
    Lost,
}

impl<T: fmt::Debug> Call<T> {
    /// What came of a call that must be done.
    pub fn done(self) -> anyhow::Result<T> {
        match self {
            Self::Done(value) => Ok(value),
            Self::Refused(error) => anyhow::bail!("refused: {error}"),
            Self::Lost => anyhow::bail!("the driver did not answer"),
        }
    }

    /// The words of a call that must be refused.
    pub fn refused(self) -> anyhow::Result<String> {
        match self {
            Self::Refused(error) => Ok(error),
            other => anyhow::bail!("not refused: {other:?}"),
        }
    }
}

/// A claim that is allocated to one device.
pub async fn claim(
    scope: &Scope,
    name: &str,
    [node, device]: [&str; 2],
    parameters: Option<Value>,
) -> anyhow::Result<Claim> {
    pods::allocated_claim(scope, name, node, device, parameters).await?;
    reference(scope, name).await
}

/// A claim that is allocated to several devices.
pub async fn claim_of(
    scope: &Scope,
    name: &str,
    node: &str,
    devices: &[&str],
) -> anyhow::Result<Claim> {
    pods::allocated_devices(scope, name, node, devices, None).await?;
    reference(scope, name).await
}

/// A claim that is allocated to a share of a device.
pub async fn share(
    scope: &Scope,
    name: &str,
    place: [&str; 3],
    parameters: Value,
) -> anyhow::Result<Claim> {
    pods::allocated_share(scope, name, place, Some(parameters)).await?;
    reference(scope, name).await
}

/// The claim as the kubelet names it.
pub async fn reference(scope: &Scope, name: &str) -> anyhow::Result<Claim> {
    let claims: Api<ResourceClaim> = scope.api();
    let uid = claims.get(name).await?.metadata.uid.context("a claim has a UID")?;
    Ok(Claim { namespace: scope.namespace().to_owned(), name: name.to_owned(), uid })
}

/// Asks as the kubelet does. `Done` has the CDI names.
pub async fn prepare(machine: &Machine, claim: &Claim) -> Call<Vec<String>> {
    let Ok(mut plugin) = connect(machine).await else { return Call::Lost };
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

/// The way back.
pub async fn unprepare(machine: &Machine, claim: &Claim) -> Call<()> {
    let Ok(mut plugin) = connect(machine).await else { return Call::Lost };
    let request = NodeUnprepareResourcesRequest { claims: vec![claim.clone()] };
    let Ok(answer) = plugin.node_unprepare_resources(request).await else { return Call::Lost };
    match answer.into_inner().claims.remove(&claim.uid) {
        Some(answer) if answer.error.is_empty() => Call::Done(()),
        Some(answer) => Call::Refused(answer.error),
        None => Call::Refused("the claim is not in the answer".to_owned()),
    }
}

async fn connect(machine: &Machine) -> anyhow::Result<DraPluginClient<Channel>> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", machine.socket().display()))?;
    Ok(DraPluginClient::new(endpoint.connect().await?))
}

/// Waits until the driver listens. `false` where it ended before: a test told it to.
pub async fn listens(machine: &Machine) -> anyhow::Result<bool> {
    eventually(SOON, async || {
        if connect(machine).await.is_ok() {
            return Ok(Check::Done(true));
        }
        Ok(if machine.driver_has_ended() {
            Check::Done(false)
        } else {
            Check::NotYet("the driver does not listen".to_owned())
        })
    })
    .await
}

/// A pod's network namespace, with a thread in it that stands for its processes.
#[derive(Debug)]
pub struct Sandbox {
    name: String,
    thread: u32,
    stay: Option<mpsc::Sender<()>>,
    inside: Option<JoinHandle<()>>,
}

impl Sandbox {
    /// Makes it.
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

    /// As the container runtime tells of it by NRI: a pod's.
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

    /// Its interfaces' names and addresses, as text.
    pub fn addresses(&self) -> anyhow::Result<String> {
        shell(&format!("ip -n {} -o addr", self.name))
    }

    /// Runs a command line of `ip` in it.
    pub fn ip(&self, line: &str) -> anyhow::Result<String> {
        shell(&format!("ip -n {} {line}", self.name))
    }

    /// Runs a command line in it.
    pub fn run(&self, line: &str) -> anyhow::Result<String> {
        shell(&format!("ip netns exec {} {line}", self.name))
    }

    /// Whether a host at this address answers to a process in it.
    pub fn reaches(&self, address: &str) -> bool {
        self.run(&format!("busybox ping -c 1 -W 5 {address}")).is_ok()
    }

    /// Ends it, as a runtime does before the kubelet unprepares a claim.
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
        // Of a test that fails, whose error is the one to tell.
        let _ = self.end();
    }
}

/// What a hook came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Hook {
    /// It went well.
    Attached,
    /// It failed, and wrote this.
    Failed(String),
    /// It was killed.
    Killed,
}

/// Starts a container that must start.
pub async fn starts(machine: &Machine, claim: &Claim, sandbox: &Sandbox) -> anyhow::Result<()> {
    let started = start_container(machine, claim, sandbox, None).await?;
    anyhow::ensure!(started == Hook::Attached, "{}: {started:?}", claim.name);
    Ok(())
}

/// Starts a container that must not start, and returns what the hook wrote.
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

/// Starts a container of the sandbox as the runtime does: with the hook of the
/// claim's CDI spec, which is killed after this time where one is given.
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

/// Program and arguments, the first of which is the program's own name.
fn hook_of(machine: &Machine, claim: &Claim) -> anyhow::Result<(PathBuf, Vec<String>)> {
    let path = machine.cdi_spec(&claim.uid);
    let text = fs::read(&path).with_context(|| format!("`{}` is not there", path.display()))?;
    let spec: Value = serde_json::from_slice(&text)?;
    let hook = &spec["containerEdits"]["hooks"][0];
    anyhow::ensure!(hook["hookName"] == "createRuntime", "no hook in {spec:#}");
    let words = hook["args"].as_array().context("arguments")?.iter().skip(1);
    let words = words.filter_map(|word| word.as_str().map(str::to_owned)).collect();
    Ok((hook["path"].as_str().context("a path")?.into(), words))
}
