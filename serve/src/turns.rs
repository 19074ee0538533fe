//! Turns: work that is limited to some units at a time. Known clients come before all others, and may
//! have turns that no other gets, so that others wait and never they.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use std::convert::Infallible;
use std::sync::Arc;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

/// Who sends a request; handlers extract it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Caller {
    /// A client with a certificate that the port prefers.
    Known,
    /// Anyone else. Without such a preference, everyone.
    #[default]
    Unknown,
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().copied().unwrap_or_default())
    }
}

/// A limited number of turns.
#[derive(Clone, Debug)]
pub struct Turns {
    all: Arc<Semaphore>,
    /// Unknown callers pass this first. So at most as many of them as can have a turn wait for one
    /// among known callers.
    unknown: Arc<Semaphore>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _all: OwnedSemaphorePermit,
    _unknown: Option<OwnedSemaphorePermit>,
}

impl Turns {
    /// `all` turns, of which `reserved` are for known callers only.
    pub fn new(all: usize, reserved: usize) -> Self {
        let unknown = all.saturating_sub(reserved);
        Self { all: Arc::new(Semaphore::new(all)), unknown: Arc::new(Semaphore::new(unknown)) }
    }

    /// Waits for so many turns at once.
    pub async fn take(&self, caller: Caller, turns: u32) -> Result<Turn, AcquireError> {
        let unknown = match caller {
            Caller::Known => None,
            Caller::Unknown => Some(Arc::clone(&self.unknown).acquire_many_owned(turns).await?),
        };
        Ok(Turn { _all: Arc::clone(&self.all).acquire_many_owned(turns).await?, _unknown: unknown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn unknown_callers_never_take_the_turns_of_known_ones() {
        let turns = Turns::new(3, 1);
        let held = [turns.take(Caller::Unknown, 1).await, turns.take(Caller::Unknown, 1).await];
        let mut waiting = Box::pin(turns.take(Caller::Unknown, 1));
        assert!(waiting.as_mut().now_or_never().is_none());
        let known = turns.take(Caller::Known, 1).now_or_never().unwrap().unwrap();
        drop(known);
        assert!(waiting.as_mut().now_or_never().is_none(), "this one is reserved");
        drop(held);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn known_callers_come_before_those_that_wait() {
        let turns = Turns::new(1, 0);
        let held = turns.take(Caller::Unknown, 1).await.unwrap();
        let mut unknown = Box::pin(turns.take(Caller::Unknown, 1));
        assert!(unknown.as_mut().now_or_never().is_none());
        let mut known = Box::pin(turns.take(Caller::Known, 1));
        assert!(known.as_mut().now_or_never().is_none());
        drop(held);
        assert!(unknown.as_mut().now_or_never().is_none());
        known.await.unwrap();
        unknown.await.unwrap();
    }
}
