//! `verify`: checks the devices that running pods got.

mod gpu_direct;

use crate::Output;
use crate::answer::{Verified, VerifiedPair, Verify};
use crate::args::{ListForm, VerifyArgs};
use crate::device_names;
use crate::kinds::{PODS, USE};
use crate::nodes::words;
use crate::source::{self, ReadCluster, Source};
use crate::text::{self, counted, table};
use admission::reapplied;
use cluster_model::names::annotation;
use cluster_model::node_devices::NodeDevices;
use cluster_model::predict::{Fit, Prediction, predict_each};
use cluster_model::published_device::{PublishedDevice as _, Trouble};
use cluster_model::room::pod_claims;
use cluster_model::view::{ClusterView, ObjectKey};
use dra_allocator::{AllocatedState, Claim, Device, DeviceId};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use topology_graph::{Level, PathKind, PciAddress};

pub(crate) fn run(args: &VerifyArgs) -> anyhow::Result<Output> {
    let source = Source::open(&args.source)?;
    let namespace = source.namespace(args.namespace.as_deref());
    let asked = namespace.as_deref().filter(|_| !args.all_namespaces);
    let mut queries = source::of_view();
    queries.push(PODS.of(asked, "no pod is known"));
    let seen = source.read(&queries, &["Pod"])?;
    seen.must_know(&USE)?;
    seen.must_know(&[PODS])?;
    let namespace = namespace.or_else(|| seen.namespace.clone());
    let namespace = namespace.as_deref().filter(|_| !args.all_namespaces);
    let mut pods = seen.pods(namespace)?;
    if let Some(selector) = &args.selector {
        let none = BTreeMap::new();
        pods.retain(|pod| selector.matches(pod.metadata.labels.as_ref().unwrap_or(&none)));
    }
    let ReadCluster { view, mut notes, .. } = seen;
    if let Some(name) = &args.pod {
        let name = name.strip_prefix("pod/").unwrap_or(name);
        pods.retain(|pod| pod.metadata.name.as_deref() == Some(name));
        let scope =
            namespace.map_or_else(|| "any namespace".to_owned(), |it| format!("namespace `{it}`"));
        anyhow::ensure!(!pods.is_empty(), "found no Pod `{name}` in {scope}");
    }
    let mut answer = Verify { pods: Vec::new() };
    for pod in &pods {
        match verify(pod, &view, args.gpudirect) {
            Ok(found) => answer.pods.extend(found),
            Err(reason) => notes.push(format!("{}: {reason}", ObjectKey::new(&pod.metadata))),
        }
    }
    add_possible(&view, &mut answer.pods);
    answer.pods.sort_by(|one, other| one.pod.cmp(&other.pod));
    let verified = &answer.pods;
    let denied =
        verified.iter().any(|pod| pod.worse || !pod.degraded.is_empty() || pod.is_blocked());
    let text = match args.output {
        ListForm::Text => person(verified, false)? + &gpu_direct::person(verified)?,
        ListForm::Wide => person(verified, true)? + &gpu_direct::person(verified)?,
        ListForm::Name => text::lines(verified.iter().map(|it| format!("pod/{}", it.name()))),
        ListForm::Json => text::answer(&answer, false)?,
        ListForm::Yaml => text::answer(&answer, true)?,
    };
    Ok(Output { text, denied, notes })
}

/// The farthest path between a running pod's GPUs and NICs, and whether it is farther than promised.
/// `None` if the pod has no such pair.
pub(crate) fn of_pod_now(
    pod: &Pod,
    view: &ClusterView,
) -> Result<Option<(PathKind, bool)>, String> {
    let found = verify(pod, view, false)?;
    Ok(found.and_then(|found| Some((farthest(&found.pairs)?, found.worse))))
}

impl Verified {
    /// The pod's name without the namespace.
    fn name(&self) -> &str {
        self.pod.split_once('/').map_or(&self.pod, |(_, name)| name)
    }

    /// Whether GPUDirect is blocked for a pair, if that was checked.
    fn is_blocked(&self) -> bool {
        self.pairs.iter().flat_map(|pair| &pair.gpu_direct).any(|it| it.why.is_some())
    }
}

/// The farthest path of these pairs.
fn farthest(pairs: &[VerifiedPair]) -> Option<PathKind> {
    pairs.iter().map(|pair| pair.path).max()
}

