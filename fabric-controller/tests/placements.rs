//! The choice of fabrics as a plain function: which gang goes where, who waits and
//! why, and what holds for any gangs.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

#[path = "placements/laws.rs"]
mod laws;
#[path = "placements/table.rs"]
mod table;
#[path = "placements/world.rs"]
mod world;
