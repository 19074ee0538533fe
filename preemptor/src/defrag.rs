//! Room made by moving pods: the fewest pods that are evicted one after another, each to a place that is
//! free then, so that pods fit that do not fit now.
//!
//! A pod that is to fit on a node takes the place of others there. These go to other nodes, for which in
//! turn others may have to move. Plans of few moves are tried before those of more.

use super::decision::{Cluster, PodId};
use super::pods::BoundPod;
use cluster_model::fabric_level::FabricLevel;
use cluster_model::names::label;
use cluster_model::predict::{self, work_max};
use cluster_model::room::{Ask, PodKey, Room};
use dra_allocator::DeviceId;
use fabric_controller::Group;
use fabric_controller::decide::supposed::Supposed;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The most moves that a plan has.
pub const MOVES_MAX: usize = 6;
/// The most hypotheses that are tried.
const TRIES: usize = 20_000;
/// The most nodes that are tried for a pod that moves.
const PLACES_MAX: usize = 3;

/// What is to fit.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// This many pods of a kind at the same time.
    Pods(&'a Arc<Ask>, usize),
    /// The gated pods of a group.
    Group(&'a Group),
}

/// The pods that may be moved, besides those that say so themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Movable {
    /// Their controllers: kind and name.
    pub owners: BTreeSet<(String, String)>,
}

impl Movable {
    /// Whether a pod may be moved: without a controller nobody creates it again.
    pub fn has(&self, pod: &BoundPod) -> bool {
        let Some((kind, name)) = &pod.owner else { return false };
        let mut owners = self.owners.iter();
        !pod.is_leaving
            && (pod.is_movable
                || owners.any(|(of_kind, of_name)| **kind == **of_kind && **name == **of_name))
    }
}

/// A move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The pod that is evicted.
    pub pod: PodId,
    /// Its controller, which creates it again: kind and name.
    pub owner: (String, String),
    /// The node that it leaves.
    pub from: String,
    /// The node where the pod fits that takes its place.
    pub to: String,
    /// The devices that it has.
    pub devices: Vec<DeviceId>,
}

/// A plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The moves, in order.
    pub moves: Vec<Move>,
    /// The nodes on which the wanted pods fit then.
    pub nodes: Vec<String>,
}

impl Plan {
    /// Whether every pod goes to a place that is free already, so that all of them can leave at once.
    pub fn is_direct(&self) -> bool {
        self.moves.iter().all(|it| self.moves.iter().all(|other| it.to != other.from))
    }
}

/// A pod that may be moved.
#[derive(Clone, Copy, Debug)]
struct Piece<'a> {
    node: &'a str,
    key: &'a PodKey,
    pod: &'a BoundPod,
    ask: &'a Arc<Ask>,
    devices: usize,
}

/// The cluster after some moves.
#[derive(Clone)]
struct State<'a> {
    room: Room<'a>,
    moves: Vec<(Piece<'a>, Arc<str>)>,
}

struct Planner<'a> {
    cluster: Cluster<'a>,
    pieces: HashMap<&'a str, Vec<Piece<'a>>>,
    tries: Cell<usize>,
}

/// The plan with the fewest moves that is found, of at most this many; without moves if the wanted pods
/// fit now. `None` if there is none.
pub fn fewest_moves(
    cluster: Cluster<'_>,
    wanted: Wanted<'_>,
    movable: &Movable,
    most: usize,
) -> Option<Plan> {
    let budget = predict::budget(cluster.view);
    let planner = Planner::new(cluster, movable);
    let state = State { room: planner.room(&budget), moves: Vec::new() };
    let nodes: Vec<&str> = cluster.view.present_nodes().collect();
    (0..=most).find_map(|moves| {
        budget.renew(work_max(nodes.len()));
        let (state, nodes) = match wanted {
            Wanted::Pods(ask, count) => planner.all(&state, (ask, count), &nodes, moves)?,
            Wanted::Group(group) => planner.group(&state, group, moves)?,
        };
        let moves = state.moves.iter().map(|(piece, to)| planner.told(piece, to));
        Some(Plan { moves: moves.collect(), nodes })
    })
}

impl<'a> Planner<'a> {
    fn new(cluster: Cluster<'a>, movable: &Movable) -> Self {
        let Cluster { view, nodes, pods, .. } = cluster;
        let mut pieces: HashMap<&str, Vec<Piece<'a>>> = HashMap::new();
        for (node, key, pod) in pods.bound().filter(|(_, _, pod)| movable.has(pod)) {
            let Some(ask) = nodes.movable_kind(node, key) else { continue };
            let claims = nodes.claims_of(node, key);
            let devices = claims.map(|(claim, _)| view.inventory().held_by(&claim).count()).sum();
            if devices > 0 {
                pieces.entry(node).or_default().push(Piece { node, key, pod, ask, devices });
            }
        }
        // Small pods move before large ones.
        for pieces in pieces.values_mut() {
            pieces.sort_by_key(|piece| (piece.devices, piece.key));
        }
        Self { cluster, pieces, tries: Cell::new(TRIES) }
    }

