//! Scores in whole clusters: nodes as their drivers publish them, pods as they reach the
//! extender, and the extender's memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod scoring {
    mod cluster;
    mod hidden;
    mod late;
    mod laws;
    mod learning;
    mod pages;
    mod scores;
}
