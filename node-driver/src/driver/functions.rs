//! Creates virtual functions according to the policies, and withholds those that are not
//! ready to be published.

use crate::args::Args;
use crate::decide::virtual_functions::policy::SriovPolicy;
use crate::decide::virtual_functions::{
    Action, Judged, Obstacle, Progress, User, Verdict, VfFacts, guid, judge,
};
use crate::facts::claims;
use crate::facts::held::Claims;
use crate::facts::ports::KnownPorts;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::{AttachError, functions as settings};
use crate::kernel::sriov;
use crate::prepare::durable::FileError;
use crate::prepare::effects::Faults;
use crate::prepare::paths::Paths;
use crate::prepare::turn;
use crate::publish::events::Notice;
use cluster_model::names::DRIVER;
use kube::Client;
use process::chain::Chain;
use publication::history::Seen;
use publication::network::NetworkFacts;
use publication::nic::device_name;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io, mem};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use topology_graph::{PciAddress, Snapshot};

/// Time limit for listing the cluster's claims.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time limit for the wait of the first publication for virtual functions.
const FIRST: Duration = Duration::from_mins(1);

/// Reasons of events on the Node.
const MADE: &str = "VirtualFunctionsCreated";
const NOT_MADE: &str = "VirtualFunctionsNotCreated";
const WITHOUT_GUIDS: &str = "VirtualFunctionsWithoutGUIDs";

/// The virtual functions of one machine.
pub(super) struct Functions {
    policies: Vec<SriovPolicy>,
    place: Place,
    client: Client,
    /// The pool of the devices.
    pool: String,
    progress: Progress,
    judged: BTreeMap<PciAddress, Judged>,
    withheld: BTreeSet<String>,
    /// Physical functions whose virtual functions got GUIDs, or cannot get any.
    guided: BTreeSet<PciAddress>,
    /// The last warning for each physical function.
    said: BTreeMap<PciAddress, String>,
    notices: Vec<Notice>,
    writes: (mpsc::UnboundedSender<Written>, mpsc::UnboundedReceiver<Written>),
    wake: Arc<Notify>,
    began: Instant,
}

/// Where numbers are written, and where prepared claims are recorded.
#[derive(Clone, Debug)]
struct Place {
    sysfs: PathBuf,
    paths: Paths,
    faults: Faults,
    /// Reads of the machine, which leave out a function that is being changed.
    ports: KnownPorts,
    /// Sets the GUIDs of the virtual functions of the physical function with this interface.
    give_guids: fn(&str, &[u64]) -> Result<(), AttachError>,
}

/// What to write for one physical function.
#[derive(Clone, Debug)]
struct Order {
    /// Its directory below the sysfs mount.
    path: String,
    /// The devices that the change removes, if any.
    removed: Option<BTreeSet<String>>,
    /// The number of virtual functions that it has.
    present: u16,
    /// The number of virtual functions that it gets.
    number: u16,
    /// For InfiniBand, its interface and the GUIDs of its virtual functions.
    guids: Option<(String, Vec<u64>)>,
}

/// The outcome of setting GUIDs.
#[derive(Debug)]
enum Guids {
    /// None are needed.
    Needless,
    /// Each virtual function has one.
    Given,
    /// The kernel refused them.
    Refused(AttachError),
}

