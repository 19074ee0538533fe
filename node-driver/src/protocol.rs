//! The protocol of claims in all states of a small node, whatever happens and whenever a process dies.
//!
//! The product's own code runs on real files: what the kubelet asks for, the hook, what the runtime tells by
//! NRI, and the repair at the start. Played are the kernel ([`played`](crate::kernel::attach::played)), and the
//! kubelet, the runtime and the scheduler ([`world`]).

mod claims;
mod driver;
mod ends;
mod exhaustive;
mod files;
mod mistakes;
mod node;
mod process;
mod runtime;
mod world;

pub(crate) use process::Life;
