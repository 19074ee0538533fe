//! The cluster as watches keep it. Of the nodes only those that changed are looked at again.

use super::{Known, Site};
use crate::args::UiArgs;
use crate::kinds::{LIMIT_RANGES, PODS, QUOTAS, USE, VIEW};
use crate::live::Cluster;
use crate::settings;
use crate::source::{self, ReadCluster, Source};
use crate::subject::KINDS;
use crate::ui::model::PageNode;
use crate::waiting::waiting;
use admission::plan::Policy;
use cluster_model::room::Nodes;
use cluster_model::view::{ClusterView, NodeVersion, ObjectKey};
use cluster_model::watch::{self, HAS_NOT_ENDED, SharedView, Sink, follow_into};
use k8s_openapi::api::core::v1::{LimitRange, Node, Pod, ResourceQuota};
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Changes within this time are shown together.
const TOGETHER: Duration = Duration::from_millis(400);

/// The least time between two counts of the room, which look at all nodes.
const ROOM_PERIOD: Duration = Duration::from_secs(10);

/// A cluster that is watched.
pub(super) struct Watched {
    view: SharedView,
    rest: Arc<Rest>,
    policy: Policy,
    /// What is read once: settings, classes, volumes.
    once: ReadCluster,
}

/// What is watched besides the view.
#[derive(Default)]
struct Rest {
    state: Mutex<RestState>,
    changed: Notify,
}

#[derive(Default)]
struct RestState {
    facts: Nodes,
    pods: BTreeMap<ObjectKey, Arc<Pod>>,
    on_node: HashMap<String, BTreeSet<ObjectKey>>,
    /// Objects by kind and name, as they were read.
    objects: BTreeMap<(&'static str, ObjectKey), Value>,
    /// Nodes whose pods or facts have changed since they were looked at.
    changed: BTreeSet<String>,
}

impl Rest {
    fn lock(&self) -> MutexGuard<'_, RestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RestState {
    fn keep<K: k8s_openapi::Resource + Serialize>(&mut self, key: ObjectKey, object: &K) {
        let Ok(mut value) = serde_json::to_value(object) else { return };
        value["apiVersion"] = K::API_VERSION.into();
        value["kind"] = K::KIND.into();
        self.objects.insert((K::KIND, key), value);
    }

    /// Notes that a pod has left its node, if it had one.
    fn leave(&mut self, key: &ObjectKey) {
        let node = self.pods.remove(key).and_then(|pod| pod.spec.as_ref()?.node_name.clone());
        let Some(node) = node else { return };
        if let Some(pods) = self.on_node.get_mut(&node) {
            pods.remove(key);
        }
        self.changed.insert(node);
    }

    /// The pods of a node.
    fn pods_of(&self, node: &str) -> Vec<Arc<Pod>> {
        let keys = self.on_node.get(node).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key).cloned()).collect()
    }
}

/// Receives objects of one kind, which the view gets too.
struct Kept {
    view: SharedView,
    rest: Arc<Rest>,
}

impl Sink<Pod> for Kept {
    fn apply(&mut self, object: Pod) {
        let key = ObjectKey::new(&object.metadata);
        let mut state = self.rest.lock();
        state.leave(&key);
        state.facts.apply_pod(&object);
        state.keep(key.clone(), &object);
        if let Some(node) = object.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
            state.on_node.entry(node.clone()).or_default().insert(key.clone());
            state.changed.insert(node);
        }
        state.pods.insert(key, Arc::new(object.clone()));
        drop(state);
        Sink::<Pod>::apply(&mut self.view, object);
        self.rest.changed.notify_one();
    }

    fn delete(&mut self, key: &ObjectKey) {
        let mut state = self.rest.lock();
        state.leave(key);
        state.facts.delete_pod(key);
        state.objects.remove(&(PODS.name, key.clone()));
        drop(state);
        Sink::<Pod>::delete(&mut self.view, key);
        self.rest.changed.notify_one();
    }
}

