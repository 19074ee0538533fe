//! A driver that dies again and again: at its fault points, and at any moment of a step.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Context;
use tests::{
    Check, eventually,
    node::{
        Machine,
        plugin::{self, Call, SOON},
    },
};
use tokio::time::timeout;

use crate::node::seeded_rng::SeededRng;

/// Crashes in a row within which a step must be done: the driver is then left alone.
const PATIENCE: u32 = 2;

/// Within this time of a step's begin a driver or a hook is killed, where it is.
pub(crate) const ANY_MOMENT: Duration = Duration::from_millis(30);

/// `SIGKILL`.
const KILL: i32 = 9;

pub(crate) struct Mortal<'a> {
    pub(crate) machine: &'a mut Machine,
    pub(crate) rng: SeededRng,
    /// How often it was killed.
    pub(crate) crashes: u32,
    /// Points at which it has not died yet.
    pub(crate) left: BTreeSet<&'static str>,
    /// What each driver is started with.
    flags: &'static [&'static str],
    /// Where the running driver is told to die.
    point: Option<&'static str>,
}

impl<'a> Mortal<'a> {
    /// One that has to die at each of these points.
    pub(crate) fn new(
        machine: &'a mut Machine,
        rng: SeededRng,
        flags: &'static [&'static str],
        points: &[&[&'static str]],
    ) -> Self {
        let left = points.iter().copied().flatten().copied().collect();
        Self { machine, rng, crashes: 0, left, flags, point: None }
    }

    /// Tries a step of a claim's life until it is done. On the way the driver may die at
    /// these points, or at any moment.
    pub(crate) async fn insist<T>(
        &mut self,
        points: &[&'static str],
        mut step: impl AsyncFnMut(&Machine) -> Call<T>,
    ) -> anyhow::Result<T> {
        let mut crashes = 0;
        loop {
            self.ensure(points, crashes).await?;
            let moment = self.moment(crashes);
            match timeout(moment, step(self.machine)).await {
                Ok(Call::Done(value)) => return Ok(value),
                Ok(Call::Refused(error)) => anyhow::bail!("refused: {error}"),
                Ok(Call::Lost) => self.dies().await?,
                Err(_) => self.kill(),
            }
            crashes += 1;
        }
    }

    /// When the step that begins is cut short; beyond all patience where it is not.
    fn moment(&mut self, crashes: u32) -> Duration {
        let is_cut = self.point.is_none() && crashes < PATIENCE && self.rng.one_in(2);
        if is_cut { self.rng.below(ANY_MOMENT) } else { SOON }
    }

    /// A driver that listens, perhaps one that will die at one of these points.
    async fn ensure(&mut self, points: &[&'static str], crashes: u32) -> anyhow::Result<()> {
        while self.machine.driver_has_ended() {
            let unseen: Vec<_> =
                points.iter().filter(|point| self.left.contains(*point)).copied().collect();
            let points = if unseen.is_empty() { points } else { &unseen };
            let is_left_alone = crashes >= PATIENCE || self.rng.one_in(4);
            self.point = (!is_left_alone).then(|| *self.rng.pick(points));
            let death = self.point.map(|point| ["--kill-at", point]);
            let flags: Vec<&str> =
                self.flags.iter().copied().chain(death.into_iter().flatten()).collect();
            self.machine.spawn_driver(&flags)?;
            // It undoes first what it left, past points of the way out.
            if !plugin::listens(self.machine).await? {
                self.dies().await?;
            }
        }
        Ok(())
    }

    /// The driver has ended, or is about to: where it was told, and not by itself.
    async fn dies(&mut self) -> anyhow::Result<()> {
        eventually(SOON, async || {
            Ok(Check::that(self.machine.driver_has_ended(), || "it does not end".to_owned()))
        })
        .await?;
        let driver = self.machine.driver().context("it was started")?;
        let (signal, tail) = (driver.ended_by_signal(), driver.tail(15));
        anyhow::ensure!(signal == Some(KILL), "the driver ended by {signal:?}:\n{tail}");
        let point = self.point.take().context("nobody told it to die")?;
        self.left.remove(point);
        self.crashes += 1;
        self.machine.kill_driver();
        Ok(())
    }

    fn kill(&mut self) {
        self.point = None;
        self.crashes += 1;
        self.machine.kill_driver();
    }
}