/// How a write ended.
#[derive(Debug)]
struct Written {
    physical: PciAddress,
    /// The name in logs and events.
    name: String,
    number: u16,
    outcome: Result<Guids, WriteError>,
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("claims on this node now have `{0}`")]
    InUse(String),
    #[error("failed to read which devices pods have")]
    Unknown(#[source] io::Error),
    #[error("failed to list the virtual functions")]
    Unread(#[source] io::Error),
    #[error(transparent)]
    File(#[from] FileError),
}

impl Functions {
    /// Creates it from the flags; `None` if they hold no policies, if claims are not prepared,
    /// or with `--once`.
    pub(super) fn of(
        args: &Args,
        client: &Client,
        ports: &KnownPorts,
        wake: &Arc<Notify>,
    ) -> Option<Self> {
        let paths = args.plugin.paths(DRIVER)?;
        let sysfs = args.plugin.sysfs_dir.clone().unwrap_or_else(|| args.root.join("sys"));
        let (faults, ports) = (args.plugin.faults(), ports.clone());
        let place = Place { sysfs, paths, faults, ports, give_guids };
        let policies = args.plugin.virtual_functions.clone();
        let functions = Self::new(policies, place, client.clone(), &args.node_name, wake);
        (!args.once && !functions.policies.is_empty()).then_some(functions)
    }

    fn new(
        policies: Vec<SriovPolicy>,
        place: Place,
        client: Client,
        pool: &str,
        wake: &Arc<Notify>,
    ) -> Self {
        Self {
            policies,
            place,
            client,
            pool: pool.to_owned(),
            progress: Progress::default(),
            judged: BTreeMap::new(),
            withheld: BTreeSet::new(),
            guided: BTreeSet::new(),
            said: BTreeMap::new(),
            notices: Vec::new(),
            writes: mpsc::unbounded_channel(),
            wake: Arc::clone(wake),
            began: Instant::now(),
        }
    }

    /// Does what is due and returns the devices that must not be published now.
    pub(super) async fn look(
        &mut self,
        snapshot: &Snapshot,
        network: &NetworkFacts,
        seen: &Seen,
        now: Instant,
    ) -> BTreeSet<String> {
        self.take_in(now);
        let held = match self.place.claims().names() {
            Ok(held) => held,
            // Without the claims nothing is changed, and withheld devices stay withheld.
            Err(error) => {
                tracing::warn!(%error, "Virtual functions stay as they are");
                return self.withheld.clone();
            }
        };
        let guided = self.guided.clone();
        let machine = VfFacts { snapshot, network, held: &held, guided: &guided };
        let mut judged = judge(&self.policies, machine);
        for action in self.progress.next(&judged, now) {
            self.act(action, &mut judged, now).await;
        }
        self.tell_obstacles(&judged);
        self.withheld = self.progress.withheld(&judged, machine, |device| seen.has(device), now);
        self.judged = judged;
        self.withheld.clone()
    }

    /// Records that the result of the last look has been published.
    pub(super) fn published(&mut self, now: Instant) {
        self.progress.published(now);
    }

    /// Whether the first publication must wait: slices from before a reboot contain the virtual
    /// functions that are being created now.
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        now < self.began + FIRST && self.progress.is_making(now)
    }

    /// When to look again without an event.
    pub(super) fn next_change(&self, now: Instant) -> Option<Instant> {
        self.progress.next_change(now)
    }

    /// Takes the notices since the last call.
    pub(super) fn notices(&mut self) -> Vec<Notice> {
        mem::take(&mut self.notices)
    }

    /// The number of virtual functions that are wanted but missing.
    pub(super) fn missing(&self) -> i64 {
        self.judged.values().map(|it| i64::from(it.wanted.saturating_sub(it.present))).sum()
    }

    async fn act(
        &mut self,
        action: Action,
        judged: &mut BTreeMap<PciAddress, Judged>,
        now: Instant,
    ) {
        let (Action::Make(physical) | Action::Withdraw(physical) | Action::Replace(physical)) =
            action;
        let Some(judged) = judged.get_mut(&physical) else { return };
        match (self.allocated(physical, judged).await, action) {
            (Ok(None), Action::Make(_)) => self.write(physical, judged, false),
            (Ok(None), Action::Replace(_)) => self.write(physical, judged, true),
            (Ok(None), _) => {
                let (name, functions) = (name(physical, judged), &judged.functions);
                tracing::info!(
                    name,
                    ?functions,
                    "Virtual functions are withdrawn from publication"
                );
                self.progress.withdrawn(physical);
            }
            (Ok(Some(obstacle)), _) => {
                judged.verdict = Verdict::Wait(obstacle);
                self.progress.failed(physical, now);
            }
            (Err(error), _) => {
                tracing::warn!(error, "Virtual functions stay until their claims are known");
                self.progress.failed(physical, now);
            }
        }
    }

    /// Whether the physical function or one of its virtual functions is allocated to a claim.
    async fn allocated(
        &self,
        physical: PciAddress,
        judged: &Judged,
    ) -> Result<Option<Obstacle>, String> {
        let asked = timeout(PATIENCE, claims::allocated(&self.client, &self.pool)).await;
        let allocated = asked
            .map_err(|_| format!("no answer to `list resourceclaims` within {PATIENCE:?}"))?
            .map_err(|error| Chain(&error).to_string())?;
        Ok(judged.functions.iter().chain([&device_name(physical)]).find_map(|device| {
            let user = User::Allocated(allocated.get(device)?.clone());
            Some(Obstacle::InUse { device: device.clone(), user })
        }))
    }

    /// Writes on a separate thread: it takes seconds, and other NICs are published meanwhile.
    fn write(&mut self, physical: PciAddress, judged: &Judged, replace: bool) {
        self.progress.writing(physical);
        let (place, name, number) = (self.place.clone(), name(physical, judged), judged.wanted);
        let guids = judged.guid.map(|guid| (0..number).map(|it| guid::derive(guid, it)).collect());
        let order = Order {
            path: judged.path.clone(),
            removed: replace.then(|| judged.functions.clone()),
            present: judged.present,
            number,
            guids: judged.interface.clone().zip(guids).filter(|_| number > 0),
        };
        let (ended, wake) = (self.writes.0.clone(), Arc::clone(&self.wake));
        tracing::info!(name, number, before = judged.present, "Creating virtual functions");
        tokio::task::spawn_blocking(move || {
            let outcome = place.write(&order);
            // The receiver is gone if the driver ends.
            let _ = ended.send(Written { physical, name, number, outcome });
            wake.notify_one();
        });
    }

    fn take_in(&mut self, now: Instant) {
        while let Ok(Written { physical, name, number, outcome }) = self.writes.1.try_recv() {
            self.progress.ended(physical);
            let notice = match outcome {
                Ok(guids) => {
                    tracing::info!(name, number, ?guids, "Virtual functions created");
                    let note = format!("{name} has {number} virtual functions");
                    self.said.remove(&physical);
                    if !matches!(guids, Guids::Needless) {
                        self.guided.insert(physical);
                    }
                    match guids {
                        Guids::Refused(error) => {
                            let note = format!("{note} without GUIDs: {}", Chain(&error));
                            Notice::warning(WITHOUT_GUIDS, &note)
                        }
                        Guids::Needless | Guids::Given => Notice::normal(MADE, &note),
                    }
                }
                Err(error) => {
                    self.progress.failed(physical, now);
                    let error = Chain(&error).to_string();
                    tracing::error!(name, number, error, "Virtual functions not created");
                    let note = format!("{name} cannot get {number} virtual functions: {error}");
                    if self.said.insert(physical, note.clone()).as_ref() == Some(&note) {
                        continue;
                    }
                    Notice::warning(NOT_MADE, &note)
                }
            };
            self.notices.push(notice);
        }
    }

    /// Reports each obstacle once, until it changes or is gone.
    fn tell_obstacles(&mut self, judged: &BTreeMap<PciAddress, Judged>) {
        self.said.retain(|physical, _| judged.contains_key(physical));
        for (physical, judged) in judged {
            let Judged { present, wanted, verdict, .. } = judged;
            let Verdict::Wait(obstacle) = verdict else {
                if *verdict == Verdict::Nothing {
                    self.said.remove(physical);
                }
                continue;
            };
            let name = name(*physical, judged);
            let note = if present == wanted {
                format!("virtual functions of {name} must be recreated to get GUIDs: {obstacle}")
            } else {
                format!("{name} has {present} virtual functions instead of {wanted}: {obstacle}")
            };
            if self.said.get(physical) != Some(&note) {
                tracing::warn!(note, "Virtual functions not created");
                self.notices.push(Notice::warning(NOT_MADE, &note));
                self.said.insert(*physical, note);
            }
        }
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").field("judged", &self.judged).finish_non_exhaustive()
    }
}

fn give_guids(link: &str, guids: &[u64]) -> Result<(), AttachError> {
    settings::set_guids(&NetNs::current()?, link, guids)
}

/// The name of a physical function in logs and events.
fn name(physical: PciAddress, judged: &Judged) -> String {
    match &judged.interface {
        Some(interface) => format!("{physical} ({interface})"),
        None => physical.to_string(),
    }
}

impl Place {
    fn claims(&self) -> Claims {
        Claims::new(Some(self.paths.checkpoint()))
    }

    /// Writes the number. InfiniBand functions are created, get GUIDs and are recreated, because
    /// their driver reads a GUID only when it starts.
    fn write(&self, order: &Order) -> Result<Guids, WriteError> {
        let Order { path, removed, present, number, guids } = order;
        let _changing = self.ports.reads().change(path);
        self.faults.reached("functions:before");
        if present != number {
            if let Some(removed) = removed {
                self.remove(path, removed)?;
            }
            sriov::set_number(&self.sysfs, path, *number)?;
        }
        let given = match guids {
            Some((link, guids)) => self.give(link, guids, order)?,
            None => Guids::Needless,
        };
        self.faults.reached("functions:after");
        Ok(given)
    }

    /// Removes these devices. No claim can be prepared meanwhile.
    fn remove(&self, path: &str, devices: &BTreeSet<String>) -> Result<(), WriteError> {
        let _turn = turn::take(&self.paths)?;
        let held = self.claims().names().map_err(WriteError::Unknown)?;
        if let Some(device) = devices.intersection(&held).next() {
            return Err(WriteError::InUse(device.clone()));
        }
        sriov::set_number(&self.sysfs, path, 0)?;
        self.faults.reached("functions:removed");
        Ok(())
    }

    /// Gives GUIDs to the existing functions and recreates them. If a claim from before a reboot
    /// already has one, they stay, and the next attempt follows later.
    fn give(&self, link: &str, guids: &[u64], order: &Order) -> Result<Guids, WriteError> {
        if let Err(error) = (self.give_guids)(link, guids) {
            return Ok(Guids::Refused(error));
        }
        self.faults.reached("functions:guids");
        let there = sriov::functions(&self.sysfs, &order.path).map_err(WriteError::Unread)?;
        let there = there.into_iter().map(device_name);
        self.remove(&order.path, &there.collect())?;
        sriov::set_number(&self.sysfs, &order.path, order.number)?;
        Ok(Guids::Given)
    }
}

#[cfg(test)]
mod tests;
