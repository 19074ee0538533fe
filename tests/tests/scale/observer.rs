//! Watches pods, claims, templates and nodes all the time: when each step of a pod happened, and what
//! must never happen.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::TryStreamExt;
use k8s_openapi::api::{
    core::v1::{Node, Pod},
    resource::v1::{ResourceClaim, ResourceClaimTemplate},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use tests::allocation::Device;
use tokio::task::JoinSet;

use super::shapes::SHAPE;

/// The longest time that a template may be missing, with restarts of all programs.
const TEMPLATE_MAX: Duration = Duration::from_secs(30);
/// The longest time that a pod may wait on a cluster that has room for it: kube-scheduler tries a pod again
/// after five minutes if it has missed the event that made room.
pub(crate) const BOUND_MAX: Duration = Duration::from_mins(6);
/// The label of a node with its fabric.
pub(crate) const FABRIC: &str = "topology.dranet.io/fabric";

/// The steps of a pod.
#[derive(Clone, Debug)]
pub(crate) struct PodSteps {
    /// What it asks for.
    pub(crate) shape: String,
    /// When it was seen first.
    pub(crate) created: Instant,
    /// When its template was seen first, if it is of one.
    pub(crate) template: Option<Instant>,
    /// When its claim was seen first.
    pub(crate) claimed: Option<Instant>,
    /// When it had a node first.
    pub(crate) bound: Option<Instant>,
    node: Option<String>,
    templates: Vec<String>,
    /// The job whose pods share a fabric.
    gang: Option<String>,
    is_gated: bool,
    is_gone: bool,
}

/// What was seen so far.
#[derive(Debug, Default)]
struct Seen {
    pods: BTreeMap<String, PodSteps>,
    templates: BTreeMap<String, Instant>,
    /// Templates that exist.
    existing: BTreeSet<String>,
    claims: BTreeMap<String, Vec<Device>>,
    /// The claim that holds a device.
    holders: BTreeMap<Device, String>,
    fabrics: BTreeMap<String, String>,
    violations: Vec<String>,
    events: usize,
}

/// The watches, and what they have seen.
#[derive(Debug)]
pub(crate) struct Observer {
    seen: Mutex<Seen>,
}

/// Starts the watches; they end with the set.
pub(crate) fn start(client: &Client) -> (Arc<Observer>, JoinSet<()>) {
    let observer = Arc::new(Observer { seen: Mutex::default() });
    let mut tasks = JoinSet::new();
    tasks.spawn(follow::<Pod>(client.clone(), Arc::clone(&observer)));
    tasks.spawn(follow::<ResourceClaim>(client.clone(), Arc::clone(&observer)));
    tasks.spawn(follow::<ResourceClaimTemplate>(client.clone(), Arc::clone(&observer)));
    tasks.spawn(follow::<Node>(client.clone(), Arc::clone(&observer)));
    (observer, tasks)
}

/// A kind that is watched.
trait Watched:
    Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static
{
    fn applied(self, seen: &mut Seen);
    fn deleted(key: &str, seen: &mut Seen);
    /// Forgets what the objects of a new list may no longer have.
    fn listed_again(_seen: &mut Seen) {}
}

async fn follow<K: Watched>(client: Client, observer: Arc<Observer>) {
    let all: Api<K> = Api::all(client);
    let mut events = Box::pin(watcher(all, watcher::Config::default()).default_backoff());
    // What exists, and what a list that has begun has. It counts as a whole, since much may have changed meanwhile.
    let (mut known, mut listed) = (BTreeSet::new(), BTreeMap::new());
    loop {
        // An API server that is away; the watch connects again.
        let Ok(event) = events.try_next().await else { continue };
        let mut seen = observer.lock();
        match event {
            None => return,
            Some(Event::Init) => listed.clear(),
            Some(Event::InitApply(object)) => {
                listed.insert(key(&object), object);
            }
            Some(Event::InitDone) => {
                let now: BTreeSet<String> = listed.keys().cloned().collect();
                for gone in known.difference(&now) {
                    K::deleted(gone, &mut seen);
                }
                K::listed_again(&mut seen);
                for object in std::mem::take(&mut listed).into_values() {
                    K::applied(object, &mut seen);
                }
                known = now;
            }
            Some(Event::Apply(object)) => {
                known.insert(key(&object));
                object.applied(&mut seen);
            }
            Some(Event::Delete(object)) => {
                known.remove(&key(&object));
                K::deleted(&key(&object), &mut seen);
            }
        }
        seen.events += 1;
    }
}

fn key<K: Resource>(object: &K) -> String {
    let metadata = object.meta();
    let [namespace, name] =
        [&metadata.namespace, &metadata.name].map(|part| part.as_deref().unwrap_or_default());
    format!("{namespace}/{name}")
}

impl Watched for Pod {
    fn applied(self, seen: &mut Seen) {
        let Some(shape) = self.labels().get(SHAPE).cloned() else { return };
        let now = Instant::now();
        let namespace = self.namespace().unwrap_or_default();
        let spec = self.spec.as_ref();
        let templates = spec.into_iter().flat_map(|spec| spec.resource_claims.iter().flatten());
        let templates: Vec<_> = templates
            .filter_map(|claim| {
                Some(format!("{namespace}/{}", claim.resource_claim_template_name.as_ref()?))
            })
            .collect();
        let node = spec.and_then(|spec| spec.node_name.clone());
        let gang = self
            .annotations()
            .get("dranet.io/fabric")
            .and_then(|_| self.owner_references().first());
        let gang = gang.map(|owner| owner.uid.clone());
        let is_gated = spec
            .and_then(|spec| spec.scheduling_gates.as_ref())
            .is_some_and(|gates| !gates.is_empty());
        let template = templates.first().and_then(|name| seen.templates.get(name)).copied();
        let pod = seen.pods.entry(key(&self)).or_insert_with(|| PodSteps {
            shape,
            created: now,
            template,
            claimed: None,
            bound: None,
            node: None,
            templates,
            gang,
            is_gated,
            is_gone: false,
        });
        pod.is_gated = is_gated;
        pod.is_gone = self.metadata.deletion_timestamp.is_some();
        if node.is_some() && pod.node.is_none() {
            pod.bound.get_or_insert(now);
            pod.node = node;
            seen.check_gang(&key(&self));
        }
    }

    fn deleted(key: &str, seen: &mut Seen) {
        if let Some(pod) = seen.pods.get_mut(key) {
            pod.is_gone = true;
        }
    }
}

impl Watched for ResourceClaimTemplate {
    fn applied(self, seen: &mut Seen) {
        let (key, now) = (key(&self), Instant::now());
        seen.existing.insert(key.clone());
        if seen.templates.insert(key.clone(), now).is_none() {
            for pod in seen.pods.values_mut().filter(|pod| pod.templates.first() == Some(&key)) {
                pod.template.get_or_insert(now);
            }
        }
    }

    fn deleted(key: &str, seen: &mut Seen) {
        seen.existing.remove(key);
    }
}

impl Watched for ResourceClaim {
    fn applied(self, seen: &mut Seen) {
        let (key, now) = (key(&self), Instant::now());
        if let Some(owner) = self.owner_references().first() {
            let pod = format!("{}/{}", self.namespace().unwrap_or_default(), owner.name);
            if let Some(pod) = seen.pods.get_mut(&pod) {
                pod.claimed.get_or_insert(now);
            }
        }
        let allocation = self.status.and_then(|status| status.allocation?.devices?.results);
        let devices = allocation
            .into_iter()
            .flatten()
            .filter(|it| it.admin_access != Some(true) && it.share_id.is_none());
        let devices: Vec<_> = devices
            .map(|it| Device { driver: it.driver, node: it.pool, name: it.device })
            .collect();
        seen.release(&key);
        for device in &devices {
            if let Some(other) = seen.holders.insert(device.clone(), key.clone()) {
                seen.violations.push(format!("{device:?} is of `{other}` and of `{key}`"));
            }
        }
        seen.claims.insert(key, devices);
    }

    fn deleted(key: &str, seen: &mut Seen) {
        seen.release(key);
    }

    fn listed_again(seen: &mut Seen) {
        seen.claims.clear();
        seen.holders.clear();
    }
}

impl Watched for Node {
    fn applied(self, seen: &mut Seen) {
        if let Some(fabric) = self.labels().get(FABRIC) {
            seen.fabrics.insert(self.name_any(), fabric.clone());
        }
    }

    fn deleted(_key: &str, _seen: &mut Seen) {}
}

impl Seen {
    fn release(&mut self, claim: &str) {
        for device in self.claims.remove(claim).into_iter().flatten() {
            if self.holders.get(&device).is_some_and(|holder| holder == claim) {
                self.holders.remove(&device);
            }
        }
    }

    /// Checks that the pods of a job are on one fabric.
    fn check_gang(&mut self, pod: &str) {
        let Some(gang) = self.pods.get(pod).and_then(|pod| pod.gang.clone()) else { return };
        let pods =
            self.pods.values().filter(|pod| pod.gang.as_ref() == Some(&gang) && !pod.is_gone);
        let nodes = pods.filter_map(|pod| pod.node.as_ref());
        let fabrics: BTreeSet<_> = nodes.filter_map(|node| self.fabrics.get(node)).collect();
        if fabrics.len() > 1 {
            let split = format!("the job of pod `{pod}` is on {fabrics:?}");
            self.violations.push(split);
        }
    }

    fn waiting(&self) -> impl Iterator<Item = (&String, &PodSteps)> {
        self.pods.iter().filter(|(_, pod)| pod.bound.is_none() && !pod.is_gone)
    }
}

/// Numbers of pods.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PodCounts {
    /// Those that have no node.
    pub(crate) waiting: usize,
    /// Those that have one and are not gone.
    pub(crate) bound: usize,
}

