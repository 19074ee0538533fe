//! A node: a planted machine as its hardware, links as its interfaces.

mod leak_check;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use node_driver::kubelet::wire::dra_v1::dra_plugin_client::DraPluginClient;
use serde_json::Value;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use topology_graph::fixture;

use crate::{
    Check, ControlPlane, eventually,
    node::{
        Nic, containerd, kubelet,
        links::{self, shell},
    },
    ports,
    process::Process,
};

const SOON: Duration = Duration::from_mins(1);
/// The program of util-linux.
const SETPRIV: &str = "/usr/bin/setpriv";

/// A running node.
pub struct Machine {
    /// Its name in the cluster.
    pub name: String,
    client: Client,
    kubeconfig: PathBuf,
    logs: PathBuf,
    driver: Option<Process>,
    /// Distinguishes the driver's sockets from those of the driver that it replaced.
    instance: Option<String>,
    kubelet: Option<Process>,
    containerd: Option<Process>,
    /// The driver's capabilities; all if `None`.
    capabilities: Option<String>,
    /// The namespaces whose claims may set guarded fields.
    namespaces: Vec<String>,
    /// The host's interfaces at the start.
    before: Value,
    /// The number of reboots.
    boots: u32,
    /// The directory below which the driver reads the machine; `/` for this machine itself.
    root: PathBuf,
    folder: TempDir,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Machine").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Machine {
    /// Starts containerd and a kubelet, and waits until the node is Ready. The
    /// hardware is Azure's GB300 machine with these NICs besides.
    pub async fn start(plane: &ControlPlane, name: &str, nics: &[Nic]) -> anyhow::Result<Self> {
        let folder = new_folder()?;
        let root = folder.path().join("root");
        plant(&root, nics)?;
        Self::launch(plane, name, folder, root).await
    }

    /// The same, and the hardware is that of this machine.
    pub async fn start_on_hardware(plane: &ControlPlane, name: &str) -> anyhow::Result<Self> {
        Self::launch(plane, name, new_folder()?, PathBuf::from("/")).await
    }

    async fn launch(
        plane: &ControlPlane,
        name: &str,
        folder: TempDir,
        root: PathBuf,
    ) -> anyhow::Result<Self> {
        let cdi = folder.path().join("cdi");
        fs::create_dir_all(&cdi)?;
        let containerd = containerd::start(folder.path(), &plane.logs(), &cdi).await?;
        let kubelet =
            kubelet::start(&plane.kubeconfig(), &plane.logs(), folder.path(), name).await?;
        let machine = Self {
            name: name.to_owned(),
            client: plane.client(),
            kubeconfig: plane.kubeconfig(),
            logs: plane.logs(),
            driver: None,
            instance: None,
            kubelet: Some(kubelet),
            containerd: Some(containerd),
            capabilities: None,
            namespaces: vec!["*".to_owned()],
            before: links::state()?,
            boots: 0,
            root,
            folder,
        };
        machine.ready().await?;
        Ok(machine)
    }

    /// A node without kubelet and container runtime, for a test that acts as both. The caller
    /// creates the Node object.
    pub fn alone(plane: &ControlPlane, name: &str, nics: &[Nic]) -> anyhow::Result<Self> {
        let folder = new_folder()?;
        let root = folder.path().join("root");
        plant(&root, nics)?;
        Ok(Self {
            name: name.to_owned(),
            client: plane.client(),
            kubeconfig: plane.kubeconfig(),
            logs: plane.logs(),
            driver: None,
            instance: None,
            kubelet: None,
            containerd: None,
            capabilities: None,
            namespaces: vec!["*".to_owned()],
            before: links::state()?,
            boots: 0,
            root,
            folder,
        })
    }

    /// Gives it the boot ID of this machine, so that the driver asks this kernel about interfaces and
    /// RDMA devices.
    pub fn with_this_kernel(self) -> anyhow::Result<Self> {
        let id = "proc/sys/kernel/random/boot_id";
        fs::copy(Path::new("/").join(id), self.root.join(id))?;
        Ok(self)
    }

    /// The directory below which the driver reads the machine.
    pub fn root(&self) -> PathBuf {
        self.root.clone()
    }

    /// The directory of CDI specs.
    pub fn cdi_dir(&self) -> PathBuf {
        self.folder.path().join("cdi")
    }

