//! The score of a node, as a pure function of what the pod gets there and of what the
//! node and its fabric can serve afterwards.
//!
//! The order is strict: first what the pod gets ([`Gets`]), then what is lost for future
//! pods ([`Cost`]). [`rank`] converts both to 0 to 10 points for the candidates of one
//! request.
//!
//! The loss follows two papers. `HiveD` (OSDI '20) keeps a hierarchy of cells and keeps
//! large cells whole. FGD (ATC '23) chooses the node on which the pods that the cluster
//! really runs lose least. Here, FGD's loss is computed at each level of `HiveD`'s
//! hierarchy, and from the expected future room. FGD counts a node with one GPU in use as
//! lost for a pod that needs all of it, although it may be the next one with room for
//! that pod.
//!
//! ```
//! use scheduler_ext::score::{Cost, Demand, Free, FreeCells, Gets, Mix, Outcome, rank};
//!
//! let mix = Mix::new([(Demand::gpus(1), 3), (Demand::gpus(2), 1)]);
//! // Two NUMA nodes of two GPUs and two NICs; the pod takes a pair of the first.
//! let room = |gpus| {
//!     let cells = [gpus, 2].map(|gpus| Free::new(gpus, gpus));
//!     FreeCells::new(vec![cells.to_vec(), vec![Free::new(gpus + 2, gpus + 2)]])
//! };
//! let whole = Cost::new(&room(2), &room(1), &room(2), &mix);
//! let broken = Cost::new(&room(1), &room(0), &room(2), &mix);
//! let outcome = |cost| Some(Outcome { gets: Gets::default(), cost });
//! assert_eq!(rank(&[outcome(whole), outcome(broken)]), [0, 10]);
//! ```

mod cost;
mod free_cells;
mod gets;
mod mix;
mod rank;

pub use cost::{Cost, Costs};
pub use free_cells::{Free, FreeCells};
pub use gets::{AtStart, Gets, Reach};
pub(crate) use mix::shape;
pub use mix::{Demand, Mix, ParseMixError};
pub use rank::{NEUTRAL, Outcome, SCORE_MAX, rank};

/// What a point is worth beside the scores of kube-scheduler's plugins: the weight of the extender in
/// `deploy/scheduler-config.yaml`, times `MaxNodeScore / MaxExtenderPriority`.
pub const WORTH_OF_POINT: i64 = 18 * 10;
