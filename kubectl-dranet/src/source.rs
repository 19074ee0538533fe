//! The cluster, live or from files.

use crate::args::{AdmissionArgs, SourceArgs};
use crate::in_use::InUse;
use crate::installed_drivers;
use crate::kinds::{
    ATTACHMENTS, BUDGETS, CLUSTER_QUEUES, COMPOSITE_POD_GROUPS, COMPUTE_DOMAINS, CONFIG_MAPS,
    CSI_DRIVERS, CSI_NODES, DEPLOYMENTS, EVENTS, HYPER_NODES, INSTALLATION, Kind, LIMIT_RANGES,
    NAMESPACES, POD_GROUPS, PODS, PRIORITY_CLASSES, QUOTAS, Query, RUNTIME_CLASSES, SERVICES,
    STORAGE_CAPACITIES, STORAGE_CLASSES, TAINT_RULES, TOPOLOGIES, VIEW, VOLUME_CLAIMS, VOLUMES,
    WORKLOADS,
};
use crate::live::Cluster;
use crate::reply::Missing;
use crate::settings::{ADMISSION, PREEMPTOR};
use crate::subject::Subject;
use crate::text::{counted, listed};
use anyhow::Context as _;
use cluster_model::names::{EVENT_COMPUTE_DOMAIN, object};
use cluster_model::room::{Images, Nodes};
use cluster_model::snapshot::{self, Found, Gathered, Gathering, Intake, Served};
use cluster_model::view::{ClusterView, Index as _};
use dra_allocator::{MinorVersion, Settings};
use fabric_controller::group_pods::GroupPods;
use fabric_controller::node_label;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Where objects come from.
pub(crate) enum Source {
    Live(Cluster),
    /// A file, with the Kubernetes version of its objects if the user named it.
    File(PathBuf, Option<MinorVersion>),
}

/// A cluster as it was read.
#[derive(Debug)]
pub(crate) struct ReadCluster {
    pub(crate) view: ClusterView,
    /// Whether it was read from a cluster, not from a file.
    pub(crate) is_live: bool,
    /// Objects of the requested kinds, unchanged.
    pub(crate) kept: Vec<Value>,
    /// Namespace of objects that do not set one.
    pub(crate) namespace: Option<String>,
    /// Version of the API server, if known.
    pub(crate) server: Option<String>,
    /// Feature gates of the API server, as far as it shows them.
    pub(crate) gates: BTreeMap<String, bool>,
    /// What could not be read and may matter.
    pub(crate) notes: Vec<String>,
    /// Kinds that the user may not read.
    pub(crate) refused: Vec<Kind>,
}

/// What could not be read.
#[derive(Debug, Default)]
struct Unread {
    notes: Vec<String>,
    /// Kinds that the user may not read.
    refused: Vec<Kind>,
    /// The optional kinds that the API server serves.
    served: Served,
}

/// The objects of a cluster, for a file.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) objects: Gathered,
    pub(crate) namespace: Option<String>,
    pub(crate) server: Option<String>,
    pub(crate) gates: BTreeMap<String, bool>,
    /// The optional kinds that the API server serves.
    pub(crate) served: Served,
    /// The content of the cluster's file of drivers.
    pub(crate) drivers: Option<String>,
    /// What could not be read and may matter.
    pub(crate) notes: Vec<String>,
}

impl Source {
    pub(crate) fn open(args: &SourceArgs) -> anyhow::Result<Self> {
        Ok(match &args.snapshot {
            Some(path) => {
                let head = snapshot::head(path);
                installed_drivers::of_snapshot(head.and_then(|head| head.drivers).as_deref())?;
                Self::File(path.clone(), args.kubernetes_version)
            }
            None => Self::Live(Cluster::connect(&args.kube, &args.user)?),
        })
    }

    /// The namespace to use if this one is named.
    pub(crate) fn namespace(&self, named: Option<&str>) -> Option<String> {
        match (named, self) {
            (Some(named), _) => Some(named.to_owned()),
            (None, Self::Live(cluster)) => Some(cluster.default_namespace()),
            (None, Self::File(..)) => None,
        }
    }

