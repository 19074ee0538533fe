//! A program exports every metric and every label that the dashboard and the alerts name, and the
//! alerts fire when they should.

use std::{collections::BTreeSet, fs, path::Path, process::Stdio, sync::Arc};

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;
use tests::{
    ControlPlane, binaries,
    chart::{folder, printed},
    installation::Installation,
    suite::Test,
    with_scope,
};
use tokio::{io::AsyncWriteExt, process::Command};

/// The programs, with their folders and the prefixes of their metrics.
const PROGRAMS: [(&str, &str); 6] = [
    ("admission/src", "dranet_admission_"),
    ("fabric-controller/src", "dranet_fabric_controller_"),
    ("preemptor/src", "dranet_"),
    ("node-driver/src/prepare", "dranet_plugin_"),
    ("node-driver/src", "dranet_driver_"),
    ("scheduler-ext/src", "dranet_scheduler_ext_"),
];

/// The metric of every program.
const BUILD: &str = "dranet_build_info";

/// Metrics of kube-state-metrics.
const FOREIGN_METRICS: [&str; 1] = ["kube_node_info"];

/// Labels that Prometheus or its format sets.
const FOREIGN_LABELS: [&str; 4] = ["instance", "job", "le", "node"];

pub(crate) fn tests() -> Vec<Test> {
    let mut all = tests::tests![every_shown_metric_and_label_exists, alerts_fire_when_they_should];
    all.extend(tests::tests![served_metrics_are_in_the_sources].into_iter().map(Test::alone));
    all
}

async fn every_shown_metric_and_label_exists(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let there: BTreeSet<_> = registered()?;
    let labels = labels()?;
    let expressions = expressions()?;
    assert!(expressions.len() > 30, "{}", expressions.len());
    for (expression, uses) in expressions.iter().zip(parsed(&expressions).await?) {
        assert!(!uses.metrics.is_empty(), "`{expression}` shows no metric");
        for metric in uses.metrics {
            let known = there.contains(&metric) || FOREIGN_METRICS.contains(&metric.as_str());
            assert!(known, "`{expression}`: no program has `{metric}`");
        }
        for label in uses.labels {
            let known = labels.contains(&label) || FOREIGN_LABELS.contains(&label.as_str());
            assert!(known, "`{expression}`: no metric has the label `{label}`");
        }
    }
    Ok(())
}

/// `promtool` checks the rules and runs their unit tests (`chart/alerts.yaml`), of which each alert
/// has one that fires.
async fn alerts_fire_when_they_should(_: Arc<ControlPlane>) -> anyhow::Result<()> {
    let tests = fs::read_to_string(binaries::in_tests("chart/alerts.yaml"))?;
    let rules = fs::read_to_string(folder().join("files/rules.yaml"))?;
    for line in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let fires = format!("alertname=\"{line}\", alertstate=\"firing\"");
        let has_alert = format!("alertname: {line}\n");
        anyhow::ensure!(tests.contains(&fires) || tests.contains(&has_alert), "`{line}`: no test");
    }
    // The tests name the rules by a path relative to themselves.
    let work = tempfile::tempdir()?;
    fs::write(work.path().join("rules.yaml"), &rules)?;
    fs::write(work.path().join("alerts.yaml"), &tests)?;
    for arguments in [&["check", "rules", "rules.yaml"][..], &["test", "rules", "alerts.yaml"]] {
        promtool(work.path(), arguments).await?;
    }
    // A rule that never fires fails its test.
    fs::write(work.path().join("rules.yaml"), rules.replace("> 0\n", "> 1000\n"))?;
    let failed = promtool(work.path(), &["test", "rules", "alerts.yaml"]).await;
    let failed = failed.expect_err("the NICs' problems are below 1000").to_string();
    anyhow::ensure!(failed.contains("DranetNicHasAProblem"), "{failed}");
    Ok(())
}

/// Runs promtool in a folder. Its error is what it printed.
async fn promtool(folder: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(binaries::chart_tool("promtool")?);
    let output = command.args(arguments).current_dir(folder).kill_on_drop(true).output().await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    anyhow::ensure!(output.status.success(), "{said}{errors}");
    Ok(said)
}