impl Observer {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records what must not happen.
    pub(crate) fn violated(&self, what: String) {
        self.lock().violations.push(what);
    }

    /// The steps of a pod.
    pub(crate) fn pod(&self, namespace: &str, name: &str) -> Option<PodSteps> {
        self.lock().pods.get(&format!("{namespace}/{name}")).cloned()
    }

    /// The steps of all pods.
    pub(crate) fn pods(&self) -> Vec<PodSteps> {
        self.lock().pods.values().cloned().collect()
    }

    /// The numbers of pods.
    pub(crate) fn counts(&self) -> PodCounts {
        let seen = self.lock();
        let bound = seen.pods.values().filter(|pod| pod.bound.is_some() && !pod.is_gone).count();
        PodCounts { waiting: seen.waiting().count(), bound }
    }

    /// When the last pod of a shape was bound, if so many are.
    pub(crate) fn all_bound(&self, shape: &str, count: usize) -> Result<Instant, usize> {
        let seen = self.lock();
        let of_shape = seen.pods.values().filter(|pod| pod.shape == shape);
        let bound: Vec<_> = of_shape.filter_map(|pod| pod.bound).collect();
        if bound.len() < count { Err(bound.len()) } else { bound.into_iter().max().ok_or(0) }
    }

    /// The number of devices that claims hold.
    pub(crate) fn held(&self) -> usize {
        self.lock().holders.len()
    }

