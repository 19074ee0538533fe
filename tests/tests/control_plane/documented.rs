//! The documentation is correct on a real control plane: its commands succeed, and the API server
//! accepts its YAML.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use tempfile::TempDir;
use tests::{
    ControlPlane, Program, Scope, binaries,
    documents::{Block, files, pages, parts, repository},
    installation::Installation,
    suite::Test,
    with_scope,
};

use crate::thin_line::with_installation;

const SOON: Duration = Duration::from_mins(1);
/// The pod and the file that replace a reader's.
const POD: &str = "nccl-2nic";
const POD_FILE: &str = "deploy/examples/aks-gb300/2nic-aligned.yaml";
const TEMPLATE_FILE: &str = "deploy/examples/upstream/aks-gb300-2nic.yaml";
/// Kinds whose definitions are not on the control plane of the tests.
const FOREIGN_GROUPS: [&str; 4] = [
    "apiVersion: jobset.x-k8s.io/",
    "apiVersion: kubeflow.org/",
    "apiVersion: kueue.x-k8s.io/",
    "apiVersion: kustomize.config",
];

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![
        documented_commands_succeed,
        kubernetes_accepts_documented_objects,
        kubernetes_accepts_the_output_of_migrate,
    ];
    all.into_iter().map(Test::alone).collect()
}

async fn documented_commands_succeed(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_installation(Arc::clone(&plane), async |scope, _, [node, _]| {
        let reader = Reader::prepare(&plane, scope).await?;
        reader.run(&format!("kubectl create -f {POD_FILE}")).await?;
        scope.bound(POD, SOON).await?;
        let mut count = 0;
        for (page, block) in blocks(|block| block.not_run.is_none())? {
            for command in block.commands() {
                let mut command = fill_in(&command, &node, scope.namespace());
                // Exit code 3 is a result: a finding, a denial, a pod that does not fit.
                if command.contains("dranet ") {
                    command = format!("{command} || test $? = 3");
                }
                let done = reader.run(&command).await;
                done.with_context(|| format!("{}: `{command}`", page.display()))?;
                count += 1;
            }
        }
        anyhow::ensure!(count > 0, "no page has a command that can be run here");
        Ok(())
    })
    .await
}

async fn kubernetes_accepts_documented_objects(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        Installation::install(&plane, scope).await?;
        let reader = Reader::prepare(&plane, scope).await?;
        let is_known = |block: &Block| {
            block.language == "yaml" && !FOREIGN_GROUPS.iter().any(|it| block.text.contains(it))
        };
        let mut count = 0;
        for (page, block) in blocks(is_known)? {
            let file = reader.folder.path().join("block.yaml");
            fs::write(&file, &block.text)?;
            let verb = if block.text.contains("generateName:") {
                "create"
            } else {
                "apply --server-side --force-conflicts"
            };
            let command =
                format!("kubectl {verb} --dry-run=server --validate=strict -f block.yaml");
            let done = reader.run(&command).await;
            done.with_context(|| format!("{}:\n{}", page.display(), block.text))?;
            count += 1;
        }
        anyhow::ensure!(count > 0, "no page has an object that is known here");
        Ok(())
    })
    .await
}

/// Migrates all examples of the other operator at once.
async fn kubernetes_accepts_the_output_of_migrate(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        Installation::install(&plane, scope).await?;
        let reader = Reader::prepare(&plane, scope).await?;
        let examples = repository()?.join("migration/tests/network-operator");
        let files = files(&examples, ".yaml")?;
        let files: Vec<_> = files.iter().map(|it| format!("-f {}", it.display())).collect();
        let migrate = format!("kubectl dranet migrate {} > migrated.yaml", files.join(" "));
        reader.run(&migrate).await?;
        let said =
            reader.run("kubectl apply --dry-run=server --validate=strict -f migrated.yaml").await?;
        for object in [
            "deviceclass.resource.k8s.io/rdma-rdma-shared-device-a",
            "resourceclaimtemplate.resource.k8s.io/test-hostdev-pod-1-nics",
            "pod/rdma-gpu-test-pod-1",
        ] {
            anyhow::ensure!(said.contains(object), "`{object}` is not among: {said}");
        }
        Ok(())
    })
    .await
}

/// The blocks of all pages, each with its page.
fn blocks(wanted: impl Fn(&Block) -> bool) -> anyhow::Result<Vec<(PathBuf, Block)>> {
    let mut all = Vec::new();
    for (page, text) in pages()? {
        let blocks = parts(&text).1.into_iter().filter(|block| wanted(block));
        all.extend(blocks.map(|block| (page.clone(), block)));
    }
    Ok(all)
}

/// A reader's shell: the folder of the repository, `pod.yaml` and `template.yaml`, kubectl with
/// our plug-in, and the test's namespace.
struct Reader {
    folder: TempDir,
    logs: PathBuf,
    path: String,
}

impl Reader {
    async fn prepare(plane: &ControlPlane, scope: &Scope) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let link = |to: &Path, name: &str| symlink(to, folder.path().join(name));
        let repository = repository()?;
        link(&repository.join("deploy"), "deploy")?;
        // A reader's pod has another name each time.
        let pod = fs::read_to_string(repository.join(POD_FILE))?;
        let pod = pod.replace(&format!("name: {POD}"), "generateName: aligned-");
        fs::write(folder.path().join("pod.yaml"), pod)?;
        link(&repository.join(TEMPLATE_FILE), "template.yaml")?;
        fs::create_dir(folder.path().join("bin"))?;
        link(&binaries::kubernetes("kubectl")?, "bin/kubectl")?;
        link(&binaries::ours("kubectl-dranet")?, "bin/kubectl-dranet")?;
        fs::copy(plane.kubeconfig(), folder.path().join("kubeconfig"))?;
        let path = format!("{}/bin:/usr/bin:/bin", folder.path().display());
        let reader = Self { folder, logs: plane.logs(), path };
        let namespace = scope.namespace();
        let set = format!("kubectl config set-context --current --namespace={namespace}");
        reader.run(&set).await?;
        Ok(reader)
    }

    async fn run(&self, command: &str) -> anyhow::Result<String> {
        let script = format!("cd {}; {command}", self.folder.path().display());
        let kubeconfig = self.folder.path().join("kubeconfig").display().to_string();
        let shell = Program::new("/bin/sh", &self.logs).named("reader").args(["-ec", &script]);
        let shell = shell.env("PATH", &self.path).env("KUBECONFIG", &kubeconfig);
        shell
            .env("HOME", &self.folder.path().display().to_string())
            .spawn()?
            .wait_for_success(SOON)
            .await
    }
}

/// Replaces the words in capitals in a command, and uses the built program instead of building it
/// again.
fn fill_in(command: &str, node: &str, namespace: &str) -> String {
    let command = command.replace("cargo run -p kubectl-dranet --", "kubectl-dranet");
    let words = [("NODE", node), ("POD", POD), ("NAME", POD), ("NAMESPACE", namespace)];
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut filled = String::new();
    let mut rest = command.as_str();
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        filled.push_str(words.iter().find(|(name, _)| *name == word).map_or(word, |(_, it)| it));
        rest = after;
    }
    filled
}
