//! A network namespace with an interface of this machine in it, which gets the interface back.

use std::{
    process::{self, Command},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use serde_json::Value;

use crate::node::links::{batch, shell};

/// The namespace's name below `/run/netns`.
const NAMESPACE: &str = "dranet-tests-hardware";

/// The longest time until the kernel returns the interface of a pod that a failed test left.
const RETURNED: Duration = Duration::from_secs(30);

/// The namespace. When dropped, it is removed, and the interface is as before.
#[derive(Debug)]
pub(super) struct Borrowed {
    interface: String,
    /// The lines of `ip` that restore its addresses and routes.
    restore: Vec<String>,
}

impl Borrowed {
    /// Creates the namespace and moves the interface into it.
    pub(super) fn take(interface: &str) -> anyhow::Result<Self> {
        let restore = restore(interface)?;
        shell(&format!("ip netns add {NAMESPACE}"))?;
        let borrowed = Self { interface: interface.to_owned(), restore };
        shell(&format!("ip link set {interface} netns {NAMESPACE}"))?;
        Ok(borrowed)
    }

    /// A command that runs another one in the namespace, with a `/sys` that shows its interfaces.
    pub(super) fn command() -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", NAMESPACE]);
        command
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "it waits on a condition, outside of any runtime"
    )]
    fn give_back(&self) -> anyhow::Result<()> {
        let interface = &self.interface;
        // It is still in a pod if a test failed. The kernel then returns it with the pod's namespace.
        let own = process::id();
        let _ = shell(&format!("ip -n {NAMESPACE} link set {interface} netns {own}"));
        shell(&format!("ip netns del {NAMESPACE}"))?;
        let begin = Instant::now();
        while let Err(error) = shell(&format!("ip link show dev {interface}")) {
            anyhow::ensure!(begin.elapsed() < RETURNED, "`{interface}` did not return: {error}");
            thread::sleep(Duration::from_millis(50));
        }
        batch(&self.restore.join("\n"))
    }
}

impl Drop for Borrowed {
    #[expect(clippy::print_stderr, reason = "a suite reports to the person who runs it")]
    fn drop(&mut self) {
        if let Err(error) = self.give_back() {
            eprintln!("error: `{}` is not as before: {error:#}", self.interface);
        }
    }
}

/// The lines of `ip` that give an interface its addresses and routes again.
fn restore(interface: &str) -> anyhow::Result<Vec<String>> {
    let mut lines = vec![format!("link set {interface} up")];
    let shown = json(&format!("ip -j addr show dev {interface}"))?;
    for address in shown[0]["addr_info"].as_array().into_iter().flatten() {
        // The kernel makes link-local addresses itself.
        if address["scope"] != "link" {
            let local = address["local"].as_str().context("an address")?;
            let length = address["prefixlen"].as_u64().context("a length")?;
            let broadcast = address["broadcast"].as_str();
            let broadcast = broadcast.map(|it| format!(" brd {it}")).unwrap_or_default();
            lines.push(format!("addr replace {local}/{length}{broadcast} dev {interface}"));
        }
    }
    for family in ["-4", "-6"] {
        let routes = json(&format!("ip {family} -j route show dev {interface}"))?;
        let mut routes = routes.as_array().cloned().unwrap_or_default();
        // The kernel makes its own with the addresses, and gateways need the others first.
        routes.retain(|route| route["protocol"] != "kernel");
        routes.sort_by_key(|route| route["gateway"].is_string());
        lines.extend(routes.iter().filter_map(|route| line(route, interface)));
    }
    Ok(lines)
}

/// The line of `ip` for a route.
fn line(route: &Value, interface: &str) -> Option<String> {
    let gateway = route["gateway"].as_str().map(|it| format!(" via {it}")).unwrap_or_default();
    let metric = route["metric"].as_u64().map(|it| format!(" metric {it}")).unwrap_or_default();
    Some(format!("route replace {}{gateway} dev {interface}{metric}", route["dst"].as_str()?))
}

fn json(command: &str) -> anyhow::Result<Value> {
    let text = shell(command)?;
    // Without a route, it prints nothing.
    let text = if text.trim().is_empty() { "[]" } else { &text };
    serde_json::from_str(text).with_context(|| format!("output of `{command}`"))
}
