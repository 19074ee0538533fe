//! Renders and installs the Helm chart in `deploy/chart` with the real helm.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use anyhow::Context;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client, api::DynamicObject};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{binaries, manifest};

/// The namespace in which it is installed.
pub const NAMESPACE: &str = "dranet-system";

/// Values with which the chart can be installed; each is a file below `platforms`, or these
/// flags.
pub const PLATFORMS: [(&str, &[&str]); 15] = [
    ("defaults", &[]),
    ("aks", &["--values=platforms/aks.yaml"]),
    ("eks", &["--values=platforms/eks.yaml"]),
    ("gke", &["--values=platforms/gke.yaml"]),
    ("oci", &["--values=platforms/oci.yaml"]),
    ("bare-metal", &["--values=platforms/bare-metal.yaml"]),
    ("topology", &["--values=platforms/topology.yaml"]),
    ("nri", &["--set=nodeDriver.attach=nri,nodeDriver.sharing=bandwidth"]),
    (
        "shared",
        &[
            "--set=nodeDriver.sharing=count,nodeDriver.rdmaHcaMax=8,nodeDriver.modules.load={ib_umad}",
            "--set=nodeDriver.modules.peerMemory=true",
            "--set-string=nodeDriver.sharedNics=size(attributes) > 1",
        ],
    ),
    (
        "vendor-driver",
        &[
            "--set=vendorDriver.enabled=true,vendorDriver.version=25.04-0.6.1.0-2",
            "--set=vendorDriver.systems[0].name=jammy,vendorDriver.systems[0].tagSuffix=-ubuntu22.04",
            "--set=vendorDriver.systems[0].nodeLabels.os=ubuntu",
        ],
    ),
    ("cert-manager", &["--set=admission.certificate.source=cert-manager"]),
    (
        "all",
        &[
            "--values=platforms/aks.yaml",
            "--set=monitoring.monitor=ServiceMonitor,monitoring.rules=true",
            "--set=monitoring.dashboard=true,monitoring.labels.release=prometheus",
            "--set=fabricController.fullFabric=evict,networkConfig.namespaces={a,b},crd.keep=true",
            "--set=nodeDriver.ncclTopoFile=/opt/topology.xml",
            "--set=nodeDriver.kubeletConfig=/var/lib/kubelet/config.yaml",
            "--set=nodeDriver.virtualFunctions[0].numVfs=8,nodeDriver.virtualFunctions[0].pfName=rail*",
            "--set-string=nodeDriver.filter=true,nodeDriver.nicRail=3",
            "--set=image.pullSecrets={key},admission.gpuClass=gpu.nvidia.com,scheduler.mix=1x1=3",
            "--set=nodeDriver.appArmorProfile.type=RuntimeDefault",
            "--set=image.digests.admission=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ],
    ),
    ("pod-groups", &["--set=fabricController.podGroups=true"]),
    (
        "preemption",
        &[
            "--set=preemption.enabled=true,preemption.keep=rules,preemption.dryRun=true",
            "--set=preemption.preemptors.priorityClasses={high},preemption.preemptors.namespaces={a,b}",
            "--set=preemption.victims.priorityClasses={low},preemption.victims.namespaces={a,b}",
        ],
    ),
    (
        "least",
        &[
            "--set=fabricController.enabled=false,cleanup.enabled=false,networkPolicy.create=false",
            "--set=podDisruptionBudget.create=false,criticalPodsQuota.create=false",
            "--set=monitoring.monitor=PodMonitor,networkConfig.namespaces={*}",
        ],
    ),
];

/// Flags with which no pod of the chart is bound, for clusters without a kubelet to start it.
pub const WITHOUT_PODS: [&str; 4] = [
    "--set=nodeDriver.nodeSelector.none=none",
    "--set=admission.nodeSelector.none=none",
    "--set=fabricController.nodeSelector.none=none",
    "--set=scheduler.nodeSelector.none=none",
];

/// A folder with the chart's next version, which has one more value, and adds a field to the definition
/// of NodeTopology.
pub fn next() -> anyhow::Result<TempDir> {
    let next = tempfile::tempdir()?;
    copy(&folder(), next.path())?;
    edit(&next.path().join("Chart.yaml"), "\nversion: 0.1.0", "\nversion: 0.2.0")?;
    edit(&next.path().join("values.yaml"), "\nlog:\n", "\nnext:\n  is: new\nlog:\n")?;
    edit(
        &next.path().join("README.md"),
        "| `log.level` |",
        "| `next.is` | `new` | New |\n| `log.level` |",
    )?;
    edit(
        &next.path().join("values.schema.json"),
        "\n    \"log\": {",
        "\n    \"next\": {\"type\": \"object\"},\n    \"log\": {",
    )?;
    edit(
        &next.path().join("files/crd-nodetopologies.yaml"),
        "              fabric:\n",
        "              next:\n                type: string\n              fabric:\n",
    )?;
    Ok(next)
}

fn edit(file: &Path, from: &str, to: &str) -> anyhow::Result<()> {
    let text = fs::read_to_string(file)?;
    anyhow::ensure!(text.contains(from), "`{from}` is not in `{}`", file.display());
    Ok(fs::write(file, text.replace(from, to))?)
}

/// Copies a folder recursively.
pub fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// helm, with a separate home directory.
#[derive(Debug)]
pub struct Helm {
    home: TempDir,
    kubeconfig: Option<PathBuf>,
}

impl Helm {
    /// Creates one without a cluster.
    pub fn offline() -> anyhow::Result<Self> {
        Ok(Self { home: tempfile::tempdir()?, kubeconfig: None })
    }

    /// Creates one that installs on a cluster.
    pub fn on(kubeconfig: &Path) -> anyhow::Result<Self> {
        Ok(Self { home: tempfile::tempdir()?, kubeconfig: Some(kubeconfig.to_owned()) })
    }

    /// Runs a subcommand in the chart's folder; returns what it prints.
    ///
    /// # Errors
    ///
    /// Returns the output of helm if it fails.
    pub async fn run<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> anyhow::Result<String> {
        let mut command = Command::new(binaries::chart_tool("helm")?);
        command.args(args).current_dir(folder()).env_clear().env("HOME", self.home.path());
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        printed(command.kill_on_drop(true).output().await?)
    }

    /// The objects of the chart with these values, without those of hooks.
    pub async fn template(&self, values: &[&str]) -> anyhow::Result<Vec<DynamicObject>> {
        manifest::parse(&self.rendered(values).await?)
    }

    /// The same objects as text.
    pub async fn rendered(&self, values: &[&str]) -> anyhow::Result<String> {
        let version = binaries::kubernetes_version()?;
        let fixed = ["template", "dranet", ".", "--namespace", NAMESPACE, "--no-hooks"];
        let image = ["--set=image.registry=example.org/dranet", "--kube-version", version];
        self.run(fixed.iter().chain(&image).chain(values)).await
    }
}

/// The flags that the chart sets for the program of a Deployment, except its listen addresses.
/// `None` if it installs no such Deployment.
pub async fn flags(client: &Client, program: &str) -> anyhow::Result<Option<Vec<String>>> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let Some(deployment) = deployments.get_opt(program).await? else { return Ok(None) };
    let pod = deployment.spec.template.spec.context("it has a pod")?;
    let args = pod.containers.into_iter().filter_map(|container| container.args).flatten();
    let listens =
        |flag: &String| ["--listen=", "--operations-listen="].iter().any(|it| flag.starts_with(it));
    Ok(Some(args.filter(|flag| !listens(flag)).collect()))
}

/// The folder of the chart.
pub fn folder() -> PathBuf {
    binaries::in_tests("../deploy/chart")
}

/// The output of a program that succeeded.
///
/// # Errors
///
/// Returns the standard error of a program that failed.
pub fn printed(output: Output) -> anyhow::Result<String> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).context("its output is not UTF-8")
}
