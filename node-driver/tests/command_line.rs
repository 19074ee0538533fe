//! What a user sees after unusable input: one line with the cause and its place, and a
//! non-zero exit code.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Exit code and standard error.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_node-driver"));
    let output = command.args(arguments).env_remove("NODE_NAME").env_remove("KUBECONFIG").output();
    let output = output.unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// A root with a sysfs that contains nothing.
fn empty_machine(folder: &Path) -> &str {
    fs::create_dir_all(folder.join("sys/devices")).unwrap();
    folder.to_str().unwrap()
}

#[test]
fn unusable_input_is_named_on_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let root = empty_machine(folder.path());
    let malformed = folder.path().join("malformed");
    fs::write(&malformed, "clusters: [").unwrap();
    let malformed = malformed.to_str().unwrap();
    for (arguments, place) in [
        (&["--root", "/nowhere", "--node-name", "n"][..], "/nowhere/sys"),
        (
            &["--root", root, "--node-name", "n", "--kubeconfig", "/nowhere/config"],
            "/nowhere/config",
        ),
        (&["--root", root, "--node-name", "n", "--kubeconfig", malformed], malformed),
        (&["--root", root, "--node-name", "n", "--log", "a=b=c"], "a=b=c"),
    ] {
        let (code, text) = run(arguments);
        assert_eq!(code, Some(1), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.starts_with("error: ") && text.contains(place), "{text}");
    }
}

#[test]
fn invalid_command_lines_are_refused() {
    for (arguments, expected) in [
        (&[][..], "--node-name"),
        (
            &["--node-name", "n", "--cloud", "heaven"],
            "[possible values: auto, alibaba, aws, azure, gce, oci, none]",
        ),
        (&["--node-name", "n", "--filter", "attributes["], "is not a valid CEL expression"),
        (&["--node-name", "n", "--rescan-seconds", "0"], "0"),
        (&["--node-name", "n", "--once", "--cleanup"], "--cleanup"),
        (
            &["--node-name", "n", "--kubelet-dir", "/k", "--virtual-functions", "numVfs=4"],
            "no physical function is selected",
        ),
        (&["--node-name", "n", "--virtual-functions", "numVfs=4,pfName=rail*"], "--kubelet-dir"),
        (&["--node-name", "n", "--sharing=count"], "--rdma-hca-max"),
        (
            &["--node-name", "n", "--sharing=none", "--rdma-hca-max=8"],
            "'--rdma-hca-max' has no effect with '--sharing=none'",
        ),
        (&["--node-name", "n", "--rdma-hca-max=8"], "set --sharing=count or --sharing=bandwidth"),
        (&["--node-name", "n", "--shared-nics=true"], "'--shared-nics' has no effect"),
    ] {
        let (code, text) = run(arguments);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn an_unreachable_server_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let root = empty_machine(folder.path());
    let config = folder.path().join("config");
    // Nobody listens on port 1 of the loopback interface.
    let text = "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {}}], \
                clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], \
                contexts: [{name: c, context: {cluster: c, user: u}}]}";
    fs::write(&config, text).unwrap();
    let (code, text) = run(&[
        "--root",
        root,
        "--node-name",
        "n",
        "--kubeconfig",
        config.to_str().unwrap(),
        "--once",
    ]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.lines().last().unwrap().starts_with("error: failed to get node `n`: "), "{text}");
}
