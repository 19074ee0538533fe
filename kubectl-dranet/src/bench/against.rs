//! `bench --against unaligned`: the same NCCL test with one near NIC, one far NIC and two near NICs,
//! one after another.

use super::pods::LABEL;
use super::{Session, rate};
use crate::Output;
use crate::answer::{Bench, BenchAgainst, BenchPlacement, Placement};
use crate::args::BenchArgs;
use crate::source;
use crate::text;
use anyhow::Context as _;
use cluster_model::gpu_drivers;
use cluster_model::nic_drivers;
use cluster_model::node_devices::NodeDevices;
use cluster_model::published_device::PublishedDevice as _;
use cluster_model::view::ClusterView;
use dra_allocator::Device;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use topology_graph::{NicRole, PathKind};

/// Bits in a byte.
const BITS: f64 = 8.0;

impl Placement {
    const ALL: [Self; 3] = [Self::OneNear, Self::OneFar, Self::TwoNear];

    fn title(self) -> &'static str {
        match self {
            Self::OneNear => "one NIC near",
            Self::OneFar => "one NIC far",
            Self::TwoNear => "two NICs near",
        }
    }

    fn nics(self) -> u32 {
        if self == Self::TwoNear { 2 } else { 1 }
    }
}

/// A GPU and a NIC that is farther from it than its nearest, as a claim can request them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FarPair {
    gpu: Wanted,
    nic: Wanted,
}

/// A device by its PCI address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    class: String,
    expression: String,
}

impl Wanted {
    /// The request for it in a claim.
    fn request(&self, name: &str) -> Value {
        json!({ "name": name, "exactly": {
            "deviceClassName": self.class,
            "selectors": [{ "cel": { "expression": self.expression } }],
        } })
    }
}

impl FarPair {
    /// The claim of a pod.
    pub(crate) fn claim(&self, name: &str, run: &str) -> Value {
        json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": name,
                "labels": { "app.kubernetes.io/managed-by": "kubectl-dranet", LABEL: run },
            },
            "spec": { "devices": {
                "requests": [self.gpu.request("gpu"), self.nic.request("nic")],
            } },
        })
    }

    /// The farthest pair that two of these nodes have in common; of all nodes if none is named.
    fn new(view: &ClusterView, named: &[String]) -> Option<Self> {
        let mut found: BTreeMap<(PathKind, Self), usize> = BTreeMap::new();
        let nodes = view.node_topologies().map(|(node, _)| node);
        for node in nodes.filter(|node| named.is_empty() || named.iter().any(|it| it == node)) {
            let Some(devices) = NodeDevices::new(view, node) else { continue };
            for pair in far_pairs(&devices) {
                *found.entry(pair).or_default() += 1;
            }
        }
        let needed = if named.len() == 1 { 1 } else { 2 };
        let common = found.into_iter().filter(|(_, nodes)| *nodes >= needed);
        // The map's order makes the choice the same each time.
        common.max_by_key(|((path, _), _)| *path).map(|((_, pair), _)| pair)
    }
}

/// All pairs of a GPU and a compute NIC that is not its nearest.
fn far_pairs(devices: &NodeDevices<'_>) -> Vec<(PathKind, FarPair)> {
    let nics: Vec<_> = devices
        .nics
        .iter()
        .filter(|(address, nic)| {
            nic.nic_role_in(Some(devices.topology), Some(**address)) == NicRole::Compute
        })
        .collect();
    let mut pairs = Vec::new();
    for (at, gpu) in &devices.gpus {
        let nearest = nics.iter().map(|(nic, _)| devices.topology.path(*at, **nic)).min();
        for (nic_at, nic) in &nics {
            let path = devices.topology.path(*at, **nic_at);
            let is_far = path != PathKind::Unknown && nearest.is_some_and(|near| near < path);
            let Some((gpu, nic)) = wanted_gpu(gpu).zip(wanted_nic(nic)).filter(|_| is_far) else {
                continue;
            };
            pairs.push((path, FarPair { gpu, nic }));
        }
    }
    pairs
}

fn wanted_gpu(gpu: &Device) -> Option<Wanted> {
    wanted(gpu, gpu_drivers::by_name(gpu.driver())?.class)
}

fn wanted_nic(nic: &Device) -> Option<Wanted> {
    wanted(nic, nic_drivers::by_name(nic.driver())?.classes.first()?)
}

/// The device by the attribute with its PCI address; `None` if its driver publishes none.
fn wanted(device: &Device, class: &str) -> Option<Wanted> {
    let (name, address) = device.address_attribute()?;
    let (domain, id) = name.split_once('/')?;
    let expression =
        format!("device.attributes[\"{domain}\"].?{id}.orValue(\"\") == \"{address}\"");
    Some(Wanted { class: class.to_owned(), expression })
}

/// Measures all placements.
pub(super) fn run(args: &BenchArgs, session: &mut Session<'_>) -> anyhow::Result<Output> {
    let view = session.source.read(&source::of_view(), &[])?.view;
    let far = FarPair::new(&view, &args.nodes).context(
        "no two nodes have a GPU and a NIC that is farther from it than its nearest NIC, and whose \
         drivers publish their PCI addresses: there is nothing to compare",
    )?;
    let mut placements = Vec::new();
    for placement in Placement::ALL {
        let one = BenchArgs { gpus: 1, nics: placement.nics(), ..args.clone() };
        let far = (placement == Placement::OneFar).then_some(&far);
        let result = super::measured(&one, session, far);
        let result = result.with_context(|| placement.title().to_owned())?;
        placements.push(BenchPlacement { placement, result });
    }
    let answer = BenchAgainst { placements };
    Ok(Output::from(args.output.write(&answer, || person(&answer.placements))?))
}

fn person(placements: &[BenchPlacement]) -> anyhow::Result<String> {
    let mut out = text::table(
        &["PLACEMENT", "POD", "NODE", "GPU", "NIC", "PATH", "PORT"],
        &placements.iter().flat_map(got).collect::<Vec<_>>(),
    );
    let far = placements.iter().find(|it| it.placement == Placement::OneFar);
    let far = far.map_or(0.0, |it| it.result.measured_gbps);
    let rows: Vec<_> = placements
        .iter()
        .map(|BenchPlacement { placement, result: Bench { measured_gbps: gbps, .. } }| {
            let times = if *placement == Placement::OneFar || far == 0.0 {
                "–".to_owned()
            } else {
                format!("{:.2} times", gbps / far)
            };
            let gigabytes = format!("{:.1} GB/s", gbps / BITS);
            vec![placement.title().to_owned(), format!("{gbps:.1} Gb/s"), gigabytes, times]
        })
        .collect();
    write!(out, "\n{}", text::table(&["PLACEMENT", "MEASURED", "", "ONE NIC FAR"], &rows))?;
    Ok(out)
}

/// What the pods of a placement got.
fn got(BenchPlacement { placement, result }: &BenchPlacement) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (role, end) in result.ends() {
        for nic in &end.nics {
            let path = nic.path.map_or_else(|| "unknown".to_owned(), |path| path.to_string());
            let (title, gpus) = (placement.title().to_owned(), end.gpus.join(", "));
            let pod = [role.name(), &end.node, &gpus, &nic.name].map(str::to_owned);
            rows.push([title].into_iter().chain(pod).chain([path, rate(nic.port_gbps)]).collect());
        }
    }
    rows
}