/// Checks a pod, also whether its NICs can reach the memory of its GPUs if that is asked; `None` if it
/// does not run or has no GPU-NIC pair.
pub(crate) fn verify(
    pod: &Pod,
    view: &ClusterView,
    with_gpu_direct: bool,
) -> Result<Option<Verified>, String> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_over = matches!(phase, Some("Succeeded" | "Failed"));
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    let Some(node) = node.filter(|_| !is_over) else { return Ok(None) };
    let claims = pod_claims(pod, view)?.allocated;
    let held: Vec<DeviceId> = claims.iter().flat_map(|key| held_by(view, key)).collect();
    if held.is_empty() {
        return Ok(None);
    }
    let devices = NodeDevices::new(view, node);
    let devices =
        devices.ok_or_else(|| format!("node {node} has no graph, so its paths are not known"))?;
    let (gpus, nics) = (of_pod(&devices.gpus, &held), of_pod(&devices.nics, &held));
    let late: Vec<_> = claims.iter().filter_map(|key| view.late_claim(key)).collect();
    let all_gpus = gpus.keys().chain(late.iter().flat_map(|claim| &claim.gpus));
    let all_nics = nics.keys().chain(late.iter().flat_map(|claim| &claim.nics));
    let [all_gpus, all_nics] = [all_gpus.copied().collect(), all_nics.copied().collect::<Vec<_>>()];
    if all_gpus.is_empty() || all_nics.is_empty() {
        return Ok(None);
    }
    let pairs = devices.topology.pairs_of(&all_gpus, &all_nics);
    let near = path_within(devices.planned_level());
    let pairs = pairs.iter().map(|pair| VerifiedPair {
        names: [
            short_name(view, (node, &gpus), pair.gpu)
                .unwrap_or_else(|| gpu_name(&devices, pair.gpu)),
            short_name(view, (node, &nics), pair.nic)
                .unwrap_or_else(|| nic_name(&devices, pair.nic)),
        ],
        gpu: device_name(&gpus, pair.gpu).unwrap_or_else(|| gpu_name(&devices, pair.gpu)),
        nic: device_name(&nics, pair.nic).unwrap_or_else(|| nic_name(&devices, pair.nic)),
        path: pair.path,
        is_near: pair.path.satisfies(near),
        gpu_direct: with_gpu_direct.then(|| gpu_direct::of_pair(view, node, pair)),
        addresses: [pair.gpu, pair.nic].map(|address| address.to_string()),
    });
    let pairs: Vec<_> = pairs.collect();
    let within = late.iter().filter_map(|claim| claim.wanted.within).max().map(path_within);
    let promised = promised(pod, &devices).or(within);
    let compared = farthest(&pairs).zip(promised);
    Ok(Some(Verified {
        pod: ObjectKey::new(&pod.metadata).to_string(),
        node: node.to_owned(),
        worse: compared.is_some_and(|(path, most)| !path.satisfies(most)),
        pairs,
        promised,
        possible: None,
        degraded: nics.values().filter_map(|nic| degraded(nic)).collect(),
        claims,
    }))
}

fn device_name(of: &BTreeMap<PciAddress, &Device>, address: PciAddress) -> Option<String> {
    of.get(&address).map(|device| device.id().device.to_string())
}

/// The name that people have for a device.
fn short_name(
    view: &ClusterView,
    of: (&str, &BTreeMap<PciAddress, &Device>),
    address: PciAddress,
) -> Option<String> {
    let (node, devices) = of;
    devices.get(&address).map(|device| device_names::short(view, node, device))
}

/// The name of a GPU in the graph: no driver publishes those of device plugins.
fn gpu_name(devices: &NodeDevices<'_>, address: PciAddress) -> String {
    let gpu = devices.topology.gpu(address);
    gpu.map_or_else(|| address.to_string(), |gpu| gpu.name.clone())
}

/// The name of a NIC in the graph: those that are bound late are published as places.
fn nic_name(devices: &NodeDevices<'_>, address: PciAddress) -> String {
    let nic = devices.topology.nic(address);
    nic.map_or_else(|| address.to_string(), |nic| nic.name.clone())
}

/// Returns why a NIC carries less than it could, with its name.
fn degraded(nic: &Device) -> Option<String> {
    let trouble = nic.trouble().filter(Trouble::is_of_link)?;
    Some(format!("{} ({}): {}", device_names::nic(nic), nic.name(), words(&trouble)))
}

fn held_by(view: &ClusterView, key: &ObjectKey) -> Vec<DeviceId> {
    view.held_by(key).cloned().collect()
}

fn of_pod<'d>(
    devices: &BTreeMap<PciAddress, &'d Device>,
    held: &[DeviceId],
) -> BTreeMap<PciAddress, &'d Device> {
    let of_pod = devices.iter().filter(|(_, device)| held.contains(device.id()));
    of_pod.map(|(address, device)| (*address, *device)).collect()
}

/// The path that annotations guarantee: the configured level, otherwise a NUMA node, or a socket
/// on a machine whose sockets have several. Preferred alignment guarantees nothing, and neither do
/// annotations that were changed after the claim was made.
fn promised(pod: &Pod, devices: &NodeDevices<'_>) -> Option<PathKind> {
    let annotations = pod.metadata.annotations.as_ref()?;
    annotations.get(annotation::ALIGNED_NICS)?;
    if reapplied::warning(&serde_json::to_value(pod).ok()?).is_some() {
        return None;
    }
    let policy = annotations.get(annotation::ALIGNMENT_POLICY);
    if policy.is_some_and(|policy| policy == "preferred") {
        return None;
    }
    let level = annotations.get(annotation::ALIGNMENT).and_then(|level| level.parse().ok());
    Some(path_within(level.unwrap_or_else(|| devices.planned_level())))
}

