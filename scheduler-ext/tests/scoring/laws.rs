//! Laws of the answer, over arbitrary states of a cluster with four kinds of machines.

use super::cluster::{
    A100, AMD, H100, NICS, apply, ask, classes, cluster, from, gb300, holding, node_of, pod_of,
    points, preferred, template, unaligned,
};
use cluster_model::predict::{Fit, Prediction, predict};
use cluster_model::published_device::PublishedDevice as _;
use cluster_model::room::pod_claims;
use cluster_model::view::{ClusterView, Index, ObjectKey};
use dra_allocator::DeviceId;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use proptest::prelude::*;
use proptest::sample::Index as Pick;
use scheduler_ext::answer::Answer;
use scheduler_ext::prioritize::Ranker;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;
use topology_graph::{NodeTopology, PathKind, PciAddress};

/// Two GB300, two H100, an A100, and a machine whose GPU driver publishes no standard NUMA node.
const NODES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Templates by name: preferred and not, with one device and several.
static TEMPLATES: LazyLock<Vec<(&str, Value)>> = LazyLock::new(|| {
    vec![
        ("partner", preferred("gpu", "gpu.nvidia.com/uuid", 1, 1)),
        ("numa", preferred("gpu", H100.numa, 1, 1)),
        ("two-nics", preferred("gpu", H100.numa, 1, 2)),
        ("two-gpus", preferred("gpu", H100.numa, 2, 1)),
        ("two-pairs", preferred("gpu", H100.numa, 2, 2)),
        ("far", unaligned("gpu", 1, 1)),
        ("far-pairs", unaligned("gpu", 2, 2)),
    ]
});

/// Every object of the cluster, nothing in use.
static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let nodes = NODES.iter().enumerate().flat_map(|(number, node)| match number {
        0 | 1 => gb300(node),
        2 | 3 => node_of(H100, node),
        4 => node_of(A100, node),
        _ => node_of(AMD, node),
    });
    let templates = TEMPLATES.iter().map(|(name, spec)| template(name, spec));
    // The example contains classes too, in every copy; keep each object once.
    let all = classes().into_iter().chain(nodes).chain(templates);
    let named = all.map(|object| {
        let name = ObjectKey::new(&from(&object["metadata"]));
        ((object["kind"].to_string(), name), object)
    });
    named.collect::<BTreeMap<_, _>>().into_values().collect()
});

/// A device that is in use: its node, and its index, 0 to 7 for GPUs, 8 to 15 for NICs.
type Busy = (usize, usize);

/// A claim for each device.
fn claim((node, device): Busy) -> ResourceClaim {
    let (is_gb300, index) = (node < 2, device % 8);
    let device = match (device < 8, is_gb300) {
        (true, true) => ("gpu.nvidia.com", format!("gpu-{}", index % 4)),
        (true, false) if NODES[node] == "f" => (AMD.gpus, format!("gpu-{index}")),
        (true, false) => ("gpu.nvidia.com", format!("gpu-{index}")),
        (false, true) => ("dra.net", NICS[index % 4].to_owned()),
        (false, false) => ("dra.net", format!("nic-{index}")),
    };
    let name = format!("{}-{}", device.0, device.1);
    holding("other", &format!("{node}-{name}"), NODES[node], [device].into_iter())
}

fn all_points(ranker: &Ranker, view: &ClusterView) -> BTreeMap<&'static str, Vec<i64>> {
    let of = |(name, _): &(&'static str, Value)| {
        let answer = ask_all(ranker, view, name);
        (*name, points(&answer).into_iter().map(|(_, points)| points).collect())
    };
    TEMPLATES.iter().map(of).collect()
}

fn ask_all(ranker: &Ranker, view: &ClusterView, template: &str) -> Arc<Answer> {
    ask(ranker, &pod_of(template), &NODES, view, Instant::now())
}