impl Sink<Node> for Kept {
    fn apply(&mut self, object: Node) {
        let mut state = self.rest.lock();
        if state.facts.apply(&object) {
            state.changed.insert(object.name_any());
        }
        state.keep(ObjectKey::new(&object.metadata), &object);
        drop(state);
        self.rest.changed.notify_one();
    }

    fn delete(&mut self, key: &ObjectKey) {
        let mut state = self.rest.lock();
        state.facts.delete(&key.name);
        state.objects.remove(&("Node", key.clone()));
        drop(state);
        self.rest.changed.notify_one();
    }
}

/// Receives what limits pods.
struct Limits(Kept);

impl<K> Sink<K> for Limits
where
    K: k8s_openapi::Resource + Resource<DynamicType = ()> + Serialize,
    SharedView: Sink<K>,
{
    fn apply(&mut self, object: K) {
        self.0.rest.lock().keep(ObjectKey::new(object.meta()), &object);
        Sink::<K>::apply(&mut self.0.view, object);
    }

    fn delete(&mut self, key: &ObjectKey) {
        self.0.rest.lock().objects.remove(&(K::KIND, key.clone()));
        Sink::<K>::delete(&mut self.0.view, key);
    }
}

impl Watched {
    /// Reads what is not watched.
    pub(super) fn new(args: &UiArgs, cluster: &Cluster, source: &Source) -> anyhow::Result<Self> {
        let watched = [PODS, QUOTAS, LIMIT_RANGES];
        let mut queries = source::of_admission(&args.admission, &BTreeSet::new());
        queries.retain(|query| !VIEW.contains(&query.kind) && !watched.contains(&query.kind));
        queries.extend(source::of_preemption(&args.admission.admission_namespace));
        let mut once = source.read(&queries, KINDS)?;
        for kind in USE.into_iter().chain([PODS]) {
            if !cluster.may_list(kind)? {
                once.refused.push(kind);
            }
        }
        once.must_know(&USE)?;
        once.must_know(&[PODS])?;
        once.namespace = source.namespace(args.admission.namespace.as_deref()).or(once.namespace);
        let policy = settings::policy(&args.policy, &once.kept);
        let view = SharedView::from(once.view.clone());
        Ok(Self { view, rest: Arc::default(), policy, once })
    }

    /// What could not be read.
    pub(super) fn notes(&self) -> &[String] {
        &self.once.notes
    }

    pub(super) fn view(&self) -> Arc<ClusterView> {
        self.view.read()
    }

    fn sink(&self) -> Kept {
        Kept { view: self.view.clone(), rest: Arc::clone(&self.rest) }
    }

    /// The cluster as it is now, as the other commands read it.
    pub(super) fn known(&self) -> anyhow::Result<Known> {
        let mut kept = self.once.kept.clone();
        kept.extend(self.rest.lock().objects.values().cloned());
        let seen = ReadCluster {
            view: ClusterView::clone(&self.view.read()),
            is_live: true,
            kept,
            namespace: self.once.namespace.clone(),
            server: self.once.server.clone(),
            gates: self.once.gates.clone(),
            notes: Vec::new(),
            refused: Vec::new(),
        };
        Known::new(seen, self.policy.clone())
    }

    /// Looks at the nodes that changed, and publishes them.
    fn refresh(&self, site: &Site, looked_at: &mut HashMap<String, NodeVersion>) {
        let view = self.view.read();
        let (facts, changed, waits) = {
            let mut state = self.rest.lock();
            let changed = std::mem::take(&mut state.changed);
            let waits = waiting(state.pods.values().map(|pod| &**pod));
            (state.facts.to_read(), changed, waits)
        };
        let due = view.present_nodes().filter(|node| {
            changed.contains(*node) || looked_at.get(*node) != Some(&view.node_version(node))
        });
        let due: Vec<&str> = due.collect();
        let mut board = site.board();
        for node in due {
            looked_at.insert(node.to_owned(), view.node_version(node));
            let pods = self.rest.lock().pods_of(node);
            let pods = pods.iter().map(|pod| &**pod);
            let shown = PageNode::new(&view, (node, &facts), pods, &mut board.layouts);
            board.set_node(node, shown);
        }
        let there: BTreeSet<&str> = view.present_nodes().collect();
        board.retain(|node| there.contains(node));
        looked_at.retain(|node, _| there.contains(node.as_str()));
        board.set_waiting(waits);
        site.publish(board);
    }

