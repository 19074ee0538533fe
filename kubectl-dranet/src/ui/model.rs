//! What the page shows, as plain values: nodes with a letter for each device, the pods that have the
//! devices, and the pods that wait. Each value is decided where the other commands decide it.

use crate::answer::Amount;
use crate::device_names;
use crate::nodes::{NodeState, Unit, fabric, machine};
use crate::verify::verify;
use crate::waiting::Waiting;
use cluster_model::device_state::{DeviceState, stranded};
use cluster_model::fabric_level::FabricLevel;
use cluster_model::room::Nodes;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::PciAddress;

/// The state of a device, as the letter by which the page draws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing of it is in use.
    Free,
    /// Claims hold parts of it that leave something for others.
    Partly,
    /// A claim holds it.
    Held,
    /// The pod that has it has a device that is farther away than plans allow.
    Far,
    /// A free GPU near which no NIC is left.
    Stranded,
    /// Its port is down, or its link degraded.
    Down,
    /// A taint keeps pods away.
    Tainted,
}

impl State {
    fn letter(self) -> char {
        match self {
            Self::Free => 'f',
            Self::Partly => 'p',
            Self::Held => 'h',
            Self::Far => 'a',
            Self::Stranded => 's',
            Self::Down => 'd',
            Self::Tainted => 't',
        }
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageNode {
    name: String,
    /// The machine type, otherwise its shape.
    machine: String,
    /// The number of the entry in [`Update::layouts`] with the names of its devices.
    layout: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    fabric: Option<String>,
    /// The value of the label of its block.
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<String>,
    /// The value of the label of its NVLink domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    domain: Option<String>,
    /// Why it takes no pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed: Option<String>,
    /// Whether its NICs are places, which stand for any NIC until a pod starts.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
    /// A letter for each GPU, then for each NIC.
    devices: String,
    /// A sentence for each device that no new pod gets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    troubles: Vec<String>,
    /// The pods that have its devices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pods: Vec<PagePod>,
}

/// A pod with devices of a node, or a claim that no pod uses yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PagePod {
    /// Namespace and name.
    name: String,
    /// Its devices, by their number on the node.
    devices: Vec<usize>,
    /// A GPU, a NIC, and the path between them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pairs: Vec<[String; 3]>,
    /// The farthest path that its annotations allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    promised: Option<String>,
    /// Whether a pair is farther than that, or than plans allow.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    far: bool,
}

/// The devices of nodes that are alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct NodeLayout {
    /// How many of the devices are GPUs; the others are NICs.
    gpus: usize,
    /// The name of each device.
    names: Vec<String>,
    /// Its PCI address, if it is known.
    addresses: Vec<Option<String>>,
}

/// How many more pods of a shape fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PageRoom {
    /// The shape, with the driver of the GPUs if there are several.
    pub(crate) shape: String,
    pub(crate) now: usize,
    /// With nothing in use.
    pub(crate) empty: usize,
}

/// What changed, or everything.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Update {
    /// New layouts, by their number.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) layouts: BTreeMap<usize, NodeLayout>,
    pub(crate) nodes: Vec<PageNode>,
    /// Names of nodes that are gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) gone: Vec<String>,
    /// The pods that wait, if they changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiting: Option<Vec<Waiting>>,
    /// The room, if it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) room: Option<Vec<PageRoom>>,
}

/// The layouts that were seen, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    numbers: BTreeMap<NodeLayout, usize>,
}

impl Layouts {
    fn number(&mut self, layout: NodeLayout) -> usize {
        let next = self.numbers.len();
        *self.numbers.entry(layout).or_insert(next)
    }

    /// Those with this number and above.
    pub(crate) fn from(&self, first: usize) -> BTreeMap<usize, NodeLayout> {
        let all = self.numbers.iter().filter(|(_, number)| **number >= first);
        all.map(|(layout, number)| (*number, layout.clone())).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.numbers.len()
    }
}

