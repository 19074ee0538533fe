//! `node-driver inspect`: what the driver would publish for this node and what it withholds, each with
//! its reason. A support case begins with it. It asks no API server and writes nothing.

mod report;

use crate::facts::cloud::source;
use crate::facts::held::Claims;
use crate::facts::host;
use crate::facts::kubelet_config::KubeletConfig;
use crate::facts::network::kernel::Kernel;
use crate::facts::network::uplinks::Uplinks;
use crate::facts::ports::KnownPorts;
use crate::facts::rails::rails_file;
use crate::facts::seen::{SEEN, SEEN_VERSION, Seen};
use cluster_model::drivers;
use cluster_model::names::DRIVER;
use node_files::boot;
use node_files::boot_file::BootFile;
use node_files::paths::Paths;
use publication::decision::{Facts, NicExpressions, decide_with};
use publication::filter::{self, Filter};
use publication::health::Health;
use publication::late::BindNics;
use publication::network::{HostNics, NetworkFacts};
use publication::rails::KnownRails;
use report::Report;
use std::fs;
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
    /// Which NICs the driver publishes: its --filter
    #[arg(long, value_name = "CEL", default_value = filter::DEFAULT)]
    pub filter: Filter,
    /// What NICs are for: the driver's --nic-role
    #[arg(long, value_name = "CEL", default_value = "", hide_default_value = true)]
    pub nic_role: Filter,
    /// Rails of compute NICs: the driver's --nic-rail
    #[arg(long, value_name = "CEL", default_value = "", hide_default_value = true)]
    pub nic_rail: Filter,
    /// Drivers of accelerators and NICs that are not built in: the driver's --drivers
    #[arg(long, value_name = "FILE")]
    pub drivers: Option<PathBuf>,
    /// NICs of the host and of pods
    #[command(flatten)]
    pub host_nics: HostNics,
    /// How pods get compute NICs: the driver's --bind-nics; `late` also for nodes that --late-nodes selects
    #[arg(long, value_enum, default_value_t = BindNics::Named)]
    pub bind_nics: BindNics,
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
    let InspectArgs { root, filter, nic_role, nic_rail, host_nics, .. } = args;
    let host = HostRoot::at(root);
    let paths = paths(args.kubelet_dir.clone());
    let is_this_machine = boot::is_this_machine(&host);
    let network = if is_this_machine {
        let uplinks = Uplinks::new(&host, host_nics.clone()).unsaved();
        Kernel::default().remembering(uplinks).read().await?
    } else {
        NetworkFacts { choice: host_nics.clone(), ..NetworkFacts::default() }
    };
    let snapshot = host::snapshot(&host, &KnownPorts::default())?;
    let cloud = source::kept(&host).unwrap_or_default();
    let rails = rails_file(&args.run_dir);
    let mut facts = Facts { snapshot, network, cloud, rails };
    let seen: Option<Seen> = BootFile::new(&host, SEEN, SEEN_VERSION).and_then(|it| it.load());
    let claims = Claims::new(Some(paths.checkpoint()));
    let held = claims.held();
    let seen = seen.unwrap_or_default();
    seen.complete(&mut facts, &held);
    let rails = fs::read(paths.rails()).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let known: KnownRails = rails.unwrap_or_default();
    let expressions = NicExpressions { role: nic_role, rail: nic_rail };
    let decision = decide_with(&facts, expressions, &known)
        .with_gone(seen.gone(&facts.snapshot, &held))
        .filtered(filter)
        .with_something_to_give(&facts.snapshot, &held)
        .one_function_per_port(&facts.snapshot, &held);
    // What is wrong now, if it lasts.
    let (mut health, now) = (Health::default(), Instant::now());
    health.observe(&decision.vitals, now);
    health.observe(&decision.vitals, now + LASTS);
    let problems = health.problems(now + LASTS);
    let policy = KubeletConfig::at(args.kubelet_config.clone()).topology_policy();
    if args.bind_nics == BindNics::Named {
        return Ok(Report::new(decision, problems, &held, is_this_machine).with_policy(policy));
    }
    let (places, taken) = (claims.places(), held.keys().cloned().collect());
    let (decision, nics) = decision.bound_late(&places, &taken);
    let report = Report::new(decision, problems, &held, is_this_machine);
    Ok(report.with_policy(policy).with_late(nics))
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
