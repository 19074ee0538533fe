//! Why a claim gets no address of a pool.

use cluster_model::nic_pool::NicPoolError;

/// A claim gets no address of a pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// The pool does not exist.
    #[error("`interface.pool` names NicPool `{pool}`, which does not exist")]
    Absent {
        /// The pool.
        pool: String,
    },
    /// The pool is not for this namespace.
    #[error("NicPool `{pool}` is for namespaces {allowed}, and the claim is in `{namespace}`")]
    Namespace {
        /// The pool.
        pool: String,
        /// The claim's.
        namespace: String,
        /// The pool's, or `none`.
        allowed: String,
    },
    /// The pool contradicts itself.
    #[error("NicPool `{pool}`")]
    Invalid {
        /// The pool.
        pool: String,
        /// In what.
        source: NicPoolError,
    },
    /// Every address is another claim's.
    #[error("NicPool `{pool}` has no free address of {size}; widen it, or delete claims")]
    Full {
        /// The pool.
        pool: String,
        /// How many it has of the family.
        size: u128,
    },
    /// The configuration with what the pool adds cannot be written.
    #[error("failed to write the configuration")]
    Config(#[source] serde_json::Error),
    /// The API server refused, or did not answer.
    #[error("failed to reserve an address")]
    Api(#[from] kube::Error),
    /// It took too long.
    #[error("the API server took too long to reserve an address; the driver tries again")]
    Late,
}
