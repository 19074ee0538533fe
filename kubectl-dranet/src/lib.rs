//! The commands of `kubectl dranet`. Each command returns its text.
//!
//! What people are told is decided in other crates: topologies in topology-graph, plans in admission,
//! whether pods fit in cluster-model, fabrics in fabric-controller, ranks in scheduler-ext. Here are
//! the checks of `doctor`, and texts.

mod answer;
pub mod args;
mod at_start;
mod bench;
mod capacity;
pub mod colour;
mod completion;
mod defrag;
mod device_names;
mod diff;
mod doctor;
mod evicted;
mod explain;
mod extenders;
mod fabric;
mod fabric_condition;
mod graph;
mod groups;
mod in_use;
mod installed_drivers;
mod kinds;
mod kueue;
mod lint;
#[cfg(feature = "live")]
mod live;
#[cfg(not(feature = "live"))]
#[path = "no_client.rs"]
mod live;
mod machines;
mod migrate;
mod moves;
mod new_node;
mod nodes;
mod output;
mod own_pods;
mod plan;
mod plan_json;
mod pools;
mod predicted;
mod preemption;
#[cfg(feature = "live")]
mod progress;
mod reply;
mod rollout;
pub mod selector;
mod settings;
pub mod shape;
mod simulate;
mod snapshot;
mod source;
mod subject;
mod text;
mod top;
mod ui;
mod verify;
mod version;
mod waiting;

pub use output::Output;
pub use text::fitted;

use args::{Args, Command};

/// Runs a command and returns what it prints.
pub fn run(args: &Args) -> anyhow::Result<Output> {
    cluster_model::drivers::use_file(args.drivers.as_deref())?;
    cluster_model::snapshot::unpack_at_most(args.max_unpacked_mib);
    let output = decided(&args.command)?;
    // A plan can show objects, in which lines must stay whole.
    let is_prose = args.command.is_for_people() && !matches!(args.command, Command::Plan(_));
    Ok(if is_prose { Output { text: fitted(&output.text), ..output } } else { output })
}

/// Runs a command; returns its text with lines of any length.
fn decided(command: &Command) -> anyhow::Result<Output> {
    match command {
        Command::Graph(args) => graph::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Capacity(args) => capacity::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Defrag(args) => defrag::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Lint(args) => lint::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Fabric(args) => fabric::run(args),
        Command::Top(args) => top::run(args),
        Command::Ui(args) => ui::run(args),
        Command::Pools(args) => pools::run(args),
        Command::Machines(args) => machines::run(args),
        Command::Snapshot(args) => snapshot::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Migrate(args) => migrate::run(args),
        Command::Version(args) => version::run(args),
        Command::Completion(args) => completion::script(*args),
        Command::Man(args) => completion::man(args),
        Command::Complete { words } => Ok(completion::complete(words)),
    }
}
