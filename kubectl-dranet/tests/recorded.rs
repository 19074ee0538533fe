//! Answers of the commands, as they were recorded: on every cluster in the repository, and on random states of
//! the example's nodes.
//!
//! Snapshots of `commands`, `answers`, `failures`, `pods`, `simulate` and others hold the words for single
//! cases; this record holds the text, the JSON and the exit code of every command for the same clusters and
//! pods. With the plans it holds those of all fixtures; with `simulate` the scores of the extender.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../tests/src/random.rs"]
#[allow(unreachable_pub, reason = "a library has it too")]
mod random;
#[path = "../../tests/recorded/record.rs"]
mod record;
#[path = "recorded/states.rs"]
mod states;

use clap::Parser as _;
use kubectl_dranet::args::Args;
use std::fmt::{self, Display, Write as _};
use std::fs;
use std::path::Path;

/// Random states that are compared in every run, and those that are recorded.
const FEW: usize = 12;
const MOST: usize = 200;

const EXAMPLE: &str = "../deploy/examples/aks-gb300/cluster.yaml";

/// Commands about a cluster.
const CLUSTER: [&[&str]; 11] = [
    &["capacity"],
    &["capacity", "--shape", "2gpu:2nic:switch", "--shape", "8gpu:8nic", "-o", "json"],
    &["doctor"],
    &["doctor", "-o", "json"],
    &["fabric"],
    &["fabric", "-o", "json"],
    &["top", "--once", "-o", "wide"],
    &["top", "--once", "-o", "json"],
    &["verify", "-A", "-o", "wide"],
    &["verify", "-A", "-o", "json"],
    &["lint", "-A"],
];

/// Commands about a pod.
const POD: [&[&str]; 6] = [
    &["plan"],
    &["plan", "-o", "json"],
    &["explain"],
    &["explain", "-o", "json"],
    &["simulate"],
    &["simulate", "-o", "json"],
];

/// The output of a command, notes and the exit code, or the error. The folder of the test has no name in it.
fn answer(command: &[&str], pod: Option<&str>, cluster: &Path) -> String {
    let folder = cluster.parent().unwrap().display().to_string();
    let cluster = cluster.display().to_string();
    let mut args = [&["kubectl-dranet"], command, &["--snapshot", &cluster]].concat();
    args.extend(pod.into_iter().flat_map(|pod| ["-f", pod]));
    let mut text = format!("$ {}\n", args[1..].join(" "));
    match kubectl_dranet::run(&Args::try_parse_from(&args).unwrap()) {
        Ok(output) => {
            let notes = output.notes.iter().map(|note| format!("note: {note}\n"));
            text += &output.text;
            text.extend(notes);
            writeln!(text, "exit code {}", if output.denied { 3 } else { 0 }).unwrap();
        }
        Err(error) => writeln!(text, "error: {}", process::exit::one_line(&error)).unwrap(),
    }
    text.replace(&folder, "FOLDER")
}

/// The files of a folder with this ending, in order.
fn files(folder: &str, ending: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.extension().is_some_and(|it| it == ending));
    let mut files: Vec<_> = files.map(|path| path.display().to_string()).collect();
    files.sort();
    files
}

/// A command about a cluster, and the pods that it is asked about.
struct Asked {
    cluster: String,
    command: &'static [&'static str],
    pods: Vec<Option<String>>,
}

impl Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.cluster.trim_start_matches("../"), self.command.join(" "))
    }
}

/// The clusters in the repository. Without a number in the settings, those that take seconds.
fn clusters() -> Vec<String> {
    let fixtures = ["aks-gb300", "aks-mi300x", "eks-p4d", "oke-gb200", "nvidia-h200/cluster.yaml"];
    let mut clusters = vec![EXAMPLE.to_owned()];
    clusters.extend(fixtures.map(|name| format!("../tests/fixtures/{name}")));
    if record::asked().is_some() {
        clusters.extend(files("../tests/fixtures/nic-drivers", "yaml"));
        clusters.extend(files("../admission/tests/fleets", "gz"));
    }
    clusters
}

fn all() -> Vec<Asked> {
    let pods: Vec<_> = files("tests/asked", "yaml").into_iter().map(Some).collect();
    let workloads = files("../deploy/examples/workloads", "yaml").into_iter().map(Some);
    let more: Vec<_> = pods.iter().cloned().chain(workloads).collect();
    let of_cluster = |cluster: String| {
        let pods = if cluster == EXAMPLE { &more } else { &pods };
        let about = CLUSTER.iter().map(|command| (*command, vec![None]));
        let about = about.chain(POD.iter().map(|command| (*command, pods.clone())));
        let asked = about.map(|(command, pods)| Asked { cluster: cluster.clone(), command, pods });
        asked.collect::<Vec<_>>()
    };
    clusters().into_iter().flat_map(of_cluster).collect()
}

#[test]
fn answers_about_all_clusters() {
    record::compare("answers", &all(), |asked| {
        let cluster = Path::new(&asked.cluster);
        asked.pods.iter().map(|pod| answer(asked.command, pod.as_deref(), cluster)).collect()
    });
}

#[test]
fn answers_about_random_states() {
    record::compare("states", &record::numbers(FEW, MOST), |seed| {
        let folder = tempfile::tempdir().unwrap();
        states::write(*seed, folder.path());
        let (cluster, pod) = (folder.path().join("cluster.json"), folder.path().join("pod.json"));
        let pod = pod.display().to_string();
        let about = CLUSTER.iter().map(|command| answer(command, None, &cluster));
        about.chain(POD.iter().map(|command| answer(command, Some(&pod), &cluster))).collect()
    });
}
