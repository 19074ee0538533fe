//! The host's interfaces: made for a test, and compared afterwards.

use std::process::Command;

use anyhow::Context;
use serde_json::Value;

/// Runs one command line, words split at spaces.
pub fn shell(line: &str) -> anyhow::Result<String> {
    let mut words = line.split(' ');
    let program = words.next().context("an empty command")?;
    let output = Command::new(program)
        .args(words)
        .output()
        .with_context(|| format!("failed to start `{program}`"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "`{line}` failed: {}", error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What differs between two looks at the same interface although nothing was
/// lost: counters of the kernel, and its measure of time.
const MAY_DIFFER: [&str; 7] = [
    "ifindex",
    "link_index",
    "valid_life_time",
    "preferred_life_time",
    "stats64",
    // The kernel's own IPv6 link-local address comes from duplicate detection.
    "tentative",
    "qdisc",
];

/// Addresses, routes and rules of this namespace, as `ip` shows them.
pub fn state() -> anyhow::Result<Value> {
    let json = |line: &str| -> anyhow::Result<Value> {
        let text = shell(line)?;
        let text = if text.trim().is_empty() { "[]" } else { text.as_str() };
        let mut value =
            serde_json::from_str(text).with_context(|| format!("output of `{line}`"))?;
        drop_what_may_differ(&mut value);
        sort(&mut value);
        Ok(value)
    };
    Ok(serde_json::json!({
        "addresses": json("ip -d -j addr")?,
        "routes": json("ip -j route show table all")?,
        "routes6": json("ip -6 -j route show table all")?,
        "rules": json("ip -j rule")?,
    }))
}

fn drop_what_may_differ(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !MAY_DIFFER.contains(&name.as_str()));
            fields.values_mut().for_each(drop_what_may_differ);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_what_may_differ),
        _ => {}
    }
}

/// The kernel lists by index, which may differ.
fn sort(value: &mut Value) {
    if let Value::Array(items) = value {
        items.sort_by_key(ToString::to_string);
    }
}
