//! `snapshot`: everything that the other commands read, in one file.

mod mask;

use crate::Output;
use crate::args::{SnapshotArgs, VersionArgs};
use crate::kinds::{
    Ask, CONFIG_MAPS, DAEMON_SETS, DEFINITIONS, DEPLOYMENTS, ENDPOINTS, GRAPHS, LINT_WEBHOOKS,
    NIC_ADDRESSES, NIC_POOLS, POD_GROUPS, PODS, QUOTAS, WEBHOOKS,
};
use crate::source::{self, Copied, Seen, Source};
use crate::text::counted;
use cluster_model::names::object;
use cluster_model::snapshot::{FORMAT, Gathered, Gathering, Head, write};
use jiff::Timestamp;
use mask::{Masked, Names, scrub};

/// What the other commands ask for, together. Masked, without the addresses of pools: they tell
/// whose network it is.
fn everything(namespace: &str, is_masked: bool) -> Vec<Ask> {
    let mut asks = source::of_view();
    asks.extend([
        PODS.all("no command can tell of pods"),
        QUOTAS.all("no warning tells of quotas"),
        POD_GROUPS.all("groups that the scheduler places itself are not known"),
    ]);
    if !is_masked {
        asks.extend(pools());
    }
    asks.push(CONFIG_MAPS.one(namespace, object::MACHINES, "remembered machines do not count"));
    asks.extend(of_installation(namespace));
    asks
}

/// Pools of addresses and what is taken of them.
pub(crate) fn pools() -> [Ask; 2] {
    [NIC_POOLS.all("no pool is known"), NIC_ADDRESSES.all("every address counts as free")]
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
    let Copied { mut objects, namespace, server, gates, pod_groups, notes } =
        source.copy(&everything(&args.admission_namespace, args.mask))?;
    let mut head = Head {
        api_version: FORMAT.to_owned(),
        kind: "Snapshot".to_owned(),
        taken_at: Timestamp::now().to_string(),
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        server_version: server,
        feature_gates: gates,
        pod_groups,
        namespace,
        masked: args.mask,
        unread: notes.clone(),
    };
    if args.mask {
        let (masked, names) = masked(&objects)?;
        objects = masked;
        head.namespace = head.namespace.map(|name| names.text(&name));
        // They name what was asked for, and so who asked.
        head.unread.clear();
    }
    write(&args.output, &head, &objects)?;
    let kinds = objects.kinds().iter();
    let kind = |name: &str| if name.is_empty() { "?".to_owned() } else { name.to_owned() };
    let kinds: Vec<_> = kinds.map(|(name, number)| counted(*number, &kind(name))).collect();
    let text = format!("{}: {}\n", args.output.display(), kinds.join(", "));
    Ok(Output { notes, ..Output::from(text) })
}

/// The objects without names of whose cluster it is, and what names became.
fn masked(objects: &Gathered) -> anyhow::Result<(Gathered, Masked)> {
    let mut names = Names::default();
    objects.each(|mut object| {
        scrub(&mut object);
        names.of_object(&object);
        Ok(())
    })?;
    let masked = Masked::of(names);
    let mut out = Gathering::default();
    objects.each(|mut object| {
        scrub(&mut object);
        masked.apply(&mut object);
        out.push_value(object)
    })?;
    Ok((out.finish()?, masked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_asked_for_once() {
        let asks = everything("dranet-system", false);
        let paths: std::collections::BTreeSet<String> = asks.iter().map(Ask::path).collect();
        assert_eq!(paths.len(), asks.len());
        assert!(!paths.iter().any(|path| path.contains("secrets")));
    }
}
