//! Reads how many pods each group has from the objects that own them.

use crate::group::GroupKey;
use crate::size::{Owner, Size};
use crate::size_paths::SizePaths;
use crate::waiting::WaitingReason;
use crate::{Group, PodStage};
use futures::StreamExt;
use futures::stream;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use process::chain::Chain;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The status code for an API group that is not installed; the response has no reason.
/// `is_not_found` of kube-core 5.0 misses this case: it should compare the code if the
/// reason is unknown, but checks whether the reason `NotFound` is unknown.
const NOT_FOUND: u16 = 404;

/// The maximum age of a size while pods wait for it.
const FRESH: Duration = Duration::from_secs(2);
/// The maximum age of the size of a placed group, which may still change.
const STALE: Duration = Duration::from_secs(30);
/// The longest time until an owner that could not be read is read again. The first is [`FRESH`], and it
/// doubles.
const RETRY_MAX: Duration = Duration::from_mins(2);
/// How many objects are read concurrently.
const TOGETHER: usize = 16;

/// Sizes with the time of reading.
#[derive(Debug)]
pub struct Sizes {
    known: HashMap<GroupKey, Known>,
    paths: SizePaths,
}

/// What is known of the owner of a group.
#[derive(Debug, Default)]
struct Known {
    is_read: bool,
    /// Its size when it was last read; `None` if it defines none.
    size: Option<Size>,
    tried: Option<Instant>,
    /// Why it could not be read, and the time until it is read again.
    failed: Option<(String, Duration)>,
}

/// Groups whose owner could not be read, and when that is due again.
#[derive(Debug, Default)]
pub struct Unread {
    /// Each with its gated pods, which are not considered, and why.
    pub groups: Vec<(Group, WaitingReason)>,
    /// The time until the first of them is read again.
    pub next: Option<Duration>,
}

impl Sizes {
    /// No size is known. `paths` are the rules for kinds that are not built in.
    pub fn new(paths: SizePaths) -> Self {
        Self { known: HashMap::new(), paths }
    }

    /// Sets the size of every group. If an owner was never read, the gated pods of its group are removed
    /// and returned.
    pub async fn fill(&mut self, client: &Client, groups: &mut [Group]) -> Unread {
        let there: HashSet<_> = groups.iter().map(|group| &group.key).collect();
        self.known.retain(|key, _| there.contains(key));
        let now = Instant::now();
        let due = groups.iter().filter_map(|group| {
            let owner = self.owner(group)?.clone();
            let age = if group.has_gated() { FRESH } else { STALE };
            let is_due = self.known.get(&group.key).is_none_or(|known| known.is_due(age, now));
            is_due.then(|| (group.key.clone(), owner))
        });
        let due: Vec<_> = due.collect();
        let read: Vec<_> = stream::iter(due)
            .map(async |(key, owner)| {
                let size = read(client, &key.namespace, &owner, &self.paths).await;
                (key, size.map_err(|error| owner_unread(&owner, &error)))
            })
            .buffer_unordered(TOGETHER)
            .collect()
            .await;
        for (key, size) in read {
            let known = self.known.entry(key.clone()).or_default();
            if let Err(why) = &size
                && known.failed.as_ref().is_none_or(|(before, _)| before != why)
            {
                tracing::warn!(group = %key, why, "Owner of a group not read; trying again");
            }
            known.update(size, now);
        }
        let mut unread = Unread::default();
        for group in groups {
            self.fill_one(group, now, &mut unread);
        }
        unread
    }

    /// The object that defines the size of a group.
    fn owner<'g>(&self, group: &'g Group) -> Option<&'g Owner> {
        let mut owners = group.members.iter().filter_map(|member| member.owner.as_ref());
        owners.find(|owner| owner.has_size(&self.paths))
    }

    fn fill_one(&self, group: &mut Group, now: Instant, unread: &mut Unread) {
        let said = group.said_size();
        let Some(known) = self.known.get(&group.key) else {
            group.size = said;
            return;
        };
        unread.next = [unread.next, known.retry_in(now)].into_iter().flatten().min();
        if known.is_read {
            group.size = known.size.or(said);
        } else if let Some((why, _)) = &known.failed {
            let whole = group.clone();
            group.members.retain(|member| member.stage != PodStage::Gated);
            unread.groups.push((whole, WaitingReason::Unknown(why.clone())));
        }
    }
}

impl Known {
    fn is_due(&self, age: Duration, now: Instant) -> bool {
        let age = self.failed.as_ref().map_or(age, |(_, pause)| *pause);
        self.tried.is_none_or(|tried| now.duration_since(tried) >= age)
    }

    /// The time until an owner that could not be read is read again.
    fn retry_in(&self, now: Instant) -> Option<Duration> {
        let (_, pause) = self.failed.as_ref()?;
        Some((self.tried? + *pause).saturating_duration_since(now))
    }

    fn update(&mut self, read: Result<Option<Size>, String>, now: Instant) {
        self.tried = Some(now);
        match read {
            Ok(size) => {
                (self.is_read, self.size) = (true, size);
                self.failed = None;
            }
            Err(why) => {
                let pause = self.failed.take().map_or(FRESH, |(_, last)| (last * 2).min(RETRY_MAX));
                self.failed = Some((why, pause));
            }
        }
    }
}

/// Why pods wait whose owner cannot be read.
fn owner_unread(owner: &Owner, error: &kube::Error) -> String {
    format!("failed to read {} `{}`: {}", owner.kind, owner.name, Chain(error))
}

/// Reads an owner's size. `None` if the object does not exist or may not be read, or defines none.
async fn read(
    client: &Client,
    namespace: &str,
    owner: &Owner,
    paths: &SizePaths,
) -> kube::Result<Option<Size>> {
    let object = get(client, namespace, owner).await?;
    if let Some(size) = object.and_then(|object| Size::read(owner, &object, paths)) {
        return Ok(Some(size));
    }
    let Some(job) = &owner.otherwise else { return Ok(None) };
    let Some(mut object) = get(client, namespace, job).await? else { return Ok(None) };
    // Ended pods are members of a `PodGroup`, so they count in its size.
    object["status"].take();
    Ok(Size::read(job, &object, paths))
}

/// Reads an object. `None` if it does not exist or may not be read.
async fn get(client: &Client, namespace: &str, owner: &Owner) -> kube::Result<Option<Value>> {
    let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
    let kind = GroupVersionKind::gvk(group, version, &owner.kind);
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    match api.get(&owner.name).await {
        Ok(object) => Ok(Some(object.data)),
        Err(kube::Error::Api(status)) if status.is_forbidden() || status.code == NOT_FOUND => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_that_cannot_be_read_is_read_more_and_more_rarely() {
        let (mut known, begin) = (Known::default(), Instant::now());
        let (mut now, mut reads) = (begin, 0);
        while now < begin + Duration::from_hours(1) {
            assert!(known.is_due(FRESH, now));
            known.update(Err("refused".to_owned()), now);
            reads += 1;
            now += known.retry_in(now).unwrap();
        }
        assert_eq!(reads, 35, "2, 4, 8, 16, 32, 64 and then 120 seconds apart");
        assert!(!known.is_read, "its pods wait");
        let size = Size { pods: 2, at_once: true };
        known.update(Ok(Some(size)), now);
        assert_eq!((known.retry_in(now), known.size), (None, Some(size)));
        known.update(Err("refused".to_owned()), now);
        assert_eq!(known.retry_in(now), Some(FRESH));
        assert_eq!((known.is_read, known.size), (true, Some(size)), "the last size stays");
    }
}
