//! The container runtime's side of NRI, run by the test: it accepts the driver as its plugin and
//! notifies it of sandboxes and containers. It uses the driver's own implementation of the
//! protocol; other tests check that against containerd.

use std::time::Duration;

use anyhow::Context;
use node_driver::runtime::nri::{
    message::{Message, MessageKind, MessageReader},
    trunk::{PLUGIN, RUNTIME, TrunkReader, frames},
    wire::{
        nri::{
            CdiDevice, ConfigureRequest, Container, CreateContainerRequest, Empty, PodSandbox,
            RunPodSandboxRequest, StopPodSandboxRequest, SynchronizeRequest,
        },
        ttrpc::{Request, Response},
    },
};
use prost::Message as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    time::timeout,
};

use crate::{
    Check, eventually,
    node::{
        Machine,
        plugin::{Call, SOON},
    },
};

/// The service that the runtime calls.
const SERVICE: &str = "nri.pkg.api.v1alpha1.Plugin";
/// The polling interval for a connection.
const LOOK: Duration = Duration::from_millis(50);

/// The runtime. It outlives drivers and connects to each new one.
#[derive(Debug)]
pub struct Runtime {
    listener: UnixListener,
    session: Option<Session>,
    /// The running sandboxes.
    running: Vec<PodSandbox>,
}

impl Runtime {
    /// Listens where the machine's driver expects its runtime.
    pub fn listen(machine: &Machine) -> anyhow::Result<Self> {
        let listener = UnixListener::bind(machine.nri_socket())?;
        Ok(Self { listener, session: None, running: Vec::new() })
    }

    /// Starts a sandbox. It keeps running even if the driver does not respond.
    pub async fn run_sandbox(&mut self, machine: &Machine, pod: &PodSandbox) -> Call<()> {
        let known = self.meet(machine).await;
        self.running.push(pod.clone());
        let request = RunPodSandboxRequest { pod: Some(pod.clone()) };
        self.call(known, "RunPodSandbox", &request).await
    }

    /// Creates a container with these CDI devices in a sandbox.
    pub async fn create_container(
        &mut self,
        machine: &Machine,
        pod: &PodSandbox,
        devices: &[String],
    ) -> Call<()> {
        let known = self.meet(machine).await;
        let cdi_devices = devices.iter().map(|name| CdiDevice { name: name.clone() }).collect();
        let container = Some(Container { cdi_devices, ..Container::default() });
        let request = CreateContainerRequest { pod: Some(pod.clone()), container };
        self.call(known, "CreateContainer", &request).await
    }

    /// Stops a sandbox, whether the driver responds or not.
    pub async fn stop_sandbox(&mut self, machine: &Machine, pod: &PodSandbox) -> Call<()> {
        self.forget_sandbox(pod);
        let known = self.meet(machine).await;
        let request = StopPodSandboxRequest { pod: Some(pod.clone()) };
        self.call(known, "StopPodSandbox", &request).await
    }

    /// Removes a sandbox without notifying the driver.
    pub fn forget_sandbox(&mut self, pod: &PodSandbox) {
        self.running.retain(|running| running.id != pod.id);
    }

    async fn call(
        &mut self,
        known: anyhow::Result<()>,
        method: &str,
        request: &impl prost::Message,
    ) -> Call<()> {
        let (Ok(()), Some(session)) = (known, &mut self.session) else { return Call::Lost };
        session.call(method, request).await.unwrap_or(Call::Lost)
    }

    /// Ensures a session with the running driver, which is notified of all sandboxes.
    async fn meet(&mut self, machine: &Machine) -> anyhow::Result<()> {
        let driver = machine.driver().context("a driver was started")?.pid();
        if self.session.as_ref().is_some_and(|session| session.driver == driver) {
            return Ok(());
        }
        self.session = None;
        let mut session = Session::new(self.accept(machine, driver).await?, driver);
        session.register().await?;
        session.call("Configure", &ConfigureRequest::default()).await?;
        let pods = self.running.clone();
        session.call("Synchronize", &SynchronizeRequest { pods, more: false }).await?;
        self.session = Some(session);
        Ok(())
    }

    /// Accepts the connection of this driver, not of an earlier one.
    async fn accept(&self, machine: &Machine, driver: u32) -> anyhow::Result<UnixStream> {
        let is_its = |stream: &UnixStream| {
            let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
            peer.is_some_and(|peer| peer.unsigned_abs() == driver)
        };
        eventually(SOON, async || match timeout(LOOK, self.listener.accept()).await {
            Ok(Ok((stream, _))) if is_its(&stream) => Ok(Check::Done(stream)),
            Ok(_) => Ok(Check::NotYet("another driver's connection".to_owned())),
            Err(_) => {
                anyhow::ensure!(!machine.driver_has_ended(), "the driver ended");
                Ok(Check::NotYet("the driver does not connect".to_owned()))
            }
        })
        .await
    }
}

#[derive(Debug)]
struct Session {
    stream: UnixStream,
    /// The process ID of the peer.
    driver: u32,
    trunk: TrunkReader,
    plugin: MessageReader,
    runtime: MessageReader,
    calls: u32,
}

impl Session {
    fn new(stream: UnixStream, driver: u32) -> Self {
        let (trunk, plugin, runtime) = Default::default();
        Self { stream, driver, trunk, plugin, runtime, calls: 0 }
    }

    /// Accepts the plugin, whatever its name.
    async fn register(&mut self) -> anyhow::Result<()> {
        let Message { stream, .. } = self.message(RUNTIME).await?;
        let response = Response { status: None, payload: Empty {}.encode_to_vec() };
        self.send(RUNTIME, stream, MessageKind::Response, response.encode_to_vec()).await
    }

    async fn call(
        &mut self,
        method: &str,
        request: &impl prost::Message,
    ) -> anyhow::Result<Call<()>> {
        // The caller uses odd numbers.
        let stream = 2 * self.calls + 1;
        self.calls += 1;
        let request = Request {
            service: SERVICE.to_owned(),
            method: method.to_owned(),
            payload: request.encode_to_vec(),
            timeout_nano: 0,
        };
        self.send(PLUGIN, stream, MessageKind::Request, request.encode_to_vec()).await?;
        let answer = self.message(PLUGIN).await?;
        anyhow::ensure!(answer.stream == stream, "an answer to call {}", answer.stream);
        let Response { status, .. } = Response::decode(&answer.data[..])?;
        let refusal = status.filter(|status| status.code != 0);
        Ok(refusal.map_or(Call::Done(()), |status| Call::Refused(status.message)))
    }

    async fn send(
        &mut self,
        connection: u32,
        stream: u32,
        kind: MessageKind,
        data: Vec<u8>,
    ) -> anyhow::Result<()> {
        let message = Message { stream, kind, flags: 0, data: data.into() };
        Ok(self.stream.write_all(&frames(connection, &message.encode())).await?)
    }

    /// The next message on one of the two connections.
    async fn message(&mut self, connection: u32) -> anyhow::Result<Message> {
        let mut bytes = [0; 4 << 10];
        loop {
            while let Some((on, payload)) = self.trunk.next_frame()? {
                let reader = if on == PLUGIN { &mut self.plugin } else { &mut self.runtime };
                reader.push(&payload);
            }
            let reader = if connection == PLUGIN { &mut self.plugin } else { &mut self.runtime };
            if let Some(message) = reader.next_message()? {
                return Ok(message);
            }
            let count = self.stream.read(&mut bytes).await?;
            anyhow::ensure!(count > 0, "the driver closed the connection");
            self.trunk.push(&bytes[..count]);
        }
    }
}
