//! What `Allocate` of a device plugin gives a container for its limit on a resource.

/// The NICs for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocate {
    /// One NIC for each unit: sriov-network-device-plugin, and the plugins of AWS and Google Cloud.
    OnePerUnit,
    /// All NICs of the resource, for any amount: k8s-rdma-shared-dev-plugin (`deviceSpec` in
    /// `pkg/resources/server.go`).
    All {
        /// Their number, if the configuration names interfaces or addresses. Vendors and device IDs
        /// match as many as the node has.
        named: Option<u64>,
    },
}

/// Prefixes of resources whose plugin has no configuration that names them.
const CLOUDS: [&str; 3] = ["aliyun/", "networking.gke.io.networks/", "vpc.amazonaws.com/"];

/// Whether a resource is known by its name alone.
pub(crate) fn is_of_cloud(resource: &str) -> bool {
    CLOUDS.iter().any(|prefix| resource.starts_with(prefix))
}

impl Allocate {
    /// The rule for a resource whose configuration is not known. The shared plugin is known by the
    /// word in a resource's name, or by its prefix and one unit, as it counts pods and not NICs.
    pub(crate) fn guess(resource: &str, amount: u64) -> Self {
        if resource.contains("shared") || (resource.starts_with("rdma/") && amount == 1) {
            Self::All { named: None }
        } else {
            Self::OnePerUnit
        }
    }

    pub(crate) fn gives_all(self) -> bool {
        matches!(self, Self::All { .. })
    }
}
