//! Reads how many pods each group has from the objects that own them.

use crate::group::GroupKey;
use crate::size::{Owner, Size};
use crate::size_paths::SizePaths;
use crate::{Group, PodStage};
use futures::StreamExt;
use futures::stream;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
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
/// How many objects are read concurrently.
const TOGETHER: usize = 16;

/// Sizes with the time of reading.
#[derive(Debug)]
pub(super) struct Sizes {
    known: HashMap<GroupKey, (Option<Size>, Instant)>,
    paths: SizePaths,
}

impl Sizes {
    pub(super) fn new(paths: SizePaths) -> Self {
        Self { known: HashMap::new(), paths }
    }

    /// Sets the size of every group. If an owner cannot be read now, the gated pods of its group
    /// are removed and considered next time. Returns true if all owners were read.
    pub(super) async fn fill(&mut self, client: &Client, groups: &mut [Group]) -> bool {
        let there: HashSet<_> = groups.iter().map(|group| &group.key).collect();
        self.known.retain(|key, _| there.contains(key));
        let now = Instant::now();
        let due = groups.iter().filter_map(|group| {
            let owner = self.owner(group)?.clone();
            let age = if group.has_gated() { FRESH } else { STALE };
            let known = self.known.get(&group.key);
            let is_due = known.is_none_or(|(_, read)| now.duration_since(*read) >= age);
            is_due.then(|| (group.key.clone(), owner))
        });
        let due: Vec<_> = due.collect();
        let read: Vec<_> = stream::iter(due)
            .map(async |(key, owner)| {
                let size = read(client, &key.namespace, &owner, &self.paths).await;
                (key, size)
            })
            .buffer_unordered(TOGETHER)
            .collect()
            .await;
        let mut all_read = true;
        for (key, size) in read {
            match size {
                Ok(size) => _ = self.known.insert(key, (size, now)),
                Err(error) => {
                    tracing::warn!(group = %key, %error, "Owner of a group not read; trying again");
                    all_read = false;
                }
            }
        }
        for group in groups {
            self.fill_one(group);
        }
        all_read
    }

    /// The object that defines the size of a group.
    fn owner<'g>(&self, group: &'g Group) -> Option<&'g Owner> {
        let mut owners = group.members.iter().filter_map(|member| member.owner.as_ref());
        owners.find(|owner| owner.has_size(&self.paths))
    }

    fn fill_one(&self, group: &mut Group) {
        let said = group.said_size();
        let is_owned = self.owner(group).is_some();
        match self.known.get(&group.key) {
            Some((size, _)) => group.size = size.or(said),
            None if is_owned => group.members.retain(|member| member.stage != PodStage::Gated),
            None => group.size = said,
        }
    }
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
