//! `lint`: what is wrong with claims that were written by hand.

use crate::Output;
use crate::args::{LintArgs, LintFormat};
use crate::source::{self, Seen};
use admission::lint::{Finding, lint};
use anyhow::Context as _;
use k8s_openapi::api::resource::v1::ResourceClaimSpec;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// A claim, or the template of claims, and what was found.
struct Linted {
    kind: String,
    name: String,
    findings: Vec<Finding>,
}

pub(crate) fn run(args: &LintArgs) -> anyhow::Result<Output> {
    let objects = source::objects(&args.file)?;
    let Seen { view, notes, .. } = source::read_as_admission(&args.source, &args.admission, None)?;
    let mut linted = Vec::new();
    for object in &objects {
        let Some(claim) = claim(object)? else { continue };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        let findings = lint(&claim, &view, args.max_steps)
            .with_context(|| format!("failed to read {kind} `{name}`"))?;
        linted.push(Linted { kind, name, findings });
    }
    anyhow::ensure!(
        !linted.is_empty(),
        "`{}` holds no ResourceClaim and no ResourceClaimTemplate",
        args.file.display()
    );
    let mut findings = linted.iter().flat_map(|linted| &linted.findings);
    let denied = findings.any(|finding| finding.severity >= args.fail_on.into());
    let text = match args.output {
        LintFormat::Text => person(&linted)?,
        LintFormat::Json => program(&linted)?,
    };
    Ok(Output { text, denied, notes })
}

/// What an object asks for, where it is a claim or a template of claims.
fn claim(object: &Value) -> anyhow::Result<Option<ResourceClaimSpec>> {
    let spec = match object["kind"].as_str() {
        Some("ResourceClaim") => &object["spec"],
        Some("ResourceClaimTemplate") => &object["spec"]["spec"],
        _ => return Ok(None),
    };
    let name = &object["metadata"]["name"];
    let spec = serde_json::from_value(spec.clone());
    spec.map(Some).with_context(|| format!("the spec of {name} is malformed"))
}

fn person(linted: &[Linted]) -> anyhow::Result<String> {
    let mut out = String::new();
    for Linted { kind, name, findings } in linted {
        writeln!(out, "{kind} {name}")?;
        if findings.is_empty() {
            writeln!(out, "  nothing found")?;
        }
        for finding in findings {
            writeln!(out, "  {}: {finding} [{}]", finding.severity, finding.check.name())?;
        }
    }
    Ok(out)
}

fn program(linted: &[Linted]) -> anyhow::Result<String> {
    let finding = |finding: &Finding| {
        json!({
            "check": finding.check.name(),
            "severity": finding.severity.to_string(),
            "place": finding.place,
            "message": finding.message,
        })
    };
    let claims = linted.iter().map(|Linted { kind, name, findings }| {
        let findings: Vec<_> = findings.iter().map(finding).collect();
        json!({ "kind": kind, "name": name, "findings": findings })
    });
    let claims: Vec<_> = claims.collect();
    Ok(serde_json::to_string_pretty(&json!({ "claims": claims }))? + "\n")
}
