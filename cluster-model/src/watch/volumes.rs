//! Watches of volumes, which begin when somebody needs them.

use super::{SharedView, follow_kind};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{
    CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment,
};
use kube::Client;
use std::fmt;
use tokio::sync::{OnceCell, mpsc};
use tokio::task::JoinSet;

/// The volumes of a view, which are followed from the time at which they are needed: a cluster can have
/// many more volumes than nodes, and most pods with devices have none.
pub struct VolumesOnDemand {
    client: Client,
    view: SharedView,
    following: OnceCell<JoinSet<()>>,
}

impl fmt::Debug for VolumesOnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumesOnDemand").finish_non_exhaustive()
    }
}

impl VolumesOnDemand {
    /// Follows nothing yet.
    pub fn new(client: Client, view: SharedView) -> Self {
        Self { client, view, following: OnceCell::new() }
    }

    /// Follows the volumes from the first call on. Returns when all of them are in the view.
    pub async fn listed(&self) {
        self.following.get_or_init(|| self.follow()).await;
    }

    async fn follow(&self) -> JoinSet<()> {
        // Every list has a sender; when all are dropped, nothing more comes.
        let (listed, mut all) = mpsc::channel::<()>(1);
        let mut tasks = JoinSet::new();
        let (client, view) = (&self.client, &self.view);
        macro_rules! follow {
            ($($kind:ty),* $(,)?) => {$(
                tasks.spawn(follow_kind::<$kind, _>(client.clone(), view.clone(), listed.clone()));
            )*};
        }
        follow!(
            PersistentVolumeClaim,
            PersistentVolume,
            StorageClass,
            CSIDriver,
            CSINode,
            CSIStorageCapacity,
            VolumeAttachment,
        );
        drop(listed);
        all.recv().await;
        tasks
    }
}
