//! What admission, scheduler-ext, kubectl-dranet and the driver agree on: the
//! names of annotations and attributes, the table of GPU drivers, and the view
//! of a cluster that reflectors or a snapshot feed.

pub mod gpu_drivers;
pub mod names;
pub mod network_config;
