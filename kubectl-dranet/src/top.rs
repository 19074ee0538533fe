//! `top`: what is free on each node.

use crate::Output;
use crate::answer::{Amount, LowerHolder, NicAmount, Top, TopNode};
use crate::args::{ListForm, TopArgs};
use crate::kinds::{PODS, USE};
use crate::nodes::{NodeState, labels};
use crate::preemption::{first_waiting, lower_holders};
use crate::source::{self, ReadCluster, Source};
use crate::text::{self, Short, counted, listed, table};
use cluster_model::room::Nodes;
use cluster_model::view::{ClusterView, ObjectKey};
use preemptor::Pods;
use std::fmt;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::time::Duration;

/// The most pods of lower priority that are named for a node.
const LOWER_MAX: usize = 4;
/// Moves the cursor to the upper left corner and clears the screen.
const AGAIN: &str = "\x1b[H\x1b[J";

pub(crate) fn run(args: &TopArgs) -> anyhow::Result<Output> {
    let source = Source::open(&args.source)?;
    let is_table = matches!(args.output, ListForm::Text | ListForm::Wide);
    let is_watched = is_table && matches!(source, Source::Live(_)) && stdout().is_terminal();
    if args.once || !is_watched {
        return shown(&source, args);
    }
    while let Source::Live(cluster) = &source {
        let Output { text, notes, .. } = shown(&source, args)?;
        let notes = text::lines(notes.iter().map(|note| format!("note: {note}")));
        // The reader has closed the output.
        if write!(stdout(), "{AGAIN}{text}{notes}").and_then(|()| stdout().flush()).is_err() {
            break;
        }
        cluster.pause(Duration::from_secs(args.interval.max(1).into()));
    }
    Ok(Output::from(String::new()))
}

fn shown(source: &Source, args: &TopArgs) -> anyhow::Result<Output> {
    let mut queries = source::of_view();
    queries.push(PODS.all("GPUs of device plugins that are in use are not known"));
    let mut seen = source.read(&queries, &["Node", "Pod"])?;
    seen.must_know(&USE)?;
    let facts = seen.nodes()?;
    let mut pods = Pods::default();
    seen.pods(None)?.iter().for_each(|pod| pods.apply(pod));
    let ReadCluster { view, notes, .. } = seen;
    let mut states = states(&view, &facts, args);
    let first = first_waiting(&pods);
    if let Some((_, priority)) = &first {
        for state in &mut states {
            state.lower = lower_holders(&view, (&state.name, &pods), *priority);
        }
    }
    for asked in &args.nodes {
        let is_there = view.present_nodes().any(|node| node == asked.as_str());
        anyhow::ensure!(is_there, "found no node `{asked}`");
    }
    let text = match args.output {
        ListForm::Text => person(&states, false) + &lower(&states, first.as_ref()),
        ListForm::Wide => person(&states, true) + &lower(&states, first.as_ref()),
        ListForm::Name => text::lines(states.iter().map(|it| format!("node/{}", it.name))),
        ListForm::Json => text::answer(&answer(&states), false)?,
        ListForm::Yaml => text::answer(&answer(&states), true)?,
    };
    Ok(Output { notes, ..Output::from(text) })
}

/// The nodes with GPUs or NICs of DRA drivers, by name. GPUs of a device plugin are counted on nodes without
/// those of a DRA driver.
fn states(view: &ClusterView, facts: &Nodes, args: &TopArgs) -> Vec<NodeState> {
    let states = view
        .present_nodes()
        .filter(|node| args.nodes.is_empty() || args.nodes.iter().any(|asked| asked == node))
        .filter(|node| args.selector.as_ref().is_none_or(|it| it.matches(&labels(view, node))))
        .map(|node| NodeState::new(view, node, facts));
    let states = states.filter(|it| it.gpus.all + it.nics.all > 0);
    let mut states: Vec<_> = states.map(|it| it.with_plugin_gpus(view, facts)).collect();
    states.sort_by(|one, other| one.name.cmp(&other.name));
    states
}

fn person(states: &[NodeState], is_wide: bool) -> String {
    let fabrics = Short::of(states.iter().filter_map(|it| it.fabric.as_deref()), is_wide);
    if states.is_empty() {
        return "no node has GPUs or NICs of a DRA driver\n".to_owned();
    }
    let mut heading = vec!["NODE", "GPUS FREE", "NICS FREE", "WHOLE CELLS", "FABRIC"];
    heading.extend(is_wide.then_some("MACHINE"));
    heading.push("STATE");
    let rows: Vec<_> = states.iter().map(|it| row(it, &fabrics, is_wide)).collect();
    table(&heading, &rows) + "\n" + &total(states, is_wide)
}

