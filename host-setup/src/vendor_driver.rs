//! `node-driver vendor-driver`: runs the image of a vendor's NIC driver, and never lets it reload
//! modules under running pods.
//!
//! A DaemonSet has this program as the first process of the vendor's container. It starts the
//! image's own entry point only if nothing uses the loaded modules: no prepared claim of this
//! node, no process that holds a device of theirs open, no virtual function of a virtual machine,
//! no interface that another plugin has moved or uses, and not the node's own traffic. Otherwise
//! it waits. If the same version was loaded before in this boot, it starts nothing, so a container
//! that restarts reloads nothing. If the node went down during the last attempt, it waits for a
//! person. A version that the node has not loaded before is loaded on one node at a time.
//!
//! What it does is in a file that lasts until the next boot (module `state`). The driver reads it,
//! evicts pods, withholds NICs and publishes a condition ([`verdict`]).

mod attempt;
pub(crate) mod follow;
mod functions;
mod loaded;
mod plan;
pub mod state;
pub mod verdict;

#[cfg(test)]
mod tests;

use crate::node::Node;
use anyhow::Context;
use attempt::{Attempt, AttemptFile};
use cluster_model::names::DRIVER;
use node_files::boot;
use node_files::boot_file::BootFile;
use node_files::install::install;
use node_files::paths::Paths;
use node_files::turn;
use plan::{Step, Users};
use publication::network::NetworkFacts;
use rustix::process::{Pid, Signal, kill_process};
use state::{Grant, Stage, VendorDriverState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};
use tokio::process::{Child, Command};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use topology_graph::HostRoot;

/// Time between two looks at what uses the modules, and at the vendor's ready file.
const PERIOD: Duration = Duration::from_secs(1);

/// A node that booted less than this time ago needs no turn: its pods have only just started, and
/// many nodes that join at once need not wait for each other.
const NEW_NODE: Duration = Duration::from_mins(15);

/// Run the image of a vendor's NIC driver once nothing uses the modules that it replaces
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "node-driver vendor-driver")]
pub struct VendorDriverCommand {
    /// What to do
    #[command(subcommand)]
    pub action: Action,
}

/// What to do.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Action {
    /// Copy this program to a directory that the vendor's container mounts
    Install {
        /// Directory
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Wait until nothing uses the modules, then run the image's own entry point
    Run(RunArgs),
    /// Exit with code 0 if this version is loaded
    Ready(StateArgs),
}