/// The index of the chosen alternative and the farthest path of the pairs, from the
/// allocator and the topology alone.
fn gets(view: &ClusterView, template: &str, node: &str) -> Option<(usize, PathKind)> {
    let claims = pod_claims(&pod_of(template), view).unwrap();
    let claims = [claims.open[0].parse().unwrap()];
    let Prediction::Fits(Fit { allocations, .. }) = predict(view, node, &claims) else {
        return None;
    };
    let results = &allocations[0].results;
    let alternative = usize::from(results.iter().any(|result| &*result.request == "nic/any"));
    let of = |is_nic: bool| -> Vec<PciAddress> {
        let own = results.iter().filter(|result| (&*result.device.driver == "dra.net") == is_nic);
        own.map(|result| address(view, node, &result.device)).collect()
    };
    let (gpus, nics) = (of(false), of(true));
    let graph = view.topology(node)?;
    let path = |gpu: usize, nic: usize| graph.path(gpus[gpu], nics[nic]);
    let farthest = match (gpus.len(), nics.len()) {
        (2, 2) => path(0, 0).max(path(1, 1)).min(path(0, 1).max(path(1, 0))),
        (gpus, nics) => {
            let pairs = (0..gpus).flat_map(|gpu| (0..nics).map(move |nic| (gpu, nic)));
            pairs.map(|(gpu, nic)| path(gpu, nic)).max()?
        }
    };
    Some((alternative, farthest))
}

fn address(view: &ClusterView, node: &str, id: &DeviceId) -> PciAddress {
    let devices = view.inventory().devices_on(node, view.settings()).unwrap();
    let device = devices.into_iter().find(|device| device.id() == id).unwrap();
    device.address().unwrap()
}

fn busy() -> impl Strategy<Value = Vec<Busy>> {
    prop::collection::vec((0..NODES.len(), 0..16_usize), 0..60)
}

/// A watch event of an object.
#[derive(Clone, Debug)]
enum Event {
    Apply(Value),
    Delete(Value),
}

/// Watch events of an object until it is as listed, or until it is gone again.
fn history(object: &Value, kind: u8, is_there: bool) -> Vec<Event> {
    let mut events = Vec::new();
    if kind & 1 == 1 {
        events.push(Event::Apply(older(object)));
    }
    if kind & 2 == 2 {
        events.extend([Event::Apply(object.clone()), Event::Delete(object.clone())]);
    }
    events.push(Event::Apply(object.clone()));
    if !is_there {
        events.push(Event::Delete(object.clone()));
    }
    events
}

/// An earlier version of the object.
fn older(object: &Value) -> Value {
    let mut older = object.clone();
    match object["kind"].as_str().unwrap() {
        "ResourceSlice" => {
            older["spec"]["devices"].as_array_mut().unwrap().pop();
        }
        "ResourceClaim" => older["status"] = Value::Null,
        "NodeTopology" => older["spec"]["fabric"] = "before".into(),
        _ => {}
    }
    older
}

fn take(view: &mut ClusterView, event: &Event) {
    let object = match event {
        Event::Apply(object) => return apply(view, object),
        Event::Delete(object) => object,
    };
    let key = ObjectKey::new(&from(&object["metadata"]));
    match object["kind"].as_str().unwrap() {
        "Node" => Index::<Node>::delete(view, &key),
        "DeviceClass" => Index::<DeviceClass>::delete(view, &key),
        "ResourceSlice" => Index::<ResourceSlice>::delete(view, &key),
        "NodeTopology" => Index::<NodeTopology>::delete(view, &key),
        "ResourceClaimTemplate" => Index::<ResourceClaimTemplate>::delete(view, &key),
        _ => Index::<ResourceClaim>::delete(view, &key),
    }
}