/// The metrics of a running program have names that this test reads from the sources.
async fn served_metrics_are_in_the_sources(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        installation.start_admission().await?;
        let there = registered()?;
        let served = installation.replicas()[0].metrics().await?;
        let names: BTreeSet<_> =
            served.keys().map(|name| name.split('{').next().unwrap_or_default()).collect();
        assert!(names.contains("dranet_admission_requests_total"), "{names:?}");
        assert!(names.contains(BUILD), "{names:?}");
        for name in names.iter().filter(|name| name.starts_with("dranet_") && **name != BUILD) {
            assert!(there.contains(*name), "`{name}` is not known");
        }
        Ok(())
    })
    .await
}

/// The expressions of the dashboard, with Grafana's variable filled in, and of the alerts.
pub(super) fn expressions() -> anyhow::Result<Vec<String>> {
    let read = |name: &str| fs::read_to_string(folder().join("files").join(name));
    let dashboard: Value = serde_json::from_str(&read("dashboard.json")?)?;
    let rules: Value = serde_saphyr::from_str(&read("rules.yaml")?)?;
    let mut expressions = Vec::new();
    strings_at("expr", &dashboard, &mut expressions);
    strings_at("expr", &rules, &mut expressions);
    Ok(expressions.iter().map(|text| text.replace("$__rate_interval", "5m")).collect())
}

fn strings_at(key: &str, value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                match value.as_str() {
                    Some(text) if name == key => found.push(text.to_owned()),
                    _ => strings_at(key, value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| strings_at(key, value, found)),
        _ => {}
    }
}

/// The names in an expression.
#[derive(Debug, Deserialize)]
pub(super) struct Uses {
    pub(super) metrics: Vec<String>,
    labels: Vec<String>,
}

/// Parses expressions with Prometheus' own parser.
pub(super) async fn parsed(expressions: &[String]) -> anyhow::Result<Vec<Uses>> {
    let mut parser = Command::new(binaries::chart_tool("expressions")?)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = parser.stdin.take().context("it has an input")?;
    for expression in expressions {
        input.write_all(format!("{}\n", Value::from(expression.as_str())).as_bytes()).await?;
    }
    drop(input);
    let lines = printed(parser.wait_with_output().await?)?;
    lines.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// The names of all series that the programs register, in the form in which they are served.
fn registered() -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (folder, prefix) in PROGRAMS {
        for text in sources(&binaries::in_tests("..").join(folder))? {
            for (call, rest) in calls(&text, prefix) {
                let Some(name) = rest.trim_start().strip_prefix('"') else { continue };
                let name = name.split('"').next().unwrap_or_default();
                for unit in units(call) {
                    for suffix in ["", "_total", "_bucket", "_sum", "_count"] {
                        names.insert(format!("{prefix}{name}{unit}{suffix}"));
                    }
                }
            }
        }
    }
    Ok(names)
}

/// The suffixes that a call adds to a name. The call for collectors takes the unit as an argument.
fn units(call: &str) -> &'static [&'static str] {
    match call {
        "register(" => &[""],
        "register_with_unit(" => &["_seconds"],
        _ => &["", "_seconds"],
    }
}

/// The calls in a text that register metrics, each with the text after it.
fn calls<'a>(text: &'a str, prefix: &str) -> Vec<(&'static str, &'a str)> {
    // Two registries in one folder have separate files.
    let own = |name: &str| text.contains(&format!("\"{name}\""));
    let other = PROGRAMS.map(|(_, prefix)| prefix.trim_end_matches('_'));
    let others = other.iter().any(|name| *name != prefix.trim_end_matches('_') && own(name));
    if others {
        return Vec::new();
    }
    let all = ["register(", "register_with_unit(", "encode_descriptor("];
    all.iter().flat_map(|call| text.split(call).skip(1).map(|rest| (*call, rest))).collect()
}

/// The names of all labels that a program's metrics have.
fn labels() -> anyhow::Result<BTreeSet<String>> {
    let mut labels = BTreeSet::new();
    for (folder, _) in PROGRAMS {
        for text in sources(&binaries::in_tests("..").join(folder))? {
            for set in text.split("EncodeLabelSet)]").skip(1) {
                let fields = set.split(['{', '}']).nth(1).unwrap_or_default();
                let names = fields.split(',').filter_map(|field| field.split_once(':'));
                labels.extend(names.map(|(name, _)| name.trim().to_owned()));
            }
        }
    }
    Ok(labels)
}

/// The texts of the Rust files below a folder.
fn sources(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            texts.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push(fs::read_to_string(&path)?);
        }
    }
    Ok(texts)
}
