//! Leader election by a Lease: one of several replicas works, and another takes over when it stops
//! renewing.
//!
//! Follows `k8s.io/client-go/tools/leaderelection`. Every write carries the resource version that
//! was read, so only one of two candidates succeeds. A lease has expired when *this* process has
//! seen it unchanged for its whole duration, so clocks of two machines are never compared.

#[cfg(test)]
mod month;
mod record;
mod until;

use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use process::chain::Chain;
use record::{Attempt, attempt, taken};
use std::future::Future;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use until::Until;

/// The holder renews, and others check, this many times per duration.
const TRIES: u32 = 7;

/// A lease that this process wants to hold.
#[derive(Clone, Debug)]
pub struct Lease {
    api: Api<LeaseObject>,
    namespace: String,
    name: String,
    identity: String,
    duration: Duration,
}

/// The lease could not be read or written.
#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error("Lease `{namespace}/{name}` does not exist; create it empty")]
    Missing { namespace: String, name: String },
    #[error("failed to read Lease `{namespace}/{name}`")]
    Read { namespace: String, name: String, source: Box<kube::Error> },
    #[error("failed to write Lease `{namespace}/{name}`")]
    Write { namespace: String, name: String, source: Box<kube::Error> },
    #[error("Lease `{namespace}/{name}` was not renewed within {within:?}")]
    Slow { namespace: String, name: String, within: Duration },
}

/// The last observed lease, and when it was last seen to change.
struct ObservedLease {
    lease: LeaseObject,
    since: Instant,
}

impl Lease {
    /// The lease with this name. Others wait for `duration` before they take it from a holder that
    /// is gone.
    pub fn new(client: Client, namespace: &str, name: &str, duration: Duration) -> Self {
        Self {
            api: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity: identity(),
            duration,
        }
    }

    /// Runs the work whenever this process holds the lease, until stopped. When the lease is lost,
    /// the work is dropped at one of its `await`s. It makes no step after the lease could have passed to
    /// another process, even if this one was stopped meanwhile.
    pub async fn lead<W>(&self, stop: CancellationToken, work: impl Fn() -> W)
    where
        W: Future<Output = ()>,
    {
        loop {
            let (held, begun) = tokio::select! {
                () = stop.cancelled() => return,
                held = self.acquire() => held,
            };
            tracing::info!(lease = self.name, identity = self.identity, "Leading");
            let until = Until::new(self.leads_until(begun));
            tokio::select! {
                () = stop.cancelled() => {
                    self.release().await;
                    return;
                }
                lost = self.keep(held, &until) => {
                    let why = lost.as_ref().map_or_else(
                        || "another process took the lease".to_owned(),
                        |error| Chain(error).to_string(),
                    );
                    tracing::warn!(why, "Lost leadership");
                }
                () = until.poll_before(work()) => tracing::error!("The leader's work ended unexpectedly"),
            }
        }
    }