    /// Counts the room, and publishes it.
    fn count(&self, site: &Site) {
        let room = self.known().and_then(|known| known.room());
        if let Ok(room) = room {
            let mut board = site.board();
            board.set_room(room);
            site.publish(board);
        }
    }
}

/// Starts the watches, and waits until all is in the view. The returned future keeps the pages up to
/// date, forever.
pub(super) async fn follow(
    args: &UiArgs,
    watched: Arc<Watched>,
    site: &Arc<Site>,
) -> anyhow::Result<impl Future<Output = ()> + use<>> {
    let user = &args.source.user;
    let user = user.name.as_deref().map(|name| (name, user.groups.as_slice()));
    let (client, _) = process::client::connect_as(&args.source.kube, user).await?;
    let (listed, mut lists) = mpsc::channel::<()>(1);
    let mut tasks = JoinSet::new();
    let weak = listed.downgrade();
    let view = watched.view.clone();
    let mut kinds = Box::pin(watch::follow(client.clone(), view, move |_| weak.upgrade()));
    // It takes a value for each kind before it waits for anything.
    poll_fn(|context| {
        let _ = kinds.as_mut().poll(context);
        Poll::Ready(())
    })
    .await;
    tasks.spawn(kinds);
    let living = Config::default().fields(HAS_NOT_ENDED);
    tasks.spawn(follow_into(
        Api::<Pod>::all(client.clone()),
        living,
        watched.sink(),
        listed.clone(),
    ));
    let all = Api::<Node>::all(client.clone());
    tasks.spawn(follow_into(all, Config::default(), watched.sink(), listed.clone()));
    // A user may be without the right to see these: then they never limit anything here.
    limits::<ResourceQuota>(&mut tasks, &client, watched.sink());
    limits::<LimitRange>(&mut tasks, &client, watched.sink());
    drop(listed);
    // Every watch drops its value when its list is complete.
    while lists.recv().await.is_some() {}
    let mut looked_at = HashMap::new();
    watched.refresh(site, &mut looked_at);
    Ok(keep_up(watched, Arc::clone(site), tasks, looked_at))
}

fn limits<K>(tasks: &mut JoinSet<()>, client: &Client, kept: Kept)
where
    K: k8s_openapi::Resource
        + Resource<DynamicType = ()>
        + Serialize
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + Send
        + 'static,
    SharedView: Sink<K>,
{
    let api = Api::<K>::all(client.clone());
    tasks.spawn(follow_into(api, Config::default(), Limits(kept), ()));
}

async fn keep_up(
    watched: Arc<Watched>,
    site: Arc<Site>,
    mut tasks: JoinSet<()>,
    mut looked_at: HashMap<String, NodeVersion>,
) {
    let mut counted: Option<Instant> = None;
    let mut is_due = true;
    loop {
        let seen = watched.view.read().revision();
        let is_old = counted.is_none_or(|at| at.elapsed() >= ROOM_PERIOD);
        let (on, to) = (Arc::clone(&watched), Arc::clone(&site));
        let work = tokio::task::spawn_blocking(move || {
            on.refresh(&to, &mut looked_at);
            if is_due && is_old {
                on.count(&to);
            }
            looked_at
        });
        let Ok(returned) = work.await else { return };
        looked_at = returned;
        if is_due && is_old {
            (counted, is_due) = (Some(Instant::now()), false);
        }
        let next = counted.map_or_else(Instant::now, |at| at + ROOM_PERIOD);
        tokio::select! {
            () = watched.view.changed_since(seen, |revision| revision) => is_due = true,
            () = watched.rest.changed.notified() => is_due = true,
            () = tokio::time::sleep_until(next), if is_due => {}
            ended = tasks.join_next() => return drop(ended),
        }
        tokio::time::sleep(TOGETHER).await;
    }
}