impl PageNode {
    /// A node with the pods that run there; `None` if it has neither GPUs nor NICs.
    pub(crate) fn new<'p>(
        view: &ClusterView,
        (node, facts): (&str, &Nodes),
        pods: impl Iterator<Item = &'p Pod>,
        layouts: &mut Layouts,
    ) -> Option<Self> {
        let state = NodeState::new(view, node, facts).with_plugin_gpus(view, facts);
        if state.gpus.all + state.nics.all == 0 {
            return None;
        }
        let units = Unit::of(DeviceState::all(view, node));
        let first_nic = units.iter().filter(|unit| unit.is_gpu()).count();
        let pods = pods_on(view, &units, pods);
        let lost = stranded(view, node);
        let far: BTreeSet<usize> =
            pods.iter().filter(|pod| pod.far).flat_map(|pod| pod.devices.iter().copied()).collect();
        let mut devices: Vec<(String, Option<String>, State)> = Vec::new();
        // GPUs of a device plugin have no names.
        let plugin = if first_nic == 0 { state.gpus } else { Amount::default() };
        for number in 0..plugin.all {
            let own = match number {
                free if free < plugin.free => State::Free,
                held if held < plugin.all - plugin.unusable => State::Held,
                _ => State::Tainted,
            };
            devices.push((format!("GPU {} of {}", number + 1, plugin.all), None, own));
        }
        for (number, unit) in units.iter().enumerate() {
            let own = match unit.state(&lost) {
                State::Held if far.contains(&number) => State::Far,
                own => own,
            };
            let address = unit.address().map(|address| address.to_string());
            devices.push((unit.name(view, node), address, own));
        }
        let pods = pods.into_iter().map(|pod| pod.behind(plugin.all)).collect();
        let layout = NodeLayout {
            gpus: first_nic + plugin.all,
            names: devices.iter().map(|(name, ..)| name.clone()).collect(),
            addresses: devices.iter().map(|(_, address, _)| address.clone()).collect(),
        };
        Some(Self {
            name: node.to_owned(),
            machine: machine(view, node),
            layout: layouts.number(layout),
            fabric: fabric(view, node),
            block: view.node_label(node, FabricLevel::Block.label()).map(str::to_owned),
            domain: view.node_label(node, FabricLevel::Nvlink.label()).map(str::to_owned),
            closed: state.closed.map(|closed| closed.to_string()),
            late: state.binds_late,
            devices: devices.iter().map(|(.., state)| state.letter()).collect(),
            troubles: state.troubles().into_iter().map(str::to_owned).collect(),
            pods,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn layout(&self) -> usize {
        self.layout
    }
}

impl PagePod {
    /// The same where this many devices come before those of the node's slices.
    fn behind(mut self, others: usize) -> Self {
        self.devices.iter_mut().for_each(|device| *device += others);
        self
    }
}

impl Unit<'_> {
    fn name(&self, view: &ClusterView, node: &str) -> String {
        let first = self.functions.first().map(|it| it.published.device);
        first.map(|device| device_names::short(view, node, device)).unwrap_or_default()
    }

    fn address(&self) -> Option<PciAddress> {
        self.functions.first()?.published.port()
    }

    fn state(&self, stranded: &BTreeSet<PciAddress>) -> State {
        let amount = self.amount().as_one();
        let trouble = self.functions.iter().find_map(|it| it.trouble.as_ref());
        match trouble {
            Some(trouble) if amount.unusable > 0 && trouble.is_of_link() => State::Down,
            Some(_) if amount.unusable > 0 => State::Tainted,
            _ if amount.free > 0 && self.is_stranded(stranded) => State::Stranded,
            _ if amount.free > 0 => State::Free,
            _ if amount.partly > 0 => State::Partly,
            _ => State::Held,
        }
    }

    fn is_stranded(&self, stranded: &BTreeSet<PciAddress>) -> bool {
        self.is_gpu() && self.address().is_some_and(|it| stranded.contains(&it))
    }
}

/// The holders of the devices of a node, with the paths of those that run there.
fn pods_on<'p>(
    view: &ClusterView,
    units: &[Unit<'_>],
    pods: impl Iterator<Item = &'p Pod>,
) -> Vec<PagePod> {
    let mut all: BTreeMap<String, PagePod> = BTreeMap::new();
    for (number, unit) in units.iter().enumerate() {
        for function in &unit.functions {
            for claim in view.inventory().holders(function.published.device.id()) {
                let key = ObjectKey {
                    namespace: claim.namespace.to_string(),
                    name: claim.name.to_string(),
                };
                let pod = view.claim(&key).and_then(|known| known.pod.as_ref());
                let name = match pod {
                    Some((pod, _)) => format!("{}/{pod}", key.namespace),
                    None => format!("claim {key}"),
                };
                let entry = all.entry(name.clone());
                let pod = entry.or_insert_with(|| PagePod { name, ..PagePod::default() });
                if pod.devices.last() != Some(&number) {
                    pod.devices.push(number);
                }
            }
        }
    }
    for pod in pods {
        let Ok(Some(verified)) = verify(pod, view, false) else { continue };
        let name = verified.pod.clone();
        let entry = all.entry(name.clone());
        let known = entry.or_insert_with(|| PagePod { name, ..PagePod::default() });
        known.far = verified.worse || verified.pairs.iter().any(|pair| !pair.is_near);
        known.promised = verified.promised.map(|path| path.to_string());
        known.pairs = verified
            .pairs
            .iter()
            .map(|pair| {
                let [gpu, nic] = pair.names.clone();
                [gpu, nic, pair.path.to_string()]
            })
            .collect();
    }
    all.into_values().collect()
}
