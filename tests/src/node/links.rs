//! The host's interfaces: created for a test, and compared afterwards.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::Context;
use serde_json::Value;

use crate::{Check, eventually, node::Nic};

/// Settings that an administrator has made on each rail.
const SETTINGS: [(&str, &str); 9] = [
    ("ipv4/conf/LINK/rp_filter", "2"),
    ("ipv4/conf/LINK/arp_ignore", "1"),
    ("ipv6/conf/LINK/accept_ra", "0"),
    ("ipv6/conf/LINK/accept_ra_defrtr", "0"),
    ("ipv6/conf/LINK/accept_ra_rt_info_max_plen", "48"),
    ("ipv6/conf/LINK/dad_transmits", "3"),
    ("ipv6/conf/LINK/keep_addr_on_down", "1"),
    ("ipv6/conf/LINK/proxy_ndp", "1"),
    ("ipv6/conf/LINK/use_tempaddr", "2"),
];

/// The longest time to bring a pair of links up.
const SOON: Duration = Duration::from_secs(30);

/// Pairs of links that act as interfaces of NICs; removed when dropped.
#[derive(Debug)]
pub(super) struct Links(Vec<&'static str>);

impl Links {
    /// Creates a pair for each NIC, and waits until they are up.
    pub(super) async fn make(nics: &[Nic]) -> anyhow::Result<Self> {
        let links = Self(nics.iter().map(|nic| nic.link).collect());
        make(nics).await?;
        Ok(links)
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // Missing links cannot be removed, which is fine.
        self.0.iter().for_each(|link| drop(remove(link)));
    }
}

/// Creates a pair of links for each NIC, replacing an existing one, with addresses and routes of
/// each family: everything that must be restored on the host. Waits until they are up.
pub async fn make(nics: &[Nic]) -> anyhow::Result<()> {
    for Nic { link, .. } in nics {
        let _ = remove(link);
    }
    let lines = nics.iter().flat_map(|nic| lines(nic.link));
    batch(&lines.collect::<Vec<_>>().join("\n"))?;
    for Nic { link, .. } in nics {
        for (setting, value) in SETTINGS {
            fs::write(format!("/proc/sys/net/{}", setting.replace("LINK", link)), value)?;
        }
    }
    eventually(SOON, async || {
        let text = shell("ip -6 -o addr show scope link")?;
        // The kernel's own address appears with the carrier, at either end.
        let has_own = |name: &str| text.lines().any(|line| line.contains(&format!(" {name} ")));
        let is_up = |nic: &&Nic| has_own(nic.link) && has_own(&format!("{}-peer", nic.link));
        let down = nics.iter().find(|nic| !is_up(nic));
        Ok(Check::that(down.is_none(), || format!("{down:?} is not up")))
    })
    .await
}

/// Removes a pair, wherever its ends are.
pub fn remove(link: &str) -> anyhow::Result<()> {
    shell(&format!("ip link del {link}-peer")).map(drop)
}

/// The `ip` commands for one link: the number of `rail3` is in everything that belongs to it.
fn lines(link: &str) -> [String; 12] {
    let number = link.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    let number: u8 = number.parse().unwrap_or_default();
    [
        format!(
            "link add {link} address 02:00:00:00:aa:{number:02x} mtu 9000 \
             type veth peer name {link}-peer address 02:00:00:00:ab:{number:02x}"
        ),
        format!("addr add 10.7.{number}.1/24 brd + dev {link}"),
        format!("addr add 10.8.{number}.1/24 dev {link} label {link}:1"),
        format!("addr add fd07:0:0:{number:x}::1/64 dev {link} nodad"),
        format!("link set {link} up"),
        format!("link set {link}-peer up"),
        format!("route add 10.70.{number}.0/24 via 10.7.{number}.254 dev {link} metric 77"),
        format!("route add 10.71.{number}.0/24 via 10.7.{number}.254 dev {link} table 700"),
        format!("route add fd70:0:0:{number:x}::/64 via fd07:0:0:{number:x}::fe dev {link}"),
        // A route with flags and metrics, and one whose next hop is of the other family.
        format!("route add 10.72.{number}.0/24 via 10.99.{number}.1 dev {link} onlink mtu 8000"),
        format!("route add 10.73.{number}.0/24 via inet6 fd07:0:0:{number:x}::fe dev {link}"),
        format!(
            "neigh add 10.7.{number}.77 lladdr 02:00:00:00:cc:{number:02x} dev {link} nud permanent"
        ),
    ]
}

/// Runs lines of `ip` in one process.
pub(super) fn batch(lines: &str) -> anyhow::Result<()> {
    let mut ip = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("failed to start `ip`")?;
    ip.stdin.take().context("it is piped")?.write_all(lines.as_bytes())?;
    let output = ip.wait_with_output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "`ip` failed: {}", error.trim());
    Ok(())
}

