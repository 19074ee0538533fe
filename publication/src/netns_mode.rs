//! The mode of the RDMA subsystem (`rdma-system(8)`): whether an RDMA device belongs to one
//! network namespace.

/// Which processes may open an RDMA device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NetnsMode {
    /// Processes in all network namespaces.
    #[default]
    Shared,
    /// Processes in the device's network namespace.
    Exclusive,
}

impl NetnsMode {
    /// The word that `rdma system` uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Exclusive => "exclusive",
        }
    }
}
