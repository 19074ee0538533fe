//! `doctor`: what to mend in the cluster.

mod cluster;

use crate::args::{DoctorArgs, LintFormat};
use crate::{Output, source};
use cluster::{ClusterFinding, Report, examine};
use serde_json::json;
use std::fmt::Write as _;

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Output> {
    let (view, notes) = source::read_with_quotas(&args.source)?;
    let report = examine(&view, &args.nic_class);
    let counts = |finding: &ClusterFinding| finding.severity >= args.fail_on.into();
    let denied = report.findings.iter().any(counts);
    let text = match args.output {
        LintFormat::Text => person(&report)?,
        LintFormat::Json => program(&report)?,
    };
    Ok(Output { text, denied, notes })
}

fn person(report: &Report) -> anyhow::Result<String> {
    let Report { nodes, with_gpus, with_nics, with_graph, findings } = report;
    let mut out = format!(
        "nodes: {nodes}, with GPUs of a DRA driver: {with_gpus}, with NICs: {with_nics}, with a \
         graph: {with_graph}\n"
    );
    if findings.is_empty() {
        writeln!(out, "nothing found")?;
    }
    for ClusterFinding { severity, place, message } in findings {
        writeln!(out, "{severity}: {place} {message}")?;
    }
    Ok(out)
}

fn program(report: &Report) -> anyhow::Result<String> {
    let finding = |ClusterFinding { severity, place, message }: &ClusterFinding| json!({"severity": severity.to_string(), "place": place, "message": message});
    let findings: Vec<_> = report.findings.iter().map(finding).collect();
    let report = json!({
        "nodes": report.nodes,
        "withGpus": report.with_gpus,
        "withNics": report.with_nics,
        "withGraph": report.with_graph,
        "findings": findings,
    });
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}
