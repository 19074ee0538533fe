//! A driver whose claims a test sets.

use crate::node::{Driver, DriverError, Node};
use futures::future::BoxFuture;
use publication::network::NetworkFacts;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Sets GUIDs.
type GiveGuids = fn(&str, &[u64]) -> Result<(), DriverError>;

/// What it says.
#[derive(Debug)]
pub(crate) struct Said {
    /// Prepared claims.
    pub(crate) claims: BTreeSet<String>,
    /// Their devices; `None` if that cannot be told.
    pub(crate) held: Option<BTreeSet<String>>,
    /// Allocated devices, each with its claim.
    pub(crate) allocated: BTreeMap<String, String>,
    pub(crate) give_guids: GiveGuids,
}

#[derive(Debug)]
pub(crate) struct FakeDriver(Mutex<Said>);

impl FakeDriver {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Said {
            claims: BTreeSet::new(),
            held: Some(BTreeSet::new()),
            allocated: BTreeMap::new(),
            give_guids: |link, _| Err(format!("interface `{link}` is not there").into()),
        }))
    }

    pub(crate) fn said(&self) -> MutexGuard<'_, Said> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node for FakeDriver {
    fn claims(&self) -> io::Result<BTreeSet<String>> {
        Ok(self.said().claims.clone())
    }

    fn held(&self) -> io::Result<BTreeSet<String>> {
        self.said().held.clone().ok_or_else(|| io::Error::other("the checkpoint cannot be read"))
    }

    fn network(&self) -> BoxFuture<'_, Result<NetworkFacts, DriverError>> {
        Box::pin(async { Ok(NetworkFacts::default()) })
    }
}

impl Driver for FakeDriver {
    fn allocated(&self) -> BoxFuture<'_, Result<BTreeMap<String, String>, DriverError>> {
        Box::pin(async { Ok(self.said().allocated.clone()) })
    }

    fn changing(&self, _: &str) -> Box<dyn Any + Send> {
        Box::new(())
    }

    fn give_guids(&self, link: &str, guids: &[u64]) -> Result<(), DriverError> {
        let give_guids = self.said().give_guids;
        give_guids(link, guids)
    }

    fn reached(&self, _: &str) {}
}
