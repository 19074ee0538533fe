//! Watches that keep a view, or another index, up to date.
//!
//! Only this module is asynchronous, with one task per kind; decisions are made elsewhere.

mod volumes;

pub use self::volumes::VolumesOnDemand;
pub use crate::shared::SharedView;

use crate::clock::{SKEW, time_of};
use crate::hyper_node::HyperNode;
use crate::kueue_topology::Topology;
use crate::view::{ClusterView, Index, ObjectKey, ViewError, has_plugin_gpus};
use dra_allocator::{MinorVersion, Settings};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{
    DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use topology_graph::NodeTopology;

/// The interval between reads of the version.
const VERSION_PERIOD: Duration = Duration::from_mins(5);
/// The time between attempts to read the version.
const VERSION_RETRY: Duration = Duration::from_secs(2);

/// Field selector for pods that use a node: they have one and have not ended.
pub const USES_A_NODE: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

/// Field selector for pods that have not ended, with a node or without.
pub const HAS_NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The page size of lists. Slices are the largest objects, about fifty kilobytes each in memory;
/// the default page size of 500 would peak at tens of megabytes.
pub(crate) const PAGE: u32 = 100;

/// The version of the cluster and its default gates.
pub(crate) async fn settings(client: &Client) -> kube::Result<Settings> {
    let version = client.apiserver_version().await?;
    // Managed clusters write `37+`.
    let minor = version.minor.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    let known = minor.and_then(MinorVersion::new);
    if known.is_none() {
        tracing::warn!(
            version = version.git_version,
            "Unknown Kubernetes version; treated as 1.37"
        );
    }
    Ok(Settings::defaults_of(known.unwrap_or(MinorVersion::V1_37)))
}

/// Follows the cluster's version and every kind of the view forever. `listed` creates a value for
/// each name, which is dropped as soon as that kind is completely in the view. When all are
/// dropped, the view is complete.
///
/// Each kind has its own task: the lists of a large cluster take seconds to read, and several
/// processors share the work.
pub async fn follow<G: Send + 'static>(
    client: Client,
    view: SharedView,
    listed: impl Fn(&'static str) -> G,
) {
    let mut tasks = JoinSet::new();
    tasks.spawn(follow_version(client.clone(), view.clone(), listed("version")));
    spawn::<Node, _>(&mut tasks, &client, &view, listed("nodes"));
    spawn::<ResourceSlice, _>(&mut tasks, &client, &view, listed("resourceslices"));
    spawn::<DeviceClass, _>(&mut tasks, &client, &view, listed("deviceclasses"));
    spawn::<ResourceClaim, _>(&mut tasks, &client, &view, listed("resourceclaims"));
    let templates = listed("resourceclaimtemplates");
    spawn::<ResourceClaimTemplate, _>(&mut tasks, &client, &view, templates);
    spawn::<NodeTopology, _>(&mut tasks, &client, &view, listed("nodetopologies"));
    let rules = listed("devicetaintrules");
    tasks.spawn(follow_if_served::<DeviceTaintRule, _>(client.clone(), view.clone(), rules));
    tasks.spawn(async move { view.keep_settled().await });
    // A watch that panics ends the program, as it would without a separate task.
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && let Ok(panic) = error.try_into_panic()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

fn spawn<K, G>(tasks: &mut JoinSet<()>, client: &Client, view: &SharedView, listed: G)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    ClusterView: Index<K>,
    G: Send + 'static,
{
    tasks.spawn(follow_kind::<K, G>(client.clone(), view.clone(), listed));
}

/// Reads the version repeatedly, since control planes are upgraded in place; and the time, since clocks
/// are set.
async fn follow_version<G>(client: Client, view: SharedView, listed: G) {
    let mut listed = Some(listed);
    loop {
        let pause = match settings(&client).await {
            Ok(settings) => {
                follow_time(&client, &view).await;
                view.change(move |view| view.set_settings(settings));
                view.settle_now();
                listed.take();
                VERSION_PERIOD
            }
            Err(error) => {
                tracing::warn!(%error, "Failed to read the version of the cluster; trying again");
                VERSION_RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Reads the time of the API server.
async fn follow_time(client: &Client, view: &SharedView) {
    match time_of(client).await {
        Ok(Some(time)) => {
            let ahead = Timestamp::now().duration_since(time);
            if ahead.abs() > SKEW {
                let seconds = ahead.as_secs();
                tracing::warn!(
                    seconds,
                    "The clock here is ahead of the API server's; its time is used"
                );
            }
            view.set_time(time);
        }
        // A proxy removes it.
        Ok(None) => {}
        Err(error) => tracing::warn!(%error, "Failed to read the time of the API server"),
    }
}

/// Receives the objects of a watch.
pub trait Sink<K> {
    /// Adds or replaces an object.
    fn apply(&mut self, object: K);
    /// Removes the object with this key.
    fn delete(&mut self, key: &ObjectKey);
    /// Called when all objects of a list have been applied.
    fn listed(&mut self) {}
    /// Called when the API server has sent something of this kind.
    fn heard(&mut self, _kind: &str) {}
}

impl<K> Sink<K> for SharedView
where
    K: Send + 'static,
    ClusterView: Index<K>,
{
    fn apply(&mut self, object: K) {
        self.change(move |view| {
            if let Err(error) = view.apply(object) {
                report(&error);
            }
        });
    }

    fn delete(&mut self, key: &ObjectKey) {
        let key = key.clone();
        self.change(move |view| Index::<K>::delete(view, &key));
    }

    fn listed(&mut self) {
        self.change(|view| Index::<K>::listed(view));
        self.settle_now();
    }

    fn heard(&mut self, kind: &str) {
        self.hear(kind);
    }
}

/// Follows one more kind of the view.
pub fn follow_kind<K, G>(client: Client, view: SharedView, listed: G) -> impl Future<Output = ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    ClusterView: Index<K>,
{
    follow_into(Api::<K>::all(client), watcher::Config::default(), view, listed)
}

/// Follows what other schedulers say of the network, Kueue's `Topology` and Volcano's `HyperNode`, as
/// soon as the API server serves them. `listed` is called for each, and its value dropped also if the
/// API server does not serve it.
pub async fn follow_foreign_topologies<G>(
    client: Client,
    view: SharedView,
    listed: impl Fn(&'static str) -> G,
) {
    let (topologies, hyper_nodes) = (listed("topologies"), listed("hypernodes"));
    tokio::join!(
        follow_if_served::<Topology, _>(client.clone(), view.clone(), topologies),
        follow_if_served::<HyperNode, _>(client, view, hyper_nodes),
    );
}

/// Follows one more kind of the view as soon as the API server serves it, for example `PodGroup`s,
/// which a default installation does not have. `listed` is dropped also if the API server does not
/// serve it.
pub async fn follow_if_served<K, G>(client: Client, view: SharedView, listed: G)
where
    K: k8s_openapi::Resource
        + Resource<DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Send
        + 'static,
    ClusterView: Index<K>,
{
    let mut listed = Some(listed);
    wait_for::<K>(&client, || drop(listed.take())).await;
    view.change(|view| Index::<K>::served(view));
    follow_kind::<K, _>(client, view, listed).await;
}

/// Waits until the API server serves `PodGroup`s of `scheduling.k8s.io/v1beta1`. Calls `absent`
/// after each check that finds none.
pub async fn wait_for_pod_groups(client: &Client, absent: impl FnMut()) {
    wait_for::<PodGroup>(client, absent).await;
}

/// Waits until the API server serves a kind. Calls `absent` after each check that does not find it.
async fn wait_for<K: k8s_openapi::Resource>(client: &Client, mut absent: impl FnMut()) {
    loop {
        let pause = match serves::<K>(client).await {
            Ok(true) => return,
            Ok(false) => {
                absent();
                VERSION_PERIOD
            }
            Err(error) => {
                tracing::warn!(%error, "Failed to read API groups; trying again");
                VERSION_RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Checks the list of API groups first, since a group that is not installed answers with 404.
async fn serves<K: k8s_openapi::Resource>(client: &Client) -> kube::Result<bool> {
    let groups = client.list_api_groups().await?.groups;
    let mut versions = groups.iter().flat_map(|group| &group.versions);
    if !versions.any(|it| it.group_version == K::API_VERSION) {
        return Ok(false);
    }
    let list = client.list_api_group_resources(K::API_VERSION).await?;
    Ok(list.resources.iter().any(|it| it.name == K::URL_PATH_SEGMENT))
}

/// Follows the pods that use a node, of which the view keeps those with GPUs of a device plugin.
pub async fn follow_plugin_pods<G>(client: Client, view: SharedView, listed: G) {
    let on_node = watcher::Config::default().fields(USES_A_NODE);
    follow_into(Api::<Pod>::all(client), on_node, PluginPodSink(view), listed).await;
}

/// Receives pods; those without GPUs of a device plugin never reach the view.
struct PluginPodSink(SharedView);

impl Sink<Pod> for PluginPodSink {
    fn apply(&mut self, object: Pod) {
        if has_plugin_gpus(&object) {
            Sink::<Pod>::apply(&mut self.0, object);
        } else {
            // One of this name may have had some, and its end was missed.
            Sink::<Pod>::delete(&mut self.0, &ObjectKey::new(&object.metadata));
        }
    }

    fn delete(&mut self, key: &ObjectKey) {
        Sink::<Pod>::delete(&mut self.0, key);
    }

    fn listed(&mut self) {
        Sink::<Pod>::listed(&mut self.0);
    }

    fn heard(&mut self, kind: &str) {
        Sink::<Pod>::heard(&mut self.0, kind);
    }
}

/// Feeds the objects that `config` selects into a sink forever. `listed` is dropped when all of
/// them have been applied once.
pub fn follow_into<K, S, G>(
    api: Api<K>,
    config: watcher::Config,
    sink: S,
    listed: G,
) -> impl Future<Output = ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    S: Sink<K>,
{
    let config = config.page_size(PAGE);
    follow_stream(watcher(api, config).default_backoff().boxed(), sink, listed)
}

/// Follows the single object of a kind with this name.
pub fn follow_object<K, G>(
    api: Api<K>,
    name: &str,
    view: SharedView,
    listed: G,
) -> impl Future<Output = ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    ClusterView: Index<K>,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    follow_stream(watcher(api, config).default_backoff().boxed(), view, listed)
}

/// Feeds the events of one watch into a sink. The next page of a list is read while objects of the
/// previous page are applied.
async fn follow_stream<K, S, G>(
    events: futures::stream::BoxStream<'static, watcher::Result<Event<K>>>,
    sink: S,
    listed: G,
) where
    K: Resource<DynamicType = ()> + Send + 'static,
    S: Sink<K>,
{
    let (ahead, mut events) = read_ahead(events);
    // The reader ends when this value is dropped.
    let mut reader = JoinSet::new();
    reader.spawn(ahead);
    let kind = K::plural(&());
    let mut feed = Feed::new(sink);
    let mut listed = Some(listed);
    loop {
        match events.recv().await {
            Some(Ok(event)) => {
                let whole = matches!(event, Event::InitDone);
                feed.take(event);
                feed.sink.heard(&kind);
                if whole {
                    listed.take();
                }
            }
            None => return,
            Some(Err(error)) => tracing::warn!(%kind, error = %error, "Watch failed; trying again"),
        }
    }
}

/// Reads a stream up to one page ahead of its consumer.
fn read_ahead<T: Send + 'static>(
    mut stream: futures::stream::BoxStream<'static, T>,
) -> (impl Future<Output = ()> + Send, mpsc::Receiver<T>) {
    let (sender, receiver) = mpsc::channel(PAGE as usize);
    let read = async move {
        while let Some(event) = stream.next().await {
            if sender.send(event).await.is_err() {
                return;
            }
        }
    };
    (read, receiver)
}

/// Feeds a watch into a sink object by object: a list of a large cluster has hundreds of megabytes
/// and is never held as a whole.
struct Feed<S> {
    sink: S,
    /// The objects of this watch that are in the sink, except those that are only in `named`.
    known: BTreeSet<WrittenKey>,
    /// The objects of the list in progress. They are kept separately, so that the first list does
    /// not store any key twice.
    named: BTreeSet<WrittenKey>,
}

/// Namespace and name in one string, to save memory: a watch of all pods has a hundred thousand.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WrittenKey(Box<str>);

impl From<&ObjectKey> for WrittenKey {
    fn from(key: &ObjectKey) -> Self {
        Self(format!("{}/{}", key.namespace, key.name).into_boxed_str())
    }
}

impl From<&WrittenKey> for ObjectKey {
    fn from(WrittenKey(text): &WrittenKey) -> Self {
        // Names contain no slash.
        let (namespace, name) = text.split_once('/').unwrap_or(("", text));
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl<S> Feed<S> {
    fn new(sink: S) -> Self {
        Self { sink, known: BTreeSet::new(), named: BTreeSet::new() }
    }

    fn take<K>(&mut self, event: Event<K>)
    where
        K: Resource<DynamicType = ()>,
        S: Sink<K>,
    {
        match event {
            // The objects of an interrupted list are in the sink.
            Event::Init => self.known.append(&mut self.named),
            Event::InitApply(object) => {
                self.named.insert((&ObjectKey::new(object.meta())).into());
                self.sink.apply(object);
            }
            Event::InitDone => {
                for gone in self.known.difference(&self.named) {
                    self.sink.delete(&gone.into());
                }
                self.known = std::mem::take(&mut self.named);
                self.sink.listed();
            }
            Event::Apply(object) => {
                self.known.insert((&ObjectKey::new(object.meta())).into());
                self.sink.apply(object);
            }
            Event::Delete(object) => {
                let key = ObjectKey::new(object.meta());
                self.sink.delete(&key);
                self.known.remove(&WrittenKey::from(&key));
            }
        }
    }
}

pub(crate) fn report(error: &ViewError) {
    let source = std::error::Error::source(error).map(ToString::to_string);
    tracing::warn!(%error, cause = source, "Invalid object skipped");
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    fn node(name: &str) -> Node {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Node { metadata, ..Node::default() }
    }

    fn nodes(view: &SharedView) -> Vec<String> {
        view.read().inventory().node_names().map(|name| (**name).to_owned()).collect()
    }

    /// Events of a watch, and the nodes in the view after each.
    #[test]
    fn the_view_follows_lists_and_events_of_a_watch() {
        let view = SharedView::default();
        let mut feed = Feed::new(view.clone());
        let steps: Vec<(Event<Node>, &[&str])> = vec![
            (Event::Init, &[]),
            (Event::InitApply(node("a")), &["a"]),
            // The connection broke; `a` was deleted before the next list.
            (Event::Init, &["a"]),
            (Event::InitApply(node("b")), &["a", "b"]),
            (Event::InitApply(node("c")), &["a", "b", "c"]),
            (Event::InitDone, &["b", "c"]),
            (Event::Apply(node("d")), &["b", "c", "d"]),
            (Event::Delete(node("c")), &["b", "d"]),
            (Event::Init, &["b", "d"]),
            (Event::InitApply(node("d")), &["b", "d"]),
            (Event::InitDone, &["d"]),
        ];
        for (index, (event, expected)) in steps.into_iter().enumerate() {
            feed.take(event);
            assert_eq!(nodes(&view), expected, "after step {index}");
        }
    }
}
