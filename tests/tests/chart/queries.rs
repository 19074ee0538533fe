//! Every query of the dashboard and of the alerts, evaluated on the metrics of programs that run. Their
//! room is what `kubectl dranet capacity` counts.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context;
use serde_json::{Value, json};
use tests::{
    Check, ControlPlane, binaries, eventually, installation::Installation, suite::Test, with_scope,
};
use tokio::process::Command;

use super::monitoring::{expressions, parsed};

const SOON: Duration = Duration::from_secs(30);

/// The time at which queries are evaluated; every series has its value since the beginning.
const AT: &str = "10m";

/// The level at which pods on a GB300 node are aligned.
const LEVEL: &str = "numa";

pub(crate) fn tests() -> Vec<Test> {
    let all = tests::tests![queries_answer_for_programs_that_run];
    all.into_iter().map(Test::alone).collect()
}

async fn queries_answer_for_programs_that_run(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let mut installation = Installation::install(&plane, scope).await?;
        installation.gb300("one").await?;
        installation.start_admission().await?;
        installation.start_fabric_controllers(1, &[]).await?;
        installation.start_extender_alone().await?;
        let metrics = eventually(SOON, async || {
            let metrics = installation.extender()?.metrics().await?;
            let has_room =
                metrics.iter().any(|(name, pods)| name.contains("room_pods") && *pods > 0.0);
            Ok(if has_room { Check::Done(metrics) } else { Check::NotYet("no room".to_owned()) })
        });
        let mut metrics = metrics.await?;
        metrics.extend(installation.replicas()[0].metrics().await?);
        metrics.extend(installation.fabric_controllers()[0].metrics().await?);
        let expressions = expressions()?;
        let answers = evaluated(&expressions, &metrics).await?;
        let served: Vec<&str> = metrics.keys().filter_map(|name| name.split('{').next()).collect();
        let mut answered = 0;
        for (expression, uses) in expressions.iter().zip(parsed(&expressions).await?) {
            let is_served = uses.metrics.iter().all(|metric| served.contains(&metric.as_str()));
            // Alerts answer only if something is wrong, and a selector may select what did not happen.
            let is_plain = !expression.contains(['>', '<', '{']) && !expression.contains("== ");
            if is_served && expression.starts_with("absent(") {
                assert!(!answers.contains_key(expression), "`{expression}`: it is there");
            } else if is_served && is_plain {
                let answer = answers.get(expression.as_str());
                assert!(answer.is_some(), "`{expression}` has no answer for {metrics:#?}");
                answered += 1;
            }
        }
        assert!(answered > 5, "{answered} of {} queries have an answer", expressions.len());
        let room = expressions.iter().find(|it| it.contains("dranet_scheduler_ext_room_pods"));
        let room = answers.get(room.context("the dashboard shows the room")?.as_str());
        let room = room.context("there is room")?;
        let mut compared = 0;
        for (shape, pods) in of_level(room)? {
            // A gang's room is that of whole nodes, of which there is one.
            if let Some((gpus, nics)) = shape.split_once('x').filter(|_| !shape.contains('*')) {
                let counted = capacity(&plane, &format!("{gpus}gpu:{nics}nic")).await?;
                assert_eq!(pods, counted, "{shape}: {room}");
                compared += 1;
            }
        }
        assert!(compared > 0, "{room}");
        Ok(())
    })
    .await
}

/// The answer of each query that has one, in promtool's words. The test of rules expects no answer, and
/// says what it got.
async fn evaluated(
    expressions: &[String],
    metrics: &BTreeMap<String, f64>,
) -> anyhow::Result<BTreeMap<String, String>> {
    let series = metrics.iter().filter(|(_, value)| value.is_finite());
    let series: Vec<_> = series
        .map(|(name, value)| json!({ "series": name, "values": format!("{value}+0x10") }))
        .collect();
    let queries: Vec<_> = expressions
        .iter()
        .map(|expression| json!({ "expr": expression, "eval_time": AT, "exp_samples": [] }))
        .collect();
    let file = json!({ "evaluation_interval": "1m", "tests": [
        { "interval": "1m", "input_series": series, "promql_expr_test": queries },
    ] });
    let work = tempfile::tempdir()?;
    std::fs::write(work.path().join("queries.yaml"), file.to_string())?;
    let mut promtool = Command::new(binaries::chart_tool("promtool")?);
    promtool.args(["test", "rules", "queries.yaml"]).current_dir(work.path()).kill_on_drop(true);
    let output = promtool.output().await?;
    let said = String::from_utf8(output.stderr)? + &String::from_utf8(output.stdout)?;
    anyhow::ensure!(!said.contains(", err: "), "a query fails: {said}");
    let mut answers = BTreeMap::new();
    let mut query = None;
    for line in said.lines() {
        if let Some(rest) = line.trim().strip_prefix("expr: ") {
            let quoted = rest.rsplit_once(", time: ").map(|(quoted, _)| quoted);
            query = Some(serde_json::from_str::<String>(quoted.context("it has a time")?)?);
        } else if let (Some(answer), Some(query)) = (line.trim().strip_prefix("got: "), &query) {
            answers.insert(query.clone(), answer.to_owned());
        }
    }
    Ok(answers)
}

/// The pods of each shape in an answer about room, at the level of aligned pods.
fn of_level(room: &str) -> anyhow::Result<Vec<(String, u64)>> {
    let level = format!("level=\"{LEVEL}\"");
    let samples = room.split('{').filter(|sample| sample.contains(&level));
    samples
        .map(|sample| {
            let (labels, value) = sample.split_once("} ").context("a sample has a value")?;
            let (_, shape) = labels.split_once("shape=\"").context("it has a shape")?;
            let value = value.trim_end_matches([',', ' ']);
            let pods: f64 = value.parse().with_context(|| format!("`{value}` is no number"))?;
            let shape = shape.split('"').next().unwrap_or_default().to_owned();
            Ok((shape, format!("{pods}").parse()?))
        })
        .collect()
}

/// How many pods of a shape fit now.
async fn capacity(plane: &ControlPlane, shape: &str) -> anyhow::Result<u64> {
    let mut command = Command::new(binaries::ours("kubectl-dranet")?);
    command.args(["capacity", "--shape", shape, "-o", "json", "--kubeconfig"]);
    let output = command.arg(plane.kubeconfig()).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{shape}: {errors}");
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    answer["shapes"][0]["fitNow"].as_u64().context("it counts pods")
}
