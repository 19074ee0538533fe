//! The model of a cluster that admission, scheduler-ext, kubectl-dranet and the node driver share:
//! the names of annotations and attributes, the tables of GPU and NIC drivers, and the cluster view
//! that watches or a snapshot feed.
//!
//! It opens no connections. [`snapshot`] reads files; with the feature `live`, `watch` and `read`
//! use a given client.

#[cfg(feature = "live")]
pub mod clock;
pub mod closed;
pub mod compute_domain;
pub mod counted;
pub mod device_state;
pub mod drivers;
pub mod fabric_level;
pub mod gpu_drivers;
pub mod hyper_node;
pub mod kueue_topology;
pub mod late_node;
pub mod layout;
pub mod machines;
pub mod names;
pub mod network_config;
pub mod nic_drivers;
pub mod nic_lists;
pub mod nic_plugins;
pub mod nic_pool;
pub mod node_devices;
pub mod node_labels;
pub mod peer_memory;
pub mod placement;
pub mod plugin_machines;
pub mod pod_containers;
pub mod predict;
pub mod published_device;
#[cfg(feature = "live")]
pub mod read;
pub mod remembered;
pub mod retention;
pub mod room;
#[cfg(feature = "live")]
mod shared;
pub mod snapshot;
mod stand_in;
pub mod topology_policy;
pub mod unremembered;
pub mod view;
#[cfg(feature = "live")]
pub mod watch;
