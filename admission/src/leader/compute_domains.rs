//! Creates the `ComputeDomain`s of jobs whose pods wait, and adds jobs to their owners. Kubernetes'
//! garbage collector deletes each with the last of its owners. Where one cannot be created, its pods
//! and their job have an event that says why.

use super::attempts::Attempts;
use super::domain_events::Told;
use super::{Leader, LeaderError, after, writing};
use crate::admit::compute_domain_of;
use crate::needed_domain::NeededDomain;
use cluster_model::compute_domain::ComputeDomain;
use cluster_model::view::{ComputeDomains, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use process::chain::Chain;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long to gather pods of a job before a round.
const GATHER: Duration = Duration::from_millis(100);
/// The time until one is created again, the first time; it doubles each time.
const RETRY: Duration = Duration::from_secs(10);
/// The longest such time. A pod may name an owner that does not exist, and then Kubernetes deletes
/// each `ComputeDomain` that is created for it.
const RETRY_MAX: Duration = Duration::from_mins(5);
/// The most owners, each a job or a pod: the object must fit into etcd.
const OWNERS_MAX: usize = 1000;

/// A write that is due.
#[derive(Clone, Debug, PartialEq)]
enum DomainWrite {
    /// Create it, for this pod.
    Create(Box<ComputeDomain>, String),
    /// Set its owners, if it has this resource version.
    SetOwners(Vec<OwnerReference>, String),
    /// Nothing can be written: an object of others has its name.
    Taken,
    /// Nothing is written: the namespace has this many already.
    TooMany(usize),
}

impl Leader {
    /// Keeps the `ComputeDomain`s of pods without a node.
    pub(super) async fn keep_compute_domains(&self) {
        let view = &self.templates.view;
        let (mut told, mut attempts) = (Told::new(), Attempts::new(RETRY, RETRY_MAX));
        let mut missing = BTreeMap::new();
        loop {
            let seen = view.read().revision();
            let needed = self.waiting.domains();
            attempts.keep(needed.iter().map(|domain| &domain.key));
            let due = due(&needed, view.read().compute_domains(), self.max_compute_domains);
            let before = std::mem::take(&mut missing);
            for (key, write) in due {
                if let Err(why) = self.try_to_write(&key, write, &mut attempts).await {
                    if before.get(&key) != Some(&why) {
                        tracing::warn!(domain = %key, why, "ComputeDomain not written");
                    }
                    missing.insert(key, why);
                }
            }
            let is_told = self.report_missing(&needed, &missing, &mut told).await;
            let next = attempts.next(Instant::now());
            let next = if is_told { next } else { Some(next.unwrap_or(RETRY).min(RETRY)) };
            tokio::select! {
                () = view.changed_since(seen, |now| now.templates) => {}
                () = self.waiting.domains_changed() => {}
                () = after(next) => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Carries a write out, unless the last one was too short a time ago.
    ///
    /// # Errors
    /// Says why the `ComputeDomain` is not there, for people.
    async fn try_to_write(
        &self,
        key: &ObjectKey,
        write: DomainWrite,
        attempts: &mut Attempts,
    ) -> Result<(), String> {
        if let Some(last) = attempts.too_early(key, Instant::now()) {
            return last.map_err(str::to_owned);
        }
        let is_request = matches!(write, DomainWrite::Create(..) | DomainWrite::SetOwners(..));
        let is_creation = matches!(write, DomainWrite::Create(..));
        let written = self.write_domain(key, write).await;
        if is_creation || is_request && written.is_err() {
            attempts.record(key, written.as_ref().err().map(String::as_str), Instant::now());
        }
        written
    }

    async fn write_domain(&self, key: &ObjectKey, write: DomainWrite) -> Result<(), String> {
        let client = self.templates.client.clone();
        let api: Api<ComputeDomain> = Api::namespaced(client, &key.namespace);
        let written = match write {
            DomainWrite::Taken => {
                return Err(
                    "an object of this name exists that admission has not created; delete it"
                        .to_owned(),
                );
            }
            DomainWrite::TooMany(count) => {
                return Err(format!(
                    "namespace {} has {count} ComputeDomains of admission, the most that its flag \
                     --max-compute-domains allows; each is deleted with its job: delete jobs, or ask \
                     the operator for more",
                    key.namespace
                ));
            }
            DomainWrite::Create(domain, pod) => {
                if !self.still_needs(key, &pod, &domain).await? {
                    return Ok(());
                }
                match api.create(&PostParams::default(), &domain).await {
                    // The watch reports what exists by then.
                    Err(kube::Error::Api(status)) if status.is_already_exists() => return Ok(()),
                    created => {
                        created.map(|_| tracing::info!(domain = %key, "Created a ComputeDomain"))
                    }
                }
            }
            DomainWrite::SetOwners(owners, version) => {
                let patch = Patch::Merge(json!({
                    "metadata": {"resourceVersion": version, "ownerReferences": owners},
                }));
                match api.patch_metadata(&key.name, &PatchParams::default(), &patch).await {
                    Err(kube::Error::Api(status))
                        if status.is_conflict() || status.is_not_found() =>
                    {
                        return Ok(());
                    }
                    patched => patched.map(drop),
                }
            }
        };
        match written {
            Err(kube::Error::Api(status)) => Err(status.message),
            Err(error) => {
                let error: LeaderError = writing("ComputeDomain", &key.to_string())(error);
                Err(Chain(&error).to_string())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Decides on the pod once more, as for templates, by the rules for its namespace. Returns false
    /// if the pod is gone.
    ///
    /// # Errors
    /// Says why the pod gets no `ComputeDomain` of this name.
    async fn still_needs(
        &self,
        key: &ObjectKey,
        pod: &str,
        domain: &ComputeDomain,
    ) -> Result<bool, String> {
        let pod = ObjectKey { namespace: key.namespace.clone(), name: pod.to_owned() };
        let pod = self.pod(&pod).await.map_err(|error| Chain(&error).to_string())?;
        let Some(pod) = pod else { return Ok(false) };
        let decided = compute_domain_of(&pod, &self.templates.view.read(), &self.policy);
        match decided {
            Ok(decided) if decided == domain.metadata.name => Ok(true),
            Ok(_) => {
                Err("the pod's annotations now lead to another one; delete the pod and create \
                          it again"
                    .to_owned())
            }
            Err(error) => Err(format!("the pod is denied now: {}", Chain(&error))),
        }
    }
}

/// The writes that are due. One that is being deleted is created again when it is gone. A namespace
/// gets at most `max`.
fn due(
    needed: &[NeededDomain],
    known: &ComputeDomains,
    max: usize,
) -> Vec<(ObjectKey, DomainWrite)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut by_key: BTreeMap<&ObjectKey, Vec<&NeededDomain>> = BTreeMap::new();
    for domain in needed {
        by_key.entry(&domain.key).or_default().push(domain);
    }
    let due = by_key.into_iter().filter_map(|(key, needed)| {
        if known.is_taken(key) {
            return Some((key.clone(), DomainWrite::Taken));
        }
        let made = known.get(key);
        if made.is_some_and(|made| made.is_deleted) {
            return None;
        }
        let mut owners = made.map(|made| made.owners.clone()).unwrap_or_default();
        let before = owners.len();
        for domain in &needed {
            if owners.len() < OWNERS_MAX && owners.iter().all(|owner| owner.uid != domain.owner.uid)
            {
                owners.push(domain.owner.clone());
            }
        }
        let write = match made {
            Some(_) if owners.len() == before => return None,
            Some(made) => DomainWrite::SetOwners(owners, made.version.clone()),
            None => {
                let namespace = key.namespace.as_str();
                let count = counts.entry(namespace).or_insert_with(|| known.count_in(namespace));
                if *count >= max {
                    DomainWrite::TooMany(*count)
                } else {
                    *count += 1;
                    let first = needed.first()?;
                    DomainWrite::Create(Box::new(first.build(owners)), first.pod.0.clone())
                }
            }
        };
        Some((key.clone(), write))
    });
    due.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster_model::view::{ClusterView, Index};

    fn needed(uid: &str) -> NeededDomain {
        NeededDomain {
            key: ObjectKey {
                namespace: "n".to_owned(),
                name: "dranet-compute-domain-g".to_owned(),
            },
            pod: ("p".to_owned(), uid.to_owned()),
            group: "g".to_owned(),
            owner: OwnerReference { uid: uid.to_owned(), ..OwnerReference::default() },
            size: 2,
        }
    }

    #[test]
    fn a_compute_domain_is_created_once_and_gets_every_job_as_owner() {
        let mut view = ClusterView::default();
        let first = due(&[needed("1"), needed("1")], view.compute_domains(), 2);
        let [(key, DomainWrite::Create(made, _))] = &first[..] else { panic!("{first:?}") };
        assert_eq!(made.metadata.owner_references.as_ref().map(Vec::len), Some(1));
        let mut made = ComputeDomain::clone(made);
        made.metadata.resource_version = Some("7".to_owned());
        view.apply(made.clone()).unwrap();
        assert_eq!(due(&[needed("1")], view.compute_domains(), 2), []);
        let more = due(&[needed("2"), needed("1")], view.compute_domains(), 2);
        let [(_, DomainWrite::SetOwners(owners, version))] = &more[..] else { panic!("{more:?}") };
        assert_eq!((owners.len(), version.as_str()), (2, "7"));

        // A new job of the same name waits for the deletion.
        made.metadata.deletion_timestamp =
            Some(serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap());
        view.apply(made.clone()).unwrap();
        assert_eq!(due(&[needed("3")], view.compute_domains(), 2), []);
        Index::<ComputeDomain>::delete(&mut view, key);
        assert_eq!(due(&[needed("3")], view.compute_domains(), 2).len(), 1);

        // An object of others has its name.
        made.metadata.labels = None;
        made.metadata.deletion_timestamp = None;
        view.apply(made).unwrap();
        let taken = due(&[needed("3")], view.compute_domains(), 2);
        assert_eq!(taken, [(key.clone(), DomainWrite::Taken)]);
        Index::<ComputeDomain>::delete(&mut view, key);
        let again = due(&[needed("3")], view.compute_domains(), 2);
        assert!(matches!(&again[..], [(_, DomainWrite::Create(..))]), "{again:?}");
    }

    fn named(name: &str) -> NeededDomain {
        let mut named = needed(name);
        named.key.name = name.to_owned();
        named.group = name.to_owned();
        named
    }

    #[test]
    fn a_namespace_gets_so_many_compute_domains_and_no_more() {
        let all = ["a", "b", "c"].map(named);
        let mut view = ClusterView::default();
        let writes = due(&all, view.compute_domains(), 2);
        let [(_, DomainWrite::Create(made, pod)), (_, DomainWrite::Create(..)), (_, last)] =
            &writes[..]
        else {
            panic!("{writes:?}")
        };
        assert_eq!((pod.as_str(), last), ("p", &DomainWrite::TooMany(2)));
        view.apply(ComputeDomain::clone(made)).unwrap();
        let mut elsewhere = named("d");
        elsewhere.key.namespace = "other".to_owned();
        let writes = due(&[named("b"), named("c"), elsewhere], view.compute_domains(), 1);
        let writes: Vec<_> = writes.into_iter().map(|(_, write)| write).collect();
        assert!(
            matches!(
                writes[..],
                [DomainWrite::TooMany(1), DomainWrite::TooMany(1), DomainWrite::Create(..)]
            ),
            "{writes:?}"
        );
    }
}
