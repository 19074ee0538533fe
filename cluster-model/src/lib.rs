//! What admission, scheduler-ext and kubectl-dranet know of a cluster.
