//! A guest as a node. It runs containerd, a kubelet, the small GPU driver and our driver.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context;
use k8s_openapi::api::{core::v1::Node, resource::v1::ResourceSlice};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::json;
use tempfile::TempDir;

use super::{GPUS, Guest, HOST, Hardware, NicModel};
use crate::{
    Check, ControlPlane, binaries,
    certificates::API_SERVICE,
    eventually,
    node::{containerd, image, kubelet, pods},
    scope::{Scope, gone},
};

/// The guest's folder for containerd and its state.
const FOLDER: &str = "/var/lib/node";
/// The chart's default folders of the kubelet and of CDI specs.
const KUBELET: &str = "/var/lib/kubelet";
const CDI: &str = "/var/run/cdi";
const DRIVER_KUBECONFIG: &str = "/run/node-driver.kubeconfig";
/// The guest's address in its own network; all guests have the same.
const ADDRESS: &str = "10.0.2.15";
/// How often the kubelet looks at pods that have not changed. Its processor is emulated.
const PERIOD: &str = "20s";
const SOON: Duration = Duration::from_mins(5);

/// Creates the disk with the programs that a node needs, for [`Hardware::disk`](super::Hardware).
pub fn disk(folder: &Path) -> anyhow::Result<PathBuf> {
    disk_with(folder, &[])
}

/// The same with archives of images, for [`GuestNode::import`].
pub fn disk_with(folder: &Path, archives: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let content = TempDir::new_in(folder)?;
    let names = [
        "containerd",
        "containerd-shim-runc-v2",
        "ctr",
        "runc",
        "bridge",
        "host-local",
        "loopback",
    ];
    let mut programs = vec![binaries::kubernetes("kubelet")?, binaries::gpu_driver()?];
    for name in names {
        programs.push(binaries::node(name)?);
    }
    for file in programs.iter().chain(archives) {
        let name = file.file_name().context("a file")?;
        fs::copy(file, content.path().join(name))?;
    }
    image::write(&content.path().join("busybox.tar"))?;
    let disk = folder.join("node.ext4");
    let output = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-O", "^has_journal", "-d"])
        .arg(content.path())
        .arg(&disk)
        .arg("768M")
        .output()
        .context("failed to start `mke2fs` (Debian: e2fsprogs)")?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "mke2fs: {}", error.trim());
    Ok(disk)
}

/// containerd's own client, for the images of pods.
fn ctr() -> String {
    let socket = containerd::socket(Path::new(FOLDER));
    format!("/node/ctr --address {} --namespace k8s.io", socket.display())
}

/// A guest that has joined the cluster.
#[derive(Debug)]
pub struct GuestNode {
    /// The machine.
    pub guest: Guest,
    /// Its name in the cluster.
    pub name: String,
}

impl GuestNode {
    /// Boots a guest of this name with these NICs and this memory of each NUMA node, in MiB, which
    /// joins the cluster.
    pub async fn boot(
        plane: &ControlPlane,
        name: &str,
        nics: [NicModel; 4],
        memory: u32,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let disk = Some(disk(folder.path())?);
        let hardware = Hardware { nics, memory, disk, ..Hardware::default() };
        Self::join(plane, Guest::boot(plane, name, &hardware).await?, name).await
    }

    /// Starts containerd and the kubelet with the rights of an administrator, and
    /// waits until the node is Ready.
    pub async fn join(plane: &ControlPlane, guest: Guest, name: &str) -> anyhow::Result<Self> {
        let node = Self { guest, name: name.to_owned() };
        node.remove_namesake(plane).await?;
        node.start_containerd(plane).await?;
        node.start_kubelet(plane).await?;
        Ok(node)
    }

    /// Removes the Node and the slices of an earlier guest of this name. They would be taken for
    /// those of this one, until its kubelet removes them.
    async fn remove_namesake(&self, plane: &ControlPlane) -> anyhow::Result<()> {
        let now = DeleteParams::default();
        let slices: Api<ResourceSlice> = Api::all(plane.client());
        let of_node = ListParams::default().fields(&format!("spec.nodeName={}", self.name));
        slices.delete_collection(&now, &of_node).await?;
        gone(Api::<Node>::all(plane.client()).delete(&self.name, &now).await.map(drop))?;
        Ok(())
    }