fn row(it: &NodeState, fabrics: &Short, is_wide: bool) -> Vec<String> {
    let mut row = vec![
        it.name.clone(),
        free(it.gpus),
        nics(it),
        it.whole_cells.map_or_else(|| "-".to_owned(), |cells| cells.to_string()),
        it.fabric.as_deref().map_or_else(|| "-".to_owned(), |fabric| fabrics.name(fabric)),
    ];
    if is_wide {
        row.push(it.machine.clone());
    }
    let troubles = it.troubles();
    let ports = match (troubles.len(), is_wide) {
        (0, _) => "ok".to_owned(),
        (_, true) => troubles.join("; "),
        (number, false) => format!("{number} in trouble"),
    };
    row.push(it.closed.map_or_else(|| ports.clone(), |closed| format!("{closed}; {ports}")));
    row
}

/// `6/8`, `6/8 (25/32 functions)`, `6/8 places`.
fn nics(state: &NodeState) -> String {
    let functions = state.functions.map_or_else(String::new, |functions| {
        format!(" ({}/{} functions)", functions.free, functions.all)
    });
    free(state.nics) + &functions + if state.binds_late { " places" } else { "" }
}

/// `3/4`, `3/4 (1 partly)`.
fn free(amount: Amount) -> String {
    let Amount { free, partly, all, .. } = amount;
    let partly = if partly > 0 { format!(" ({partly} partly)") } else { String::new() };
    format!("{free}/{all}{partly}")
}

/// What is free on all nodes that take pods, and what is not usable.
fn total(states: &[NodeState], is_wide: bool) -> String {
    let open: Vec<_> = states.iter().filter(|it| it.closed.is_none()).collect();
    let gpus: usize = open.iter().map(|it| it.gpus.free).sum();
    let (nodes, gpus) = (counted(states.len(), "node"), counted(gpus, "GPU"));
    let nics = counted(free_nics(&open, false), "NIC");
    let free = if states.iter().any(|it| it.binds_late) {
        let places = counted(free_nics(&open, true), "place");
        format!(
            "{nodes}, {gpus}, {nics} and {places} (NICs that are chosen when a pod starts) free"
        )
    } else {
        format!("{nodes}, {gpus} and {nics} free")
    };
    let closed = states.len() - open.len();
    let closed = (closed > 0).then(|| {
        let takes = if closed == 1 { "takes" } else { "take" };
        format!("{} {takes} no pods", counted(closed, "node"))
    });
    let troubled: usize = open.iter().map(|it| it.gpus.unusable + it.nics.unusable).sum();
    let troubled = (troubled > 0).then(|| {
        let is = if troubled == 1 { "is" } else { "are" };
        let how = if is_wide { "" } else { " (-o wide names them)" };
        format!("{} {is} down, degraded or tainted{how}", counted(troubled, "device"))
    });
    [Some(free), troubled, closed].into_iter().flatten().collect::<Vec<_>>().join("; ") + "\n"
}

/// How many NICs are free on the nodes that choose them when a pod starts, or on the others.
fn free_nics(open: &[&NodeState], binds_late: bool) -> usize {
    open.iter().filter(|it| it.binds_late == binds_late).map(|it| it.nics.free).sum()
}

/// The pods that have devices although one of higher priority waits for some.
fn lower(states: &[NodeState], first: Option<&(ObjectKey, i32)>) -> String {
    let mut nodes = states.iter().filter(|it| !it.lower.is_empty()).peekable();
    let Some((pod, priority)) = first.filter(|_| nodes.peek().is_some()) else {
        return String::new();
    };
    let heading = format!(
        "\npod {pod} of priority {priority} waits for devices; pods of lower priority have some:"
    );
    let nodes = nodes.map(|it| {
        let mut pods: Vec<String> = it.lower.iter().map(ToString::to_string).collect();
        let more = pods.len().saturating_sub(LOWER_MAX);
        pods.truncate(LOWER_MAX);
        pods.extend((more > 0).then(|| format!("{more} more")));
        format!("  {}: {}", it.name, listed(&pods))
    });
    text::lines([heading].into_iter().chain(nodes))
}

impl fmt::Display for LowerHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, priority } = self;
        write!(f, "{pod} (priority {priority})")
    }
}

fn answer(states: &[NodeState]) -> Top {
    Top { nodes: states.iter().map(node).collect() }
}

fn node(it: &NodeState) -> TopNode {
    let Amount { free, partly, unusable, all } = it.nics;
    TopNode {
        name: it.name.clone(),
        machine: it.machine.clone(),
        fabric: it.fabric.clone(),
        gpus: it.gpus,
        nics: NicAmount { free, partly, unusable, all, functions: it.functions },
        whole_cells: it.whole_cells,
        binds_late: it.binds_late,
        ports: it.troubles().into_iter().map(str::to_owned).collect(),
        closed: it.closed.map(|closed| closed.to_string()),
        lower: it.lower.clone(),
    }
}
