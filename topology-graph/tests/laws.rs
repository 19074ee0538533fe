//! What holds of every machine, however strange: laws over generated snapshots
//! and over any text.

#[path = "laws/graph.rs"]
mod graph;
#[path = "laws/machine.rs"]
mod machine;
#[path = "laws/oracle.rs"]
mod oracle;
#[path = "laws/plan.rs"]
mod plan;
