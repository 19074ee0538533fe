//! The Helm chart in `deploy/chart`, by the real helm.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Output,
};

use anyhow::Context;
use kube::api::DynamicObject;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{binaries, manifest};

/// Where it is installed.
pub const NAMESPACE: &str = "dranet-system";

/// Values with which the chart can be installed; each is a file below `platforms`, or these
/// flags.
pub const PLATFORMS: [(&str, &[&str]); 12] = [
    ("defaults", &[]),
    ("aks", &["--values=platforms/aks.yaml"]),
    ("eks", &["--values=platforms/eks.yaml"]),
    ("gke", &["--values=platforms/gke.yaml"]),
    ("oci", &["--values=platforms/oci.yaml"]),
    ("bare-metal", &["--values=platforms/bare-metal.yaml"]),
    ("topology", &["--values=platforms/topology.yaml"]),
    ("nri", &["--set=nodeDriver.attach=nri,nodeDriver.sharing=bandwidth"]),
    ("cert-manager", &["--set=admission.certificate.source=cert-manager"]),
    (
        "all",
        &[
            "--values=platforms/aks.yaml",
            "--set=monitoring.monitor=ServiceMonitor,monitoring.rules=true",
            "--set=monitoring.dashboard=true,monitoring.labels.release=prometheus",
            "--set=fabricController.fullFabric=evict,networkConfig.namespaces={a,b},crd.keep=true",
            "--set=nodeDriver.ncclTopoFile=/opt/topology.xml",
            "--set-string=nodeDriver.filter=true",
            "--set=image.pullSecrets={key},admission.gpuClass=gpu.nvidia.com,scheduler.mix=1x1=3",
            "--set=nodeDriver.appArmorProfile.type=RuntimeDefault",
            "--set=image.digests.admission=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        ],
    ),
    ("pod-groups", &["--set=fabricController.podGroups=true"]),
    (
        "least",
        &[
            "--set=fabricController.enabled=false,cleanup.enabled=false,networkPolicy.create=false",
            "--set=podDisruptionBudget.create=false,criticalPodsQuota.create=false",
            "--set=monitoring.monitor=PodMonitor,networkConfig.namespaces={*}",
        ],
    ),
];

/// helm, with a home of its own.
#[derive(Debug)]
pub struct Helm {
    home: TempDir,
    kubeconfig: Option<PathBuf>,
}

impl Helm {
    /// One that knows no cluster.
    pub fn offline() -> anyhow::Result<Self> {
        Ok(Self { home: tempfile::tempdir()?, kubeconfig: None })
    }

    /// One that installs on a cluster.
    pub fn on(kubeconfig: &Path) -> anyhow::Result<Self> {
        Ok(Self { home: tempfile::tempdir()?, kubeconfig: Some(kubeconfig.to_owned()) })
    }

    /// Runs a subcommand in the chart's folder; returns what it prints.
    ///
    /// # Errors
    ///
    /// Helm fails: what it says.
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

    /// The same as text.
    pub async fn rendered(&self, values: &[&str]) -> anyhow::Result<String> {
        let version = binaries::kubernetes_version()?;
        let fixed = ["template", "dranet", ".", "--namespace", NAMESPACE, "--no-hooks"];
        let image = ["--set=image.registry=example.org/dranet", "--kube-version", version];
        self.run(fixed.iter().chain(&image).chain(values)).await
    }
}

/// The folder of the chart.
pub fn folder() -> PathBuf {
    binaries::in_tests("../deploy/chart")
}

/// What a program printed, if it ended well.
///
/// # Errors
///
/// It failed: what it wrote to its standard error.
pub fn printed(output: Output) -> anyhow::Result<String> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).context("it printed no text")
}