    /// Reads the queried objects, or everything in a file, and keeps those of `kinds`. Objects that
    /// the user may not read are missing; a note says so.
    pub(crate) fn read(
        &self,
        queries: &[Query],
        kinds: &'static [&'static str],
    ) -> anyhow::Result<ReadCluster> {
        match self {
            Self::File(path, version) => {
                Ok(of_file(snapshot::load_keeping(path, kinds)?, *version))
            }
            Self::Live(cluster) => of_cluster(cluster, queries, kinds),
        }
    }

    /// Reads everything that admission knows, with what limits these pods.
    pub(crate) fn read_as_admission(
        &self,
        admission: &AdmissionArgs,
        kinds: &'static [&'static str],
        more: &[Query],
        pods: &[Subject],
    ) -> anyhow::Result<ReadCluster> {
        let namespace = self.namespace(admission.namespace.as_deref());
        let mut queries = of_admission(admission, &namespaces(pods, namespace.as_deref()));
        queries.extend_from_slice(more);
        let mut seen = self.read(&queries, kinds)?;
        seen.namespace = namespace.or(seen.namespace);
        Ok(seen)
    }

    /// Reads the queried objects as text, or everything in a file.
    pub(crate) fn copy(&self, queries: &[Query]) -> anyhow::Result<Copied> {
        match self {
            Self::File(path, version) => copy_file(path, *version),
            Self::Live(cluster) => copy_cluster(cluster, queries),
        }
    }
}

fn copy_file(path: &Path, version: Option<MinorVersion>) -> anyhow::Result<Copied> {
    let mut objects = Gathering::default();
    let mut outcome = Ok(());
    let head = snapshot::gather(path, &mut |object| {
        if outcome.is_ok() {
            outcome = objects.push(object);
        }
    })?;
    outcome?;
    let objects = objects.finish()?;
    let mut served = head.as_ref().map(|head| head.served).unwrap_or_default();
    for kind in objects.kinds().keys() {
        served.add(kind);
    }
    let mut copied = Copied {
        objects,
        namespace: None,
        server: None,
        gates: BTreeMap::new(),
        served,
        drivers: None,
        notes: Vec::new(),
    };
    if let Some(head) = head {
        copied.notes.extend(head.unread.iter().map(|what| when_taken(what)));
        copied.namespace = head.namespace;
        copied.server = head.server_version;
        copied.gates = head.feature_gates;
        copied.drivers = head.drivers;
    }
    copied.server = version.map(|version| format!("v{version}")).or(copied.server);
    Ok(copied)
}

fn copy_cluster(cluster: &Cluster, queries: &[Query]) -> anyhow::Result<Copied> {
    let mut objects = Gathering::default();
    let server = cluster.version()?;
    let (drivers, unknown) = installed_drivers::of_cluster(cluster)?;
    let Unread { mut notes, served, .. } = each(cluster, queries, &mut |query, text| {
        let mut object: Value = serde_json::from_str(text)?;
        object["apiVersion"] = query.kind.version.into();
        object["kind"] = query.kind.name.into();
        Ok(objects.push_value(object)?)
    })?;
    notes.extend(unknown);
    Ok(Copied {
        objects: objects.finish()?,
        drivers,
        namespace: Some(cluster.default_namespace()),
        server: Some(server),
        gates: cluster.feature_gates(),
        served,
        notes,
    })
}

/// Calls `take` with each queried object; returns what could not be read.
fn each(
    cluster: &Cluster,
    queries: &[Query],
    take: &mut dyn FnMut(&Query, &str) -> anyhow::Result<()>,
) -> anyhow::Result<Unread> {
    let mut unread = Unread::default();
    for query in queries {
        let mut broken = Vec::new();
        let outcome = cluster.read(query, &mut |object| {
            if let Err(error) = take(query, object.get()) {
                broken.push(left_out(error.as_ref()));
            }
        })?;
        unread.notes.extend(broken);
        match outcome {
            Ok(()) => unread.served.add(query.kind.name),
            Err(missing) => {
                // The API server has what the user may not read.
                if missing == Missing::Right {
                    unread.served.add(query.kind.name);
                    unread.refused.push(query.kind);
                }
                unread.notes.extend(refused(query, missing));
            }
        }
    }
    Ok(unread)
}