    fn room(&self, budget: &'a dra_allocator::Budget<'a>) -> Room<'a> {
        let Cluster { view, nodes, .. } = self.cluster;
        let room = Room::new(view, nodes, budget);
        let in_flight = room.in_flight();
        room.holding(&in_flight)
    }

    fn told(&self, piece: &Piece<'_>, to: &str) -> Move {
        let Cluster { view, nodes, .. } = self.cluster;
        let claims = nodes.claims_of(piece.node, piece.key);
        let owner = piece.pod.owner.as_ref();
        let owner = owner.map(|(kind, name)| (kind.to_string(), name.to_string()));
        Move {
            pod: PodId { key: piece.key.into(), uid: piece.pod.uid.to_string() },
            owner: owner.unwrap_or_default(),
            from: piece.node.to_owned(),
            to: to.to_owned(),
            devices: claims
                .flat_map(|(claim, _)| view.inventory().held_by(&claim))
                .cloned()
                .collect(),
        }
    }

    /// Room for several pods of a kind, one after another. Returns their nodes too.
    fn all(
        &self,
        state: &State<'a>,
        (ask, count): (&Arc<Ask>, usize),
        nodes: &[&'a str],
        most: usize,
    ) -> Option<(State<'a>, Vec<String>)> {
        let mut state = state.clone();
        let mut placed = Vec::new();
        let closed = BTreeSet::new();
        for _ in 0..count {
            let left = most - state.moves.len();
            let next = (0..=left).find_map(|moves| self.one(&state, ask, (nodes, &closed), moves));
            let (next, node) = next?;
            state = next;
            placed.push(node.to_string());
        }
        Some((state, placed))
    }

    /// Room for a group on one fabric, and in one domain of the levels that all its pods must share.
    fn group(
        &self,
        state: &State<'a>,
        group: &Group,
        most: usize,
    ) -> Option<(State<'a>, Vec<String>)> {
        let view = self.cluster.view;
        let shared = group.levels().required().map(FabricLevel::label);
        let shared: Vec<&str> = shared.filter(|_| group.domain_size().is_none()).collect();
        let mut places: BTreeMap<Vec<&str>, Vec<&'a str>> = BTreeMap::new();
        for node in view.present_nodes().filter(|node| self.cluster.nodes.facts(node).is_some()) {
            let keys = [label::NODE_FABRIC].into_iter().chain(shared.iter().copied());
            let values: Option<Vec<&str>> = keys.map(|key| view.node_label(node, key)).collect();
            if let Some(values) = values {
                places.entry(values).or_default().push(node);
            }
        }
        places.into_iter().find_map(|(values, nodes)| {
            let mut after = state.clone();
            for member in group.gated() {
                (after, _) = self.all(&after, (&member.ask, 1), &nodes, most)?;
            }
            // Without the pods that were added one by one.
            let room = state.room_after(&after.moves);
            let fabric = values.first()?;
            let places = Supposed::new(group, self.cluster.groups, view, (fabric, &nodes));
            let found = places.find(&room)?;
            Some((after, found.iter().map(|place| place.node.to_string()).collect()))
        })
    }

    /// Room for one more pod by at most this many moves. It goes to none of the closed nodes.
    fn one(
        &self,
        state: &State<'a>,
        ask: &Arc<Ask>,
        (nodes, closed): (&[&'a str], &BTreeSet<&'a str>),
        most: usize,
    ) -> Option<(State<'a>, Arc<str>)> {
        let open: Vec<&'a str> =
            nodes.iter().copied().filter(|node| !closed.contains(node)).collect();
        if let Some(node) = tightest(&state.room, ask, &open).into_iter().next() {
            let mut state = state.clone();
            state.room.take(ask, 1, [node]);
            return Some((state, node.into()));
        }
        self.instead(state, ask, (&open, closed), most)
    }

    /// The same where other pods leave for it.
    fn instead(
        &self,
        state: &State<'a>,
        ask: &Arc<Ask>,
        (open, closed): (&[&'a str], &BTreeSet<&'a str>),
        most: usize,
    ) -> Option<(State<'a>, Arc<str>)> {
        open.iter().find_map(|node| {
            let pieces = self.movable_on(state, node);
            (1..=most).find_map(|count| {
                subsets(pieces.len(), count).find_map(|chosen| {
                    let leaving: Vec<_> = chosen.into_iter().map(|index| pieces[index]).collect();
                    let state = self.displace(state, (ask, node), &leaving, (closed, most))?;
                    Some((state, (*node).into()))
                })
            })
        })
    }

    /// The pods of a node that have not moved yet.
    fn movable_on(&self, state: &State<'a>, node: &str) -> Vec<Piece<'a>> {
        let all = self.pieces.get(node).into_iter().flatten().copied();
        all.filter(|piece| !state.moves.iter().any(|(moved, _)| moved.key == piece.key)).collect()
    }

    /// A pod takes the place of these, which go to other nodes, all with at most this many moves.
    fn displace(
        &self,
        state: &State<'a>,
        (ask, node): (&Arc<Ask>, &'a str),
        leaving: &[Piece<'a>],
        (closed, most): (&BTreeSet<&'a str>, usize),
    ) -> Option<State<'a>> {
        self.tries.set(self.tries.get().checked_sub(1)?);
        let mut emptied = state.room.clone();
        for piece in leaving {
            emptied.let_leave(node, piece.key);
        }
        if !matches!(emptied.why_not(node, ask), Ok(None)) {
            return None;
        }
        let mut closed = closed.clone();
        closed.insert(node);
        let spare = most - leaving.len();
        let mut after = self.relocate(state, leaving, (ask, node), (&closed, spare))?;
        (after.room.take(ask, 1, [node]) == 1).then_some(after)
    }

    /// These pods go to other nodes, the last one first, with so many moves of others. A node that is
    /// closed has a place for them only if it has one now, and if what they make room for fits in the
    /// end.
    fn relocate(
        &self,
        state: &State<'a>,
        leaving: &[Piece<'a>],
        goal: (&Ask, &str),
        (closed, spare): (&BTreeSet<&'a str>, usize),
    ) -> Option<State<'a>> {
        let Some((piece, rest)) = leaving.split_last() else {
            let fits = matches!(state.room.why_not(goal.1, goal.0), Ok(None));
            return fits.then(|| state.clone());
        };
        self.tries.set(self.tries.get().checked_sub(1)?);
        let others = self.cluster.view.present_nodes().filter(|node| *node != piece.node);
        let others: Vec<&'a str> = others.collect();
        let mut places = tightest(&state.room, piece.ask, &others);
        places.sort_by_key(|node| closed.contains(node));
        let direct = places.into_iter().take(PLACES_MAX).find_map(|node| {
            let mut next = state.clone();
            next.room.take(piece.ask, 1, [node]);
            self.relocate(&next.moving(*piece, node), rest, goal, (closed, spare))
        });
        direct.or_else(|| {
            let open: Vec<&'a str> =
                others.into_iter().filter(|node| !closed.contains(node)).collect();
            (1..=spare).find_map(|moves| {
                let (next, to) = self.instead(state, piece.ask, (&open, closed), moves)?;
                let used = next.moves.len() - state.moves.len();
                self.relocate(&next.moving(*piece, &to), rest, goal, (closed, spare - used))
            })
        })
    }
}

impl<'a> State<'a> {
    /// The room after moves alone.
    fn room_after(&self, moves: &[(Piece<'a>, Arc<str>)]) -> Room<'a> {
        let mut room = self.room.clone();
        for (piece, to) in moves {
            room.let_leave(piece.node, piece.key);
            room.take(piece.ask, 1, [&**to]);
        }
        room
    }

    /// The same after a pod has left its node, which has a place on another one.
    fn moving(mut self, piece: Piece<'a>, to: &str) -> Self {
        self.room.let_leave(piece.node, piece.key);
        self.moves.push((piece, to.into()));
        self
    }
}

/// The nodes on which a pod fits, those first where the fewest more like it do: large places stay free.
fn tightest<'a>(room: &Room<'a>, ask: &Ask, nodes: &[&'a str]) -> Vec<&'a str> {
    let mut places = room.places(ask, nodes.iter().copied(), usize::MAX);
    places.sort_by_key(|places| (places.count, places.node));
    places.into_iter().map(|places| places.node).collect()
}

/// All choices of this many numbers below a limit, in order.
fn subsets(limit: usize, count: usize) -> impl Iterator<Item = Vec<usize>> {
    let first = (count <= limit).then(|| (0..count).collect::<Vec<usize>>());
    std::iter::successors(first, move |last| {
        let at = (0..count).rev().find(|at| last[*at] < limit - count + at)?;
        let mut next = last.clone();
        next[at] += 1;
        for later in at + 1..count {
            next[later] = next[later - 1] + 1;
        }
        Some(next)
    })
}

#[cfg(test)]
mod tests {
    use super::subsets;

    #[test]
    fn all_choices_are_listed() {
        let all: Vec<_> = subsets(4, 2).collect();
        assert_eq!(all, [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
        assert_eq!(subsets(2, 3).count(), 0);
        assert_eq!(subsets(3, 3).count(), 1);
    }
}
