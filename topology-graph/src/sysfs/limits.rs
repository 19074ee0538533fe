//! The maximum sizes of files.

/// The topology file of NCCL's largest machine is a tenth of this.
pub(super) const LONGEST_DOCUMENT: usize = 1 << 20;
