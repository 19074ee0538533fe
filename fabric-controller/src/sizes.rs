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

/// The maximum age of a size while pods wait for it. It doubles, to [`STALE`], each time that nothing has
/// changed: who waits long for room is not read every two seconds.
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
    /// The pods that the group had then: an owner whose size changes soon creates or deletes some.
    members: usize,
    /// How often a read has found nothing new, one after another.
    repeats: u32,
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
            let (has_gated, members) = (group.has_gated(), group.members.len());
            let known = self.known.get(&group.key);
            let is_due = known.is_none_or(|known| known.is_due(has_gated, members, now));
            is_due.then(|| (group.key.clone(), members, owner))
        });
        let due: Vec<_> = due.collect();
        let read: Vec<_> = stream::iter(due)
            .map(async |(key, members, owner)| {
                let size = read(client, &key.namespace, &owner, &self.paths).await;
                (key, members, size.map_err(|error| owner_unread(&owner, &error)))
            })
            .buffer_unordered(TOGETHER)
            .collect()
            .await;
        for (key, members, size) in read {
            let known = self.known.entry(key.clone()).or_default();
            if let Err(why) = &size
                && known.failed.as_ref().is_none_or(|(before, _)| before != why)
            {
                tracing::warn!(group = %key, why, "Owner of a group not read; trying again");
            }
            known.update(size, members, now);
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
    fn is_due(&self, has_gated: bool, members: usize, now: Instant) -> bool {
        let age = self.age_max(has_gated, members);
        self.tried.is_none_or(|tried| now.duration_since(tried) >= age)
    }

    /// How old what is known may be.
    fn age_max(&self, has_gated: bool, members: usize) -> Duration {
        match &self.failed {
            Some((_, pause)) => *pause,
            None if !has_gated => STALE,
            None if members != self.members => FRESH,
            None => FRESH.saturating_mul(1 << self.repeats.min(8)).min(STALE),
        }
    }

    /// The time until an owner that could not be read is read again.
    fn retry_in(&self, now: Instant) -> Option<Duration> {
        let (_, pause) = self.failed.as_ref()?;
        Some((self.tried? + *pause).saturating_duration_since(now))
    }

    fn update(&mut self, read: Result<Option<Size>, String>, members: usize, now: Instant) {
        self.tried = Some(now);
        match read {
            Ok(size) => {
                let is_news = !self.is_read || size != self.size || members != self.members;
                self.repeats = if is_news { 0 } else { self.repeats.saturating_add(1) };
                (self.is_read, self.size, self.members) = (true, size, members);
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
            assert!(known.is_due(true, 2, now));
            known.update(Err("refused".to_owned()), 2, now);
            reads += 1;
            now += known.retry_in(now).unwrap();
        }
        assert_eq!(reads, 35, "2, 4, 8, 16, 32, 64 and then 120 seconds apart");
        assert!(!known.is_read, "its pods wait");
        let size = Size { pods: 2, at_once: true };
        known.update(Ok(Some(size)), 2, now);
        assert_eq!((known.retry_in(now), known.size), (None, Some(size)));
        known.update(Err("refused".to_owned()), 2, now);
        assert_eq!(known.retry_in(now), Some(FRESH));
        assert_eq!((known.is_read, known.size), (true, Some(size)), "the last size stays");
    }

    #[test]
    fn the_owner_of_pods_that_wait_for_long_is_read_more_and_more_rarely() {
        let size = |pods| Ok(Some(Size { pods, at_once: true }));
        let (mut known, mut now) = (Known::default(), Instant::now());
        known.update(size(4), 2, now);
        for (members, pods, seconds) in [
            // Nothing new: twice as long each time.
            (2, 4, 2),
            (2, 4, 4),
            (2, 4, 8),
            (2, 4, 16),
            (2, 4, 30),
            // Its size is another: soon again.
            (2, 3, 30),
            (2, 3, 2),
            (2, 3, 4),
            // A pod more: its owner may have changed.
            (3, 3, 2),
            (3, 3, 2),
            (3, 3, 4),
        ] {
            now += Duration::from_millis(seconds * 1000 - 1);
            assert!(!known.is_due(true, members, now), "{members} {pods} {seconds}");
            now += Duration::from_millis(1);
            assert!(known.is_due(true, members, now), "{members} {pods} {seconds}");
            known.update(size(pods), members, now);
        }
        assert!(!known.is_due(false, 4, now + STALE / 2), "its pods are placed");
        assert!(known.is_due(false, 4, now + STALE));
    }
}
