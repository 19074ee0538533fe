//! A driver that dies repeatedly: at its fault points, and at any moment of a step.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::Context;
use tests::{
    Check, SeededRng, eventually,
    node::{
        Machine,
        plugin::{Call, SOON},
    },
};
use tokio::time::timeout;

/// The number of consecutive crashes after which the driver is left alone, so that a step can
/// finish.
const PATIENCE: u32 = 2;

/// The time after the begin of a step within which a driver or a hook is killed, wherever it is.
pub(crate) const ANY_MOMENT: Duration = Duration::from_millis(30);

/// `SIGKILL`.
const KILL: i32 = 9;

pub(crate) struct Mortal<'a> {
    pub(crate) machine: &'a mut Machine,
    pub(crate) rng: SeededRng,
    /// The number of its crashes.
    pub(crate) crashes: u32,
    /// How often it has died at each point.
    pub(crate) deaths: BTreeMap<&'static str, u32>,
    /// Points at which it has not died yet.
    pub(crate) left: BTreeSet<&'static str>,
    /// The additional flags of each driver.
    flags: &'static [&'static str],
    /// The point at which the running driver must die.
    point: Option<&'static str>,
}

impl<'a> Mortal<'a> {
    /// Creates a driver that must die at each of these points.
    pub(crate) fn new(
        machine: &'a mut Machine,
        rng: SeededRng,
        flags: &'static [&'static str],
        points: &[&[&'static str]],
    ) -> Self {
        let left = points.iter().copied().flatten().copied().collect();
        Self { machine, rng, crashes: 0, deaths: BTreeMap::new(), left, flags, point: None }
    }

    /// How often it has died, and where.
    pub(crate) fn table(&self, rounds: u32) -> String {
        let (crashes, at_points) = (self.crashes, self.deaths.values().sum::<u32>());
        let lines = self.deaths.iter().map(|(point, deaths)| format!("\n  {point}: {deaths}"));
        let lines: String = lines.collect();
        let anywhere = crashes - at_points;
        format!(
            "{}: {crashes} crashes in the lives of {rounds} claims, {anywhere} at any moment:{lines}",
            self.rng
        )
    }

    /// Retries a step of a claim's life until it succeeds. Meanwhile the driver may die at these
    /// points, or at any moment.
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

    /// The time after which the next step is cut short; longer than any step if it is not.
    fn moment(&mut self, crashes: u32) -> Duration {
        let is_cut = self.point.is_none() && crashes < PATIENCE && self.rng.one_in(2);
        if is_cut { self.rng.below(ANY_MOMENT) } else { SOON }
    }

    /// Ensures that a driver listens; it may be one that will die at one of these points.
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
            // It first undoes what it left, and passes points of unpreparing.
            if !self.machine.listens().await? {
                self.dies().await?;
            }
        }
        Ok(())
    }

    /// Waits for the end of the driver, and checks that it died at its point and not by itself.
    async fn dies(&mut self) -> anyhow::Result<()> {
        eventually(SOON, async || {
            Ok(Check::that(self.machine.driver_has_ended(), || "it does not end".to_owned()))
        })
        .await?;
        let driver = self.machine.driver().context("it was started")?;
        let (signal, tail) = (driver.ended_by_signal(), driver.tail(15));
        anyhow::ensure!(signal == Some(KILL), "the driver ended by {signal:?}:\n{tail}");
        let point = self.point.take().context("it had no point to die at")?;
        self.left.remove(point);
        *self.deaths.entry(point).or_default() += 1;
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
