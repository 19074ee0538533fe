//! `snapshot`: everything that the other commands read, in one file.

mod mask;

use crate::Output;
use crate::args::{SnapshotArgs, VersionArgs};
use crate::kinds::{
    CONFIG_MAPS, DAEMON_SETS, DEFINITIONS, DEPLOYMENTS, ENDPOINTS, GRAPHS, LIMIT_RANGES,
    LINT_WEBHOOKS, NIC_ADDRESSES, NIC_POOLS, PODS, QUOTAS, Query, WEBHOOKS,
};
use crate::source::{self, Copied, ReadCluster, Source};
use crate::text::counted;
use cluster_model::names::object;
use cluster_model::snapshot::{FORMAT, Gathered, Gathering, Head, write};
use jiff::Timestamp;
use mask::{Masked, Names, scrub};

/// Everything that the other commands read. A masked snapshot leaves out the addresses of pools and
/// what other schedulers say of the network, which identify it.
fn everything(namespace: &str, is_masked: bool) -> Vec<Query> {
    let mut queries = source::of_view();
    queries.extend([
        PODS.all("the snapshot has no pods"),
        QUOTAS.all("quotas are not checked"),
        LIMIT_RANGES.all("LimitRanges are not checked"),
        source::disruption_budgets(),
    ]);
    queries.extend(source::named_by_pods());
    queries.extend(source::pod_groups());
    queries.push(source::compute_domains());
    if !is_masked {
        queries.extend(pools());
        queries.push(source::cluster_queues());
        queries.extend(source::foreign_topologies());
        queries.push(source::missing_domains());
    }
    queries.push(CONFIG_MAPS.one(namespace, object::MACHINES, "remembered machines are unknown"));
    queries.extend(of_installation(namespace));
    queries
}

/// Address pools and the addresses in use.
pub(crate) fn pools() -> [Query; 2] {
    [NIC_POOLS.all("pools are unknown"), NIC_ADDRESSES.all("all addresses are assumed free")]
}

/// The objects of the project's installation.
pub(crate) fn of_installation(namespace: &str) -> Vec<Query> {
    let crd = format!("{}.{}", GRAPHS.plural, "topology.dranet.io");
    vec![
        DEPLOYMENTS.of(Some(namespace), "the project's servers are not checked"),
        DAEMON_SETS.of(Some(namespace), "the node driver's pods are not checked"),
        ENDPOINTS.of(Some(namespace), "the webhook's replicas are not checked"),
        WEBHOOKS.one("", object::WEBHOOK, "the webhook is not checked"),
        LINT_WEBHOOKS.one("", object::LINT_WEBHOOK, "the webhook on claims is not checked"),
        DEFINITIONS.one("", &crd, "the CRD is not checked"),
    ]
}

/// Reads the namespace's components for `version`.
pub(crate) fn read_components(args: &VersionArgs) -> anyhow::Result<ReadCluster> {
    let namespace = Some(args.admission_namespace.as_str());
    let queries = [
        DEPLOYMENTS.of(namespace, "the versions of the servers are unknown"),
        DAEMON_SETS.of(namespace, "the version of the node driver is unknown"),
    ];
    Source::open(&args.source)?.read(&queries, &["Deployment", "DaemonSet"])
}

pub(crate) fn run(args: &SnapshotArgs) -> anyhow::Result<Output> {
    let source = Source::open(&args.source)?;
    let Copied { mut objects, namespace, server, gates, served, drivers, notes } =
        source.copy(&everything(&args.admission_namespace, args.mask))?;
    let mut head = Head {
        api_version: FORMAT.to_owned(),
        kind: "Snapshot".to_owned(),
        taken_at: Timestamp::now().to_string(),
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        server_version: server,
        feature_gates: gates,
        served,
        drivers,
        namespace,
        masked: args.mask,
        unread: notes.clone(),
    };
    if args.mask {
        let (masked, names) = masked(&objects)?;
        objects = masked;
        head.namespace = head.namespace.map(|name| names.text(&name));
        // These notes have unmasked names, and the rights that the user lacks.
        head.unread.clear();
    }
    write(&args.output, &head, &objects)?;
    let kinds = objects.kinds().iter().map(|(name, number)| {
        let name: &str = if name.is_empty() { "?" } else { name };
        counted(*number, name)
    });
    let kinds: Vec<_> = kinds.collect();
    let text = format!("{}: {}\n", args.output.display(), kinds.join(", "));
    Ok(Output { notes, ..Output::from(text) })
}

/// Returns the objects without names that identify the owner, and the replacements.
fn masked(objects: &Gathered) -> anyhow::Result<(Gathered, Masked)> {
    let mut names = Names::default();
    objects.each(|mut object| {
        scrub(&mut object);
        names.of_object(&object);
        Ok(())
    })?;
    let masked = Masked::new(names);
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
        let queries = everything("dranet-system", false);
        let paths: std::collections::BTreeSet<String> = queries.iter().map(Query::path).collect();
        assert_eq!(paths.len(), queries.len());
        assert!(!paths.iter().any(|path| path.contains("secrets")));
    }
}
