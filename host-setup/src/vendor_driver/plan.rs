//! Decides whether the vendor's image may run now. Pure.

use super::state::{Modules, Stage, VendorDriverState};
use std::collections::BTreeSet;

/// The most claims that a text names.
const NAMED: usize = 5;

/// What uses the modules that are loaded.
#[derive(Clone, Debug, Default)]
pub(super) struct Users {
    /// Prepared claims of this node, as `namespace/name`.
    pub(super) claims: BTreeSet<String>,
    /// The loaded modules.
    pub(super) modules: Modules,
    /// Other uses, and what else speaks against loading, as text.
    pub(super) others: Vec<String>,
    /// Whether the node must wait for its turn, and has it not.
    pub(super) lacks_turn: bool,
}

/// What a node waits for that loads a version for the first time.
const TURN: &str = "this node has not loaded it before, and nodes load a new version one at a time";

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The modules are those that this version loaded: run nothing.
    Keep,
    /// Nothing uses the modules: run the image.
    Load,
    /// Something does.
    Wait(String),
    /// Nothing does, but it is not the node's turn.
    WaitForTurn(&'static str),
}

/// Decides for a version, from what was recorded in this boot and what uses the modules.
pub(super) fn next(version: &str, before: Option<&VendorDriverState>, users: &Users) -> Step {
    if before.is_some_and(|it| is_loaded(version, it, &users.modules)) {
        return Step::Keep;
    }
    match reasons(users) {
        none if none.is_empty() && users.lacks_turn => Step::WaitForTurn(TURN),
        none if none.is_empty() => Step::Load,
        reasons => Step::Wait(reasons.join("; ")),
    }
}

fn is_loaded(version: &str, before: &VendorDriverState, modules: &Modules) -> bool {
    before.stage == Stage::Ready
        && before.version == version
        && before
            .modules
            .iter()
            .all(|(name, build)| modules.get(name).is_some_and(|module| module.build == *build))
}

/// Why the image may not run now.
fn reasons(users: &Users) -> Vec<String> {
    let count = users.claims.len();
    let mut named: Vec<&str> = users.claims.iter().take(NAMED).map(String::as_str).collect();
    let more = format!("{} more", count.saturating_sub(NAMED));
    if count > NAMED {
        named.push(&more);
    }
    let claims = match count {
        0 => None,
        1 => Some(format!("claim {} is prepared on this node", named.join(", "))),
        _ => Some(format!("claims {} are prepared on this node", named.join(", "))),
    };
    let open = users.modules.iter().filter(|(_, module)| module.openers > 0);
    let open = open.map(|(name, module)| match module.openers {
        1 => format!("a process has a device of {name} open"),
        count => format!("{count} references to devices of {name} are open"),
    });
    claims.into_iter().chain(open).chain(users.others.iter().cloned()).collect()
}