/// The farthest path within a cell of this level.
fn path_within(level: Level) -> PathKind {
    match level {
        Level::Switch => PathKind::Pix,
        Level::RootPort => PathKind::Pxb,
        Level::Root => PathKind::Phb,
        Level::Numa => PathKind::Node,
        Level::Socket => PathKind::Sys,
    }
}

/// Adds the farthest path that the scheduler's choice would have if nothing were in use.
/// Pods with equal claims are handled together, so that equal nodes are computed once.
fn add_possible(view: &ClusterView, verified: &mut [Verified]) {
    let mut alike: HashMap<String, Vec<usize>> = HashMap::new();
    for (index, pod) in verified.iter().enumerate() {
        let specs: Vec<Option<_>> =
            pod.claims.iter().map(|key| view.claim(key)?.spec.as_deref()).collect();
        alike.entry(serde_json::to_string(&specs).unwrap_or_default()).or_default().push(index);
    }
    for indices in alike.into_values() {
        let pods: Vec<_> = indices.iter().filter_map(|index| verified.get(*index)).collect();
        let Some(claims) = pods.first().and_then(|pod| claims_of(view, &pod.claims)) else {
            continue;
        };
        let nodes: BTreeSet<String> = pods.iter().map(|pod| pod.node.clone()).collect();
        let (nodes, nothing) = (nodes.iter().map(String::as_str), AllocatedState::new());
        let answers = predict_each(view, nodes, &claims, &nothing, &|| false);
        for index in &indices {
            let Some(pod) = verified.get_mut(*index) else { continue };
            let answer = answers.get(pod.node.as_str());
            pod.possible = answer.and_then(|answer| predicted(view, &pod.node, answer));
        }
    }
}

fn claims_of(view: &ClusterView, keys: &[ObjectKey]) -> Option<Vec<Claim>> {
    keys.iter()
        .map(|key| {
            let spec = view.claim(key)?.spec.clone()?;
            Claim::from_spec(key.into(), &spec).ok()
        })
        .collect()
}

/// The farthest pair of the predicted allocation on a node.
fn predicted(view: &ClusterView, node: &str, answer: &Prediction) -> Option<PathKind> {
    let Prediction::Fits(Fit { allocations, .. }) = answer else { return None };
    let devices = NodeDevices::new(view, node)?;
    let results = allocations.iter().flat_map(|allocation| &allocation.results);
    let held: Vec<DeviceId> = results.map(|result| result.device.clone()).collect();
    let [gpus, nics] = [&devices.gpus, &devices.nics]
        .map(|all| of_pod(all, &held).into_keys().collect::<Vec<_>>());
    let pairs = devices.topology.pairs_of(&gpus, &nics);
    pairs.iter().map(|pair| pair.path).max()
}

fn person(verified: &[Verified], is_wide: bool) -> anyhow::Result<String> {
    if verified.is_empty() {
        return Ok("no running pod has both GPUs and NICs\n".to_owned());
    }
    let mut rows = Vec::new();
    for pod in verified {
        for pair in &pod.pairs {
            let (most, [gpu, nic]) = (pod.promised, &pair.names);
            let is_worse = most.is_some_and(|most| !pair.path.satisfies(most));
            let mut row = vec![
                pod.pod.clone(),
                pod.node.clone(),
                gpu.clone(),
                nic.clone(),
                pair.path.to_string(),
                cell(pod.promised),
                cell(pod.possible),
            ];
            if is_wide {
                row.extend(pair.addresses.clone());
            }
            row.extend(is_worse.then(|| "worse than promised".to_owned()));
            rows.push(row);
        }
    }
    let mut heading = vec!["POD", "NODE", "GPU", "NIC", "PATH", "PROMISED", "POSSIBLE"];
    if is_wide {
        heading.extend(["GPU ADDRESS", "NIC ADDRESS"]);
    }
    heading.push("");
    let mut out = table(&heading, &rows);
    for pod in verified {
        for what in &pod.degraded {
            writeln!(out, "{}: NIC {what}", pod.pod)?;
        }
    }
    let worse = verified.iter().filter(|pod| pod.worse).count();
    let degraded: usize = verified.iter().map(|pod| pod.degraded.len()).sum();
    writeln!(
        out,
        "\n{} with {}: {worse} worse than promised, {} degraded",
        counted(verified.len(), "pod"),
        counted(rows.len(), "pair"),
        counted(degraded, "NIC"),
    )?;
    Ok(out)
}

fn cell(path: Option<PathKind>) -> String {
    path.map_or_else(|| "-".to_owned(), |path| path.to_string())
}
