//! Limits on answers that their clients do not take.
//!
//! An answer is in memory until the last byte has left: with HTTP/2, clients say how much they take.
//! If all answers together exceed their limit, requests wait, and the connection is closed whose
//! answer has made no progress for longest. An answer without progress for some seconds also closes
//! its connection. Clients that take their answers at once, as kube-apiserver does, are never the
//! ones.

use crate::connections::Connection;
use crate::turns::Caller;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Longest time in which a client takes nothing of an answer. kube-apiserver waits at most this long
/// for the whole, kube-scheduler and the kubelet one second.
const UNREAD: Duration = Duration::from_secs(5);
/// How long an answer has at least if others wait for its room; many times the way to a client in the
/// cluster and back.
const GRACE: Duration = Duration::from_millis(100);
/// The part of an answer that is given to the transport at a time: a frame of HTTP/2.
pub(crate) const PIECE: usize = 16 << 10;
/// What an answer takes in memory besides its body, about.
const OVERHEAD: usize = 8 << 10;

/// The size limits of answers that their clients have not taken, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerLimits {
    /// All answers together: above it, requests wait. They never have more than twice as much, and
    /// one answer.
    pub together: usize,
    /// Those of one connection: above it, its further requests wait.
    pub of_connection: usize,
}

/// The answers of a port that their clients have not taken.
#[derive(Clone, Debug)]
pub(crate) struct Answers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: AnswerLimits,
    unread: Mutex<Unread>,
    /// The request that waits for room.
    first: tokio::sync::Mutex<()>,
    /// An answer was taken or given up.
    taken: Notify,
}

#[derive(Debug, Default)]
struct Unread {
    next: u64,
    bytes: usize,
    answers: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    bytes: usize,
    /// The time of its last progress.
    since: Instant,
    connection: Connection,
    is_known: bool,
}

impl Entry {
    fn new(bytes: usize, connection: &Connection) -> Self {
        let is_known = connection.caller() == Caller::Known;
        Self { bytes, since: Instant::now(), connection: connection.clone(), is_known }
    }

    /// Whether another answer may have its room. Known clients take theirs.
    fn may_go(&self, now: Instant) -> bool {
        !self.is_known && self.waits(now) >= GRACE
    }

    /// The time without progress.
    fn waits(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

impl Answers {
    pub(crate) fn new(limits: AnswerLimits) -> Self {
        Self(Arc::new(Shared {
            limits,
            unread: Mutex::default(),
            first: tokio::sync::Mutex::default(),
            taken: Notify::new(),
        }))
    }

    /// Closes connections that take nothing of an answer for too long.
    pub(crate) fn close_unread(&self, now: Instant) {
        let mut unread = self.lock();
        let overdue = unread.answers.values().filter(|entry| entry.waits(now) > UNREAD);
        let overdue: Vec<_> = overdue.map(|entry| entry.connection.clone()).collect();
        for connection in &overdue {
            unread.close(connection);
        }
    }

    /// Waits until the connection has taken most of its answers.
    pub(crate) async fn own_room(&self, connection: &Connection) {
        connection.unread_at_most(self.0.limits.of_connection).await;
    }

    /// Waits until there is room for another answer.
    pub(crate) async fn room(&self) {
        let _first = self.0.first.lock().await;
        while let Some(wait) = self.make_room(Instant::now()) {
            // The time ends when an answer may be given up.
            let _ = tokio::time::timeout(wait, self.0.taken.notified()).await;
        }
    }

    /// Gives up answers that nobody takes. If that is not enough, returns when to try again.
    fn make_room(&self, now: Instant) -> Option<Duration> {
        let mut unread = self.lock();
        unread.give_up(self.0.limits.together, |entry| entry.may_go(now));
        let slowest = unread.slowest().filter(|_| unread.bytes > self.0.limits.together)?;
        Some(if slowest.is_known { GRACE } else { GRACE.saturating_sub(slowest.waits(now)) })
    }

    /// The answer, which counts until the client has taken it.
    pub(crate) async fn hold(&self, answer: Response, connection: &Connection) -> Response {
        let (parts, body) = answer.into_parts();
        let Ok(left) = body.collect().await else {
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        };
        let left = left.to_bytes();
        if left.is_empty() {
            return Response::from_parts(parts, Body::empty());
        }
        let held = Arc::new(Held::new(self, connection, left.len() + OVERHEAD));
        Response::from_parts(parts, Body::new(Pieces { left, held }))
    }

    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.0.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Unread {
    /// The answer without progress for longest. Those of known clients come last.
    fn slowest(&self) -> Option<&Entry> {
        self.answers.values().min_by_key(|entry| (entry.is_known, entry.since))
    }

    /// Closes connections, those with the slowest answers first, until at most `bytes` are left.
    fn give_up(&mut self, bytes: usize, may_go: impl Fn(&Entry) -> bool) {
        while self.bytes > bytes {
            let Some(slowest) = self.slowest().filter(|entry| may_go(entry)) else { return };
            let connection = slowest.connection.clone();
            self.close(&connection);
        }
    }

    /// Closes a connection. Its answers are gone as soon as its tasks have run.
    fn close(&mut self, closed: &Connection) {
        let gone = self.answers.extract_if(.., |_, entry| entry.connection.is(closed));
        self.bytes -= gone.map(|(_, entry)| entry.bytes).sum::<usize>();
        closed.close();
    }
}

/// An answer that is in memory, until it is dropped.
#[derive(Debug)]
struct Held {
    id: u64,
    bytes: usize,
    answers: Answers,
    connection: Connection,
}

impl Held {
    fn new(answers: &Answers, connection: &Connection, bytes: usize) -> Self {
        let mut unread = answers.lock();
        // Refusals are answers too, and do not wait for room.
        let most = (2 * answers.0.limits.together).saturating_sub(bytes);
        unread.give_up(most, |_| true);
        let id = unread.next;
        unread.next += 1;
        // An answer on a connection that is closed is dropped as soon as its task has run.
        if !connection.is_closed() {
            unread.bytes += bytes;
            unread.answers.insert(id, Entry::new(bytes, connection));
        }
        drop(unread);
        connection.add_unread(bytes);
        Self { id, bytes, answers: answers.clone(), connection: connection.clone() }
    }

    fn progresses(&self) {
        if let Some(entry) = self.answers.lock().answers.get_mut(&self.id) {
            entry.since = Instant::now();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut unread = self.answers.lock();
        // One that is given up no longer counts.
        if let Some(entry) = unread.answers.remove(&self.id) {
            unread.bytes -= entry.bytes;
        }
        drop(unread);
        self.connection.remove_unread(self.bytes);
        self.answers.0.taken.notify_one();
    }
}

/// The body of an answer. The transport asks for a piece when it has written the one before.
#[derive(Debug)]
struct Pieces {
    left: Bytes,
    held: Arc<Held>,
}

/// The transport may keep a piece after the body is dropped, so the piece keeps the answer.
#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    held: Arc<Held>,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.left.len().min(PIECE);
        let piece = Piece { bytes: self.left.split_to(length), held: Arc::clone(&self.held) };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.held.progresses();
    }
}

#[cfg(test)]
mod tests;
