//! `machines`: the machine types that are known, and what an autoscaler needs to know of a node of one
//! that does not exist yet.

use crate::Output;
use crate::answer::{KnownMachine, Machines};
use crate::args::{AdmissionArgs, MachinesArgs, MachinesForm};
use crate::kinds::DEVICES;
use crate::new_node::{NewNode, built_in, models};
use crate::nodes::machine;
use crate::source::{ReadCluster, Source, of_admission};
use crate::text::{self, table};
use cluster_model::gpu_drivers;
use cluster_model::names;
use cluster_model::view::ClusterView;
use k8s_openapi::api::resource::v1::ResourceSlice;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The name of the node that does not exist yet.
const TEMPLATE: &str = "template";

/// The annotation of nodes that kwok plays (`kwok.x-k8s.io/node: fake`).
const KWOK_NODE: &str = "kwok.x-k8s.io/node";

/// The group of nodes in templates of Cluster Autoscaler's provider `kwok`.
const KWOK_GROUP: &str = "cluster-autoscaler.kwok.nodegroup/name";

pub(crate) fn run(args: &MachinesArgs) -> anyhow::Result<Output> {
    let (view, kept, notes) = if args.built_in {
        (ClusterView::default(), Vec::new(), Vec::new())
    } else {
        let source = Source::open(&args.source)?;
        let admission_namespace = args.admission_namespace.clone();
        let admission = AdmissionArgs { namespace: None, admission_namespace };
        let seen = source.read(&of_admission(&admission, &BTreeSet::new()), &KINDS)?;
        seen.must_know(&DEVICES)?;
        let ReadCluster { view, kept, notes, .. } = seen;
        (view, kept, notes)
    };
    let text = match &args.machine {
        Some(machine) => {
            let node = NewNode::of_type(machine, TEMPLATE, (&view, &kept))?;
            template(&node, machine, args.output)?
        }
        None => list(&Machines { machines: known(&view, &kept)? }, args.output)?,
    };
    Ok(Output { notes, ..Output::from(text) })
}

/// Kinds of objects of which new nodes are copies.
const KINDS: [&str; 3] = ["Node", "NodeTopology", "ResourceSlice"];

/// The machine types of the cluster, then those that are built in and have GPUs and NICs.
fn known(view: &ClusterView, kept: &[Value]) -> anyhow::Result<Vec<KnownMachine>> {
    let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
    for model in models(view) {
        *nodes.entry(machine(view, model)).or_default() += usize::from(!view.is_remembered(model));
    }
    let of_cluster = nodes.into_iter().map(|(name, nodes)| {
        let node = NewNode::of_type(&name, TEMPLATE, (view, kept))?;
        Ok(KnownMachine { nodes: Some(nodes), ..KnownMachine::new(name, &node.slices) })
    });
    let mut known: Vec<KnownMachine> = of_cluster.collect::<anyhow::Result<_>>()?;
    let built_in = built_in::all(TEMPLATE)?.into_iter();
    known.extend(built_in.map(|(name, node)| KnownMachine::new(name.to_owned(), &node.slices)));
    Ok(known)
}

impl KnownMachine {
    fn new(name: String, slices: &[ResourceSlice]) -> Self {
        let drivers = slices.iter().map(|slice| slice.spec.driver.clone());
        let mut drivers: Vec<String> = drivers.collect();
        drivers.sort_unstable();
        drivers.dedup();
        Self {
            name,
            nodes: None,
            gpus: device_count(slices, |driver| gpu_drivers::by_name(driver).is_some()),
            nics: device_count(slices, |driver| driver == names::DRIVER),
            drivers,
        }
    }
}

/// How many devices these drivers publish.
fn device_count(slices: &[ResourceSlice], is_meant: impl Fn(&str) -> bool) -> usize {
    let slices = slices.iter().filter(|slice| is_meant(&slice.spec.driver));
    slices.map(|slice| slice.spec.devices.as_ref().map_or(0, Vec::len)).sum()
}

fn list(answer: &Machines, form: MachinesForm) -> anyhow::Result<String> {
    match form {
        MachinesForm::Text => Ok(person(&answer.machines)),
        MachinesForm::Json => text::answer(answer, false),
        MachinesForm::Yaml => text::answer(answer, true),
        MachinesForm::Slices
        | MachinesForm::Nodegroup
        | MachinesForm::Karpenter
        | MachinesForm::Kwok => {
            anyhow::bail!("name a machine type, of which the objects are to be printed")
        }
    }
}

fn person(machines: &[KnownMachine]) -> String {
    let rows = machines.iter().map(|machine| {
        let from = match machine.nodes {
            None => "built in".to_owned(),
            Some(0) => "remembered".to_owned(),
            Some(nodes) => text::counted(nodes, "node"),
        };
        let [gpus, nics] = [machine.gpus, machine.nics].map(|number| number.to_string());
        vec![machine.name.clone(), from, gpus, nics, machine.drivers.join(", ")]
    });
    table(&["MACHINE", "KNOWN FROM", "GPUS", "NICS", "DRIVERS"], &rows.collect::<Vec<_>>())
}

/// What describes a node of the type that does not exist yet.
fn template(node: &NewNode, machine: &str, form: MachinesForm) -> anyhow::Result<String> {
    let slices: Vec<Value> =
        node.slices.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    let mut object = serde_json::to_value(&node.node)?;
    let graph = node.graph.as_ref().map(serde_json::to_value).transpose()?;
    let objects = match form {
        MachinesForm::Text | MachinesForm::Yaml | MachinesForm::Json | MachinesForm::Slices => {
            slices
        }
        MachinesForm::Karpenter => {
            let templates = slices.iter().map(slice_template).collect::<Vec<_>>();
            vec![json!({ "dynamicResources": { "templates": templates } })]
        }
        MachinesForm::Nodegroup => {
            object["metadata"]["annotations"][KWOK_GROUP] = machine.into();
            [vec![object], slices].concat()
        }
        MachinesForm::Kwok => {
            object["metadata"]["annotations"][KWOK_NODE] = "fake".into();
            [vec![object], graph.into_iter().collect(), slices].concat()
        }
    };
    text::documents(&objects, form != MachinesForm::Json)
}

/// A slice without its node, as Karpenter's providers describe it (`ResourceSliceTemplate` of
/// `pkg/cloudprovider`).
fn slice_template(slice: &Value) -> Value {
    let spec = &slice["spec"];
    let mut template = json!({
        "driver": spec["driver"],
        "pool": { "name": spec["pool"]["name"] },
        "devices": spec["devices"],
    });
    if !spec["sharedCounters"].is_null() {
        template["sharedCounters"] = spec["sharedCounters"].clone();
    }
    json!({ "spec": template })
}
