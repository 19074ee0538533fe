//! The size of a run, from the environment.

use std::time::Duration;

use tests::setting;

/// The size of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Nodes of the cluster.
    pub(crate) nodes: usize,
    /// Pods that are created together when pods of different kinds are compared.
    pub(crate) burst: usize,
    /// How often each kind is measured, an even number for a fair comparison; 0 for not at all.
    pub(crate) rounds: usize,
    /// How long pods, jobs and nodes come and go.
    pub(crate) load: Duration,
    /// Nodes with a driver of their own that keeps running.
    pub(crate) drivers: usize,
}

impl Size {
    /// # Errors
    ///
    /// Fails if a variable is not a number.
    pub(crate) fn from_environment() -> anyhow::Result<Self> {
        Ok(Self {
            nodes: setting("DRANET_SCALE_NODES", 1_000)?,
            burst: setting("DRANET_SCALE_PODS", 60)?,
            rounds: setting("DRANET_SCALE_ROUNDS", 4)?,
            load: Duration::from_secs(setting("DRANET_SCALE_SECONDS", 300)?),
            drivers: setting("DRANET_DRIVERS", 20)?,
        })
    }

    /// Pods that arrive in a second: as many as keep a part of the devices busy, and not more than
    /// kube-scheduler binds on two processors, which at 5,000 nodes is 1.7 beside nothing else.
    #[expect(clippy::cast_precision_loss, reason = "thousands of nodes")]
    pub(crate) fn pods_per_second(self) -> f64 {
        let nodes = self.nodes as f64;
        (nodes / 200.0).clamp(0.5, 1.5).min(5_000.0 / nodes)
    }

    /// Fewer, so that a pod that is created when something fails waits for that alone.
    pub(crate) fn pods_per_second_beside_faults(self) -> f64 {
        self.pods_per_second() / 3.0
    }
}
