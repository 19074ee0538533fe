//! Tasks of the leading replica: certificates, garbage collection of unused templates, events on
//! pods whose claim is outdated, `ComputeDomain`s, and remembered machines. Each task makes a decision from its inputs,
//! then one write that carries the version of those inputs. It runs when an input changes, and when
//! the time comes that the last decision named.

mod attempts;
pub(crate) mod certificates;
mod compute_domains;
mod domain_events;
mod lifecycle;
mod machines;
#[cfg(test)]
mod month;
mod outdated_pods;
mod recreate;
mod templates;

use crate::plan::Policy;
use crate::server::metrics::Metrics;
use crate::server::templates::Templates;
use crate::waiting_pods::WaitingPods;
use cluster_model::retention::Retention;
use serve::readiness::Readiness;
use std::time::Duration;

/// A write of the leader failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaderError {
    /// An object could not be read.
    #[error("failed to read {kind} `{name}`")]
    Read { kind: &'static str, name: String, source: Box<kube::Error> },
    /// An object could not be written.
    #[error("failed to write {kind} `{name}`")]
    Write { kind: &'static str, name: String, source: Box<kube::Error> },
    /// A certificate could not be made.
    #[error(transparent)]
    Certificate(#[from] serve::authority::CertificateError),
    /// A machine could not be encoded.
    #[error("failed to remember node `{node}`")]
    Machine { node: String, source: cluster_model::remembered::RememberedError },
}

/// The leader's tasks and their inputs.
pub(crate) struct Leader {
    pub(crate) templates: Templates,
    /// Pods without a node. Scheduled pods already have their claims.
    pub(crate) waiting: WaitingPods,
    pub(crate) policy: Policy,
    /// Namespace of the webhook's own objects.
    pub(crate) namespace: String,
    /// Names for the certificate that the leader maintains; `None` if the certificate
    /// comes from files.
    pub(crate) names: Option<Vec<String>>,
    /// How long a template without references is kept.
    pub(crate) keep_unused: Duration,
    /// The most `ComputeDomain`s of a namespace.
    pub(crate) max_compute_domains: usize,
    /// How long machines are remembered.
    pub(crate) retention: Retention,
    pub(crate) metrics: Metrics,
}

impl Leader {
    /// Works until dropped. Tasks that decide from the view wait until `synced`: while
    /// the view is incomplete, used templates would look unused.
    pub(crate) async fn work(&self, synced: &Readiness) {
        let from_view = async {
            synced.ready().await;
            tokio::join!(
                self.keep_templates(),
                self.keep_compute_domains(),
                self.remember_machines()
            );
        };
        tokio::join!(self.keep_certificates(), from_view);
    }
}

/// Returns after a time; never if there is none.
async fn after(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// An error of reading.
pub(crate) fn reading(kind: &'static str, name: &str) -> impl FnOnce(kube::Error) -> LeaderError {
    move |source| LeaderError::Read { kind, name: name.to_owned(), source: Box::new(source) }
}

/// An error of writing.
pub(crate) fn writing(kind: &'static str, name: &str) -> impl FnOnce(kube::Error) -> LeaderError {
    move |source| LeaderError::Write { kind, name: name.to_owned(), source: Box::new(source) }
}