    async fn start_containerd(&self, plane: &ControlPlane) -> anyhow::Result<()> {
        let folder = Path::new(FOLDER);
        let programs = Path::new("/node");
        let runtime = [&programs.join("runc"), programs];
        let config = containerd::configuration(folder, Path::new(CDI), runtime, true);
        let share = self.guest.share();
        fs::write(share.join("containerd.toml"), config)?;
        fs::write(share.join(containerd::NETWORK), containerd::network(folder))?;
        // Replaces kube-proxy for the only Service that pods on the host's network use.
        let (_, port) = plane.url().rsplit_once(':').context("a URL with a port")?;
        let prepare = format!(
            "modprobe -a overlay veth bridge; mkdir -p {FOLDER}/cni {CDI} /etc/cni/net.d
            cp /share/{network} {FOLDER}/cni/
            iptables -w -t nat -A OUTPUT -d {API_SERVICE} -p tcp --dport 443 \
              -j DNAT --to-destination {HOST}:{port}",
            network = containerd::NETWORK
        );
        self.guest.run(&prepare).await?;
        self.guest.start("containerd", "/node/containerd --config /share/containerd.toml").await?;
        let ready = format!("until {} version >/dev/null 2>&1; do sleep 0.2; done", ctr());
        self.guest.run(&ready).await?;
        self.import_as("busybox.tar", "").await
    }

    /// Imports an image, as `registry/program`, from `program.tar` on the disk, an OCI layout
    /// that has a tag.
    pub async fn import(&self, registry: &str, program: &str) -> anyhow::Result<()> {
        let name = format!("--base-name {registry}/{program}");
        self.import_as(&format!("{program}.tar"), &name).await
    }

    async fn import_as(&self, archive: &str, flags: &str) -> anyhow::Result<()> {
        self.import_file(&format!("/node/{archive}"), flags).await
    }

    /// Imports the images of an OCI archive of [`Guest::share`], under the names in it.
    pub async fn import_shared(&self, archive: &str) -> anyhow::Result<()> {
        self.import_file(&format!("/share/{archive}"), "").await
    }

    async fn import_file(&self, archive: &str, flags: &str) -> anyhow::Result<()> {
        let import = format!("{} images import --local {flags} {archive}", ctr());
        let imported = self.guest.run(&import).await;
        imported.map(drop).with_context(|| {
            format!("{archive}; containerd wrote:\n{}", self.guest.log("containerd"))
        })
    }

    /// Connects the network of pods to the wire of this interface. New pods get addresses from
    /// `first` on, so that two nodes never assign the same address.
    pub async fn connect_pods(&self, interface: &str, first: &str) -> anyhow::Result<()> {
        let file = format!("{FOLDER}/cni/{}", containerd::NETWORK);
        let range = r#""subnet":"10.99.0.0/16""#;
        let script = format!(
            r##"grep -q '{range}' {file}
            sed -i 's#{range}#&,"rangeStart":"{first}"#' {file}
            ip link set {interface} master pods0"##
        );
        self.guest.run(&script).await.map(drop)
    }

    async fn start_kubelet(&self, plane: &ControlPlane) -> anyhow::Result<()> {
        let config = kubelet::configuration(Path::new(FOLDER), 10248, 10250, PERIOD);
        fs::write(self.guest.share().join("kubelet.json"), config.to_string())?;
        let kubeconfig = self.guest.add_kubeconfig(&plane.kubeconfig())?;
        let command = format!(
            "/node/kubelet --config=/share/kubelet.json --kubeconfig={kubeconfig} \
            --hostname-override={} --root-dir={KUBELET} --node-ip={ADDRESS} --v=2",
            self.name
        );
        self.guest.start("kubelet", &command).await?;
        let nodes: Api<Node> = Api::all(plane.client());
        eventually(SOON, async || {
            let node = nodes.get_opt(&self.name).await?;
            let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
            let ready = conditions.iter().any(|it| it.type_ == "Ready" && it.status == "True");
            Ok(Check::that(ready, || {
                format!("not Ready; kubelet wrote:\n{}", self.guest.log("kubelet"))
            }))
        })
        .await
    }

