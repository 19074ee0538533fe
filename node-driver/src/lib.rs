//! Finds the RDMA NICs of a node, publishes them and the node's topology.