/// Runs a command line; words are split at spaces.
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

/// Fields that may differ in two states although nothing was lost: the kernel's counters and
/// timers.
const MAY_DIFFER: [&str; 7] = [
    "ifindex",
    "link_index",
    "valid_life_time",
    "preferred_life_time",
    "stats64",
    // The kernel's own IPv6 link-local address depends on duplicate detection.
    "tentative",
    "qdisc",
];

/// Addresses, routes and rules of this namespace in the output of `ip`, without the pods' own
/// network from the CNI plugin.
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
    let mut state = serde_json::json!({
        "addresses": json("ip -d -j addr")?,
        "routes": json("ip -j route show table all")?,
        "routes6": json("ip -6 -j route show table all")?,
        "rules": json("ip -j rule")?,
        "rules6": json("ip -6 -j rule")?,
        "neighbours": json("ip -j neigh show nud permanent")?,
        "settings": settings()?,
    });
    for part in PARTS {
        if let Some(items) = state[part].as_array_mut() {
            items.retain(|item| !is_of_pods(item));
        }
    }
    Ok(state)
}

/// The parts of [`state`].
const PARTS: [&str; 7] =
    ["addresses", "routes", "routes6", "rules", "rules6", "neighbours", "settings"];

/// The kernel's settings of each rail that are not the default
/// (`Documentation/networking/ip-sysctl.rst`).
fn settings() -> anyhow::Result<Value> {
    let mut all = Vec::new();
    for family in ["ipv4", "ipv6"] {
        let conf = Path::new("/proc/sys/net").join(family).join("conf");
        for entry in fs::read_dir(&conf)?.flatten() {
            let link = entry.file_name().to_string_lossy().into_owned();
            if !link.starts_with("rail") || link.ends_with("-peer") {
                continue;
            }
            for setting in fs::read_dir(entry.path())?.flatten() {
                let name = setting.file_name();
                // Some settings are write-only, and some are chosen by the kernel.
                let value = |path: &Path| fs::read_to_string(path).unwrap_or_default();
                let [own, default] =
                    [value(&setting.path()), value(&conf.join("default").join(&name))];
                if own != default && name != "stable_secret" {
                    let name = name.to_string_lossy();
                    let text = format!("{family} {name} {}", own.trim());
                    all.push(serde_json::json!({"dev": link, "setting": text}));
                }
            }
        }
    }
    Ok(Value::Array(all))
}

fn is_of_pods(item: &Value) -> bool {
    ["ifname", "dev"].iter().any(|field| {
        item[field].as_str().is_some_and(|name| name == "pods0" || name.starts_with("veth"))
    })
}

/// The items that only one of the states has; empty if they are equal.
pub fn difference(before: &Value, after: &Value) -> String {
    let mut lines = Vec::new();
    for part in PARTS {
        let items = |value: &Value| value[part].as_array().cloned().unwrap_or_default();
        for (sign, one, other) in [("-", before, after), ("+", after, before)] {
            let others = items(other);
            let more = items(one).into_iter().filter(|item| !others.contains(item));
            lines.extend(more.map(|item| format!("{sign} {part}: {item}")));
        }
    }
    lines.join("\n")
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

/// The kernel lists items by index, which may differ.
fn sort(value: &mut Value) {
    if let Value::Array(items) = value {
        items.sort_by_key(ToString::to_string);
    }
}
