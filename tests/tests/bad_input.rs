//! Every program rejects invalid input with exit code 1 or 2 and one line that names the input;
//! none panics.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use tests::binaries;

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(binaries::ours(program).unwrap())
        .args(args)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("HOME", "/nonexistent")
        .output()
        .unwrap()
}

/// Checks for one line on standard error that contains `named`, and an empty standard output.
fn assert_refused(program: &str, args: &[&str], named: &str) {
    let output = run(program, args);
    let (out, err) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let code = output.status.code();
    assert!(matches!(code, Some(1 | 2)), "{program} {args:?}: {code:?}\n{err}");
    assert_eq!(out, "", "{program} {args:?}");
    assert!(err.starts_with("error: "), "{program} {args:?}: {err}");
    assert!(err.contains(named), "{program} {args:?}: `{named}` is not in: {err}");
    assert!(!err.contains("panicked"), "{program} {args:?}: {err}");
    if code == Some(1) {
        assert_eq!(err.lines().count(), 1, "{program} {args:?}: {err}");
    }
}

#[test]
fn kubeconfigs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (missing, broken) = (path("missing"), path("broken"));
    fs::write(&broken, "clusters: [").unwrap();
    for kubeconfig in [&missing, &broken] {
        let flag = ["--kubeconfig", kubeconfig];
        assert_refused("admission", &flag, kubeconfig);
        assert_refused("scheduler-ext", &flag, kubeconfig);
        assert_refused("fabric-controller", &flag, kubeconfig);
        assert_refused("preemptor", &flag, kubeconfig);
        assert_refused("kubectl-dranet", &[&["graph"][..], &flag].concat(), kubeconfig);
        let driver = ["--node-name", "n", "--once", "--root", "/"];
        assert_refused("node-driver", &[&driver[..], &flag].concat(), kubeconfig);
    }
    assert_refused("kubectl-dranet", &["graph"], "found no cluster to connect to");
}

#[test]
fn flags() {
    for program in [
        "admission",
        "fabric-controller",
        "preemptor",
        "scheduler-ext",
        "node-driver",
        "kubectl-dranet",
    ] {
        assert_refused(program, &["--no-such-flag"], "--no-such-flag");
    }
    assert_refused("admission", &["--listen", "here"], "here");
    assert_refused("admission", &["--tls-cert", "a"], "--tls-key");
    assert_refused("node-driver", &["--node-name", "n", "--cloud", "moon"], "moon");
    assert_refused("kubectl-dranet", &["plan"], "--filename");
}

#[test]
fn certificates() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(folder.path());
    let broken = folder.path().join("tls.pem").display().to_string();
    fs::write(&broken, "no certificate").unwrap();
    let flags = ["--kubeconfig", &kubeconfig, "--tls-cert", &broken, "--tls-key", &broken];
    for program in ["admission", "scheduler-ext"] {
        assert_refused_after_log(program, &flags, &broken);
    }
}

#[test]
fn machines() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(folder.path());
    let missing = folder.path().join("missing").display().to_string();
    assert_refused("kubectl-dranet", &["graph", "--root", &missing], &missing);
    let flags = ["--once", "--node-name", "n", "--kubeconfig", &kubeconfig, "--root", &missing];
    assert_refused_after_log("node-driver", &flags, &missing);
}

/// Every line of the log is a JSON object; only the last line, with the cause, is plain text.
#[test]
fn the_log_is_json_if_requested() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(folder.path());
    let broken = folder.path().join("tls.pem").display().to_string();
    fs::write(&broken, "no certificate").unwrap();
    let flags =
        ["--log-format=json", "--operations-listen=127.0.0.1:0", "--kubeconfig", &kubeconfig];
    let files = ["--tls-cert", &broken, "--tls-key", &broken, "--log=debug"];
    let output = run("admission", &[&flags[..], &files].concat());
    let err = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = err.lines().filter(|line| !line.starts_with("error: ")).collect();
    for line in lines {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(object["level"].is_string() && object["timestamp"].is_string(), "{line}");
    }
    assert!(err.lines().last().is_some_and(|line| line.starts_with("error: ")), "{err}");
}

/// Checks that the last line is the cause; log lines may precede it.
fn assert_refused_after_log(program: &str, args: &[&str], named: &str) {
    let output = run(program, args);
    let err = String::from_utf8(output.stderr).unwrap();
    let last = err.lines().last().unwrap_or_default();
    assert_eq!(output.status.code(), Some(1), "{program} {args:?}: {err}");
    assert!(last.starts_with("error: ") && last.contains(named), "{program} {args:?}: {err}");
    assert!(!err.contains("panicked"), "{program} {args:?}: {err}");
}

/// A valid kubeconfig whose server does not respond.
fn kubeconfig(folder: &Path) -> String {
    let path = folder.join("kubeconfig");
    let text = "{apiVersion: v1, kind: Config, current-context: a, \
                contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}], \
                clusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]}";
    fs::write(&path, text).unwrap();
    path.display().to_string()
}
