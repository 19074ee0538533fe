//! What people are told when a cluster cannot be reached, by the program as it is shipped.

#![cfg(feature = "live")]
#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use tempfile::TempDir;

/// A file with a context `red` for a server at this address.
fn kubeconfig(folder: &Path, address: &str, user: &str) -> PathBuf {
    let path = folder.join("real");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: red\n\
         clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n\
         contexts: [{{name: red, context: {{cluster: c, user: u}}}}]\n\
         users: [{{name: u, user: {user}}}]\n"
    );
    fs::write(&path, text).unwrap();
    path
}

/// The error of `top` with these flags and this `$KUBECONFIG`.
fn error(folder: &Path, flags: &[&str], variable: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-dranet"))
        .args(["top", "--once"])
        .args(flags)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder)
        .env("KUBECONFIG", variable)
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn errors_say_what_was_read_and_where_it_leads() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    // Nothing listens at an address that was just given back.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let real = kubeconfig(folder, &address, "{}").display().to_string();
    let missing = folder.join("missing").display().to_string();
    let place = format!("{address} (kubeconfig `{real}`, context `red`)");
    for variable in [real.clone(), format!("{missing}:{real}")] {
        let text = error(folder, &[], &variable);
        assert!(text.contains(&place), "{text}");
    }
    let text = error(folder, &[], &missing);
    assert!(text.contains(&format!("`{missing}` does not exist")), "{text}");
    let text = error(folder, &["--context", "green"], &real);
    assert!(
        text.contains(&format!("kubeconfig `{real}` has no context `green`: it has red")),
        "{text}"
    );
    let text = error(folder, &["--kubeconfig", &missing], &real);
    assert!(text.contains(&format!("failed to read kubeconfig `{missing}`")), "{text}");
}

#[test]
fn the_command_of_credentials_is_named() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let user = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-plugin, \
                args: [get-token], interactiveMode: Never}}";
    let real = kubeconfig(folder, "127.0.0.1:1", user).display().to_string();
    let text = error(folder, &[], &real);
    assert!(text.contains("no-such-plugin"), "{text}");
}

#[test]
fn an_answer_of_the_api_server_is_one_sentence() {
    let folder = TempDir::new().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).unwrap();
            let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
            write!(
                stream,
                "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{status}",
                status.len()
            )
            .unwrap();
        }
    });
    let real = kubeconfig(folder.path(), &address, "{}").display().to_string();
    let text = error(folder.path(), &[], &real);
    assert!(text.contains("Unauthorized") && text.contains(&address), "{text}");
    assert!(!text.contains('{') && !text.contains("Status"), "{text}");
}
