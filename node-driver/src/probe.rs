//! Readiness of this instance alone, for the probes of its pod.
//!
//! The driver uses the host's network, where two instances cannot listen on the same port
//! during an update: an HTTP probe would reach whichever of them has it. So each instance
//! has a socket named after its pod's UID, and `node-driver probe` asks that one. The
//! answer lists what the instance is still waiting for and what is wrong with it, one per
//! line; it is empty when the instance is ready.

use crate::kubelet::SocketError;
use crate::kubelet::socket::{PublishedSocket, Socket, name};
use anyhow::Context;
use serve::progress::Progress;
use serve::readiness::Readiness;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;

/// Longest wait for the instance's answer; the kubelet itself waits a second by default.
const PATIENCE: Duration = Duration::from_secs(5);

/// Begins a line about a condition that the instance waits for.
const WAITING: &str = "waiting ";
/// Begins a line about a main loop that makes no progress.
const STUCK: &str = "stuck ";

/// Ask an instance of the driver whether it works; exit code 0 if it does
#[derive(clap::Parser, Clone, Debug)]
#[command(name = "node-driver probe")]
pub struct ProbeArgs {
    /// What to ask: live if it answers and its main loop makes progress, ready if it has published
    /// its devices and if the kubelet and, with --attach=nri, the container runtime have registered
    /// it
    #[arg(value_enum)]
    pub question: ProbeKind,
    /// The driver's --run-dir
    #[arg(long, value_name = "DIR", default_value = "/run/dranet")]
    pub run_dir: PathBuf,
    /// The driver's --instance
    #[arg(long, value_name = "UID", env = "POD_UID")]
    pub instance: String,
}

/// What a probe asks.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Whether the instance answers and its main loop makes progress.
    Live,
    /// Whether it has started completely.
    Ready,
}

/// The socket of an instance.
pub(crate) fn socket(run: &Path, instance: &str) -> Result<PublishedSocket, SocketError> {
    Socket::bind(run, &name("probe", Some(instance)))?.publish()
}

/// Answers until told to stop.
pub(crate) async fn serve(
    socket: PublishedSocket,
    readiness: Readiness,
    progress: Progress,
    stop: CancellationToken,
) {
    let (mut incoming, _removal) = socket.into_incoming();
    loop {
        let stream = tokio::select! {
            () = stop.cancelled() => return,
            stream = incoming.next() => stream,
        };
        let Some(Ok(mut stream)) = stream else { continue };
        // If the probe has gone, its answer is not needed.
        let _ = stream.write_all(answer(&readiness, &progress).as_bytes()).await;
    }
}

fn answer(readiness: &Readiness, progress: &Progress) -> String {
    let waiting = readiness.waiting().into_iter().map(|what| format!("{WAITING}{what}\n"));
    let stuck = progress.complaint(Instant::now()).map(|what| format!("{STUCK}{what}\n"));
    waiting.chain(stuck).collect()
}

/// Asks the instance that the flags name.
pub fn run(args: &ProbeArgs) -> anyhow::Result<()> {
    let ProbeArgs { question, run_dir, instance } = args;
    let path = run_dir.join(name("probe", Some(instance)));
    let answer = ask(&path).with_context(|| {
        format!("instance `{instance}` does not answer on `{}`", path.display())
    })?;
    let (stuck, waiting) = (after(&answer, STUCK), after(&answer, WAITING));
    anyhow::ensure!(stuck.is_empty(), "instance `{instance}` is stuck: {}", stuck.join(", "));
    anyhow::ensure!(
        *question == ProbeKind::Live || waiting.is_empty(),
        "instance `{instance}` still waits for {}",
        waiting.join(", ")
    );
    Ok(())
}

/// What follows this start in the lines that have it.
fn after<'a>(answer: &'a str, start: &str) -> Vec<&'a str> {
    answer.lines().filter_map(|line| line.strip_prefix(start)).collect()
}

fn ask(path: &Path) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As during an update: both instances run, and the new one is not ready.
    #[tokio::test]
    async fn each_instance_answers_for_itself() {
        let run = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let (old, new) = (Readiness::default(), Readiness::default());
        let publication = new.wait_for("the first publication");
        let registration = new.wait_for("the kubelet's registration");
        let progress = Progress::default();
        let answer = |instance: &str, readiness: &Readiness| {
            let socket = socket(run.path(), instance).unwrap();
            tokio::spawn(serve(socket, readiness.clone(), progress.clone(), stop.clone()))
        };
        let tasks = [answer("old", &old), answer("new", &new)];
        let probe = async |instance: &str, question| {
            let (instance, run_dir) = (instance.to_owned(), run.path().to_owned());
            let args = ProbeArgs { question, run_dir, instance };
            let asked = tokio::task::spawn_blocking(move || super::run(&args));
            asked.await.unwrap().map_err(|error| error.to_string())
        };
        assert_eq!(probe("old", ProbeKind::Ready).await, Ok(()));
        assert_eq!(probe("new", ProbeKind::Live).await, Ok(()));
        assert_eq!(
            probe("new", ProbeKind::Ready).await.unwrap_err(),
            "instance `new` still waits for the first publication, the kubelet's registration"
        );
        drop((publication, registration));
        assert_eq!(probe("new", ProbeKind::Ready).await, Ok(()));
        let long_ago = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        progress.expect_within(Duration::from_secs(1), long_ago);
        for question in [ProbeKind::Live, ProbeKind::Ready] {
            let error = probe("new", question).await.unwrap_err();
            let expected = "instance `new` is stuck: the main loop has not turned for";
            assert!(error.starts_with(expected), "{error}");
        }
        progress.turned(Instant::now());
        assert_eq!(probe("new", ProbeKind::Live).await, Ok(()));
        let error = probe("third", ProbeKind::Live).await.unwrap_err();
        assert!(error.starts_with("instance `third` does not answer on"), "{error}");
        stop.cancel();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(probe("old", ProbeKind::Live).await.is_err(), "its socket is removed");
    }
}
