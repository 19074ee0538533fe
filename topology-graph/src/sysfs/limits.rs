//! How much of a file is read at most.

/// A topology file of NCCL's largest machine is a tenth of it.
pub(super) const LONGEST_DOCUMENT: usize = 1 << 20;