/// Which version, and where its state is.
#[derive(clap::Args, Clone, Debug)]
pub struct StateArgs {
    /// Version of the vendor's driver
    #[arg(long, value_name = "VERSION")]
    pub version: String,
    /// Directory below which the host's sys, proc and run/dranet are found
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

/// How to run the image.
#[derive(clap::Args, Clone, Debug)]
pub struct RunArgs {
    /// Which version
    #[command(flatten)]
    pub state: StateArgs,
    /// Module that the vendor's driver replaces; repeatable. Nothing may use it during the reload
    #[arg(long = "module", value_name = "NAME", required = true)]
    pub modules: Vec<String>,
    /// File that the image creates when its driver is loaded
    #[arg(long, value_name = "FILE")]
    pub ready_file: PathBuf,
    /// Kubelet's root directory, below which the driver records prepared claims
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// Replace modules although other network plugins, virtual machines or the node's own traffic
    /// use their NICs, which then lose their connections, and although the node went down during the
    /// last attempt. Claims and open devices are still waited for
    #[arg(long)]
    pub force: bool,
    /// Load a version that this node has not loaded before only in the node's turn, which the driver
    /// takes with --vendor-driver-drain=evict. A node that booted less than 15 minutes ago needs no
    /// turn
    #[arg(long)]
    pub first_load_in_turn: bool,
    /// Entry point of the image, with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Runs the subcommand to its end; `node` knows what is in these directories.
///
/// # Errors
/// The program cannot be copied, the version is not loaded, or the image's entry point failed.
pub async fn run(
    command: VendorDriverCommand,
    node: impl FnOnce(&Paths) -> Arc<dyn Node>,
) -> anyhow::Result<()> {
    match command.action {
        Action::Install { directory } => Ok(install(&directory.join("node-driver"))?),
        Action::Ready(args) => is_ready(&args),
        Action::Run(args) => Loader::new(args, node)?.run().await,
    }
}

fn is_ready(args: &StateArgs) -> anyhow::Result<()> {
    let state = file(&args.root)?.load();
    let text =
        state.as_ref().map_or_else(|| "nothing is loaded yet".to_owned(), ToString::to_string);
    let is_ready = state.is_some_and(|it| it.stage == Stage::Ready && it.version == args.version);
    anyhow::ensure!(is_ready, "version {} is not loaded: {text}", args.version);
    Ok(())
}

fn file(root: &Path) -> anyhow::Result<BootFile<VendorDriverState>> {
    state::file(&HostRoot::at(root))
        .with_context(|| format!("no boot ID below `{}`; is --root right?", root.display()))
}

/// Waits for its moment, and loads.
struct Loader {
    args: RunArgs,
    file: BootFile<VendorDriverState>,
    paths: Paths,
    attempts: AttemptFile,
    boot_id: String,
    /// The node's turn, which the driver grants.
    grant: Option<BootFile<Grant>>,
    node: Arc<dyn Node>,
    /// The interfaces of the host; none for a recorded machine.
    network: NetworkFacts,
}

impl Loader {
    fn new(args: RunArgs, node: impl FnOnce(&Paths) -> Arc<dyn Node>) -> anyhow::Result<Self> {
        let file = file(&args.state.root)?;
        let run = args.state.root.join("run/dranet");
        let paths = Paths {
            kubelet: args.kubelet_dir.clone(),
            driver: DRIVER.to_owned(),
            cdi: PathBuf::new(),
            netns: PathBuf::new(),
            sysctl: PathBuf::new(),
            run,
        };
        let attempts = AttemptFile::new(&paths.plugin());
        let host = HostRoot::at(&args.state.root);
        let boot_id = boot::boot_id(&host).unwrap_or_default();
        let grant = state::grant_file(&host);
        let (node, network) = (node(&paths), NetworkFacts::default());
        Ok(Self { args, file, paths, attempts, boot_id, grant, node, network })
    }

    async fn run(mut self) -> anyhow::Result<()> {
        let stop = process::run::stop_on_signal()?;
        let is_this_machine = boot::is_this_machine(&HostRoot::at(&self.args.state.root));
        loop {
            if is_this_machine {
                self.network = self.node.network().await.map_err(|error| anyhow::anyhow!(error))?;
            }
            match self.step()? {
                Step::Keep => {
                    say(&format!("version {} was loaded before", self.args.state.version));
                    stop.cancelled().await;
                    return Ok(());
                }
                Step::Load => return self.load(&stop).await,
                Step::Wait(_) | Step::WaitForTurn(_) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = sleep(PERIOD) => {}
            }
        }
    }

    /// Decides, and records the decision before another claim can be prepared.
    fn step(&self) -> anyhow::Result<Step> {
        // Held only for a moment: the driver then sees the record and prepares nothing.
        let _turn = turn::take(&self.paths)?;
        let before = self.file.load();
        let users = self.users()?;
        let version = &self.args.state.version;
        let step = plan::next(version, before.as_ref(), &users);
        match &step {
            Step::Keep => {}
            Step::Load => {
                self.attempts.store(&self.attempt(false))?;
                self.record(&self.state(Stage::Loading, ""))?;
            }
            Step::Wait(why) => self.wait(before.as_ref(), &self.state(Stage::Waiting, why))?,
            Step::WaitForTurn(why) => {
                let state = self.state(Stage::Waiting, why);
                let state = VendorDriverState { waits_for_turn: true, ..state };
                self.wait(before.as_ref(), &state)?;
            }
        }
        Ok(step)
    }

    /// Records what is waited for, if that is new.
    fn wait(
        &self,
        before: Option<&VendorDriverState>,
        state: &VendorDriverState,
    ) -> anyhow::Result<()> {
        let is_new = before.is_none_or(|it| {
            it.stage != state.stage
                || it.detail != state.detail
                || it.waits_for_turn != state.waits_for_turn
        });
        if is_new { self.record(state) } else { Ok(()) }
    }

