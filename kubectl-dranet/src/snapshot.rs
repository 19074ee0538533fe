//! `snapshot`: everything that the other commands read, in one file.

mod mask;

use crate::Output;
use crate::args::{SnapshotArgs, VersionArgs};
use crate::kinds::{
    Ask, CONFIG_MAPS, DAEMON_SETS, DEFINITIONS, DEPLOYMENTS, ENDPOINTS, GRAPHS, LINT_WEBHOOKS,
    POD_GROUPS, PODS, QUOTAS, WEBHOOKS,
};
use crate::source::{self, Seen, Source};
use crate::text::counted;
use cluster_model::names::object;
use cluster_model::snapshot::{ALL, FORMAT, Head, trim, write};
use jiff::Timestamp;
use mask::{Masked, scrub};
use std::collections::BTreeMap;

/// What the other commands ask for, together.
fn everything(namespace: &str) -> Vec<Ask> {
    let mut asks = source::of_view();
    asks.extend([
        PODS.all("no command can tell of pods"),
        QUOTAS.all("no warning tells of quotas"),
        POD_GROUPS.all("groups that the scheduler places itself are not known"),
    ]);
    asks.push(CONFIG_MAPS.one(namespace, object::MACHINES, "remembered machines do not count"));
    asks.extend(of_installation(namespace));
    asks
}

/// What tells how the project is installed.
pub(crate) fn of_installation(namespace: &str) -> Vec<Ask> {
    let crd = format!("{}.{}", GRAPHS.plural, "topology.dranet.io");
    vec![
        DEPLOYMENTS.of(Some(namespace), "no finding tells of the project's servers"),
        DAEMON_SETS.of(Some(namespace), "no finding tells of the node driver's pods"),
        ENDPOINTS.of(Some(namespace), "no finding tells whether the webhook has replicas"),
        WEBHOOKS.one("", object::WEBHOOK, "no finding tells of the webhook"),
        LINT_WEBHOOKS.one("", object::LINT_WEBHOOK, "no finding tells of the webhook on claims"),
        DEFINITIONS.one("", &crd, "no finding tells of the CRD"),
    ]
}

/// Reads the namespace's components for `version`.
pub(crate) fn read_components(args: &VersionArgs) -> anyhow::Result<Seen> {
    let namespace = Some(args.admission_namespace.as_str());
    let asks = [
        DEPLOYMENTS.of(namespace, "the servers' versions are not known"),
        DAEMON_SETS.of(namespace, "the node driver's version is not known"),
    ];
    Source::open(&args.source)?.read(&asks, &["Deployment", "DaemonSet"])
}

pub(crate) fn run(args: &SnapshotArgs) -> anyhow::Result<Output> {
    let source = Source::open(&args.source)?;
    let seen = source.read(&everything(&args.admission_namespace), &[ALL])?;
    let gates = match &source {
        Source::Live(cluster) => cluster.feature_gates(),
        Source::File(..) => seen.gates,
    };
    let mut head = Head {
        api_version: FORMAT.to_owned(),
        kind: "Snapshot".to_owned(),
        taken_at: Timestamp::now().to_string(),
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        server_version: seen.server,
        feature_gates: gates,
        pod_groups: seen.view.pod_groups().is_served(),
        namespace: seen.namespace,
        masked: args.mask,
        unread: seen.notes.clone(),
    };
    let mut objects = seen.kept;
    objects.iter_mut().for_each(trim);
    if args.mask {
        objects.iter_mut().for_each(scrub);
        let masked = Masked::of(&objects);
        for object in &mut objects {
            masked.apply(object);
        }
        head.namespace = head.namespace.map(|name| masked.text(&name));
        // They name what was asked for, and so who asked.
        head.unread.clear();
    }
    write(&args.output, &head, &objects)?;
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for object in &objects {
        *kinds.entry(object["kind"].as_str().unwrap_or("?")).or_default() += 1;
    }
    let kinds: Vec<_> = kinds.iter().map(|(kind, number)| counted(*number, kind)).collect();
    let text = format!("{}: {}\n", args.output.display(), kinds.join(", "));
    Ok(Output { notes: seen.notes, ..Output::from(text) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_asked_for_once() {
        let asks = everything("dranet-system");
        let paths: std::collections::BTreeSet<String> = asks.iter().map(Ask::path).collect();
        assert_eq!(paths.len(), asks.len());
        assert!(!paths.iter().any(|path| path.contains("secrets")));
    }
}
