//! Watches that keep a view, or another index, true.
//!
//! One task per kind is the only asynchronous part; all that is decided from
//! the view is decided elsewhere.

pub use crate::shared::SharedView;

use crate::view::{ClusterView, Index, ObjectKey, ViewError};
use dra_allocator::{MinorVersion, Settings};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
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

/// How often the version is read again.
const VERSION_PERIOD: Duration = Duration::from_mins(5);
/// How soon it is asked for again where there was no answer.
const VERSION_RETRY: Duration = Duration::from_secs(2);

/// Objects that are asked for at a time when a kind is listed. Slices are the
/// largest, some fifty kilobytes each in memory; the default of 500 is a peak of
/// tens of megabytes.
pub(crate) const PAGE: u32 = 100;

/// Version and default gates of the cluster.
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

/// Follows the cluster's version and every kind of the view for ever. `listed`
/// makes, for the name of each, the value that is dropped when it is first in
/// the view: when all are dropped, the view is whole.
///
/// Each kind has a task of its own: what the lists of a large cluster say takes seconds to
/// read, and several processors read it together.
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
    tasks.spawn(async move { view.keep_settled().await });
    // A watch that panics ends the program, as it would without a task of its own.
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

/// Reads the version again now and then: control planes are upgraded in place.
async fn follow_version<G>(client: Client, view: SharedView, listed: G) {
    let mut listed = Some(listed);
    loop {
        let pause = match settings(&client).await {
            Ok(settings) => {
                view.change(move |view| view.set_settings(settings));
                view.settle_now();
                listed.take();
                VERSION_PERIOD
            }
            Err(error) => {
                tracing::warn!(%error, "Version of the cluster not read; trying again");
                VERSION_RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Takes what a watch says, object by object.
pub trait Sink<K> {
    /// Adds the object, or replaces the one of its name.
    fn apply(&mut self, object: K);
    /// Removes the object of this name.
    fn delete(&mut self, key: &ObjectKey);
    /// Every object of a list has been taken in: what they were applied to must show it.
    fn listed(&mut self) {}
    /// The API server has just sent something of this kind.
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
        self.settle_now();
    }

    fn heard(&mut self, kind: &str) {
        self.hear(kind);
    }
}

/// Follows one more kind of the view, for those who need it.
pub fn follow_kind<K, G>(client: Client, view: SharedView, listed: G) -> impl Future<Output = ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    ClusterView: Index<K>,
{
    follow_into(Api::<K>::all(client), watcher::Config::default(), view, listed)
}

/// Follows the groups of pods that the scheduler places itself, where and as soon as the API
/// server has them: they are no part of a default installation. `listed` is dropped when it is
/// known that there are none, too.
pub async fn follow_pod_groups<G>(client: Client, view: SharedView, listed: G) {
    let mut listed = Some(listed);
    wait_for_pod_groups(&client, || drop(listed.take())).await;
    view.change(|view| view.set_pod_groups_served(true));
    follow_kind::<PodGroup, _>(client, view, listed).await;
}

/// Returns when the API server has `PodGroup`s of `scheduling.k8s.io/v1beta1`. Calls `absent`
/// each time when it has not.
pub async fn wait_for_pod_groups(client: &Client, mut absent: impl FnMut()) {
    loop {
        let pause = match serves_pod_groups(client).await {
            Ok(true) => return,
            Ok(false) => {
                absent();
                VERSION_PERIOD
            }
            Err(error) => {
                tracing::warn!(%error, "API groups not read; trying again");
                VERSION_RETRY
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// A group that is not installed is answered with 404 where it is asked for by name, so the
/// list of groups comes first.
async fn serves_pod_groups(client: &Client) -> kube::Result<bool> {
    let version = <PodGroup as k8s_openapi::Resource>::API_VERSION;
    let name = <PodGroup as k8s_openapi::Resource>::URL_PATH_SEGMENT;
    let groups = client.list_api_groups().await?.groups;
    if !groups.iter().flat_map(|group| &group.versions).any(|it| it.group_version == version) {
        return Ok(false);
    }
    let list = client.list_api_group_resources(version).await?;
    Ok(list.resources.iter().any(|it| it.name == name))
}

/// Feeds the objects that `config` selects into a sink for ever. `listed` is dropped when
/// all of them have been taken in once.
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

/// Follows the one object of a kind that has this name.
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

/// Feeds the events of one watch into a sink. The next page of a list is read while objects of
/// the one before are taken in.
async fn follow_stream<K, S, G>(
    events: futures::stream::BoxStream<'static, watcher::Result<Event<K>>>,
    sink: S,
    listed: G,
) where
    K: Resource<DynamicType = ()> + Send + 'static,
    S: Sink<K>,
{
    let (ahead, mut events) = read_ahead(events);
    // It ends with this value.
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

/// Reads a stream, up to a page ahead of who takes from it.
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

/// Puts what one watch says into a sink, object by object: a list of a large
/// cluster is hundreds of megabytes and is never held as a whole.
struct Feed<S> {
    sink: S,
    /// The objects of this watch that are in the sink, except those that only `named` has.
    known: BTreeSet<ObjectKey>,
    /// Those that the list in progress has named. No key of a first list is held twice.
    named: BTreeSet<ObjectKey>,
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
            // What a list that broke off has named is in the sink.
            Event::Init => self.known.append(&mut self.named),
            Event::InitApply(object) => {
                self.named.insert(ObjectKey::of(object.meta()));
                self.sink.apply(object);
            }
            Event::InitDone => {
                for gone in self.known.difference(&self.named) {
                    self.sink.delete(gone);
                }
                self.known = std::mem::take(&mut self.named);
                self.sink.listed();
            }
            Event::Apply(object) => {
                self.known.insert(ObjectKey::of(object.meta()));
                self.sink.apply(object);
            }
            Event::Delete(object) => {
                let key = ObjectKey::of(object.meta());
                self.sink.delete(&key);
                self.known.remove(&key);
            }
        }
    }
}

pub(crate) fn report(error: &ViewError) {
    let source = std::error::Error::source(error).map(ToString::to_string);
    tracing::warn!(%error, cause = source, "Object left out of the view");
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

    /// What a watch says, and the nodes that the view has then.
    #[test]
    fn a_view_is_what_the_watch_said_last() {
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
