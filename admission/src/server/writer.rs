//! Creates the templates of admitted pods that exist. Requests have decided on them and remember them.

use super::metrics::Metrics;
use super::templates::{TemplateError, Templates};
use crate::pod_event;
use crate::waiting_pods::WaitingPods;
use cluster_model::view::ObjectKey;
use kube::Client;
use process::chain::Chain;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The number of concurrent writes.
const TOGETHER: usize = 16;
/// The first and the longest pause before a failed write is tried again.
const RETRY: [Duration; 2] = [Duration::from_millis(250), Duration::from_mins(1)];

/// Creates the templates of pods as they arrive, without end.
pub(super) async fn write(templates: Templates, waiting: WaitingPods, metrics: Metrics) {
    let slots = Arc::new(Semaphore::new(TOGETHER));
    loop {
        for key in waiting.arrived().await {
            let write = Write { templates: templates.clone(), waiting: waiting.clone(), key };
            tokio::spawn(write.carry_out(metrics.clone(), Arc::clone(&slots)));
        }
    }
}

/// The creation of one template.
struct Write {
    templates: Templates,
    waiting: WaitingPods,
    key: ObjectKey,
}

impl Write {
    /// Tries until the template exists or no pod waits for it.
    async fn carry_out(self, metrics: Metrics, slots: Arc<Semaphore>) {
        let Self { templates, waiting, key } = self;
        let [mut pause, longest] = RETRY;
        let (mut is_told, mut logged) = (false, String::new());
        loop {
            let written = {
                let _slot = slots.acquire().await;
                templates.provide(&key).await
            };
            match written {
                Ok(written) => return metrics.count_template(written),
                Err(error) => {
                    let why = Chain(&*error).to_string();
                    if why != logged {
                        tracing::warn!(template = %key, error = why, "Template not created");
                        logged = why;
                    }
                    let is_final = matches!(*error, TemplateError::Differs { .. });
                    let Some(pod) = waiting.pod_of(&key).filter(|_| !is_final) else { return };
                    if let (TemplateError::Refused { why, .. }, false) = (&*error, is_told) {
                        is_told = tell(&templates.client, &pod, why).await;
                    }
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(longest);
        }
    }
}

/// Sends an event on the pod whose template is refused. Returns true if it was sent.
async fn tell(client: &Client, key: &ObjectKey, why: &str) -> bool {
    let Ok(Some(pod)) = pod_event::read_pod(client, key).await else { return false };
    let note = format!("the pod waits, as its ResourceClaimTemplate is refused: {why}");
    pod_event::warn_of_creation(client, &pod, "TemplateRefused", &note).await
}
