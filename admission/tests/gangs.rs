//! The choice of fabrics as a plain function: which gang goes where, who waits and
//! why, and what holds for any gangs.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

#[path = "gangs/laws.rs"]
mod laws;
#[path = "gangs/table.rs"]
mod table;
#[path = "gangs/world.rs"]
mod world;
