//! Maintains the webhook's own certificate in a Secret. Its authority is written into the webhook
//! configurations by another program with rights of its own ([`crate::server::authority`]).

use super::{Leader, LeaderError, reading, writing};
use crate::server::certificate::{bundle, data};
use cluster_model::clock::time_of;
use cluster_model::names::object;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::PostParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use process::chain::Chain;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::future::ready;
use std::time::Duration;

/// How long to gather changes before a check, since a chart is applied object by object.
const GATHER: Duration = Duration::from_millis(500);
/// The pause before retrying after a failure.
const RETRY: Duration = Duration::from_secs(10);
/// The longest time between two checks, since clocks may be adjusted.
const LOOK_MAX: Duration = Duration::from_hours(1);

impl Leader {
    /// Checks the Secret when it changes, since it may have been applied again, empty; and when a
    /// certificate is due.
    pub(super) async fn keep_certificates(&self) {
        let Some(names) = &self.names else { return };
        let secrets: Api<Secret> = Api::namespaced(self.templates.client.clone(), &self.namespace);
        let mut changes = changes(secrets, object::CERTIFICATES);
        loop {
            let next = match self.keep_certificates_once(names).await {
                Ok(due) => {
                    let left = due.and_then(|left| Duration::try_from(left).ok());
                    left.unwrap_or_default().clamp(RETRY, LOOK_MAX)
                }
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "Certificates not kept; trying again");
                    RETRY
                }
            };
            next_change(&mut changes, next).await;
        }
    }

    /// Updates the Secret once. Returns the time until a certificate is due.
    pub(super) async fn keep_certificates_once(
        &self,
        names: &[String],
    ) -> Result<Option<SignedDuration>, LeaderError> {
        let client = &self.templates.client;
        // For its clock: one that a leader with a wrong clock makes would be refused.
        let time = time_of(client).await;
        let time = time.map_err(reading("the time of the API server from", "/version"))?;
        let now = time.unwrap_or_else(Timestamp::now);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &self.namespace);
        let name = object::CERTIFICATES;
        let mut secret = secrets.get(name).await.map_err(reading("Secret", name))?;
        if let Some(renewed) = bundle(&secret).renewed(names, now)? {
            secret.data = Some(data(&renewed));
            // Refused if another replica has written it since; the next round reads it
            // again.
            let written = secrets.replace(name, &PostParams::default(), &secret).await;
            secret = written.map_err(writing("Secret", name))?;
            tracing::info!(?names, "Renewed the certificate");
        }
        Ok(bundle(&secret).next_due().map(|due| due.duration_since(now)))
    }
}

/// Waits for a change, at most this long. Everything that arrives soon after counts as one change.
pub(crate) async fn next_change(changes: &mut BoxStream<'static, ()>, longest: Duration) {
    tokio::select! {
        _ = changes.next() => tokio::time::sleep(GATHER).await,
        () = tokio::time::sleep(longest) => {}
    }
    while changes.next().now_or_never().flatten().is_some() {}
}

/// A stream with an item whenever the named object is created, changed or deleted.
pub(crate) fn changes<K>(api: Api<K>, name: &'static str) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let events = watcher(api, config).default_backoff().touched_objects();
    let events = events.inspect_err(move |error| {
        tracing::warn!(%error, name, "Watch failed; trying again");
    });
    events.filter_map(|event| ready(event.ok().map(drop))).boxed()
}
