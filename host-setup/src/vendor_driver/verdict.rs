//! What a vendor's driver that comes in a container means for the node's NICs: whether they are
//! published, whether pods that use them are evicted, and what is said of it. Pure.

use super::state::{Stage, VendorDriverState};
use topology_graph::HostCondition;

/// Whether the vendor's driver is loaded, on nodes where it comes in a container.
pub(crate) const VENDOR_DRIVER: &str = "VendorDriver";

/// Reasons of the condition.
pub(crate) mod reason {
    pub(crate) const EXPECTED: &str = "Expected";
    pub(crate) const WAITING: &str = "Waiting";
    pub(crate) const DRAINING: &str = "Draining";
    pub(crate) const LOADING: &str = "Loading";
    pub(crate) const FAILED: &str = "Failed";
    pub(crate) const LOADED: &str = "Loaded";
}

/// What is found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VendorDriverFacts {
    /// What the vendor's container recorded in this boot.
    pub(crate) state: Option<VendorDriverState>,
    /// Whether the node's labels say that there will be such a container.
    pub(crate) is_selected: bool,
    /// Whether claims have NICs of this node.
    pub(crate) has_claims: bool,
    /// Whether this node is the one of the cluster that may be drained.
    pub(crate) has_turn: bool,
}

/// What happens to pods that use a NIC when its driver is replaced.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Drain {
    /// Pods are evicted, on one node of the cluster at a time.
    #[default]
    Evict,
    /// The driver is replaced when no pod has a NIC of the node.
    Wait,
}

/// What follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VendorDriverDecision {
    /// Whether the vendor's NICs are not published.
    pub(crate) withholds: bool,
    /// Whether pods that have them are evicted.
    pub(crate) evicts: bool,
    /// Whether this node is to be the one that is drained, or that loads a new version.
    pub(crate) wants_turn: bool,
    /// The version that may be loaded in this node's turn.
    pub(crate) grants: Option<String>,
    /// What is said of it.
    pub(crate) condition: Option<HostCondition>,
}

/// Decides.
pub(crate) fn decide(facts: &VendorDriverFacts, drain: Drain) -> VendorDriverDecision {
    let evicts = drain == Drain::Evict;
    let Some(state) = &facts.state else {
        if !facts.is_selected {
            return VendorDriverDecision::default();
        }
        let message = "the vendor's driver is expected; its pod has not started yet".to_owned();
        return VendorDriverDecision {
            // Running pods keep their NICs, and the scheduler must go on seeing them.
            withholds: !facts.has_claims,
            condition: Some(condition(false, reason::EXPECTED, message)),
            ..VendorDriverDecision::default()
        };
    };
    let text = state.to_string();
    match state.stage {
        // Nothing uses the modules: no pod is evicted.
        Stage::Waiting if state.waits_for_turn => VendorDriverDecision {
            wants_turn: evicts,
            grants: (evicts && facts.has_turn).then(|| state.version.clone()),
            condition: Some(condition(false, reason::WAITING, text)),
            ..VendorDriverDecision::default()
        },
        Stage::Waiting if evicts && facts.has_turn => VendorDriverDecision {
            evicts: true,
            wants_turn: true,
            condition: Some(condition(
                false,
                reason::DRAINING,
                format!("{text}; pods are evicted"),
            )),
            ..VendorDriverDecision::default()
        },
        Stage::Waiting => VendorDriverDecision {
            wants_turn: evicts,
            condition: Some(condition(
                false,
                reason::WAITING,
                if evicts {
                    format!("{text}; the node is drained when it is its turn")
                } else {
                    format!("{text}; drain the node, or wait until these have ended")
                },
            )),
            ..VendorDriverDecision::default()
        },
        Stage::Loading => VendorDriverDecision {
            withholds: true,
            wants_turn: evicts && facts.has_turn,
            condition: Some(condition(false, reason::LOADING, text)),
            ..VendorDriverDecision::default()
        },
        // The turn is kept: no other node is drained for a version that fails.
        Stage::Failed => VendorDriverDecision {
            withholds: true,
            wants_turn: evicts && facts.has_turn,
            condition: Some(condition(false, reason::FAILED, text)),
            ..VendorDriverDecision::default()
        },
        Stage::Ready => VendorDriverDecision {
            condition: Some(condition(true, reason::LOADED, text)),
            ..VendorDriverDecision::default()
        },
    }
}