    /// Waits until the lease can be taken, and takes it. Returns it with the time before it was taken.
    async fn acquire(&self) -> (LeaseObject, Instant) {
        let mut seen: Option<ObservedLease> = None;
        loop {
            let begun = Instant::now();
            match self.try_acquire(&mut seen, begun).await {
                Ok(Some(held)) => return (held, begun),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "Failed to acquire the lease; trying again");
                }
            }
            tokio::time::sleep(self.period()).await;
        }
    }

    async fn try_acquire(
        &self,
        seen: &mut Option<ObservedLease>,
        now: Instant,
    ) -> Result<Option<LeaseObject>, LeaseError> {
        let lease = self.read().await?;
        let same = seen
            .as_ref()
            .filter(|seen| seen.lease.metadata.resource_version == lease.metadata.resource_version);
        let since = same.map(|seen| seen.since);
        let since = since.unwrap_or(now);
        let spec = lease.spec.clone().unwrap_or_default();
        let attempt = attempt(&spec, &self.identity, now.saturating_duration_since(since));
        *seen = Some(ObservedLease { lease: lease.clone(), since });
        match attempt {
            Attempt::Wait => Ok(None),
            Attempt::Take => self.take(&lease).await,
        }
    }

    /// Renews until the lease is lost. Returns `None` if another process holds it.
    async fn keep(&self, mut lease: LeaseObject, until: &Until) -> Option<LeaseError> {
        loop {
            tokio::time::sleep(self.period()).await;
            let begun = Instant::now();
            match tokio::time::timeout(until.left(), self.renew(&lease)).await {
                Ok(Ok(Some(newer))) => {
                    lease = newer;
                    until.set(self.leads_until(begun));
                }
                Ok(Ok(None)) => return None,
                Ok(Err(error)) if until.left().is_zero() => return Some(error),
                Ok(Err(error)) => {
                    tracing::warn!(error = %Chain(&error), "Failed to renew the lease; trying again");
                }
                Err(_) => {
                    let (namespace, name) = self.key();
                    return Some(LeaseError::Slow { namespace, name, within: self.within() });
                }
            }
        }
    }

    /// Until when this process leads if the lease was written after `begun`: the answer may come late, and
    /// others count from the write.
    fn leads_until(&self, begun: Instant) -> Instant {
        begun + self.within()
    }

    /// How long this process leads after it has renewed the lease: two thirds of its duration, so that it
    /// has stopped before another one starts.
    fn within(&self) -> Duration {
        self.duration * 2 / 3
    }

    /// Renews the lease. If another process has written it, checks who holds it.
    async fn renew(&self, lease: &LeaseObject) -> Result<Option<LeaseObject>, LeaseError> {
        if let Some(newer) = self.take(lease).await? {
            return Ok(Some(newer));
        }
        let lease = self.read().await?;
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        if holder != Some(&*self.identity) {
            return Ok(None);
        }
        self.take(&lease).await
    }

    /// Writes this process into the lease as its holder.
    async fn take(&self, lease: &LeaseObject) -> Result<Option<LeaseObject>, LeaseError> {
        let spec = lease.spec.clone().unwrap_or_default();
        let spec = taken(&spec, &self.identity, self.duration, Timestamp::now());
        self.write(lease, spec).await
    }

    /// Releases the lease, so that nobody has to wait until it expires.
    async fn release(&self) {
        let released = async {
            let lease = self.read().await?;
            let spec = lease.spec.clone().unwrap_or_default();
            if spec.holder_identity.as_deref() == Some(&*self.identity) {
                self.write(&lease, LeaseSpec { holder_identity: None, ..spec }).await?;
            }
            Ok::<_, LeaseError>(())
        };
        match tokio::time::timeout(self.period(), released).await {
            Ok(Ok(())) => tracing::info!(lease = self.name, "Lease released"),
            Ok(Err(error)) => {
                tracing::warn!(error = %Chain(&error), "Lease not released");
            }
            Err(_) => tracing::warn!("Lease not released in time"),
        }
    }

    async fn read(&self) -> Result<LeaseObject, LeaseError> {
        self.api.get(&self.name).await.map_err(|source| {
            let (namespace, name) = self.key();
            match &source {
                kube::Error::Api(status) if status.is_not_found() => {
                    LeaseError::Missing { namespace, name }
                }
                _ => LeaseError::Read { namespace, name, source: Box::new(source) },
            }
        })
    }

    /// Returns `None` if another process has written the lease since it was read.
    async fn write(
        &self,
        lease: &LeaseObject,
        spec: LeaseSpec,
    ) -> Result<Option<LeaseObject>, LeaseError> {
        let lease = LeaseObject { spec: Some(spec), ..lease.clone() };
        match self.api.replace(&self.name, &PostParams::default(), &lease).await {
            Ok(written) => Ok(Some(written)),
            Err(kube::Error::Api(status)) if status.is_conflict() => Ok(None),
            Err(source) => {
                let (namespace, name) = self.key();
                Err(LeaseError::Write { namespace, name, source: Box::new(source) })
            }
        }
    }

    fn period(&self) -> Duration {
        self.duration / TRIES
    }

    fn key(&self) -> (String, String) {
        (self.namespace.clone(), self.name.clone())
    }
}

/// The identity: host name and process, unique if several processes run on one host. In a pod the
/// host name is the pod's name.
fn identity() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{host}_{}", std::process::id())
}
