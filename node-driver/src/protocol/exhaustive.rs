//! All states that the protocol can reach on a small node, whatever happens and whenever a process dies: no
//! container ever starts without its adapter or loses it, and from each state everything ends. And mistakes,
//! which this search must find.

use super::ends::Play;
use super::mistakes::Mistake;
use super::node::Node;
use super::world::{Odds, Trouble, USUAL, World};
use crate::kernel::attach::AttachMode;
use proptest::test_runner::Config;
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// How a state came about.
struct Way {
    last: String,
    before: Option<Arc<Self>>,
}

/// The search.
struct Search {
    play: Play,
    /// Hashes of the states.
    known: HashSet<u64>,
    /// Those of the states without claims from which another claim was tried.
    ends: HashSet<u64>,
    open: VecDeque<(World, Arc<Way>)>,
}

impl Way {
    fn text(&self) -> String {
        let before = self.before.as_ref().map(|before| before.text() + ", ").unwrap_or_default();
        before + &self.last
    }
}

impl Search {
    /// Tries everything that can happen in each state, and what comes of each state in the end. Returns the
    /// number of states.
    ///
    /// # Errors
    ///
    /// The first fault, and a shortest way to it.
    fn run(first: World, mode: AttachMode) -> Result<usize, String> {
        let mut search = Self {
            play: Play::new(Node::new(mode, first.namespaces())),
            known: HashSet::new(),
            ends: HashSet::new(),
            open: VecDeque::new(),
        };
        search.add(first, &Arc::new(Way { last: "a pod".to_owned(), before: None }))?;
        while let Some((world, way)) = search.open.pop_front() {
            search.check_end(&world, &way)?;
            for trouble in world.troubles() {
                search.try_all(&world, trouble, &way)?;
            }
        }
        Ok(search.known.len())
    }

    /// Lets something happen, also with a death before each step of each process.
    fn try_all(&mut self, world: &World, trouble: Trouble, way: &Arc<Way>) -> Result<(), String> {
        let Some(outcome) = world.outcome(&mut self.play.node, trouble) else { return Ok(()) };
        self.play.learn(world, trouble, &outcome.next);
        self.reach(outcome.next, format!("{trouble:?}"), way)?;
        for (point, next) in outcome.deaths {
            self.reach(next, format!("{trouble:?} (dies: {point})"), way)?;
        }
        Ok(())
    }

    fn reach(&mut self, next: World, last: String, way: &Arc<Way>) -> Result<(), String> {
        self.add(next, &Arc::new(Way { last, before: Some(Arc::clone(way)) }))
    }

    fn add(&mut self, world: World, way: &Arc<Way>) -> Result<(), String> {
        told(&world, way, "")?;
        if self.known.insert(self.play.hash(&world)) {
            self.open.push_back((world, Arc::clone(way)));
        }
        Ok(())
    }

    /// From each state a pod gets its adapter, all ends, and afterwards another claim gets it.
    fn check_end(&mut self, world: &World, way: &Way) -> Result<(), String> {
        let mut on = world.clone();
        on.go_on(&mut self.play);
        told(&on, way, ", then it goes on")?;
        let mut end = world.clone();
        end.settle(&mut self.play);
        told(&end, way, ", then all ends")?;
        let mut last = end.with_last();
        if self.ends.insert(self.play.hash(&last)) {
            last.go_on(&mut self.play);
            told(&last, way, ", then all ends, and another claim comes")?;
            last.settle(&mut self.play);
            told(&last, way, ", then all ends, and another claim comes and ends")?;
        }
        Ok(())
    }
}

fn told(world: &World, way: &Way, then: &str) -> Result<(), String> {
    if world.faults().is_empty() {
        return Ok(());
    }
    Err(format!("{:?}: {}{then}", world.faults(), way.text()))
}

/// Pods by the numbers of their claims, and what happens to them besides the usual. The first two are for each run,
/// the others are for one with many cases of all properties.
const WORLDS: [(&[usize], Odds); 8] = [
    (&[0], Odds { boots: 1, ..USUAL }),
    (SHARED, USUAL),
    // The pod of another claim comes after that of the first.
    (&[0, 1], USUAL),
    (&[0], Odds { sandboxes: 2, ..USUAL }),
    (&[0], Odds { losses: 1, ..USUAL }),
    (&[0], Odds { forgets: 1, ..USUAL }),
    (&[0, 1], Odds { forgets: 1, ..USUAL }),
    (&[0], Odds { sandboxes: 2, boots: 1, ..USUAL }),
];

/// Two pods of one claim.
const SHARED: &[usize] = &[0, 0];

fn go_through_all(mode: AttachMode) {
    let count = if Config::default().cases > 10_240 { WORLDS.len() } else { 2 };
    for (claims, odds) in &WORLDS[..count] {
        let states = Search::run(World::new(claims, *odds, None), mode).unwrap();
        println!("{mode:?}, pods with claims {claims:?}, {odds:?}: {states} states");
        assert!(states > 200, "{states} states of {claims:?}, {odds:?}");
    }
}

#[test]
fn from_every_state_a_pod_gets_its_adapter_and_the_host_gets_it_back() {
    go_through_all(AttachMode::Hook);
}

#[test]
fn by_nri_from_every_state_a_pod_gets_its_adapter_and_the_host_gets_it_back() {
    go_through_all(AttachMode::Nri);
}

/// While the driver is away, the hook of a second pod finds nothing to move. The first pod's container starts later.
#[test]
fn a_hook_that_died_is_completed_although_another_pod_of_the_claim_tried() {
    let mut play = Play::new(Node::new(AttachMode::Hook, SHARED.len()));
    let mut world = World::new(SHARED, USUAL, None);
    for trouble in [
        Trouble::Start,
        Trouble::Prepare(0),
        Trouble::Die,
        Trouble::RunSandbox(0),
        Trouble::RunSandbox(1),
    ] {
        world = world.next(&mut play.node, trouble).unwrap();
    }
    let outcome = world.outcome(&mut play.node, Trouble::StartContainer(0)).unwrap();
    for (point, dead) in outcome.deaths {
        let mut world = dead.next(&mut play.node, Trouble::StartContainer(1)).unwrap();
        world.go_on(&mut play);
        assert_eq!(world.faults(), [""; 0], "{point}");
    }
}

/// The driver dies before the interface is back on the host. Nothing tells the next one what is missing.
#[test]
fn the_search_finds_a_claim_that_is_forgotten_before_it_is_undone() {
    let world = World::new(&[0], USUAL, Some(Mistake::ForgetsFirst));
    let found = Search::run(world, AttachMode::Hook).unwrap_err();
    assert!(found.contains("the host does not have its settings"), "{found}");
    assert!(found.contains("Unprepare(0) (dies: "), "{found}");
}

/// The hook dies in between, and the kernel returns the interface when the sandbox ends, with the name and
/// without the addresses that it had in the pod. Nobody restores it.
#[test]
fn the_search_finds_an_interface_that_moves_before_it_is_recorded() {
    let world = World::new(&[0], USUAL, Some(Mistake::RecordsLast));
    let found = Search::run(world, AttachMode::Hook).unwrap_err();
    assert!(found.contains("the host does not have its settings"), "{found}");
    assert!(found.contains("the hook dies"), "{found}");
}
