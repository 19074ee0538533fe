//! Creates the `ComputeDomain`s of jobs whose pods wait, and adds jobs to their owners. Kubernetes'
//! garbage collector deletes each with the last of its owners. Where one cannot be created, its pods
//! and their job have an event that says why.

use super::domain_events::Told;
use super::{Leader, LeaderError, after, writing};
use crate::needed_domain::NeededDomain;
use cluster_model::compute_domain::ComputeDomain;
use cluster_model::view::{ComputeDomains, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use process::chain::Chain;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long to gather pods of a job before a round.
const GATHER: Duration = Duration::from_millis(100);
/// The time until a failed write is tried again.
const RETRY: Duration = Duration::from_secs(10);

/// A write that is due.
#[derive(Clone, Debug, PartialEq)]
enum DomainWrite {
    /// Create it.
    Create(Box<ComputeDomain>),
    /// Set its owners, if it has this resource version.
    SetOwners(Vec<OwnerReference>, String),
    /// Nothing can be written: an object of others has its name.
    Taken,
}

impl Leader {
    /// Keeps the `ComputeDomain`s of pods without a node.
    pub(super) async fn keep_compute_domains(&self) {
        let view = &self.templates.view;
        let mut told = Told::new();
        loop {
            let seen = view.read().revision();
            let needed = self.waiting.domains();
            let due = due(&needed, view.read().compute_domains());
            let mut missing = BTreeMap::new();
            for (key, write) in due {
                if let Err(why) = self.write_compute_domain(&key, write).await {
                    tracing::warn!(domain = %key, why, "ComputeDomain not written");
                    missing.insert(key, why);
                }
            }
            let is_told = self.report_missing(&needed, &missing, &mut told).await;
            let is_done = missing.is_empty() && is_told;
            tokio::select! {
                () = view.changed_since(seen, |now| now.templates) => {}
                () = self.waiting.domains_changed() => {}
                () = after((!is_done).then_some(RETRY)) => {}
            }
            tokio::time::sleep(GATHER).await;
        }
    }

    /// Carries a write out.
    ///
    /// # Errors
    /// Says why the `ComputeDomain` is not there, for people.
    async fn write_compute_domain(
        &self,
        key: &ObjectKey,
        write: DomainWrite,
    ) -> Result<(), String> {
        let client = self.templates.client.clone();
        let api: Api<ComputeDomain> = Api::namespaced(client, &key.namespace);
        let written = match write {
            DomainWrite::Taken => {
                return Err(
                    "an object of this name exists that admission has not created; delete it"
                        .to_owned(),
                );
            }
            DomainWrite::Create(domain) => {
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
}

/// The writes that are due. One that is being deleted is created again when it is gone.
fn due(needed: &[NeededDomain], known: &ComputeDomains) -> Vec<(ObjectKey, DomainWrite)> {
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
            if owners.iter().all(|owner| owner.uid != domain.owner.uid) {
                owners.push(domain.owner.clone());
            }
        }
        let write = match made {
            Some(_) if owners.len() == before => return None,
            Some(made) => DomainWrite::SetOwners(owners, made.version.clone()),
            None => DomainWrite::Create(Box::new(needed.first()?.build(owners))),
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
        let first = due(&[needed("1"), needed("1")], view.compute_domains());
        let [(key, DomainWrite::Create(made))] = &first[..] else { panic!("{first:?}") };
        assert_eq!(made.metadata.owner_references.as_ref().map(Vec::len), Some(1));
        let mut made = ComputeDomain::clone(made);
        made.metadata.resource_version = Some("7".to_owned());
        view.apply(made.clone()).unwrap();
        assert_eq!(due(&[needed("1")], view.compute_domains()), []);
        let more = due(&[needed("2"), needed("1")], view.compute_domains());
        let [(_, DomainWrite::SetOwners(owners, version))] = &more[..] else { panic!("{more:?}") };
        assert_eq!((owners.len(), version.as_str()), (2, "7"));

        // A new job of the same name waits for the deletion.
        made.metadata.deletion_timestamp =
            Some(serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap());
        view.apply(made.clone()).unwrap();
        assert_eq!(due(&[needed("3")], view.compute_domains()), []);
        Index::<ComputeDomain>::delete(&mut view, key);
        assert_eq!(due(&[needed("3")], view.compute_domains()).len(), 1);

        // An object of others has its name.
        made.metadata.labels = None;
        made.metadata.deletion_timestamp = None;
        view.apply(made).unwrap();
        let taken = due(&[needed("3")], view.compute_domains());
        assert_eq!(taken, [(key.clone(), DomainWrite::Taken)]);
        Index::<ComputeDomain>::delete(&mut view, key);
        let again = due(&[needed("3")], view.compute_domains());
        assert!(matches!(&again[..], [(_, DomainWrite::Create(_))]), "{again:?}");
    }
}
