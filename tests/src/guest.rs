//! A virtual machine with NUMA nodes, PCIe switches and NICs, for what a folder of files cannot
//! represent: links and devices that come and go.
//!
//! It is emulated without KVM, so it is slow and its bandwidths mean nothing. Tests reach it over
//! QEMU's user-mode network; nothing on the host is changed.

mod machine;
pub mod node;
mod shell;

use std::{
    fmt, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context;
use tempfile::TempDir;

use crate::{
    Check, ControlPlane, Program, binaries, eventually, ports,
    process::{Log, Process},
    suite::report,
};
pub use machine::{GPUS, Hardware, NICS, NicModel, Wire};

/// The host's loopback interface as the guests see it.
const HOST: &str = "10.0.2.2";
/// How long one try to boot may take; it takes 7 to 60 seconds.
const BOOT: Duration = Duration::from_mins(2);
/// A machine that does not boot is started again, since QEMU was seen to hang before the console had
/// any message.
const BOOTS: usize = 3;

/// A running virtual machine; it stops when dropped.
pub struct Guest {
    name: String,
    process: Process,
    port: u16,
    folder: TempDir,
}

impl Guest {
    /// Boots it and waits until its shell responds.
    pub async fn boot(
        plane: &ControlPlane,
        name: &str,
        hardware: &Hardware,
    ) -> anyhow::Result<Self> {
        let mut tries = 1;
        loop {
            let guest = Self::start_machine(plane, name, hardware)?;
            match guest.ready().await {
                Ok(()) => return Ok(guest),
                Err(error) if tries == BOOTS || guest.process.has_ended() => return Err(error),
                Err(error) => report(&format!("guest {name} is started again: {error:#}")),
            }
            tries += 1;
        }
    }

    fn start_machine(
        plane: &ControlPlane,
        name: &str,
        hardware: &Hardware,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("share"))?;
        let image = binaries::guest()?;
        let port = ports::free()?;
        let process = Program::new(image.join("qemu/qemu-system-x86_64"), plane.logs())
            .named(&format!("{name}-qemu"))
            .args(hardware.arguments(&image, folder.path(), port))
            .env("QEMU_MODULE_DIR", &image.join("qemu/modules").display().to_string())
            .spawn()?;
        Ok(Self { name: name.to_owned(), process, port, folder })
    }

    /// Runs a bash script as root and returns its output. Fails if any command of it fails.
    pub async fn run(&self, script: &str) -> anyhow::Result<String> {
        shell::run(self.port, script).await.with_context(|| self.state())
    }

    /// Context for errors: whether the machine still runs, and the end of its console.
    fn state(&self) -> String {
        let running = if self.process.has_ended() { "which has ended" } else { "which runs" };
        let console = Log::at(self.console()).tail(15, 0);
        format!("in guest {}, {running}, with this on its console:\n{console}\n", self.name)
    }

    /// The file of its console.
    fn console(&self) -> PathBuf {
        self.folder.path().join("console")
    }

    /// The folder that the guest sees at `/share`.
    pub fn share(&self) -> PathBuf {
        self.folder.path().join("share")
    }

    /// Copies one of our own programs to `/run/NAME`, without debug information.
    pub async fn install(&self, name: &str) -> anyhow::Result<()> {
        let copy = self.share().join(name);
        strip(&binaries::ours(name)?, &copy)?;
        self.run(&format!("cp /share/{name} /run/{name}")).await.map(drop)
    }

    /// Starts a background command; its output is [`Guest::log`]`(name)`. Programs in Go collect
    /// garbage less often than usual, since the processor is emulated.
    pub async fn start(&self, name: &str, command: &str) -> anyhow::Result<()> {
        let script = format!(
            "GOGC=400 setsid {command} >>/share/{name}.log 2>&1 </dev/null & echo $! >/run/{name}.pid"
        );
        self.run(&script).await.map(drop)
    }

    /// Kills a command of [`Guest::start`], as a crash would.
    pub async fn kill(&self, name: &str) -> anyhow::Result<()> {
        self.run(&format!("kill -9 $(cat /run/{name}.pid)")).await.map(drop)
    }

    /// The last lines of a command's output.
    pub fn log(&self, name: &str) -> String {
        Log::at(self.share().join(format!("{name}.log"))).tail(20, 0)
    }

    /// Writes a kubeconfig with which the guest reaches the API server, since the host's loopback
    /// interface has another address there. Returns its path in the guest.
    pub fn add_kubeconfig(&self, host: &Path) -> anyhow::Result<String> {
        let text = fs::read_to_string(host)?;
        let mut config: serde_json::Value = serde_json::from_str(&text)?;
        let cluster = &mut config["clusters"][0]["cluster"];
        let server = cluster["server"].as_str().context("a server")?;
        let moved = server.replace("127.0.0.1", HOST);
        cluster["server"] = moved.into();
        cluster["tls-server-name"] = "127.0.0.1".into();
        let name = host.file_name().context("a file")?.to_string_lossy().into_owned();
        fs::write(self.share().join(&name), config.to_string())?;
        Ok(format!("/share/{name}"))
    }

    async fn ready(&self) -> anyhow::Result<()> {
        let console = Log::at(self.console());
        eventually(BOOT, async || {
            let lines = console.tail(15, 0);
            anyhow::ensure!(
                !self.process.has_ended(),
                "QEMU ended:\n{}\n{lines}",
                self.process.tail(15)
            );
            Ok(Check::that(lines.contains("GUEST READY"), || {
                format!("guest {} does not boot; its console says:\n{lines}", self.name)
            }))
        })
        .await
    }
}

impl Drop for Guest {
    /// Keeps the console: why a machine did not boot, or what its kernel said, is needed after a
    /// failure. The folder has the consoles of the latest machines.
    fn drop(&mut self) {
        let kept = binaries::kept("guest-consoles")
            .and_then(|folder| keep_console(&folder, &self.name, &self.console()));
        if let Err(error) = kept {
            report(&format!("the console of guest {} is lost: {error:#}", self.name));
        }
    }
}

/// Copies a console to `NAME.console`; the one before becomes `NAME.console.1`.
fn keep_console(folder: &Path, name: &str, console: &Path) -> anyhow::Result<()> {
    if !console.exists() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    let kept = folder.join(format!("{name}.console"));
    if kept.exists() {
        fs::rename(&kept, folder.join(format!("{name}.console.1")))?;
    }
    fs::copy(console, &kept).with_context(|| format!("failed to write `{}`", kept.display()))?;
    Ok(())
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("name", &self.name).finish_non_exhaustive()
    }
}

fn strip(from: &Path, to: &Path) -> anyhow::Result<()> {
    let output = Command::new("strip")
        .arg("-o")
        .arg(to)
        .arg(from)
        .output()
        .context("failed to start `strip` (Debian: binutils)")?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "`{}`: {}", from.display(), error.trim());
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
