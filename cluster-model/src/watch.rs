//! Watches that keep a view true.
//!
//! One task per kind is the only asynchronous part; all that is decided from
//! the view is decided elsewhere.

use crate::view::{ClusterView, Index, ViewError};
use dra_allocator::{MinorVersion, Settings};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use kube::api::ListParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;
use topology_graph::NodeTopology;

/// How often the version is read again.
const VERSION_PERIOD: Duration = Duration::from_mins(5);
/// How soon it is asked for again where there was no answer.
const VERSION_RETRY: Duration = Duration::from_secs(2);

/// A view that watches write and handlers read.
#[derive(Clone, Debug, Default)]
pub struct SharedView(Arc<RwLock<ClusterView>>);

impl SharedView {
    /// The view for reading; hold it only across plain computation.
    pub fn read(&self) -> RwLockReadGuard<'_, ClusterView> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ClusterView> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads every kind of the view once.
pub async fn read(client: Client) -> kube::Result<ClusterView> {
    let mut view = ClusterView::default();
    view.set_settings(settings(&client).await?);
    list::<Node>(&client, &mut view).await?;
    list::<ResourceSlice>(&client, &mut view).await?;
    list::<DeviceClass>(&client, &mut view).await?;
    list::<ResourceClaim>(&client, &mut view).await?;
    list::<ResourceClaimTemplate>(&client, &mut view).await?;
    list::<NodeTopology>(&client, &mut view).await?;
    Ok(view)
}

async fn list<K>(client: &Client, view: &mut ClusterView) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    ClusterView: Index<K>,
{
    let objects = Api::<K>::all(client.clone()).list(&ListParams::default()).await?;
    view.reset(objects.items).iter().for_each(report);
    Ok(())
}

/// Reads every object of a kind that no view holds.
pub async fn objects<K>(client: Client) -> kube::Result<Vec<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    Ok(Api::<K>::all(client).list(&ListParams::default()).await?.items)
}

/// Version and default gates of the cluster.
async fn settings(client: &Client) -> kube::Result<Settings> {
    let version = client.apiserver_version().await?;
    // Managed clusters write `37+`.
    let minor = version.minor.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    let known = minor.and_then(MinorVersion::new);
    if known.is_none() {
        tracing::warn!(version = version.git_version, "Unknown version; taken for 1.37");
    }
    Ok(Settings::defaults_of(known.unwrap_or(MinorVersion::V1_37)))
}

/// Follows the cluster's version and every kind of the view for ever. `listed`
/// makes, for the name of each, the value that is dropped when it is first in
/// the view: when all are dropped, the view is whole.
pub async fn follow<G: Send>(client: Client, view: SharedView, listed: impl Fn(&'static str) -> G) {
    futures::join!(
        follow_version(client.clone(), view.clone(), listed("version")),
        follow_kind::<Node, _>(client.clone(), view.clone(), listed("nodes")),
        follow_kind::<ResourceSlice, _>(client.clone(), view.clone(), listed("resourceslices")),
        follow_kind::<DeviceClass, _>(client.clone(), view.clone(), listed("deviceclasses")),
        follow_kind::<ResourceClaim, _>(client.clone(), view.clone(), listed("resourceclaims")),
        follow_kind::<ResourceClaimTemplate, _>(
            client.clone(),
            view.clone(),
            listed("resourceclaimtemplates")
        ),
        follow_kind::<NodeTopology, _>(client, view, listed("nodetopologies")),
    );
}

/// Reads the version again now and then: control planes are upgraded in place.
async fn follow_version<G>(client: Client, view: SharedView, listed: G) {
    let mut listed = Some(listed);
    loop {
        let pause = match settings(&client).await {
            Ok(settings) => {
                view.write().set_settings(settings);
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

/// Follows one more kind of the view, for those who need it.
pub fn follow_kind<K, G>(client: Client, view: SharedView, listed: G) -> impl Future<Output = ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    ClusterView: Index<K>,
{
    let api: Api<K> = Api::all(client);
    follow_stream(watcher(api, watcher::Config::default()).default_backoff().boxed(), view, listed)
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

/// Feeds the events of one watch into the view.
async fn follow_stream<K, G>(
    mut events: futures::stream::BoxStream<'static, watcher::Result<Event<K>>>,
    view: SharedView,
    listed: G,
) where
    K: Resource<DynamicType = ()>,
    ClusterView: Index<K>,
{
    let kind = K::plural(&());
    let mut listed = Some(listed);
    let mut listing = Vec::new();
    loop {
        match events.try_next().await {
            Ok(Some(Event::Init)) => listing.clear(),
            Ok(Some(Event::InitApply(object))) => listing.push(object),
            Ok(Some(Event::InitDone)) => {
                let errors = view.write().reset(std::mem::take(&mut listing));
                errors.iter().for_each(report);
                listed.take();
            }
            Ok(Some(Event::Apply(object))) => {
                if let Err(error) = view.write().apply(object) {
                    report(&error);
                }
            }
            Ok(Some(Event::Delete(object))) => view.write().delete(&object),
            Ok(None) => return,
            Err(error) => tracing::warn!(%kind, error = %error, "Watch failed; trying again"),
        }
    }
}

fn report(error: &ViewError) {
    let source = std::error::Error::source(error).map(ToString::to_string);
    tracing::warn!(%error, cause = source, "Object left out of the view");
}