    /// Imports an image from an OCI archive.
    pub async fn import(&self, archive: &Path) -> anyhow::Result<()> {
        let containerd = self.containerd.as_ref().context("containerd runs")?;
        containerd::import(self.folder.path(), containerd, archive).await
    }

    /// Limits the driver to these capabilities, such as `net_admin`, from now on.
    pub fn limit_driver(&mut self, capabilities: &[&str]) {
        let kept = capabilities.iter().map(|capability| format!(",+{capability}"));
        self.capabilities = Some(format!("-all{}", kept.collect::<String>()));
    }

    /// Limits guarded fields to claims of these namespaces from now on; before, all namespaces may
    /// set them.
    pub fn limit_namespaces(&mut self, namespaces: &[&str]) {
        self.namespaces = namespaces.iter().map(|&name| name.to_owned()).collect();
    }

    /// Sets the kubeconfig of the driver from now on, and of the kubelet after a restart.
    pub fn use_kubeconfig(&mut self, path: PathBuf) {
        self.kubeconfig = path;
    }

    /// Starts our driver with additional arguments. Waits until it listens and the kubelet, if
    /// there is one, has registered it.
    pub async fn start_driver(&mut self, more: &[&str]) -> anyhow::Result<()> {
        self.spawn_driver(more)?;
        self.driver_serves().await
    }

    /// Starts a second driver next to the running one, as an update does, and waits as
    /// [`Self::start_driver`] does. Returns the old driver, which still runs.
    pub async fn replace_driver(
        &mut self,
        instance: &str,
        more: &[&str],
    ) -> anyhow::Result<Process> {
        let old = self.driver.take().context("a driver runs")?;
        self.spawn_driver(&[&["--instance", instance], more].concat())?;
        self.instance = Some(instance.to_owned());
        self.driver_serves().await?;
        Ok(old)
    }

    /// Connects to the driver as the kubelet does.
    pub(super) async fn connect(&self) -> anyhow::Result<DraPluginClient<Channel>> {
        let endpoint = Endpoint::from_shared(format!("unix:{}", self.socket().display()))?;
        Ok(DraPluginClient::new(endpoint.connect().await?))
    }

    /// Waits until the driver listens. Returns `false` if it ended before, because a test made it.
    pub async fn listens(&self) -> anyhow::Result<bool> {
        eventually(SOON, async || {
            if self.connect().await.is_ok() {
                return Ok(Check::Done(true));
            }
            Ok(if self.driver_has_ended() {
                Check::Done(false)
            } else {
                Check::NotYet("the driver does not listen".to_owned())
            })
        })
        .await
    }

    async fn driver_serves(&self) -> anyhow::Result<()> {
        let listens = self.listens().await?;
        let driver = self.driver.as_ref().context("it was started")?;
        anyhow::ensure!(listens, "node-driver ended:\n{}", driver.tail(15));
        if self.kubelet.is_none() {
            return Ok(());
        }
        eventually(SOON, async || {
            anyhow::ensure!(!driver.has_ended(), "node-driver ended:\n{}", driver.tail(15));
            let log = driver.tail(usize::MAX);
            Ok(Check::that(log.contains("Registered with the kubelet"), || log))
        })
        .await
    }