    fn attempt(&self, is_loaded: bool) -> Attempt {
        let (version, boot_id) = (self.args.state.version.clone(), self.boot_id.clone());
        Attempt { version, boot_id, is_loaded }
    }

    /// Whether this version must wait for the node's turn, which the driver has not granted.
    fn lacks_turn(&self) -> bool {
        self.args.first_load_in_turn
            && !self.attempts.was_loaded(&self.args.state.version)
            && !self.is_new_node()
            && !self.has_turn()
    }

    fn is_new_node(&self) -> bool {
        let uptime = boot::uptime(&HostRoot::at(&self.args.state.root));
        uptime.is_some_and(|uptime| uptime < NEW_NODE)
    }

    fn has_turn(&self) -> bool {
        let grant = self.grant.as_ref().and_then(BootFile::load);
        grant.is_some_and(|grant| grant.version == self.args.state.version)
    }

    fn users(&self) -> anyhow::Result<Users> {
        let claims = self.node.claims().context("failed to read which claims are prepared")?;
        let RunArgs { state, modules, force, .. } = &self.args;
        let others = if *force {
            Vec::new()
        } else {
            let uses = functions::uses(&state.root.join("sys"), modules, &self.network);
            let objection = self.attempts.objection(&state.version, &self.boot_id);
            uses.into_iter().chain(objection).collect()
        };
        Ok(Users { claims, modules: self.loaded(), others, lacks_turn: self.lacks_turn() })
    }

    fn loaded(&self) -> state::Modules {
        loaded::read(&self.args.state.root.join("sys"), &self.args.modules)
    }

    fn state(&self, stage: Stage, detail: &str) -> VendorDriverState {
        let modules = self.loaded().into_iter().map(|(name, module)| (name, module.build));
        VendorDriverState {
            version: self.args.state.version.clone(),
            stage,
            modules: modules.collect(),
            detail: detail.to_owned(),
            waits_for_turn: false,
        }
    }

    fn record(&self, state: &VendorDriverState) -> anyhow::Result<()> {
        say(&state.to_string());
        self.file.store(state)?;
        match state.stage {
            Stage::Ready => self.attempts.store(&self.attempt(true))?,
            Stage::Failed => self.attempts.remove()?,
            Stage::Waiting | Stage::Loading => {}
        }
        Ok(())
    }

    async fn load(&self, stop: &CancellationToken) -> anyhow::Result<()> {
        // Of an earlier container, whose directory may be the host's.
        match fs::remove_file(&self.args.ready_file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = self.args.ready_file.display();
                return Err(error).with_context(|| format!("failed to remove `{path}`"));
            }
            _ => {}
        }
        let Err(error) = self.run_image(stop).await else { return Ok(()) };
        // An image that ends later leaves its modules loaded, and pods may use them.
        if self.file.load().is_none_or(|it| it.stage != Stage::Ready) {
            self.record(&self.state(Stage::Failed, &format!("{error:#}")))?;
        }
        Err(error)
    }

    /// Starts the image's entry point, and stays with it until it ends.
    async fn run_image(&self, stop: &CancellationToken) -> anyhow::Result<()> {
        let [program, arguments @ ..] = &self.args.command[..] else {
            anyhow::bail!("no entry point; give it after `--`");
        };
        let mut child = Command::new(program)
            .args(arguments)
            .spawn()
            .with_context(|| format!("failed to start `{program}`"))?;
        let mut is_recorded = false;
        loop {
            if !is_recorded && self.args.ready_file.exists() {
                self.record(&self.state(Stage::Ready, ""))?;
                is_recorded = true;
            }
            tokio::select! {
                status = child.wait() => {
                    let status = status?;
                    anyhow::ensure!(is_recorded, "`{program}` ended before its driver was loaded: {status}");
                    anyhow::ensure!(status.success(), "`{program}`: {status}");
                    return Ok(());
                }
                () = stop.cancelled() => return end(&mut child).await,
                () = sleep(PERIOD) => {}
            }
        }
    }
}

/// Passes the signal on, and waits: an image may restore the host's modules now.
async fn end(child: &mut Child) -> anyhow::Result<()> {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        kill_process(pid, Signal::TERM)?;
    }
    child.wait().await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the log of the container")]
fn say(line: &str) {
    println!("{line}");
}
