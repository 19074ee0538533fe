//! The least harmful set of units that must leave.
//!
//! First each unit is let stay that can, the most important first, as kube-scheduler does
//! (`SelectVictimsOnNode` in `plugins/defaultpreemption`). That keeps the most important pods, and may
//! let more of them leave than needed: two small pods where a large one of the same priority suffices.
//! So other sets are tried then, as far as they can be less harmful.

/// The most sets that are tried after the first one.
pub(crate) const TRIES: usize = 512;

/// A hypothesis: some units leave, and perhaps that suffices.
pub(crate) trait Trial {
    /// What is lost if units leave.
    type Harm: Ord + Clone;
    /// Lets a unit leave, or stay.
    fn set(&mut self, unit: usize, leaves: bool);
    /// Whether it suffices that the units leave that do now.
    fn suffices(&mut self) -> bool;
    /// What is lost in all, if it suffices that the units leave that do now: with what others lose by
    /// the place that is taken then.
    fn with_place(&mut self, harm: Self::Harm) -> Self::Harm {
        harm
    }
    /// Lets units leave, or stay.
    fn set_all(&mut self, units: &[usize], leave: bool) {
        for unit in units {
            self.set(*unit, leave);
        }
    }
}

/// A set of units, and what is lost if they leave.
pub(crate) type Found<C> = (C, Vec<usize>);

/// Lets each unit stay that can, in this order. All leave before, and those that are returned after.
pub(crate) fn reprieve(order: &[usize], trial: &mut impl Trial) -> Vec<usize> {
    let mut victims = Vec::new();
    let (mut at, mut step) = (0, 1);
    // Several at a time while that works, since mostly few must leave.
    while at < order.len() {
        let run = &order[at..order.len().min(at + step)];
        trial.set_all(run, false);
        if trial.suffices() {
            at += run.len();
            step *= 2;
            continue;
        }
        trial.set_all(run, true);
        if let [victim] = run {
            victims.push(*victim);
            at += 1;
            step = 1;
        } else {
            step = run.len() / 2;
        }
    }
    victims
}

/// Searches for a set that is less harmful than the best one so far, among these units, all of which
/// leave before and after. `harm` is `None` if a set, and so each larger one, is not allowed; without
/// what the place adds.
pub(crate) struct Improvement<'t, T: Trial, H> {
    pub(crate) order: &'t [usize],
    pub(crate) trial: &'t mut T,
    pub(crate) harm: H,
    /// The best harm so far.
    pub(crate) best: Option<T::Harm>,
    /// How many more sets are tried.
    pub(crate) tries: &'t mut usize,
}

impl<T: Trial, H: Fn(&[usize]) -> Option<T::Harm>> Improvement<'_, T, H> {
    /// Returns a better set, if there is one.
    pub(crate) fn search(mut self) -> Option<Found<T::Harm>> {
        let mut found = None;
        self.descend(0, &mut Vec::new(), true, &mut found);
        found
    }

    /// The units from `at` on are not decided, and leave. Of those before, the chosen ones leave.
    fn descend(
        &mut self,
        at: usize,
        chosen: &mut Vec<usize>,
        suffices: bool,
        found: &mut Option<Found<T::Harm>>,
    ) {
        let Some(harm) = (self.harm)(chosen) else { return };
        if self.best.as_ref().is_some_and(|best| *best <= harm) {
            return;
        }
        if !suffices {
            let Some(left) = self.tries.checked_sub(1) else { return };
            *self.tries = left;
            if !self.trial.suffices() {
                return;
            }
        }
        let Some(unit) = self.order.get(at).copied() else {
            let harm = self.trial.with_place(harm);
            if self.best.as_ref().is_none_or(|best| harm < *best) {
                self.best = Some(harm.clone());
                *found = Some((harm, chosen.clone()));
            }
            return;
        };
        self.trial.set(unit, false);
        self.descend(at + 1, chosen, false, found);
        self.trial.set(unit, true);
        chosen.push(unit);
        self.descend(at + 1, chosen, true, found);
        chosen.pop();
    }
}
