//! Property tests over generated machines and arbitrary text.

#[path = "laws/graph.rs"]
mod graph;
#[path = "laws/machine.rs"]
mod machine;
#[path = "laws/oracle.rs"]
mod oracle;
#[path = "laws/plan.rs"]
mod plan;