    /// Starts our driver without waiting.
    pub fn spawn_driver(&mut self, more: &[&str]) -> anyhow::Result<()> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let path_of_driver = crate::binaries::ours("node-driver")?;
        let mut program = crate::Program::new(&path_of_driver, &self.logs);
        if let Some(capabilities) = &self.capabilities {
            // As root, the program gets the capabilities in its bounding set.
            program = crate::Program::new(SETPRIV, &self.logs).args([
                "--bounding-set".to_owned(),
                capabilities.clone(),
                "--".to_owned(),
                path_of_driver.display().to_string(),
            ]);
        }
        let driver = program
            .named(&format!("{}-driver", self.name))
            .args([
                "--root".to_owned(),
                self.root.display().to_string(),
                "--runtime-root".to_owned(),
                self.root.display().to_string(),
                "--node-name".to_owned(),
                self.name.clone(),
                "--kubeconfig".to_owned(),
                self.kubeconfig.display().to_string(),
                "--kubelet-dir".to_owned(),
                path("kubelet"),
                "--cdi-dir".to_owned(),
                path("cdi"),
                "--run-dir".to_owned(),
                path("run"),
                "--nri-socket".to_owned(),
                self.nri_socket().display().to_string(),
                "--operations-listen".to_owned(),
                format!("127.0.0.1:{}", ports::free()?),
            ])
            .args(self.namespaces.iter().map(|name| format!("--network-namespace={name}")))
            .args(more.iter().copied())
            .spawn()?;
        (self.driver, self.instance) = (Some(driver), None);
        Ok(())
    }

    /// Runs the probe for an instance of our driver; returns its error if it fails.
    pub async fn probe(&self, question: &str, instance: &str) -> anyhow::Result<Option<String>> {
        let run = self.folder.path().join("run");
        let asked = tokio::process::Command::new(crate::binaries::ours("node-driver")?)
            .args(["probe", question, "--instance", instance, "--run-dir"])
            .arg(run)
            .output()
            .await?;
        let said = String::from_utf8_lossy(&asked.stderr).trim().to_owned();
        Ok((!asked.status.success()).then_some(said))
    }

    /// Kills the driver as a crash would.
    pub fn kill_driver(&mut self) {
        self.driver = None;
    }

    /// Does to our driver what a reboot does: it stops, everything in memory (`/run`) is lost, and
    /// the kernel reports another boot ID.
    pub fn reboot(&mut self) -> anyhow::Result<()> {
        self.kill_driver();
        self.boots += 1;
        boot(&self.root, self.boots)?;
        for name in ["run", "cdi"] {
            let folder = self.folder.path().join(name);
            fs::remove_dir_all(&folder).with_context(|| format!("`{}`", folder.display()))?;
        }
        Ok(())
    }

    /// Gives a character device below `/dev/infiniband` another number, that of a harmless memory
    /// device.
    pub fn renumber(&self, name: &str, minor: u32) -> anyhow::Result<()> {
        let path = self.root.join("dev/infiniband").join(name);
        fs::remove_file(&path).with_context(|| format!("`{}`", path.display()))?;
        shell(&format!("mknod -m 666 {} c 1 {minor}", path.display())).map(drop)
    }

    /// The process of our driver, unless [`Self::kill_driver`] killed it.
    pub fn driver(&self) -> Option<&Process> {
        self.driver.as_ref()
    }

    /// Returns true if the driver has ended by itself.
    pub fn driver_has_ended(&self) -> bool {
        self.driver.as_ref().is_none_or(Process::has_ended)
    }

    /// Kills containerd, but not what it runs.
    pub fn kill_containerd(&mut self) {
        self.containerd = None;
    }

    /// Kills containerd, but not what it runs, and restarts it.
    pub async fn restart_containerd(&mut self) -> anyhow::Result<()> {
        self.restart_containerd_alone().await?;
        self.ready().await
    }

    /// Restarts containerd while there is no kubelet to make the node ready.
    pub async fn restart_containerd_alone(&mut self) -> anyhow::Result<()> {
        self.kill_containerd();
        self.containerd = Some(containerd::relaunch(self.folder.path(), &self.logs).await?);
        Ok(())
    }

    /// Kills the kubelet.
    pub fn kill_kubelet(&mut self) {
        self.kubelet = None;
    }

    /// Kills the kubelet and starts it again.
    pub async fn restart_kubelet(&mut self) -> anyhow::Result<()> {
        self.kill_kubelet();
        let folder = self.folder.path();
        self.kubelet =
            Some(kubelet::start(&self.kubeconfig, &self.logs, folder, &self.name).await?);
        self.ready().await
    }

    /// The kubelet's root directory.
    pub fn kubelet_dir(&self) -> PathBuf {
        self.folder.path().join("kubelet")
    }

    /// The socket on which our driver serves the kubelet.
    pub(super) fn socket(&self) -> PathBuf {
        let instance = self.instance.as_ref().map(|instance| format!("-{instance}"));
        self.plugin_dir().join(format!("dra{}.sock", instance.unwrap_or_default()))
    }

    /// Our driver's directory.
    pub fn plugin_dir(&self) -> PathBuf {
        self.kubelet_dir().join("plugins/dra.net")
    }

    /// The path where our driver expects the container runtime's NRI socket.
    pub fn nri_socket(&self) -> PathBuf {
        containerd::nri_socket(self.folder.path())
    }

    /// The path that leads to the network of a claim's pod while its interfaces are in it, with
    /// NRI.
    pub fn readiness(&self, uid: &str) -> PathBuf {
        self.folder.path().join("run/ready").join(uid)
    }

    /// The CDI spec of one claim.
    pub fn cdi_spec(&self, uid: &str) -> PathBuf {
        self.folder.path().join(format!("cdi/dra.net-claim-{uid}.json"))
    }

    /// The output of a pod's container.
    pub fn pod_log(&self, namespace: &str, pod: &str) -> anyhow::Result<String> {
        let logs = self.folder.path().join("pod-logs");
        let prefix = format!("{namespace}_{pod}_");
        let mut text = String::new();
        for folder in names_in(&logs).into_iter().filter(|name| name.starts_with(&prefix)) {
            for container in names_in(&logs.join(&folder)) {
                for file in names_in(&logs.join(&folder).join(&container)) {
                    let raw = fs::read_to_string(logs.join(&folder).join(&container).join(file))?;
                    // `TIME STREAM F TEXT` (the CRI's log format).
                    for line in raw.lines() {
                        text.push_str(line.splitn(4, ' ').nth(3).unwrap_or_default());
                        text.push('\n');
                    }
                }
            }
        }
        Ok(text)
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        eventually(SOON, async || {
            let kubelet = self.kubelet.as_ref().context("it runs")?;
            anyhow::ensure!(!kubelet.has_ended(), "kubelet ended:\n{}", kubelet.tail(20));
            let node = nodes.get_opt(&self.name).await?;
            let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
            let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
            let status = ready.map(|ready| (ready.status.clone(), ready.message.clone()));
            let is_ready = status.as_ref().is_some_and(|(status, _)| status == "True");
            Ok(Check::that(is_ready, || format!("node is {status:?}")))
        })
        .await
    }
}