fn condition(holds: bool, reason: &'static str, message: String) -> HostCondition {
    HostCondition { kind: VENDOR_DRIVER, holds, reason, message, entries: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(stage: Option<Stage>) -> VendorDriverFacts {
        let recorded = stage.map(|stage| VendorDriverState {
            version: "25.04".to_owned(),
            stage,
            modules: std::iter::empty().collect(),
            detail: match stage {
                Stage::Waiting => "claim default/a is prepared on this node".to_owned(),
                Stage::Failed => "exit status: 1".to_owned(),
                _ => String::new(),
            },
            waits_for_turn: false,
        });
        VendorDriverFacts { state: recorded, is_selected: true, ..VendorDriverFacts::default() }
    }

    fn line(facts: &VendorDriverFacts, drain: Drain) -> String {
        let VendorDriverDecision { withholds, evicts, wants_turn, grants, condition } =
            decide(facts, drain);
        let word = |is, word| if is { word } else { "" };
        let what = [
            word(withholds, "withholds"),
            word(evicts, "evicts"),
            word(wants_turn, "wants a turn"),
            word(grants.is_some(), "grants it"),
        ];
        let what: Vec<_> = what.into_iter().filter(|word| !word.is_empty()).collect();
        let said = condition
            .map(|it| format!("{} {}: {}", it.holds, it.reason, it.message))
            .unwrap_or_default();
        format!("{} | {said}", what.join(", "))
    }

    #[test]
    fn nics_are_published_when_the_driver_is_loaded_and_pods_are_evicted_in_turn() {
        let none = decide(&VendorDriverFacts::default(), Drain::Evict);
        assert_eq!(none, VendorDriverDecision::default(), "a node without");
        let with_claims =
            |facts: VendorDriverFacts| VendorDriverFacts { has_claims: true, ..facts };
        let in_turn = |facts: VendorDriverFacts| VendorDriverFacts { has_turn: true, ..facts };
        let first_load = |facts: VendorDriverFacts| {
            let state = facts.state.map(|it| VendorDriverState { waits_for_turn: true, ..it });
            VendorDriverFacts { state, ..facts }
        };
        let cases = [
            line(&first_load(facts(Some(Stage::Waiting))), Drain::Evict),
            line(&first_load(in_turn(facts(Some(Stage::Waiting)))), Drain::Evict),
            line(&facts(None), Drain::Evict),
            line(&with_claims(facts(None)), Drain::Evict),
            line(&with_claims(facts(Some(Stage::Waiting))), Drain::Wait),
            line(&with_claims(facts(Some(Stage::Waiting))), Drain::Evict),
            line(&with_claims(in_turn(facts(Some(Stage::Waiting)))), Drain::Evict),
            line(&in_turn(facts(Some(Stage::Loading))), Drain::Evict),
            line(&facts(Some(Stage::Loading)), Drain::Evict),
            line(&in_turn(facts(Some(Stage::Failed))), Drain::Evict),
            line(&in_turn(facts(Some(Stage::Ready))), Drain::Evict),
        ];
        insta::assert_snapshot!(cases.join("\n"), @r"
        wants a turn | false Waiting: version 25.04 waits: claim default/a is prepared on this node
        wants a turn, grants it | false Waiting: version 25.04 waits: claim default/a is prepared on this node
        withholds | false Expected: the vendor's driver is expected; its pod has not started yet
         | false Expected: the vendor's driver is expected; its pod has not started yet
         | false Waiting: version 25.04 waits: claim default/a is prepared on this node; drain the node, or wait until these have ended
        wants a turn | false Waiting: version 25.04 waits: claim default/a is prepared on this node; the node is drained when it is its turn
        evicts, wants a turn | false Draining: version 25.04 waits: claim default/a is prepared on this node; pods are evicted
        withholds, wants a turn | false Loading: version 25.04 is being loaded
        withholds | false Loading: version 25.04 is being loaded
        withholds, wants a turn | false Failed: version 25.04 was not loaded: exit status: 1
         | true Loaded: version 25.04 is loaded
        ");
    }
}
