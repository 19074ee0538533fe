//! The page as the program serves it.

use crate::cluster;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A running `kubectl-dranet ui`.
struct Served {
    child: Child,
    address: String,
    token: String,
    _folder: TempDir,
}

impl Served {
    fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let snapshot = cluster::write(folder.path());
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-dranet"))
            .args(["ui", "-n", "acme", "--snapshot"])
            .arg(&snapshot)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let rest = line.trim().strip_prefix("http://").unwrap();
        let (address, token) = rest.split_once("/?token=").unwrap();
        let (address, token) = (address.to_owned(), token.to_owned());
        Self { child, address, token, _folder: folder }
    }

    /// The status and the text of an answer.
    fn get(&self, path: &str, host: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }

    /// The same with the token.
    fn ask(&self, path: &str) -> (u16, String) {
        let join = if path.contains('?') { '&' } else { '?' };
        self.get(&format!("{path}{join}token={}", self.token), "localhost")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn only_this_machine_and_the_token_open_the_page() {
    let served = Served::start();
    assert!(served.address.starts_with("127.0.0.1:"), "{}", served.address);
    let token = &served.token;
    for path in ["/", "/picture", "/explain", "/what-if", "/events"] {
        for (query, host) in [
            (String::new(), "localhost"),
            ("?token=0".to_owned(), "localhost"),
            (format!("?token={}", &token[1..]), "localhost"),
            (format!("?token={token}"), "evil.example"),
            (format!("?token={token}"), "127.0.0.1.evil.example"),
        ] {
            let (status, answer) = served.get(&format!("{path}{query}"), host);
            assert_eq!(status, 403, "{path}{query} of {host}: {answer}");
        }
    }
    let (status, page) = served.ask("/");
    assert_eq!(status, 200, "{page}");
    for header in [
        "content-security-policy: default-src 'none'",
        "frame-ancestors 'none'",
        "cache-control: no-store",
        "referrer-policy: no-referrer",
        "x-content-type-options: nosniff",
    ] {
        assert!(page.contains(header), "{header}");
    }
    assert!(!page.contains(token.as_str()), "a page does not repeat its token");
}

#[test]
fn the_page_is_answered_as_explain_and_plan_answer() {
    let served = Served::start();
    let (status, why) = served.ask("/explain?pod=acme%2Fwaits");
    assert_eq!(status, 200, "{why}");
    assert!(why.contains("Pod waits"), "{why}");
    let (status, why) = served.ask("/explain?pod=acme%2Fnobody");
    assert_eq!((status, why.contains("there is no pod acme/nobody now")), (422, true), "{why}");
    let (status, picture) = served.ask("/picture?node=a");
    assert_eq!((status, picture.contains("<svg")), (200, true), "{picture}");
    let (_, answer) = served.ask("/what-if?annotations=aligned-nics%3A%201%0Agpus%3D2");
    let found: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(found["nodes"], serde_json::json!(["b"]), "two GPUs are free on node b only");
    assert!(found["text"].as_str().unwrap().starts_with("Admitted: "), "{found}");
    let (status, answer) = served.ask("/what-if?annotations=two%20NICs");
    assert_eq!(
        (status, answer.contains("`two NICs` is not an annotation")),
        (422, true),
        "{answer}"
    );
    // It is read-only.
    let mut stream = TcpStream::connect(&served.address).unwrap();
    write!(stream, "POST /?token={} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", served.token).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}