    /// Records pods that wait too long, and templates that are missing.
    pub(crate) fn check_waiting(&self) {
        let mut seen = self.lock();
        let mut late = Vec::new();
        for (key, pod) in seen.waiting() {
            let missing = pod.templates.iter().filter(|name| !seen.existing.contains(*name));
            if pod.created.elapsed() > TEMPLATE_MAX {
                late.extend(
                    missing.map(|name| format!("template `{name}` of pod `{key}` is missing")),
                );
            }
            if pod.created.elapsed() > BOUND_MAX {
                let (shape, gated) = (&pod.shape, pod.is_gated);
                late.push(format!(
                    "pod `{key}` ({shape}, gated: {gated}) waits for longer than {BOUND_MAX:?}"
                ));
            }
        }
        late.retain(|what| !seen.violations.contains(what));
        seen.violations.extend(late);
    }

    /// # Errors
    ///
    /// Fails if anything happened that must not.
    pub(crate) fn verdict(&self) -> anyhow::Result<()> {
        let seen = self.lock();
        anyhow::ensure!(seen.events > 0, "no event was seen");
        let count = seen.violations.len();
        let first = &seen.violations[..count.min(20)];
        anyhow::ensure!(count == 0, "{count} times something happened that must not: {first:#?}");
        Ok(())
    }
}