fn left_out(error: &(dyn Error + 'static)) -> String {
    format!("ignored an object: {}", process::chain::Chain(error))
}

/// Says that objects of DRA were not read because of their version.
fn outdated(found: &Found) -> Option<String> {
    let objects = found
        .outdated
        .iter()
        .map(|((version, kind), number)| format!("{} of {version}", counted(*number, kind)));
    let objects: Vec<_> = objects.collect();
    (!objects.is_empty()).then(|| {
        format!(
            "ignored {}: only resource.k8s.io/v1 and v1beta2 are read, which Kubernetes 1.34 serves; \
             name the version to `kubectl get`, as in `resourceslices.v1.resource.k8s.io`",
            listed(&objects)
        )
    })
}

fn when_taken(what: &str) -> String {
    format!("when the snapshot was taken: {what}")
}

fn of_file(intake: Intake, version: Option<MinorVersion>) -> ReadCluster {
    let Intake { mut view, kept, head, broken, found, .. } = intake;
    if let Some(version) = version {
        view.set_settings(Settings::defaults_of(version));
    }
    let mut seen = ReadCluster {
        view,
        is_live: false,
        kept,
        namespace: None,
        server: None,
        gates: BTreeMap::new(),
        refused: Vec::new(),
        notes: broken.iter().map(|error| left_out(error)).chain(outdated(&found)).collect(),
    };
    if let Some(head) = head {
        seen.refused.extend(VIEW.into_iter().chain([PODS]).filter(|kind| {
            let right = kind.all("").right();
            head.unread.iter().any(|what| what.contains(&right))
        }));
        // Of these, a part is read: that of the installation's namespace, or one object.
        seen.refused.extend(INSTALLATION.into_iter().filter(|kind| {
            let resource = kind.resource();
            head.unread.iter().any(|what| what.split(' ').any(|word| word == resource))
        }));
        seen.notes.extend(head.unread.iter().map(|what| when_taken(what)));
        seen.namespace = head.namespace;
        seen.server = head.server_version;
        seen.gates = head.feature_gates;
    }
    seen.server = version.map(|version| format!("v{version}")).or(seen.server);
    seen
}

fn of_cluster(
    cluster: &Cluster,
    queries: &[Query],
    kinds: &'static [&'static str],
) -> anyhow::Result<ReadCluster> {
    let place = Path::new("the cluster");
    let (_, unknown) = installed_drivers::of_cluster(cluster)?;
    let mut intake = Intake::keeping(kinds);
    let server = cluster.version()?;
    intake.set_server_version(&server);
    let Unread { mut notes, refused, served } = each(cluster, queries, &mut |query, text| {
        Ok(intake.take_live(place, (query.kind.version, query.kind.name), text)?)
    })?;
    intake.serve(served);
    notes.extend(unknown);
    Ok(ReadCluster {
        view: intake.view,
        is_live: true,
        kept: intake.kept,
        namespace: Some(cluster.default_namespace()),
        server: Some(server),
        gates: BTreeMap::new(),
        notes,
        refused,
    })
}

/// The note about objects that were not read; none for a kind that is optional.
pub(crate) fn refused(query: &Query, missing: Missing) -> Option<String> {
    let Query { kind, without, .. } = query;
    match missing {
        Missing::Right => Some(format!("you may not {}, so {without}", query.right())),
        // Not every version or configuration of Kubernetes has these kinds.
        Missing::Kind
            if matches!(
                *kind,
                CLUSTER_QUEUES
                    | POD_GROUPS
                    | COMPOSITE_POD_GROUPS
                    | COMPUTE_DOMAINS
                    | HYPER_NODES
                    | TAINT_RULES
                    | TOPOLOGIES
            ) =>
        {
            None
        }
        Missing::Kind => Some(format!("the API server has no {}, so {without}", kind.resource())),
    }
}

/// The objects that every view is made from.
pub(crate) fn of_view() -> Vec<Query> {
    VIEW.into_iter().map(|kind| kind.all(without(kind.name))).collect()
}

/// What follows if a kind of the view cannot be read.
fn without(kind: &str) -> &'static str {
    match kind {
        "Node" => "node labels are unknown and node selectors are ignored",
        "ResourceSlice" => "devices are unknown",
        "DeviceTaintRule" => "taints that rules add to devices are unknown",
        "DeviceClass" => "DeviceClasses are unknown",
        "ResourceClaim" => "all devices are assumed free",
        "ResourceClaimTemplate" => "claim templates are unknown",
        _ => "graphs are unknown",
    }
}

