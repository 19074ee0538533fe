//! Who gives way to whom.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

#[path = "preemptions/groups.rs"]
mod groups;
#[path = "preemptions/laws.rs"]
mod laws;
#[path = "preemptions/moves.rs"]
mod moves;
#[path = "preemptions/table.rs"]
mod table;
#[path = "preemptions/world.rs"]
mod world;
