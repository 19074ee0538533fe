//! Limits on the bodies of requests to one port: their size, the time that they may take, and the
//! bytes that all of them hold together.
//!
//! A body is read as a whole before its request is handled. If all bodies together exceed their
//! limit, the request that has been incomplete longest is given up: clients that send at once are
//! never the ones. Handlers parse bodies into values that take many times their size, so only
//! some bytes are handled at a time; small bodies do not wait for large ones. A request also waits
//! while too many answers have not left, those of others or of its own connection.

use crate::answers::Answers;
use crate::connections::Connection;
use crate::turns::{Caller, Turn, Turns};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longest time until a body is complete. kube-apiserver sends a review at once.
const COMPLETE: Duration = Duration::from_secs(10);
/// Longest time that a complete body waits until it is handled. It waits also for room for its answer.
const TURN: Duration = Duration::from_secs(2);
/// The largest small body, in bytes. A review of an ordinary pod has 10 kB.
const SMALL: usize = 64 << 10;
/// Bytes of small bodies that are handled at the same time.
const SMALL_MAX: usize = 4 << 20;
/// What a request takes in memory besides its head and its body, about.
const OVERHEAD: usize = 8 << 10;

/// The size limits of bodies, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// The largest body.
    pub each: usize,
    /// All requests together, with their heads and bodies, complete or not.
    pub together: usize,
    /// The bodies above 64 KiB that are handled at the same time; at least [`Self::each`].
    pub handled: usize,
}

/// The bodies of requests to a port.
#[derive(Clone, Debug)]
pub(crate) struct Bodies(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: BodyLimits,
    held: Mutex<Held>,
    small: Turns,
    large: Turns,
}

#[derive(Debug, Default)]
struct Held {
    next: u64,
    bytes: usize,
    bodies: BTreeMap<u64, Holding>,
}

#[derive(Debug)]
struct Holding {
    bytes: usize,
    /// Cancelled if the body is given up; `None` once it is complete.
    given_up: Option<CancellationToken>,
}

/// A body is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum BodyError {
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the body was not complete within {COMPLETE:?}")]
    Slow,
    #[error("the body could not be read")]
    Broken,
    #[error("too many requests at the same time; try again")]
    Busy,
}

