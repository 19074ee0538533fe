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
    /// The pool is not for the claim's namespace.
    #[error("NicPool `{pool}` is for namespaces {allowed}, and the claim is in `{namespace}`")]
    Namespace {
        /// The pool.
        pool: String,
        /// The claim's namespace.
        namespace: String,
        /// The pool's namespaces, or `none`.
        allowed: String,
    },
    /// The pool's spec is inconsistent.
    #[error("NicPool `{pool}`")]
    Invalid {
        /// The pool.
        pool: String,
        /// The reason.
        source: NicPoolError,
    },
    /// The pool has no free address.
    #[error("NicPool `{pool}` has no free address among {size}; widen it, or delete claims")]
    Full {
        /// The pool.
        pool: String,
        /// The number of its addresses of the family.
        size: u128,
    },
    /// The configuration with the pool's settings could not be encoded.
    #[error("failed to write the configuration")]
    Config(#[source] serde_json::Error),
    /// The API server refused, or did not answer.
    #[error("failed to reserve an address")]
    Api(#[from] kube::Error),
    /// It took too long.
    #[error("the API server took too long to reserve an address; the driver tries again")]
    Late,
}
