//! What claims promise on machines. A machine is known by the name of its first node.

use crate::fleet::Fleet;
use crate::nearness::Nearness;
use cluster_model::machines::Machine;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use topology_graph::Level;

/// What a claim gives a pod on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// It does not serve the machine.
    Nothing,
    /// Any devices.
    Any,
    /// Devices that are this near; for preferred alignment, it tries these first.
    Near(Nearness),
}

impl Promise {
    /// Whether the claim serves the machine.
    pub(crate) fn is_served(self) -> bool {
        self != Self::Nothing
    }

    /// Near devices if the machine has such, otherwise any if these will do.
    pub(crate) fn best(near: Option<Nearness>, will_any_do: bool) -> Self {
        match near {
            Some(nearness) => Self::Near(nearness),
            None if will_any_do => Self::Any,
            None => Self::Nothing,
        }
    }

    /// By which promises are compared: machines that are served come first, then the nearest.
    pub(crate) fn rank(self) -> (bool, Option<Nearness>) {
        (!self.is_served(), self.nearness())
    }

    /// How near the devices are, if they are near.
    pub(crate) fn nearness(self) -> Option<Nearness> {
        match self {
            Self::Near(nearness) => Some(nearness),
            Self::Nothing | Self::Any => None,
        }
    }
}

/// Some machines.
pub(crate) type Nodes<'m> = BTreeSet<&'m str>;

/// The level that each of some machines is to have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Levels<'m>(BTreeMap<&'m str, Nearness>);

impl<'m> Levels<'m> {
    /// One level for all of these machines.
    pub(crate) fn all(machines: &[Machine<'m>], level: Nearness) -> Self {
        Self(machines.iter().map(|machine| (machine.devices.node, level)).collect())
    }

    /// The level of a machine.
    pub(crate) fn on(&self, machine: &Machine<'_>) -> Option<Nearness> {
        self.0.get(machine.devices.node).copied()
    }

    /// Sets or removes the level of a machine.
    pub(crate) fn set(&mut self, machine: &Machine<'m>, level: Option<Nearness>) {
        match level {
            Some(level) => _ = self.0.insert(machine.devices.node, level),
            None => _ = self.0.remove(machine.devices.node),
        }
    }

    /// The levels of the other machines.
    pub(crate) fn without(&self, served: &Nodes<'_>) -> Self {
        let others = self.0.iter().filter(|(node, _)| !served.contains(*node));
        Self(others.map(|(node, level)| (*node, *level)).collect())
    }
}

/// What a claim promises on each machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Promises<'m>(BTreeMap<&'m str, Promise>);

impl<'m> Promises<'m> {
    /// The levels of these machines, which are those that the claim serves.
    pub(crate) fn at(levels: &Levels<'m>, served: &Nodes<'m>) -> Self {
        let served = served.iter().filter_map(|node| Some((*node, *levels.0.get(node)?)));
        Self(served.map(|(node, level)| (node, Promise::Near(level))).collect())
    }

    /// What `promise` says of each machine.
    pub(crate) fn of_each(
        machines: &[Machine<'m>],
        promise: impl Fn(&Machine<'m>) -> Promise,
    ) -> Self {
        Self(machines.iter().map(|machine| (machine.devices.node, promise(machine))).collect())
    }

    /// The promise on a machine.
    pub(crate) fn on(&self, machine: &Machine<'_>) -> Promise {
        self.0.get(machine.devices.node).copied().unwrap_or(Promise::Nothing)
    }

    /// Whether a machine is served.
    pub(crate) fn serve(&self, machine: &Machine<'_>) -> bool {
        self.on(machine).is_served()
    }

    /// Sets the promise on a machine.
    pub(crate) fn set(&mut self, machine: &Machine<'m>, promise: Promise) {
        self.0.insert(machine.devices.node, promise);
    }

    /// Whether any machine is served.
    pub(crate) fn serve_any(&self) -> bool {
        self.0.values().any(|promise| promise.is_served())
    }

    /// Whether any machine gives near devices.
    pub(crate) fn are_near(&self) -> bool {
        self.0.values().any(|promise| promise.nearness().is_some())
    }

    /// How many nodes are served: present ones, and remembered machines.
    pub(crate) fn nodes(&self, machines: &[Machine<'_>]) -> (usize, usize) {
        let served = machines.iter().filter(|machine| self.serve(machine));
        served.fold((0, 0), |(present, all), machine| {
            let (more, more_in_all) = machine.weight();
            (present + more, all + more_in_all)
        })
    }

    /// The nearness on most nodes; of equally many, the nearest.
    pub(crate) fn on_most(&self, fleet: Fleet<'_, '_>) -> Nearness {
        let mut nodes: BTreeMap<Nearness, (usize, usize)> = BTreeMap::new();
        for machine in fleet.machines {
            let Some(level) = self.on(machine).nearness() else { continue };
            let (present, all) = machine.weight();
            let known = nodes.entry(level).or_default();
            *known = (known.0 + present, known.1 + all);
        }
        let most = nodes.into_iter().max_by_key(|(level, nodes)| (*nodes, Reverse(*level)));
        most.map_or(Nearness::Level(Level::Numa), |(level, _)| level)
    }
}
