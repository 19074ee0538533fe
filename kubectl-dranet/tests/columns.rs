//! What commands print for people fits into 80 columns: on the fleets in trouble of admission's tests,
//! the drivers' fixtures and the example, for each of the pods in `asked`.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use clap::Parser as _;
use kubectl_dranet::args::Args;
use std::fs;
use std::path::Path;

const FLEETS: &str = "../admission/tests/fleets";
const FIXTURES: &str = "../tests/fixtures";
const ASKED: &str = "tests/asked";
const EXAMPLE: &str = "../deploy/examples/aks-gb300";

/// The columns of a terminal.
const COLUMNS: usize = 80;

/// Fixtures with claim templates that people wrote.
const DRIVERS: [&str; 4] = ["aks-gb300", "aks-mi300x", "eks-p4d", "oke-gb200"];

/// Commands about the cluster.
const OF_CLUSTER: [&[&str]; 8] = [
    &["capacity"],
    &["doctor"],
    &["fabric"],
    &["lint", "-A"],
    &["pools"],
    &["top"],
    &["verify", "-A"],
    &["version"],
];

/// Commands about pods.
const OF_PODS: [&str; 3] = ["explain", "plan", "simulate"];

/// The paths in a folder that have one of these extensions, sorted.
fn files(folder: &str, extensions: &[&str]) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &Path| {
        path.extension().is_some_and(|it| extensions.iter().any(|extension| it == *extension))
    };
    let mut files: Vec<_> =
        entries.filter(|path| is_it(path)).map(|path| path.display().to_string()).collect();
    files.sort();
    files
}

fn clusters() -> Vec<String> {
    let mut clusters = files(FLEETS, &["gz"]);
    clusters.extend(files(&format!("{FIXTURES}/nic-drivers"), &["yaml"]));
    clusters.extend(DRIVERS.map(|driver| format!("{FIXTURES}/{driver}")));
    clusters.push(format!("{EXAMPLE}/cluster.yaml"));
    clusters
}

/// Rows of tables are the exception: a row that breaks cannot be read, and its names are as long as
/// people chose them. Two spaces between cells tell a row. A word is not broken either, nor is what
/// is before it on the line if that is only its indentation.
fn may_be_long(line: &str) -> bool {
    let text = line.trim_start();
    text.contains("  ") || !text.trim_start_matches("- ").contains(' ')
}

/// The lines that are too long, each with its command; `None` if the command fails.
fn long_lines(args: &[&str]) -> Option<Vec<String>> {
    let args = [&["kubectl-dranet"], args].concat();
    let output = kubectl_dranet::run(&Args::try_parse_from(&args).unwrap()).ok()?;
    let notes = output.notes.iter().map(|note| kubectl_dranet::fitted(&format!("note: {note}")));
    let text = output.text + &notes.collect::<Vec<_>>().join("\n");
    let long = text.lines().filter(|line| line.chars().count() > COLUMNS && !may_be_long(line));
    Some(long.map(|line| format!("{}: {line}", args[1..].join(" "))).collect())
}

#[test]
fn answers_fit_into_eighty_columns() {
    let pods = files(ASKED, &["yaml"]);
    let mut answers = Vec::new();
    for (index, cluster) in clusters().iter().enumerate() {
        for command in OF_CLUSTER {
            answers.extend(long_lines(&[command, &["--snapshot", cluster]].concat()));
        }
        // Every pod meets clusters of each kind, not each of them.
        for (number, pod) in pods.iter().enumerate().filter(|(number, _)| (number + index) % 3 == 0)
        {
            let command = OF_PODS[(number + index) / 3 % OF_PODS.len()];
            answers.extend(long_lines(&[command, "-f", pod, "--snapshot", cluster]));
        }
    }
    for driver in DRIVERS {
        let claims = format!("{FIXTURES}/{driver}/resource-claim-template.yaml");
        let cluster = format!("{FIXTURES}/{driver}");
        answers.extend(long_lines(&["lint", "-f", &claims, "--snapshot", &cluster]));
    }
    assert!(answers.len() > 200, "{}", answers.len());
    let long = answers.concat();
    assert!(long.is_empty(), "{} long lines:\n{}", long.len(), long.join("\n"));
}
