//! Whether the pods of a preemption still fit on their nodes with the devices that are kept, by the
//! room, and what each claim then gets.

use super::record::{Begun, RecordedPod};
use super::step::RoomSeen;
use crate::PlacedClaim;
use crate::chosen::key_of;
use cluster_model::predict::Prediction;
use cluster_model::room::{Ask, Nodes, Room, pod_claims};
use cluster_model::view::{ClusterView, Index, ObjectKey};
use dra_allocator::{Budget, ClaimName, DeviceId};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{
    DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec, DeviceTaintSelector,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The taint of devices that are not kept; only in the view of this module.
const CLOSED: &str = "dranet.io/closed";

/// What the room says, and what the claims of each pod get that have no devices yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Checked {
    pub(crate) room: RoomSeen,
    pub(crate) claims: Vec<Vec<PlacedClaim>>,
}

/// What is checked: the cluster, and the pods without a node, in the order of the record; `None` for
/// the others.
#[derive(Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) view: &'a ClusterView,
    pub(crate) nodes: &'a Nodes,
    pub(crate) pods: &'a [Option<Pod>],
    pub(crate) budget: &'a Budget<'a>,
}

/// Checks a preemption.
pub(crate) fn check(begun: &Begun, facts: &Facts<'_>) -> Checked {
    match claims_of_pods(begun, facts) {
        Ok((is_free, claims)) => {
            Checked { room: if is_free { RoomSeen::Now } else { RoomSeen::Later }, claims }
        }
        Err(why) => Checked { room: RoomSeen::No(why), claims: Vec::new() },
    }
}

/// Whether the kept devices are free, and what the claims get.
fn claims_of_pods(
    begun: &Begun,
    Facts { view, nodes, pods, budget }: &Facts<'_>,
) -> Result<(bool, Vec<Vec<PlacedClaim>>), String> {
    let kept: BTreeSet<&DeviceId> = begun.rules.values().collect();
    let view = opened(begun, view, &kept)?;
    let own = own_claims(&view, pods)?;
    let leaving = leaving(begun, &view, &kept, &own)?;
    let leaving: Vec<&ClaimName> = leaving.iter().collect();
    let mut room = Room::new(&view, nodes, budget).without(&leaving);
    for victim in &begun.record.victims {
        room.let_leave(&victim.node, &victim.pod_key());
    }
    let mut claims = Vec::new();
    for (pod, object) in begun.record.pods.iter().zip(*pods) {
        let object = object.as_ref().filter(|object| !has_devices(object, &view));
        let Some(object) = object else {
            claims.push(Vec::new());
            continue;
        };
        let ask = Arc::new(Ask::new(object));
        let placed = fit(&room, pod, &ask)?;
        let mut results = placed.iter().flat_map(|claim| &claim.allocation.results);
        if let Some(other) = results.find(|it| !it.admin_access && !kept.contains(&it.device)) {
            return Err(format!("it would get {}, which is not kept for it", other.device.device));
        }
        if let Some(unmade) = placed.iter().find(|it| view.claim(&it.claim).is_none()) {
            return Err(format!("claim `{}` does not exist", unmade.claim));
        }
        room.take(&ask, 1, [pod.node.as_str()]);
        claims.push(placed);
    }
    Ok((leaving.is_empty(), claims))
}

/// The view in which the kept devices have no taint of ours, and all others on these nodes are closed:
/// another program may choose those at any time.
fn opened(
    begun: &Begun,
    view: &ClusterView,
    kept: &BTreeSet<&DeviceId>,
) -> Result<ClusterView, String> {
    let mut opened = view.clone();
    for rule in begun.rules.keys() {
        Index::<DeviceTaintRule>::delete(&mut opened, &ObjectKey::cluster_wide(rule));
    }
    let mut closed = Vec::new();
    for node in begun.nodes() {
        if opened.inventory().node(node).is_none() {
            return Err(format!("node {node} is gone"));
        }
        let devices = opened.inventory().devices_on(node, opened.settings());
        let devices = devices.map_err(|error| error.to_string())?;
        let others = devices.iter().map(|device| device.id()).filter(|id| !kept.contains(id));
        closed.extend(others.cloned());
    }
    for device in &closed {
        opened.apply(closing(device)).map_err(|error| error.to_string())?;
    }
    Ok(opened)
}

fn closing(DeviceId { driver, pool, device }: &DeviceId) -> DeviceTaintRule {
    let name = Some(format!("{CLOSED} {driver} {pool} {device}"));
    let [driver, pool, device] = [driver, pool, device].map(|part| Some(part.to_string()));
    let taint = DeviceTaint {
        key: CLOSED.to_owned(),
        value: None,
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    let selector = DeviceTaintSelector { driver, pool, device };
    DeviceTaintRule {
        metadata: ObjectMeta { name, ..ObjectMeta::default() },
        spec: DeviceTaintRuleSpec { device_selector: Some(selector), taint },
        ..DeviceTaintRule::default()
    }
}

/// Whether all claims of a pod are allocated.
pub(crate) fn has_devices(pod: &Pod, view: &ClusterView) -> bool {
    pod_claims(pod, view).is_ok_and(|claims| claims.open.is_empty())
}

/// The claims of the pods.
fn own_claims(view: &ClusterView, pods: &[Option<Pod>]) -> Result<BTreeSet<ObjectKey>, String> {
    let mut own = BTreeSet::new();
    for pod in pods.iter().flatten() {
        let claims = pod_claims(pod, view)?;
        own.extend(claims.allocated.into_iter().chain(claims.open.into_iter().map(|it| it.key)));
    }
    Ok(own)
}

/// The claims that hold kept devices and are given back when the victims have left.
fn leaving(
    begun: &Begun,
    view: &ClusterView,
    kept: &BTreeSet<&DeviceId>,
    own: &BTreeSet<ObjectKey>,
) -> Result<BTreeSet<ClaimName>, String> {
    let mut leaving = BTreeSet::new();
    for device in kept {
        for holder in view.inventory().holders(device) {
            let key = key_of(holder);
            match view.claim(&key).and_then(|claim| claim.pod.as_ref()) {
                Some((_, uid)) if has_pod(&begun.record.pods, uid) => {}
                Some((user, uid)) if !has_pod(&begun.record.victims, uid) => {
                    let namespace = &key.namespace;
                    return Err(format!("pod {namespace}/{user} has got {}", device.device));
                }
                // kube-scheduler names the user of a claim that this program has allocated.
                None if own.contains(&key) => {}
                // A claim without a user is one of a victim that is gone.
                Some(_) | None => _ = leaving.insert(holder.clone()),
            }
        }
    }
    Ok(leaving)
}

fn has_pod(pods: &[RecordedPod], uid: &str) -> bool {
    pods.iter().any(|pod| pod.uid == uid)
}

/// The devices of a pod on its node.
fn fit(room: &Room<'_>, pod: &RecordedPod, ask: &Ask) -> Result<Vec<PlacedClaim>, String> {
    let attempt = room.attempt(ask, [pod.node.as_str()])?;
    if let Some((_, why)) = attempt.barred().first() {
        return Err(format!("{}: {why}", pod.key()));
    }
    let alike = attempt.alike().next().ok_or_else(|| format!("node {} is unknown", pod.node))?;
    match alike.result {
        Prediction::Fits(fit) => {
            let claims = alike.claims.iter().zip(fit.allocations);
            Ok(claims
                .map(|(claim, allocation)| PlacedClaim { claim: key_of(&claim.name), allocation })
                .collect())
        }
        Prediction::No(why) => Err(format!("{}: {why}", pod.key())),
    }
}
