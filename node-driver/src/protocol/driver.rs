//! What the driver does.

use super::claims::{allocated, claim_ref, uid};
use super::mistakes::{Mistake, forget_first};
use super::node::{Node, Work};
use super::world::{Claim, Deaths, World};
use crate::model::claim::ClaimRef;
use crate::prepare::claim::AllocatedClaim;
use crate::prepare::error::PrepareError;
use crate::prepare::local::{LocalPreparer, PreparedDevice};
use crate::prepare::published::SliceDevices;
use crate::prepare::sandboxes::Sandbox;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use topology_graph::Snapshot;

impl World {
    /// Lets the driver work. Each death leaves this world with other files and interfaces.
    pub(super) fn work<T>(
        &mut self,
        node: &mut Node,
        deaths: Deaths<'_>,
        work: Work<'_, Result<T, PrepareError>>,
    ) -> Result<T, PrepareError> {
        let (done, left) = node.work(&mut self.state, deaths.is_some(), work);
        if let Some(deaths) = deaths {
            let worlds =
                left.into_iter().map(|(point, state)| (point, Self { state, ..self.clone() }));
            deaths.extend(worlds);
        }
        done
    }

    /// The driver starts.
    pub(super) fn start(&mut self, node: &mut Node, deaths: Deaths<'_>) {
        self.state.driver = Some(BTreeMap::new());
        let sandboxes: Vec<Sandbox> =
            (0..self.pods.len()).filter_map(|pod| self.sandbox(node, pod)).collect();
        let is_nri = node.is_nri();
        let started = self.work(node, deaths, &|driver| {
            driver.reconcile()?;
            driver.remember_interfaces()?;
            driver.take_over()?;
            if is_nri {
                driver.synchronize(&sandboxes)?;
            }
            Ok(())
        });
        if started.is_err() {
            self.fault("the driver does not start");
        }
    }

    /// As `Preparer::undo_abandoned`, with an API server that answers.
    pub(super) fn search(&mut self, node: &mut Node, deaths: Deaths<'_>) {
        let gone = self.gone();
        let searched = self.work(node, deaths, &|driver| {
            for claim in driver.without_sandbox()?.iter().filter(|claim| gone.contains(claim)) {
                // Twice, with enough time between.
                let now = Instant::now();
                driver.undo_abandoned(claim, now)?;
                driver.undo_abandoned(claim, now + Duration::from_mins(6))?;
            }
            Ok(())
        });
        // What fails is tried again.
        drop(searched);
    }

    /// As `Preparer::prepare`, with an API server that answers.
    pub(super) fn prepare(&mut self, node: &mut Node, claim: usize, deaths: Deaths<'_>) {
        self.claims[claim].is_known = true;
        let wanted = allocated(claim, self.is_shared(claim));
        let gone = self.gone();
        let prepared = self.work(node, deaths, &|driver| {
            let machine = driver.read()?;
            let prepared = prepare(driver, &wanted, &machine);
            let holder = prepared.as_ref().err().and_then(PrepareError::holder).cloned();
            match holder.filter(|holder| gone.contains(holder)) {
                Some(holder) if driver.undo_abandoned(&holder, Instant::now())? => {
                    prepare(driver, &wanted, &machine)
                }
                _ => prepared,
            }
        });
        if let Ok(devices) = prepared {
            let answer = format!("{devices:?}");
            let claim = &mut self.claims[claim];
            claim.is_prepared = true;
            let first = claim.answer.get_or_insert_with(|| answer.clone());
            if *first != answer {
                self.fault("a repeated call has another answer");
            }
        }
    }

    /// The kubelet forgets a claim that is unprepared.
    pub(super) fn unprepare(&mut self, node: &mut Node, claim: usize, deaths: Deaths<'_>) {
        let uid = uid(claim);
        let unprepare = match self.mistake {
            Some(Mistake::ForgetsFirst) => forget_first,
            _ => LocalPreparer::unprepare,
        };
        let done = self.work(node, deaths, &|driver| unprepare(driver, &uid));
        if done.is_ok() {
            self.claims[claim] = Claim { exists: false, ..Claim::new() };
        }
    }

    /// The claims whose objects do not exist.
    fn gone(&self) -> Vec<ClaimRef> {
        let gone = self.claims.iter().enumerate().filter(|(_, claim)| !claim.exists);
        gone.map(|(number, _)| claim_ref(number)).collect()
    }
}

/// Returns what is prepared, or prepares it.
fn prepare(
    driver: &LocalPreparer,
    claim: &AllocatedClaim,
    machine: &Snapshot,
) -> Result<Vec<PreparedDevice>, PrepareError> {
    if let Some(devices) = driver.prepared(&claim.claim.uid)? {
        return Ok(devices);
    }
    let plan = driver.prepare(claim, &SliceDevices::default(), machine)?;
    Ok(driver.devices(&plan))
}