impl BodyError {
    fn status(self) -> StatusCode {
        match self {
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl Bodies {
    /// With known clients, half of the turns of small bodies are for them only. Turns of large ones
    /// cannot be divided; there, known clients come first.
    pub(crate) fn new(limits: BodyLimits, prefers: bool) -> Self {
        let reserved = if prefers { SMALL_MAX / 2 } else { 0 };
        Self(Arc::new(Shared {
            limits,
            held: Mutex::default(),
            small: Turns::new(SMALL_MAX, reserved),
            large: Turns::new(limits.handled.max(limits.each), 0),
        }))
    }

    /// Reads a body to its end.
    async fn read(&self, body: Body, hold: &Hold) -> Result<Bytes, BodyError> {
        let mut body = body;
        let mut all = Vec::new();
        let max = self.0.limits.each;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| BodyError::Broken)?;
            let Ok(data) = frame.into_data() else { continue };
            if all.len() + data.len() > max {
                return Err(BodyError::TooLarge(max));
            }
            // Counted before the buffer grows.
            hold.add(data.len())?;
            all.extend_from_slice(&data);
        }
        hold.complete()?;
        Ok(all.into())
    }

    async fn turn(&self, caller: Caller, bytes: usize) -> Result<Turn, BodyError> {
        let class = if bytes <= SMALL { &self.0.small } else { &self.0.large };
        let turns = u32::try_from(bytes).map_err(|_| BodyError::Busy)?;
        class.take(caller, turns).await.map_err(|_| BodyError::Busy)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes that one request holds, until it is dropped.
#[derive(Debug)]
struct Hold {
    id: u64,
    bodies: Bodies,
    given_up: CancellationToken,
}

impl Hold {
    fn new(bodies: &Bodies) -> Self {
        let given_up = CancellationToken::new();
        let mut held = bodies.lock();
        let id = held.next;
        held.next += 1;
        held.bodies.insert(id, Holding { bytes: 0, given_up: Some(given_up.clone()) });
        drop(held);
        Self { id, bodies: bodies.clone(), given_up }
    }

    /// Counts more bytes. If there are too many, gives up the oldest incomplete bodies.
    fn add(&self, bytes: usize) -> Result<(), BodyError> {
        let mut held = self.bodies.lock();
        // One that is given up already holds nothing.
        held.bodies.get_mut(&self.id).ok_or(BodyError::Busy)?.bytes += bytes;
        held.bytes += bytes;
        while held.bytes > self.bodies.0.limits.together {
            let oldest = held
                .bodies
                .iter()
                .find_map(|(id, it)| (it.given_up.is_some() && it.bytes > 0).then_some(*id))
                .ok_or(BodyError::Busy)?;
            held.give_up(oldest);
            if oldest == self.id {
                return Err(BodyError::Busy);
            }
        }
        Ok(())
    }

    /// From now on it is not given up.
    fn complete(&self) -> Result<(), BodyError> {
        let mut held = self.bodies.lock();
        held.bodies.get_mut(&self.id).ok_or(BodyError::Busy)?.given_up = None;
        Ok(())
    }
}

impl Held {
    fn give_up(&mut self, id: u64) {
        if let Some(body) = self.bodies.remove(&id) {
            self.bytes -= body.bytes;
            if let Some(given_up) = body.given_up {
                given_up.cancel();
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.bodies.lock().give_up(self.id);
    }
}

/// The limits on the requests of a port and on their answers.
#[derive(Clone, Debug)]
pub(crate) struct Requests {
    pub(crate) bodies: Bodies,
    pub(crate) answers: Answers,
}

/// Reads the body of a request within the limits, has the request handled, and counts the answer
/// until it has left.
pub(crate) async fn limit(
    State(requests): State<Requests>,
    Extension(connection): Extension<Connection>,
    request: Request,
    next: Next,
) -> Response {
    let answer = requests.answer(request, next, &connection).await;
    let answer = answer.unwrap_or_else(|error| (error.status(), error.to_string()).into_response());
    requests.answers.hold(answer, &connection).await
}

impl Requests {
    async fn answer(
        &self,
        request: Request,
        next: Next,
        connection: &Connection,
    ) -> Result<Response, BodyError> {
        let (mut parts, body) = request.into_parts();
        let hold = Hold::new(&self.bodies);
        hold.add(OVERHEAD + head(&parts))?;
        let body = tokio::select! {
            body = self.bodies.read(body, &hold) => body?,
            () = hold.given_up.cancelled() => return Err(BodyError::Busy),
            () = tokio::time::sleep(COMPLETE) => return Err(BodyError::Slow),
        };
        let caller = connection.caller();
        let turn = tokio::time::timeout(TURN, self.turn(caller, body.len(), connection)).await;
        let _turn = turn.unwrap_or(Err(BodyError::Busy))?;
        let _answering = connection.answering();
        parts.extensions.insert(caller);
        Ok(next.run(Request::from_parts(parts, body.into())).await)
    }

    /// Waits for the turn of a request, and for room for its answer. Known clients take their answers,
    /// so they do not wait for others that do not.
    async fn turn(
        &self,
        caller: Caller,
        bytes: usize,
        connection: &Connection,
    ) -> Result<Turn, BodyError> {
        self.answers.own_room(connection).await;
        let turn = self.bodies.turn(caller, bytes).await?;
        if caller == Caller::Unknown {
            self.answers.room().await;
        }
        Ok(turn)
    }
}

/// The size of a request's head.
fn head(parts: &Parts) -> usize {
    let headers = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    parts.uri.path().len() + parts.uri.query().map_or(0, str::len) + headers.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BodyLimits = BodyLimits { each: 100, together: 150, handled: 100 };

    #[test]
    fn the_oldest_incomplete_body_is_given_up() {
        let bodies = Bodies::new(LIMITS, false);
        let [complete, slow, new] = std::array::from_fn(|_| Hold::new(&bodies));
        complete.add(50).unwrap();
        complete.complete().unwrap();
        slow.add(60).unwrap();
        new.add(60).unwrap();
        assert!(slow.given_up.is_cancelled() && !new.given_up.is_cancelled());
        assert_eq!(bodies.lock().bytes, 110);
        assert_eq!(slow.add(10), Err(BodyError::Busy), "what arrives after it is given up");
        assert_eq!(bodies.lock().bytes, 110, "is not held");
        assert_eq!(new.add(60), Err(BodyError::Busy), "it is the oldest now");
        drop((complete, new, slow));
        let held = bodies.lock();
        assert_eq!((held.bytes, held.bodies.len()), (0, 0));
    }

    #[test]
    fn complete_bodies_are_never_given_up() {
        let bodies = Bodies::new(LIMITS, false);
        let [one, two] = std::array::from_fn(|_| Hold::new(&bodies));
        for body in [&one, &two] {
            body.add(70).unwrap();
            body.complete().unwrap();
        }
        assert_eq!(Hold::new(&bodies).add(20), Err(BodyError::Busy));
        assert!(!one.given_up.is_cancelled() && !two.given_up.is_cancelled());
        assert_eq!(bodies.lock().bytes, 140);
    }
}
