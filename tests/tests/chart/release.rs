//! The steps of the release workflow that need no account, with the workflow's own text: the chart
//! is packed and pushed into a registry on this machine and installed from it, and the release's
//! files and notes are made.

use std::{fs, os::unix::fs::symlink, path::Path, process::Stdio, sync::Arc};

use anyhow::Context;
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Namespace};
use kube::{Api, ResourceExt, api::ListParams};
use serde_json::Value;
use tempfile::TempDir;
use tests::{
    ControlPlane, binaries,
    chart::{Helm, NAMESPACE, WITHOUT_PODS, printed},
    suite::Test,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::lifecycle::{remove_all, remove_namespace};

const WORKFLOW: &str = "../.github/workflows/release.yaml";
const CHART: &str = "dranet-aligned";
/// A version that `CHANGELOG.md` has.
const TAG: &str = "v0.1.0";

/// What the steps run besides helm. `helm push` may use HTTP here.
const PROGRAMS: &str = r#"
set -euo pipefail
cosign() { echo "cosign $*"; }
gh() { echo "gh $*"; }
helm() { if [[ $1 == push ]]; then command helm "$@" --plain-http; else command helm "$@"; fi; }
"#;

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![the_workflows_chart_is_installed_from_a_registry];
    all.into_iter().map(Test::alone).collect()
}

async fn the_workflows_chart_is_installed_from_a_registry(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let registry = Registry::start().await?;
    let work = Work::new()?;
    let version = chart_version()?;
    let pushed = work.run("Push and sign the chart", &registry.address).await?;
    let reference = format!("{}/charts/{CHART}", registry.address);
    let signs = format!("cosign sign --yes {reference}@sha256:");
    anyhow::ensure!(pushed.contains(&signs), "`{signs}` is missing in: {pushed}");

    let released = work.run("Release", &registry.address).await?;
    let creates = format!("gh release create {TAG} --title {TAG} --notes-file notes.md files/");
    anyhow::ensure!(released.contains(&creates), "{released}");
    let sums = Command::new("sha256sum")
        .args(["--check", "SHA256SUMS"])
        .current_dir(work.0.path().join("files"))
        .output()
        .await?;
    let checked = printed(sums)?;
    anyhow::ensure!(checked.contains(&format!("{CHART}-{version}.tgz: OK")), "{checked}");
    let notes = fs::read_to_string(work.0.path().join("notes.md"))?;
    anyhow::ensure!(notes.contains("### Pods") && !notes.contains("\n## "), "{notes}");

    let chart = format!("oci://{reference}");
    let from = [chart.as_str(), "--version", &version, "--plain-http"];
    is_the_chart(&from).await?;
    installs(&plane, &from).await
}

/// The chart renders as the one in this repository.
async fn is_the_chart(from: &[&str]) -> anyhow::Result<()> {
    let helm = Helm::offline()?;
    let values = ["--set=image.registry=example.org/dranet", "--kube-version"];
    let values = [&values[..], &[binaries::kubernetes_version()?]].concat();
    let render = async |chart: &[&str]| {
        helm.run(["template", "dranet"].iter().chain(chart).chain(&values)).await
    };
    let (there, here) = (render(from).await?, render(&["."]).await?);
    anyhow::ensure!(there == here, "the chart in the registry differs");
    Ok(())
}

async fn installs(plane: &ControlPlane, from: &[&str]) -> anyhow::Result<()> {
    remove_all(&plane.client()).await?;
    let helm = Helm::on(&plane.kubeconfig())?;
    let in_namespace = format!("--namespace={NAMESPACE}");
    let more = [
        in_namespace.as_str(),
        "--create-namespace",
        "--set=image.registry=example.org/dranet",
        "--set=cleanup.enabled=false",
    ];
    let words = ["install", "dranet"];
    helm.run(words.iter().chain(from).chain(&more).chain(&WITHOUT_PODS)).await?;
    let deployments: Api<Deployment> = Api::namespaced(plane.client(), NAMESPACE);
    let names: Vec<_> =
        deployments.list(&ListParams::default()).await?.iter().map(ResourceExt::name_any).collect();
    for name in ["admission", "fabric-controller"] {
        anyhow::ensure!(names.iter().any(|it| it == name), "{names:?}");
    }
    helm.run(["uninstall", "dranet", &in_namespace]).await?;
    remove_all(&plane.client()).await?;
    if Api::<Namespace>::all(plane.client()).get_opt(NAMESPACE).await?.is_some() {
        remove_namespace(&plane.client()).await?;
    }
    Ok(())
}

fn chart_version() -> anyhow::Result<String> {
    let text = fs::read_to_string(tests::chart::folder().join("Chart.yaml"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("version: "));
    Ok(line.context("Chart.yaml has a version")?.to_owned())
}

/// A registry that ends with this value.
struct Registry {
    address: String,
    _process: Child,
}

impl Registry {
    async fn start() -> anyhow::Result<Self> {
        let mut process = Command::new(binaries::chart_tool("registry")?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().context("it has an output")?;
        let address = BufReader::new(output).lines().next_line().await?;
        Ok(Self { address: address.context("it prints its address")?, _process: process })
    }
}

/// A folder with what the workflow's steps read.
struct Work(TempDir);

impl Work {
    fn new() -> anyhow::Result<Self> {
        let work = tempfile::tempdir()?;
        let repository = binaries::in_tests("..").canonicalize()?;
        for name in ["deploy", "CHANGELOG.md"] {
            symlink(repository.join(name), work.path().join(name))?;
        }
        // The other job's files.
        for file in ["built/plugin/dranet.yaml", "built/images/admission.cdx.json"] {
            let path = work.path().join(file);
            fs::create_dir_all(path.parent().context("it is in a folder")?)?;
            fs::write(path, file)?;
        }
        Ok(Self(work))
    }

    /// Runs a step of the workflow; returns what it prints.
    async fn run(&self, step: &str, registry: &str) -> anyhow::Result<String> {
        let script = format!("{PROGRAMS}{}", script(step)?);
        let helm = binaries::chart_tool("helm")?;
        let path = std::env::join_paths(
            helm.parent()
                .into_iter()
                .map(Path::to_owned)
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        )?;
        let output = Command::new("bash")
            .args(["-c", &script])
            .current_dir(self.0.path())
            .envs([("OWNER", registry), ("TAG", TAG)])
            .env("HOME", self.0.path())
            .env("PATH", path)
            .kill_on_drop(true)
            .output()
            .await?;
        printed(output).with_context(|| step.to_owned())
    }
}

/// The script of a step of the release.
fn script(step: &str) -> anyhow::Result<String> {
    let workflow: Value =
        serde_saphyr::from_str(&fs::read_to_string(binaries::in_tests(WORKFLOW))?)?;
    let steps = workflow["jobs"]["release"]["steps"].as_array().context("a job with steps")?;
    let found = steps.iter().find(|it| it["name"] == step);
    let found = found.with_context(|| format!("the workflow has no step `{step}`"))?;
    Ok(found["run"].as_str().context("the step runs a script")?.to_owned())
}