/// A folder for the files of a machine. Its path is short, since paths of sockets have 107 bytes.
fn new_folder() -> anyhow::Result<TempDir> {
    Ok(tempfile::Builder::new().prefix("n").tempdir_in("/tmp")?)
}

/// Plants the fixture with real character devices and the NICs' interfaces.
fn plant(root: &Path, nics: &[Nic]) -> anyhow::Result<()> {
    let machine = fixture::machine("azure-gb300").context("a machine of this name")?;
    fixture::plant(machine, root)?;
    for nic in nics {
        let (address, link) = (nic.address, nic.link);
        let bus = &address[..7];
        fixture::plant(
            &format!(
                "[sys/devices/pci{bus}/{address}]\n\
                 class = 0x020000\nvendor = 0x15b3\ndevice = 0x1021\nnuma_node = 0\n\
                 net/{link}/type = 1\n\
                 driver -> ../../../bus/pci/drivers/mlx5_core\n\
                 [sys]\n\
                 bus/pci/devices/{address} -> ../../../devices/pci{bus}/{address}\n\
                 class/net/{link} -> ../../devices/pci{bus}/{address}/net/{link}\n\
                 devices/pci{bus}/{address}/net/{link}/device -> ../../../{address}\n"
            ),
            root,
        )?;
    }
    boot(root, 0)?;
    let infiniband = root.join("dev/infiniband");
    let _ = fs::remove_dir_all(&infiniband);
    fs::create_dir_all(&infiniband)?;
    // Harmless device numbers: `/dev/null` under other names.
    let names = (0..4).flat_map(|n| ["uverbs", "umad", "issm"].map(|kind| format!("{kind}{n}")));
    for name in names.chain(["rdma_cm".to_owned()]) {
        shell(&format!("mknod -m 666 {} c 1 3", infiniband.join(name).display()))?;
    }
    Ok(())
}

/// Sets the boot ID of the machine (`/proc/sys/kernel/random/boot_id`).
fn boot(root: &Path, number: u32) -> anyhow::Result<()> {
    let folder = root.join("proc/sys/kernel/random");
    fs::create_dir_all(&folder)?;
    let id = format!("1b1c2d3e-0000-4000-8000-{number:012x}\n");
    Ok(fs::write(folder.join("boot_id"), id)?)
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