/// The same, and what admission knows in addition: quotas of the namespace, and remembered
/// machines.
pub(crate) fn of_admission(args: &AdmissionArgs, namespaces: &BTreeSet<String>) -> Vec<Query> {
    let machines = CONFIG_MAPS.one(
        &args.admission_namespace,
        object::MACHINES,
        "machines that admission remembers are unknown: node pools scaled to zero are ignored",
    );
    let groups = pod_groups();
    let settings = DEPLOYMENTS.one(
        &args.admission_namespace,
        ADMISSION,
        "admission is assumed to have the chart's settings, except for flags given here",
    );
    let domains = compute_domains();
    let own = [machines, settings, domains].into_iter().chain(limits_of(namespaces));
    of_view().into_iter().chain(own).chain(groups).chain(named_by_pods()).collect()
}

/// What limits pods of these namespaces, or of all if none is named.
fn limits_of(namespaces: &BTreeSet<String>) -> Vec<Query> {
    if namespaces.is_empty() {
        return limits_in(None).into();
    }
    namespaces.iter().flat_map(|namespace| limits_in(Some(namespace))).collect()
}

fn limits_in(namespace: Option<&str>) -> [Query; 2] {
    [
        QUOTAS.of(namespace, "quotas are not checked"),
        LIMIT_RANGES.of(namespace, "LimitRanges are not checked"),
    ]
}

/// What pods name: classes that the API server fills in, volumes, and namespaces by their labels.
pub(crate) fn named_by_pods() -> [Query; 11] {
    let volumes = "where volumes of pods can be is not checked";
    [
        NAMESPACES.all("labels of namespaces are unknown"),
        VOLUMES.all(volumes),
        VOLUME_CLAIMS.all(volumes),
        STORAGE_CLASSES.all(volumes),
        CSI_DRIVERS.all("how much storage is left is not checked"),
        STORAGE_CAPACITIES.all("how much storage is left is not checked"),
        CSI_NODES.all("how many volumes a node can attach is not checked"),
        ATTACHMENTS.all("volumes that are attached for no pod are not counted"),
        SERVICES.all("which pods Services spread is unknown"),
        PRIORITY_CLASSES.all("priorities of pods in files are unknown"),
        RUNTIME_CLASSES.all("overhead and node selectors of RuntimeClasses are unknown"),
    ]
}

/// What is known of preemption besides pods.
pub(crate) fn of_preemption(admission_namespace: &str) -> [Query; 2] {
    let without = "it is not known whether preemptor runs";
    [disruption_budgets(), DEPLOYMENTS.one(admission_namespace, PREEMPTOR, without)]
}

/// What limits evictions.
pub(crate) fn disruption_budgets() -> Query {
    BUDGETS.all("PodDisruptionBudgets are assumed to allow every eviction")
}

/// NVIDIA's `ComputeDomain`s: whether the API server has them.
pub(crate) fn compute_domains() -> Query {
    COMPUTE_DOMAINS.all("it is not known which jobs have an IMEX channel")
}

/// Why admission has not created `ComputeDomain`s.
pub(crate) fn missing_domains() -> Query {
    EVENTS.because(EVENT_COMPUTE_DOMAIN, "it is not known why ComputeDomains are missing")
}

/// What other schedulers say of the network.
pub(crate) fn foreign_topologies() -> [Query; 2] {
    let without = "what another scheduler says of levels of the network is unknown";
    [TOPOLOGIES.all(without), HYPER_NODES.all(without)]
}

/// Kueue's quotas.
pub(crate) fn cluster_queues() -> Query {
    CLUSTER_QUEUES.all("Kueue's quotas are not checked")
}

/// The groups that the scheduler places itself.
pub(crate) fn pod_groups() -> [Query; 2] {
    let without = "groups that the scheduler places itself are unknown";
    [POD_GROUPS.all(without), COMPOSITE_POD_GROUPS.all(without)]
}

/// The namespaces of these pods: their own, or else this one.
pub(crate) fn namespaces(pods: &[Subject], or_else: Option<&str>) -> BTreeSet<String> {
    let own = pods.iter().map(|it| it.pod["metadata"]["namespace"].as_str());
    let all = own.chain(pods.is_empty().then_some(None));
    all.filter_map(|own| own.or(or_else)).map(str::to_owned).collect()
}