/// Everything in a view that decisions read.
fn contents(view: &ClusterView) -> Vec<String> {
    let mut lines = Vec::new();
    for node in view.inventory().node_names() {
        let devices = view.inventory().devices_on(node, view.settings());
        let shape = view.topology(node).map(|graph| graph.shape());
        lines.push(format!("{node} {devices:?} {shape:?} {:?}", view.fabric(node)));
    }
    let mut in_use: Vec<_> =
        view.inventory().state().devices().map(|device| device.to_string()).collect();
    in_use.sort();
    lines.push(format!("{in_use:?}"));
    lines.extend(view.claims().map(|claim| format!("{claim:?}")));
    lines.extend(view.templates().map(|template| format!("{template:?}")));
    for (template, _) in &*TEMPLATES {
        let answer = ask_all(&Ranker::default(), view, template);
        let why = answer.nodes.iter().map(|scored| format!("{:?}", scored.reason));
        lines.extend(why.map(|why| format!("{template}: {why}")));
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// A node with a strictly better alternative or path gets a strictly higher score, in
    /// any state of the cluster and for every shape of claim.
    #[test]
    fn better_devices_score_higher_in_any_state(busy in busy()) {
        let mut view = cluster(&*OBJECTS);
        for device in busy {
            view.apply(claim(device)).unwrap();
        }
        let ranker = Ranker::default();
        ranker.learn(&view);
        for (template, _) in &*TEMPLATES {
            let answer = ask_all(&ranker, &view, template);
            let gets = NODES.map(|node| gets(&view, template, node));
            for (a, of_a) in gets.iter().zip(&answer.nodes) {
                for (b, of_b) in gets.iter().zip(&answer.nodes) {
                    let (Some(a), Some(b)) = (a, b) else { continue };
                    prop_assert!(
                        a >= b || of_a.score > of_b.score,
                        "{template}: {a:?} {of_a:?}\n{b:?} {of_b:?}"
                    );
                }
            }
        }
    }

    /// Whatever changes between two requests, the answer equals that of an extender
    /// without memory.
    #[test]
    fn answers_do_not_depend_on_memory(
        changes in prop::collection::vec((0..NODES.len(), 0..16_usize, any::<bool>()), 1..12)
    ) {
        let mut view = cluster(&*OBJECTS);
        let ranker = Ranker::default();
        for (node, device, comes) in changes {
            let claim = claim((node, device));
            if comes {
                view.apply(claim).unwrap();
            } else {
                Index::<ResourceClaim>::delete(&mut view, &ObjectKey::new(&claim.metadata));
            }
            prop_assert_eq!(all_points(&ranker, &view), all_points(&Ranker::default(), &view));
        }
    }

    /// Objects are created, changed, deleted and created again, each in its own order and
    /// interleaved in any order: the view equals that of a list of the final objects.
    #[test]
    fn any_order_of_events_gives_the_view_of_a_list(
        busy in busy(),
        gone in prop::collection::vec(any::<Pick>(), 0..8),
        kinds in prop::collection::vec(0..4_u8, 120),
        mut moments in prop::collection::vec(any::<u32>(), 600),
    ) {
        let claims = busy.into_iter().map(|busy| {
            let mut object = serde_json::to_value(claim(busy)).unwrap();
            object["kind"] = "ResourceClaim".into();
            (object["metadata"]["name"].to_string(), object)
        });
        let claims: BTreeMap<_, _> = claims.collect();
        let objects: Vec<Value> = OBJECTS.iter().cloned().chain(claims.into_values()).collect();
        let gone: Vec<usize> = gone.iter().map(|pick| pick.index(objects.len())).collect();
        let mut events: Vec<(u32, Event)> = Vec::new();
        for (number, object) in objects.iter().enumerate() {
            let kind = kinds.get(number).copied().unwrap_or_default();
            let history = history(object, kind, !gone.contains(&number));
            let mut at = moments.split_off(moments.len().saturating_sub(history.len()));
            at.resize(history.len(), 0);
            at.sort_unstable();
            events.extend(at.into_iter().zip(history));
        }
        events.sort_by_key(|(moment, _)| *moment);
        let mut watched = ClusterView::default();
        for (_, event) in &events {
            take(&mut watched, event);
        }
        let there = objects.iter().enumerate().filter(|(number, _)| !gone.contains(number));
        let listed = cluster(there.map(|(_, object)| object));
        prop_assert_eq!(contents(&watched), contents(&listed));
        let answers = |view: &ClusterView| all_points(&Ranker::default(), view);
        prop_assert_eq!(answers(&watched), answers(&listed));
    }
}
