//! Starting and stopping: the guarantees of the harness itself.

use std::{
    fs,
    io::{BufRead, BufReader},
    panic::{self, AssertUnwindSafe},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::Context;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use tests::{
    Check, ControlPlane, Options, Program, SchedulerConfig, binaries, eventually, suite::Test,
    with_scope,
};

const SOON: Duration = Duration::from_secs(10);

pub(crate) fn tests() -> Vec<Test> {
    let mut all = tests::tests![
        its_version_is_the_pinned_one,
        simulated_nodes_are_ready_and_stay_so,
        a_panic_ends_the_program_and_its_children,
        a_program_that_ends_early_is_reported_with_its_log,
    ];
    // These start separate control planes, or replace a part of this one.
    all.extend(
        tests::tests![
            a_panic_ends_a_second_control_plane,
            a_killed_process_leaves_no_control_plane,
            the_scheduler_restarts_with_another_configuration,
        ]
        .into_iter()
        .map(Test::alone),
    );
    all
}

async fn its_version_is_the_pinned_one(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let version = plane.client().apiserver_version().await?;
    assert_eq!(version.git_version, binaries::kubernetes_version()?);
    Ok(())
}

/// With the node-lifecycle-controller, a node without a lease is `NotReady` after 40 s. The test
/// checks that this controller does not run, instead of waiting.
async fn simulated_nodes_are_ready_and_stay_so(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    with_scope(plane.client(), async |scope| {
        let name = scope.node("ready").await?.metadata.name.context("a node has a name")?;
        let node = Api::<Node>::all(scope.client()).get(&name).await?;
        let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
        let ready: Vec<_> = conditions.iter().map(|c| (&*c.type_, &*c.status)).collect();
        assert_eq!(ready, [("Ready", "True")]);
        assert_eq!(node.spec.and_then(|spec| spec.taints), None);
        let controllers = plane.controllers().await?;
        let runs = |name| controllers.iter().any(|controller| controller == name);
        assert!(runs("resourceclaim-controller"), "{controllers:?}");
        assert!(!runs("node-lifecycle-controller"), "{controllers:?}");
        Ok(())
    })
    .await
}

async fn a_panic_ends_the_program_and_its_children(plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let program = Program::new("/bin/sh", plane.logs())
        .named("family")
        .args(["-c", "sleep 1000 & echo child $!; wait"]);
    let process = program.spawn()?;
    let child = eventually(SOON, async || {
        let line = process.tail(1);
        Ok(match line.strip_prefix("child ") {
            Some(pid) => Check::Done(pid.parse()?),
            None => Check::NotYet(format!("it wrote `{line}`")),
        })
    })
    .await?;
    let pids = [process.pid(), child];
    assert!(pids.iter().all(|pid| runs(*pid)), "{pids:?}");
    let panic = async move {
        let _process = process;
        // A panic without its message, since it is intentional.
        panic::resume_unwind(Box::new("what a test started must end with it"));
    };
    assert!(AssertUnwindSafe(panic).catch_unwind().await.is_err());
    all_end(&pids).await
}

async fn a_program_that_ends_early_is_reported_with_its_log(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let program = Program::new("/bin/sh", plane.logs())
        .named("early")
        .args(["-c", "echo no such luck >&2; exit 3"]);
    let process = program.spawn()?;
    let error = process.wait_until_ready("http://127.0.0.1:1/readyz", SOON).await.unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "early is not ready; it wrote last:\nno such luck: early ended"
    );
    Ok(())
}

async fn a_panic_ends_a_second_control_plane(_plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    let second = ControlPlane::start(Options::default()).await?;
    report(&format!("second control plane ready after {:.1?}", second.started_in()));
    let pids = second.pids();
    let directory = second.directory().to_owned();
    assert!(pids.iter().all(|pid| runs(*pid)), "{pids:?}");
    let panic = async move {
        let _second = second;
        // A panic without its message, since it is intentional.
        panic::resume_unwind(Box::new("a control plane must end with its test"));
    };
    assert!(AssertUnwindSafe(panic).catch_unwind().await.is_err());
    assert!(!directory.exists(), "`{}` is left", directory.display());
    all_end(&pids).await
}

async fn a_killed_process_leaves_no_control_plane(_plane: Arc<ControlPlane>) -> anyhow::Result<()> {
    // A killed process cannot remove its files.
    let files = tempfile::tempdir()?;
    let mut holder = Command::new(env!("CARGO_BIN_EXE_control-plane"))
        .arg("--print-pids")
        .env("TMPDIR", files.path())
        .stdout(Stdio::piped())
        .spawn()?;
    let line = holder
        .stdout
        .take()
        .and_then(|stdout| BufReader::new(stdout).lines().next())
        .context("it printed nothing")??;
    let pids: Vec<u32> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    assert_eq!(pids.len(), 4);
    assert!(pids.iter().all(|pid| runs(*pid)), "{pids:?}");
    holder.kill()?;
    holder.wait()?;
    all_end(&pids).await
}

async fn the_scheduler_restarts_with_another_configuration(
    plane: Arc<ControlPlane>,
) -> anyhow::Result<()> {
    let before = plane.pids();
    let mut config = SchedulerConfig::default();
    config.more.insert("percentageOfNodesToScore".into(), 100.into());
    plane.restart_scheduler(&config).await?;
    let after = plane.pids();
    assert_eq!(before[..3], after[..3]);
    assert_ne!(before[3], after[3]);
    all_end(&before[3..]).await?;
    plane.restart_scheduler(&SchedulerConfig::default()).await
}

/// Returns true if a process runs, and does not only wait to be reaped by init
/// (`proc_pid_stat(5)`).
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

async fn all_end(pids: &[u32]) -> anyhow::Result<()> {
    eventually(SOON, async || {
        let left: Vec<_> = pids.iter().filter(|pid| runs(**pid)).collect();
        Ok(Check::that(left.is_empty(), || format!("processes {left:?} still run")))
    })
    .await
}

#[expect(clippy::print_stderr, reason = "the time of a start is reported, not asserted")]
fn report(line: &str) {
    eprintln!("{line}");
}
