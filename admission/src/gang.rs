//! Pods of a job on one fabric: the decision.
//!
//! Required pod affinity cannot keep that promise: the first pod of a gang picks
//! a fabric that has no room for the last. So pods come in with a scheduling gate,
//! and one controller chooses for all of them.
//!
//! Facts are pods and nodes ([`pods`], [`nodes`]) and the objects that say how many
//! pods a job has ([`size`]). From them come the groups ([`group`]) and the room of
//! each fabric ([`room`]), which replays the scheduler's allocator. [`decide()`] is a
//! plain function of these; [`release`] says what is written, and when it may be.
//!
//! **State is in the pods alone.** A gated pod carries the fabric that was chosen as
//! an annotation, a released one as its node affinity. No gate is lifted but from a
//! list of all pods of the group, newer than the annotations, in which nobody says
//! otherwise, and only with the resource version of that list: see [`release`].

pub mod amounts;
pub mod decide;
pub mod group;
pub mod interpod;
pub mod kind;
pub mod nodes;
pub mod pods;
pub mod preview;
pub mod release;
pub mod room;
pub mod size;
pub mod why;

pub use decide::{Decision, Rules, Step, WhenFull, decide};
pub use group::{Group, Member, State};
pub use room::{Cluster, Fabric};
pub use why::Why;
