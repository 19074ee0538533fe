//! Jobs that leave for one of higher priority.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::Replay;
use crate::claims::ClaimError;
use crate::decider::Situation;
use crate::workload::Millis;

impl Replay<'_> {
    /// Evicts jobs so that one of higher priority can start, and returns them; none if that does not
    /// help. `may_borrow` allows nodes of the reservation.
    pub(super) fn make_room(
        &mut self,
        job: usize,
        may_borrow: bool,
    ) -> Result<Vec<usize>, ClaimError> {
        let task = &self.tasks[job];
        let Some(foresight) = self.preempting.as_ref().map(|it| it.foresight) else {
            return Ok(Vec::new());
        };
        let kind = (task.demand(self.placer.claims()), may_borrow);
        if task.priority == 0 || self.unhelped.contains(&kind) {
            return Ok(Vec::new());
        }
        let fits_soon = foresight > 0
            && self.reserve(job)?.is_some_and(|room| room.start <= self.now + foresight);
        let victims = if fits_soon { Vec::new() } else { self.victims(job, may_borrow) };
        if victims.is_empty() {
            self.unhelped.insert(kind);
        }
        for victim in &victims {
            self.evict(*victim);
        }
        Ok(victims)
    }

    fn victims(&mut self, job: usize, may_borrow: bool) -> Vec<usize> {
        let reserved = self.reservation.as_ref().filter(|_| !may_borrow);
        let closed = reserved.map_or_else(BTreeSet::new, |reserved| reserved.nodes.clone());
        let situation = Situation {
            tasks: self.tasks,
            cluster: &self.cluster,
            running: &self.running,
            closed: &closed,
            now: self.now,
        };
        let preempting = self.preempting.as_mut();
        preempting.map_or_else(Vec::new, |it| it.decider.victims(job, situation))
    }

    /// A job leaves. What it did since its last checkpoint is lost.
    fn evict(&mut self, job: usize) {
        let Some(running) = self.running.remove(&job) else { return };
        self.ends.retain(|Reverse((_, other))| *other != job);
        self.hopeless.clear();
        let ran = self.now - running.started;
        let checkpoint = self.preempting.as_ref().and_then(|it| it.checkpoint);
        let kept = checkpoint.map_or(0, |every| ran / every * every);
        let past = &mut self.past[job];
        past.ran += ran;
        past.done = self.tasks[job].duration.min(past.done + work(kept, running.slowdown));
        self.record.evictions += 1;
        self.record.lost += u128::from(self.tasks[job].gpus) * u128::from(ran - kept);
        let until = running.started + kept;
        self.settle(job, running, until);
    }
}

/// What takes a job this long, as a part of its duration.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "years at most")]
#[allow(clippy::cast_precision_loss, reason = "years at most")]
fn work(time: Millis, slowdown: f64) -> Millis {
    (time as f64 / slowdown).round() as Millis
}