    /// Starts the small GPU driver. It publishes the display devices as GPUs of NVIDIA's driver,
    /// with the standard attributes of that driver.
    pub async fn start_gpu_driver(&self, plane: &ControlPlane) -> anyhow::Result<()> {
        let devices: Vec<_> = GPUS
            .into_iter()
            .enumerate()
            .map(|(index, (address, numa))| {
                let root = if numa == 0 { "pci0000:40" } else { "pci0000:80" };
                json!({"name": format!("gpu-{index}"), "attributes": {
                    "type": {"string": "gpu"},
                    "uuid": {"string": format!("GPU-{}-{index}", self.name)},
                    "resource.kubernetes.io/pciBusID": {"string": address},
                    "resource.kubernetes.io/pcieRoot": {"string": root},
                }})
            })
            .collect();
        fs::write(self.guest.share().join("gpus.json"), serde_json::to_vec(&devices)?)?;
        let kubeconfig = self.guest.add_kubeconfig(&plane.kubeconfig())?;
        let command = format!(
            "/node/gpu-driver {kubeconfig} {} gpu.nvidia.com /share/gpus.json {CDI} {KUBELET}",
            self.name
        );
        self.guest.start("gpu-driver", &command).await?;
        self.published(plane, "gpu.nvidia.com").await
    }

    /// Installs our driver and starts it with these additional flags; `kubeconfig` is a path on the
    /// host.
    pub async fn start_driver(
        &self,
        plane: &ControlPlane,
        kubeconfig: &Path,
        flags: &str,
    ) -> anyhow::Result<()> {
        let kubeconfig = self.guest.add_kubeconfig(kubeconfig)?;
        self.guest.install("node-driver").await?;
        self.guest.run(&format!("cp {kubeconfig} {DRIVER_KUBECONFIG}")).await?;
        self.restart_driver(flags).await?;
        self.published(plane, "dra.net").await
    }

    /// Waits until our driver has killed itself, as its flags require.
    pub async fn driver_dies(&self) -> anyhow::Result<()> {
        const ENDED: &str = "if [ -e /proc/$(cat /run/node-driver.pid) ]; then echo runs; fi";
        eventually(SOON, async || {
            let runs = self.guest.run(ENDED).await?.contains("runs");
            Ok(Check::that(!runs, || format!("it runs:\n{}", self.guest.log("node-driver"))))
        })
        .await
    }

    /// Restarts our driver with these additional flags, after [`Guest::kill`].
    pub async fn restart_driver(&self, flags: &str) -> anyhow::Result<()> {
        let command = format!(
            "/run/node-driver --node-name {} --kubeconfig {DRIVER_KUBECONFIG} --cloud none \
            --kubelet-dir {KUBELET} --cdi-dir {CDI} --network-namespace '*' {flags}",
            self.name
        );
        self.guest.start("node-driver", &command).await
    }

    /// Waits until a driver has published a slice of this node.
    pub async fn published(&self, plane: &ControlPlane, driver: &str) -> anyhow::Result<()> {
        let slices: Api<ResourceSlice> = Api::all(plane.client());
        let own = ListParams::default()
            .fields(&format!("spec.nodeName={},spec.driver={driver}", self.name));
        eventually(SOON, async || {
            let found = !slices.list(&own).await?.items.is_empty();
            Ok(Check::that(found, || {
                let logs = ["gpu-driver", "node-driver"].map(|name| self.guest.log(name));
                format!("no slice of {driver}; the drivers wrote:\n{}", logs.join("\n"))
            }))
        })
        .await
    }

    /// Runs a shell script in a running container, as `kubectl exec` does. Returns what it writes.
    pub async fn exec(&self, container: &str, script: &str) -> anyhow::Result<String> {
        let exec = format!(
            "script=$(cat <<'SCRIPT'\n{script}\nSCRIPT\n)
            {} task exec --exec-id exec-$$-$RANDOM {container} /bin/sh -c \"$script\" </dev/null",
            ctr()
        );
        self.guest.run(&exec).await
    }

    /// Path of the file with the numbers of the processes of a running pod's container.
    pub async fn processes(&self, scope: &Scope, pod: &str) -> anyhow::Result<String> {
        let pod = pods::running(scope, pod).await?;
        let all = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
        let id = all.into_iter().next().and_then(|status| status.container_id);
        let id = id.context("a container")?;
        let id = id.strip_prefix("containerd://").context("a container of containerd")?;
        Ok(format!("/sys/fs/cgroup/k8s.io/{id}/cgroup.procs"))
    }

    /// The output of a pod's container.
    pub async fn pod_log(&self, namespace: &str, pod: &str) -> anyhow::Result<String> {
        let script =
            format!("cat {FOLDER}/pod-logs/{namespace}_{pod}_*/*/*.log 2>/dev/null || true");
        let raw = self.guest.run(&script).await?;
        // `TIME STREAM F TEXT` (the CRI's log format).
        Ok(raw.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect::<Vec<_>>().join("\n"))
    }
}
