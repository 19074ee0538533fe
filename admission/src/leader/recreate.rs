//! Recreates a missing template with exactly its former content, for a pod that admission has admitted
//! with it. The template's name is the hash of its content.
//!
//! Nothing is copied from elsewhere: the decision on the pod is made once more, by the rules for its
//! namespace, and gives the same template or none.

use super::Leader;
use super::attempts::Attempts;
use crate::admit::{AdmitError, admit};
use crate::admitted;
use crate::plan::Policy;
use crate::pod_event;
use crate::server::metrics::TemplateOutcome;
use crate::server::templates::TemplateWrite;
use crate::waiting_pods::TemplateUser;
use cluster_model::view::{ClusterView, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use process::chain::Chain;
use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

/// How long the replica that has decided on a pod has to create its template.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// The longest time until a template that cannot be created is tried again.
pub(super) const RETRY_MAX: Duration = Duration::from_mins(1);
/// The most pods of a round that are told that admission has not admitted them. Tenants can create
/// many, and other pods wait for the next round.
const TOLD_AT_ONCE: usize = 16;
/// The event on a pod whose template is not recreated.
const NOT_CREATED: &str = "TemplateNotCreated";

/// The templates that are not recreated, each with a pod that waits for it, and whether the pod has its
/// event.
pub(super) type Lost = BTreeMap<(ObjectKey, ObjectKey), bool>;

/// Why a missing template is not recreated.
#[derive(Debug, thiserror::Error)]
enum NotRecreated {
    /// The pod's author has written the template's name.
    #[error(
        "it has not admitted this pod with it; admission creates a template only for a pod whose \
         annotations it has seen when the pod was created"
    )]
    NotAdmitted,
    /// The cluster or the pod has changed.
    #[error("the pod's annotations now lead to another one; delete the pod and create it again")]
    Another,
    /// The rules of the namespace have changed.
    #[error("the pod is denied now")]
    Denied(#[source] AdmitError),
}

impl Leader {
    /// Recreates missing templates that waiting pods refer to. `lost` contains those that cannot be
    /// recreated, and `attempts` those for which it failed. Returns the time until the next check.
    pub(super) async fn recreate_missing(
        &self,
        lost: &mut Lost,
        attempts: &mut Attempts,
        now: Instant,
    ) -> Option<Duration> {
        let soon = self.missing_after(Duration::ZERO, now);
        lost.retain(|(key, pod), _| soon.get(key).is_some_and(|user| user.pod == *pod));
        let missing = self.missing_after(GRACE, now);
        attempts.keep(missing.keys());
        for (key, user) in missing.iter().filter(|(_, user)| user.is_admitted) {
            if attempts.too_early(key, now).is_some() {
                continue;
            }
            if let Err(error) = self.recreate(key, &user.pod, lost).await {
                let error = Chain(&*error).to_string();
                if attempts.record(key, Some(&error), now) {
                    tracing::warn!(template = %key, error, "Failed to recreate a template");
                }
            }
        }
        let others = missing.iter().filter(|(_, user)| !user.is_admitted);
        let untold: Vec<_> = others.filter(|(key, user)| !is_told(key, user, lost)).collect();
        for (key, user) in untold.into_iter().take(TOLD_AT_ONCE) {
            if let Err(error) = self.recreate(key, &user.pod, lost).await {
                let error = Chain(&*error);
                tracing::debug!(template = %key, %error, "Event not written");
            }
        }
        let is_due = soon.iter().any(|(key, user)| user.is_admitted || !is_told(key, user, lost));
        is_due.then_some(GRACE)
    }

    /// The missing templates of pods that have waited for this long.
    fn missing_after(&self, time: Duration, now: Instant) -> BTreeMap<ObjectKey, TemplateUser> {
        missing(&self.templates.view.read(), self.waiting.templates_after(time, now))
    }

    async fn recreate(
        &self,
        key: &ObjectKey,
        pod: &ObjectKey,
        lost: &mut Lost,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Some(object) = self.pod(pod).await? else { return Ok(()) };
        let decided = decide_again(&object, key, &self.templates.view.read(), &self.policy);
        let template = match decided {
            Ok(Some(template)) => template,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.lose(key, &object, &why, lost).await;
                return Ok(());
            }
        };
        if self.templates.write(key, Some(&template)).await? == TemplateWrite::Created {
            tracing::info!(template = %key, %pod, "Recreated a template");
            self.metrics.count_outcome(TemplateOutcome::Healed);
        }
        Ok(())
    }

    /// Says, once, that a template is not recreated.
    async fn lose(&self, key: &ObjectKey, pod: &Pod, why: &NotRecreated, lost: &mut Lost) {
        let pod_key = ObjectKey::new(&pod.metadata);
        let text = Chain(why).to_string();
        let is_told = lost.entry((key.clone(), pod_key.clone())).or_insert_with(|| {
            if matches!(why, NotRecreated::NotAdmitted) {
                // Any tenant can cause it.
                tracing::debug!(template = %key, pod = %pod_key, "A pod refers to a missing template");
            } else {
                tracing::warn!(template = %key, pod = %pod_key, why = text, "Template is missing");
                self.metrics.count_outcome(TemplateOutcome::Lost);
            }
            false
        });
        if !*is_told {
            let note = format!(
                "ResourceClaimTemplate {} does not exist, and admission does not create it: {text}",
                key.name
            );
            let client = &self.templates.client;
            *is_told = pod_event::warn_of_creation(client, pod, NOT_CREATED, &note).await;
        }
    }
}

fn is_told(key: &ObjectKey, user: &TemplateUser, lost: &Lost) -> bool {
    lost.get(&(key.clone(), user.pod.clone())).is_some_and(|is_told| *is_told)
}

/// The missing template of a pod, by deciding on the pod once more. `None` if it exists by now.
fn decide_again(
    pod: &Pod,
    key: &ObjectKey,
    view: &ClusterView,
    policy: &Policy,
) -> Result<Option<ResourceClaimTemplate>, NotRecreated> {
    if view.template(key).is_some() {
        return Ok(None);
    }
    if admitted::template(pod) != Some(&*key.name) {
        return Err(NotRecreated::NotAdmitted);
    }
    let pod = serde_json::to_value(pod)
        .map_err(|error| NotRecreated::Denied(AdmitError::Malformed(error)))?;
    let planned = admit(&pod, view, policy).map_err(NotRecreated::Denied)?.planned;
    let template = planned.map(|planned| planned.template);
    let same = template.filter(|it| it.metadata.name.as_deref() == Some(&key.name));
    same.map(Some).ok_or(NotRecreated::Another)
}

/// The templates that do not exist.
fn missing(
    view: &ClusterView,
    mut wanted: BTreeMap<ObjectKey, TemplateUser>,
) -> BTreeMap<ObjectKey, TemplateUser> {
    wanted.retain(|template, _| view.template(template).is_none());
    wanted
}

#[cfg(test)]
mod tests;
