//! The choice of fabrics as a pure function: which gang is placed where, which waits and
//! why, and laws that hold for any gangs.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

#[path = "placements/laws.rs"]
mod laws;
#[path = "placements/levels.rs"]
mod levels;
#[path = "placements/reported.rs"]
mod reported;
#[path = "placements/table.rs"]
mod table;
#[path = "placements/volumes.rs"]
mod volumes;
#[path = "placements/world.rs"]
mod world;
