//! The real control plane, and the proofs that run on it.
