//! The answer for a person.

use crate::answer::{CheckState, Doctor, DoctorFinding, DoctorMachine};
use crate::kinds::NODES;
use crate::text::{counted, listed, table};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The most machine types that a line names.
const NAMED: usize = 3;

/// What would give machine types a better join, with these types.
fn betters(machines: &[DoctorMachine]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut betters: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for machine in machines {
        if let Some(better) = &machine.better {
            betters.entry(better).or_default().insert(&machine.name);
        }
    }
    betters
}

/// How many checks the user's rights did not allow, without which no finding says little.
fn left_out(answer: &Doctor) -> String {
    let skipped = answer.checks.iter().filter(|check| check.state == CheckState::Skipped).count();
    if answer.unread.is_empty() || skipped == 0 {
        return String::new();
    }
    format!(", but {skipped} of {} were not made", counted(answer.checks.len(), "check"))
}

pub(super) fn person(answer: &Doctor) -> anyhow::Result<String> {
    let Doctor { nodes, with_gpus, with_nics, with_graph, machines, .. } = answer;
    let mut out = String::new();
    if answer.installed == Some(false) {
        writeln!(
            out,
            "not installed: no part of the project is in this cluster; see docs/start/install.md, and \
             --pre for what to check before"
        )?;
    }
    if !answer.unread.is_empty() {
        let kinds = listed(&answer.unread);
        writeln!(
            out,
            "you may not read {kinds}: what depends on them is not checked; ask for the ClusterRole \
             `dranet-reader`, as docs/operate/rights.md says"
        )?;
    }
    if let Some(server) = &answer.server {
        writeln!(out, "API server: {server}")?;
    }
    let is_unread = answer.unread.iter().any(|kind| *kind == NODES.resource());
    if is_unread {
        writeln!(out, "nodes: not known")?;
    } else {
        writeln!(
            out,
            "nodes: {nodes}, with GPUs of a DRA driver: {with_gpus}, with NICs: {with_nics}, with a \
         graph: {with_graph}"
        )?;
    }
    let modes = answer.rdma_namespace_modes.iter();
    let modes: Vec<_> =
        modes.map(|(mode, nodes)| format!("{mode} on {}", counted(*nodes, "node"))).collect();
    if !modes.is_empty() {
        writeln!(out, "RDMA namespace mode: {}", modes.join(", "))?;
    }
    if machines.is_empty() {
        out.push('\n');
    } else {
        let rows: Vec<_> = machines
            .iter()
            .map(|it| {
                let join = it.join.as_deref().unwrap_or("none");
                let numbers = [it.nodes, it.gpus, it.nics].map(|number| number.to_string());
                [vec![it.name.clone()], numbers.to_vec(), vec![join.to_owned()]].concat()
            })
            .collect();
        write!(out, "\n{}\n", table(&["MACHINE", "NODES", "GPUS", "NICS", "JOIN"], &rows))?;
        for (better, machines) in betters(machines) {
            let names = machines.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
            let more = if machines.len() > NAMED { " and others" } else { "" };
            writeln!(out, "join of {names}{more}: {better}")?;
        }
    }
    answer.checks.iter().try_for_each(|check| writeln!(out, "{check}"))?;
    out.push('\n');
    if answer.findings.is_empty() {
        writeln!(out, "no findings{}", left_out(answer))?;
    }
    for DoctorFinding { severity, place, message } in &answer.findings {
        writeln!(out, "{severity}: {place} {message}")?;
    }
    Ok(out)
}