impl ReadCluster {
    /// Fails if the user may not read objects that an answer depends on: what is unknown is not the
    /// same as nothing.
    pub(crate) fn must_know(&self, kinds: &[Kind]) -> anyhow::Result<()> {
        let mut rights: Vec<_> = kinds
            .iter()
            .filter(|kind| self.refused.contains(kind))
            .map(|it| it.resource())
            .collect();
        rights.dedup();
        anyhow::ensure!(
            rights.is_empty(),
            "the answer is not known: you may not list {} in the whole cluster; ask for the \
             ClusterRole `dranet-reader`, as docs/operate/rights.md says",
            listed(&rights)
        );
        Ok(())
    }

    /// The nodes and the pods on them, which are added to the view, after fabric-controller has
    /// labelled the nodes with their fabrics: a snapshot can be older than the labels.
    pub(crate) fn nodes(&mut self) -> anyhow::Result<Nodes> {
        self.label_fabrics()?;
        let mut nodes = Nodes::default();
        for object in &self.kept {
            match object["kind"].as_str() {
                Some("Pod") => {
                    let pod = Pod::deserialize(object)?;
                    nodes.apply_pod(&pod);
                    self.view.apply(pod)?;
                }
                Some("Node") if self.is_live => {
                    nodes.apply(&Deserialize::deserialize(object)?);
                }
                Some("Node") => nodes.apply_of_file(&Deserialize::deserialize(object)?),
                _ => {}
            }
        }
        Ok(nodes)
    }

    /// The nodes, and what pods use there.
    pub(crate) fn in_use(&mut self) -> anyhow::Result<InUse> {
        let nodes = self.nodes()?;
        let mut images = Images::default();
        for node in self.of_kind("Node") {
            images.add(&Deserialize::deserialize(node)?);
        }
        Ok(InUse::new(nodes, images, &self.view))
    }

    /// The pods of groups.
    pub(crate) fn group_pods(&self) -> anyhow::Result<GroupPods> {
        let mut pods = GroupPods::default();
        for pod in self.pods(None)? {
            pods.apply(&pod);
        }
        Ok(pods)
    }

    /// Sets the labels that fabric-controller would set on nodes.
    fn label_fabrics(&mut self) -> anyhow::Result<()> {
        for (node, labels) in node_label::due(&self.view) {
            let Some(object) = self.kept.iter_mut().find(|object| {
                object["kind"] == "Node" && object["metadata"]["name"] == node.as_str()
            }) else {
                continue;
            };
            for (key, value) in labels.as_object().into_iter().flatten() {
                let known = &mut object["metadata"]["labels"];
                if value.is_null() {
                    known.as_object_mut().map(|known| known.remove(key));
                } else {
                    known[key] = value.clone();
                }
            }
            self.view.apply(Node::deserialize(&*object)?)?;
        }
        Ok(())
    }

    /// The pods of a namespace, or of all.
    pub(crate) fn pods(&self, namespace: Option<&str>) -> anyhow::Result<Vec<Pod>> {
        let pods = self.of_kind("Pod");
        let pods: Result<Vec<Pod>, _> = pods.map(Deserialize::deserialize).collect();
        let mut pods = pods?;
        pods.retain(|pod| {
            namespace.is_none_or(|asked| pod.metadata.namespace.as_deref() == Some(asked))
        });
        Ok(pods)
    }

    /// The quotas and `LimitRange`s that were kept.
    pub(crate) fn quotas(&self) -> Vec<Value> {
        self.of_kind("ResourceQuota").chain(self.of_kind("LimitRange")).cloned().collect()
    }

    /// Kueue's Workloads that were kept; Kubernetes has objects of this name too.
    pub(crate) fn workloads(&self) -> Vec<Value> {
        let group = WORKLOADS.version.split('/').next().unwrap_or_default();
        let of_kueue = self.of_kind(WORKLOADS.name).filter(|workload| {
            workload["apiVersion"].as_str().is_some_and(|version| version.starts_with(group))
        });
        of_kueue.cloned().collect()
    }

    /// The objects of a kind that were kept.
    pub(crate) fn of_kind<'s>(&'s self, kind: &'s str) -> impl Iterator<Item = &'s Value> {
        self.kept.iter().filter(move |object| object["kind"] == kind)
    }
}

/// The objects of a file; `-` is standard input.
pub(crate) fn objects(path: &Path) -> anyhow::Result<Vec<Value>> {
    if path != Path::new("-") {
        return Ok(snapshot::objects(path)?);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("failed to read standard input")?;
    Ok(snapshot::parse(&text, path)?)
}
