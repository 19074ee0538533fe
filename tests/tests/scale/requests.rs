//! The requests of our programs, from the audit log: by program, resource and verb, for each pod and
//! for each node.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use tests::{audit::Audit, suite::report};

/// Fewer requests than this are not worth a line.
const FEW: usize = 10;

/// Prints the requests of the whole run.
#[expect(clippy::cast_precision_loss, reason = "thousands of pods")]
pub(crate) fn print(audit: &Audit, annotated_pods: usize, nodes: usize) -> anyhow::Result<()> {
    let mut requests: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut watches: BTreeMap<String, usize> = BTreeMap::new();
    for event in audit.events()? {
        let Some(account) = event.account().map(str::to_owned) else { continue };
        if event.is_start_of_watch() {
            *watches.entry(account).or_default() += 1;
        } else if event.is_complete() && event.verb() != "watch" {
            let what = format!("{} {}", event.verb(), event.resource());
            *requests.entry((account, what)).or_default() += 1;
        }
    }
    report(&format!("requests of {annotated_pods} annotated pods on {nodes} nodes:"));
    for ((account, what), count) in requests.iter().filter(|(_, count)| **count >= FEW) {
        let (pods, nodes) = (annotated_pods.max(1) as f64, nodes.max(1) as f64);
        let [per_pod, per_node] = [pods, nodes].map(|of| *count as f64 / of);
        report(&format!(
            "  {account:20} {what:55} {count:6}  {per_pod:5.2} a pod  {per_node:5.2} a node"
        ));
    }
    report(&format!("watches that were started: {watches:?}"));
    Ok(())
}

/// The most requests of an account in one second since this time.
pub(crate) fn busiest_second(
    audit: &Audit,
    account: &str,
    since: Timestamp,
) -> anyhow::Result<usize> {
    let since = since.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let mut seconds: BTreeMap<String, usize> = BTreeMap::new();
    let of_account = audit
        .events()?
        .filter(|event| event.account() == Some(account) && event.second() >= since.as_str());
    for event in of_account.filter(|event| event.is_complete() || event.is_start_of_watch()) {
        *seconds.entry(event.second().to_owned()).or_default() += 1;
    }
    Ok(seconds.into_values().max().unwrap_or_default())
}
