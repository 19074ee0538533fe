//! One-shot cluster reader for the command line.

use crate::names::object;
use crate::view::{ClusterView, Index};
use crate::watch::{PAGE, report, settings};
use k8s_openapi::api::core::v1::{ConfigMap, Node, ResourceQuota};
use k8s_openapi::api::resource::v1::{
    DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice,
};
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use topology_graph::NodeTopology;

/// Reads every kind that watches follow. The view keeps every `NodeTopology`.
pub async fn cluster(client: &Client) -> kube::Result<ClusterView> {
    let mut view = ClusterView::default();
    view.keep_topologies();
    view.set_settings(settings(client).await?);
    list::<Node>(client, &mut view).await?;
    list::<ResourceSlice>(client, &mut view).await?;
    list::<DeviceClass>(client, &mut view).await?;
    list::<ResourceClaim>(client, &mut view).await?;
    list::<ResourceClaimTemplate>(client, &mut view).await?;
    list::<NodeTopology>(client, &mut view).await?;
    Ok(view)
}

/// Reads the quotas of a namespace, as admission knows those of all.
pub async fn quotas(client: &Client, namespace: &str, view: &mut ClusterView) -> kube::Result<()> {
    take(&Api::<ResourceQuota>::namespaced(client.clone(), namespace), view).await
}

/// Reads the quotas of all namespaces.
pub async fn all_quotas(client: &Client, view: &mut ClusterView) -> kube::Result<()> {
    list::<ResourceQuota>(client, view).await
}

/// Reads the machines that admission, in this namespace, has seen; none where it
/// has written none.
pub async fn machines(
    client: &Client,
    namespace: &str,
    view: &mut ClusterView,
) -> kube::Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    if let Some(map) = maps.get_opt(object::MACHINES).await? {
        put(map, view);
    }
    Ok(())
}

/// Reads every object of a kind that no view holds, page by page.
pub async fn each<K>(client: &Client, take: impl FnMut(K)) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    each_of(&Api::<K>::all(client.clone()), take).await
}

async fn list<K>(client: &Client, view: &mut ClusterView) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    ClusterView: Index<K>,
{
    take(&Api::<K>::all(client.clone()), view).await
}

async fn take<K>(api: &Api<K>, view: &mut ClusterView) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    ClusterView: Index<K>,
{
    each_of(api, |object| put(object, view)).await
}

/// Reads every object that an API gives, page by page, so that neither side holds all
/// objects at once as text.
pub async fn each_of<K>(api: &Api<K>, mut take: impl FnMut(K)) -> kube::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        page.items.into_iter().for_each(&mut take);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

fn put<K>(object: K, view: &mut ClusterView)
where
    ClusterView: Index<K>,
{
    if let Err(error) = view.apply(object) {
        report(&error);
    }
}
