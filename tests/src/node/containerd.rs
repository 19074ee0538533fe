//! containerd with its own state, the CRI plugin, CDI, and the one image.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context;

use crate::{
    binaries,
    eventually::{Check, eventually},
    node::image,
    process::{Process, Program},
};

const SOON: Duration = Duration::from_secs(30);

/// The path of its socket.
pub(crate) fn socket(folder: &Path) -> PathBuf {
    folder.join("containerd.sock")
}

/// The path of its socket for NRI plugins.
pub(crate) fn nri_socket(folder: &Path) -> PathBuf {
    folder.join("nri.sock")
}

/// Starts it and waits until the image is imported.
pub(super) async fn start(folder: &Path, logs: &Path, cdi: &Path) -> anyhow::Result<Process> {
    let config = folder.join("containerd.toml");
    let (runc, bridge) = (binaries::node("runc")?, binaries::node("bridge")?);
    let plugins = bridge.parent().context("a folder")?;
    fs::write(&config, configuration(folder, cdi, [&runc, plugins], false))?;
    let conf = folder.join("cni");
    fs::create_dir_all(&conf)?;
    fs::write(conf.join(NETWORK), network(folder))?;
    let process = launch(folder, logs)?;
    import_own(folder, &process).await?;
    Ok(process)
}

/// Restarts containerd with the same state, and waits as before.
pub(super) async fn relaunch(folder: &Path, logs: &Path) -> anyhow::Result<Process> {
    let process = launch(folder, logs)?;
    import_own(folder, &process).await?;
    Ok(process)
}

fn launch(folder: &Path, logs: &Path) -> anyhow::Result<Process> {
    let shims = binaries::node("containerd")?;
    let shims = shims.parent().context("a folder")?.display().to_string();
    let path = std::env::var_os("PATH").unwrap_or_default();
    Program::new(binaries::node("containerd")?, logs)
        .args(["--config".to_owned(), folder.join("containerd.toml").display().to_string()])
        .env("PATH", &format!("{shims}:{}", path.to_string_lossy()))
        .spawn()
}

/// Imports the image that most pods run, which is that of sandboxes too.
async fn import_own(folder: &Path, process: &Process) -> anyhow::Result<()> {
    let archive = folder.join("busybox.tar");
    image::write(&archive)?;
    import(folder, process, &archive).await
}

/// Imports an image from an OCI archive, as soon as the daemon serves.
pub(super) async fn import(folder: &Path, process: &Process, archive: &Path) -> anyhow::Result<()> {
    let ctr = binaries::node("ctr")?;
    eventually(SOON, async || {
        anyhow::ensure!(!process.has_ended(), "containerd ended:\n{}", process.tail(15));
        let output = Command::new(&ctr)
            .arg("--address")
            .arg(socket(folder))
            .args(["--namespace", "k8s.io", "images", "import", "--local"])
            .arg(archive)
            .output()?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok(Check::that(output.status.success(), || format!("no image yet: {error}")))
    })
    .await
}

/// Its configuration: everything below `folder`, CDI specs in `cdi`, and the
/// programs `runc` and those in `plugins`.
///
/// Without `CAP_SYS_RESOURCE` runc cannot lower OOM scores. With `AppArmor`, containers get
/// the profile that containerd gives them by itself; the tests' machine has none.
pub(crate) fn configuration(
    folder: &Path,
    cdi: &Path,
    [runc, plugins]: [&Path; 2],
    app_armor: bool,
) -> String {
    let (root, state) = (folder.join("containerd"), folder.join("containerd-state"));
    format!(
        r#"version = 3
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[plugins.'io.containerd.nri.v1.nri']
  socket_path = "{nri}"
  plugin_path = "{folder}/nri-plugins"
  plugin_config_path = "{folder}/nri-plugins.d"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{image}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = {without_app_armor}
  cdi_spec_dirs = ["{cdi}"]
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "{conf}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = "{runc}"
"#,
        without_app_armor = !app_armor,
        folder = folder.display(),
        nri = nri_socket(folder).display(),
        root = root.display(),
        state = state.display(),
        socket = socket(folder).display(),
        image = image::IMAGE,
        cdi = cdi.display(),
        plugins = plugins.display(),
        conf = folder.join("cni").display(),
        runc = runc.display(),
    )
}

/// The name of the file with [`network`], below `cni`.
pub(crate) const NETWORK: &str = "10-pods.conflist";

/// The pods' network: a bridge.
pub(crate) fn network(folder: &Path) -> String {
    let list = serde_json::json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": "pods0",
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.99.0.0/16"}]],
                "dataDir": folder.join("cni-addresses"),
            },
        }],
    });
    list.to_string()
}
