//! `node-driver inspect`: what the driver would publish for this node and what it withholds, each with
//! its reason. A support case begins with it. It asks no API server and writes nothing.

mod report;

use crate::args::NicArgs;
use crate::decide::look::{self, Look, Settings};
use crate::facts::cloud::source;
use crate::facts::held::Claims;
use crate::facts::history::HistoryFiles;
use crate::facts::host;
use crate::facts::kubelet_config::KubeletConfig;
use crate::facts::modules::KernelFacts;
use crate::facts::network::kernel::Kernel;
use crate::facts::network::uplinks::Uplinks;
use crate::facts::ports::KnownPorts;
use crate::facts::rails::rails_file;
use cluster_model::drivers;
use cluster_model::names::DRIVER;
use node_files::boot;
use node_files::paths::Paths;
use publication::host_setup::SetUp;
use publication::machine::{Facts, Usage};
use publication::network::NetworkFacts;
use report::Report;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use topology_graph::HostRoot;

/// For how long a state must last until it is a problem, at most.
const LASTS: Duration = Duration::from_mins(1);

/// Print what this node would publish and what it withholds, each with its reason; asks no API
/// server and writes nothing
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "node-driver inspect")]
pub struct InspectArgs {
    /// Directory that contains the host's sys, proc, dev, run and etc
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Drivers of accelerators and NICs that are not built in: the driver's --drivers
    #[arg(long, value_name = "FILE")]
    pub drivers: Option<PathBuf>,
    /// What is published of the NICs
    #[command(flatten)]
    pub nics: NicArgs,
    /// Kubelet's configuration file: the driver's --kubelet-config
    #[arg(long, value_name = "FILE")]
    pub kubelet_config: Option<PathBuf>,
    /// Kubelet's root directory, whose checkpoint shows which NICs claims have
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// Directory with the node's file of rails: the driver's --run-dir
    #[arg(long, value_name = "DIR", default_value = "/run/dranet")]
    pub run_dir: PathBuf,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// How to print.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// Inspects the machine and prints the report.
///
/// # Errors
/// The machine cannot be read.
pub async fn run(args: InspectArgs) -> anyhow::Result<()> {
    drivers::use_file(args.drivers.as_deref())?;
    let report = inspect(&args).await?;
    let text = match args.output {
        Format::Text => report.to_string(),
        Format::Json => serde_json::to_string_pretty(&report)? + "\n",
    };
    Ok(io::stdout().write_all(text.as_bytes())?)
}

async fn inspect(args: &InspectArgs) -> anyhow::Result<Report> {
    let (root, host_nics) = (&args.root, &args.nics.host_nics);
    let host = HostRoot::at(root);
    let paths = paths(args.kubelet_dir.clone());
    let is_this_machine = boot::is_this_machine(&host);
    let network = if is_this_machine {
        let uplinks = Uplinks::new(&host, host_nics.clone()).unsaved();
        Kernel::default().remembering(uplinks).read().await?
    } else {
        NetworkFacts { choice: host_nics.clone(), ..NetworkFacts::default() }
    };
    let claims = Claims::new(Some(paths.checkpoint()));
    let look = Look {
        machine: Facts {
            snapshot: host::snapshot(&host, &KnownPorts::default())?,
            network,
            cloud: source::kept(&host).unwrap_or_default(),
            rails: rails_file(&args.run_dir),
        },
        usage: Usage { held: claims.held(), ..Usage::default() },
        namespaces: None,
        kernel: KernelFacts::default(),
        given: claims.given(),
        bind_nics: args.nics.bind_nics,
        topology_policy: KubeletConfig::at(args.kubelet_config.clone()).topology_policy(),
        setup: SetUp::default(),
        now: Instant::now(),
    };
    // Without taints: the driver's flags decide which problems are taints.
    let rules = args.nics.rules();
    let settings = Settings { rules, locked_memory: None };
    let history = HistoryFiles::new(&host, Some(paths.rails())).load();
    let first = look::decide(look.clone(), &settings, &history);
    // What is wrong now, if it lasts.
    let later = Look { now: look.now + LASTS, ..look.clone() };
    let outcome = look::decide(later, &settings, &first.history);
    Ok(Report::new(outcome, &look, is_this_machine))
}

fn paths(kubelet: PathBuf) -> Paths {
    Paths {
        kubelet,
        driver: DRIVER.to_owned(),
        cdi: PathBuf::new(),
        run: PathBuf::new(),
        netns: PathBuf::new(),
        sysctl: PathBuf::new(),
    }
}

#[cfg(test)]
mod tests;
