//! Where the cloud's attributes come from: the service, or what it said before.

use super::checkpoint::Checkpoint;
use super::http::{MetadataError, Patience};
use super::{CloudMetadata, CloudProvider, dmi, read};
use crate::args::{Args, Cloud};
use serve::chain::Chain;
use topology_graph::HostRoot;

/// One machine's cloud.
#[derive(Clone, Debug)]
pub struct CloudSource {
    provider: CloudProvider,
    base: String,
    checkpoint: Option<Checkpoint>,
}

impl CloudSource {
    /// The cloud of the flags; where they leave it open, that of the firmware.
    pub fn new(args: &Args, host: &HostRoot) -> Self {
        let provider = match args.cloud {
            Cloud::Auto => dmi::detect(host),
            Cloud::Provider(provider) => provider,
        };
        let base = args.imds_url.clone().unwrap_or_else(|| provider.metadata_url().to_owned());
        Self { provider, base, checkpoint: Checkpoint::of(host) }
    }

    /// What the service says, and whether it said it now. A service that is away
    /// is a warning; what it said earlier during this boot then counts.
    pub async fn read(&self) -> (CloudMetadata, bool) {
        match self.ask().await {
            Ok(metadata) => (metadata, true),
            Err(error) => {
                let kept = self.checkpoint.as_ref().and_then(Checkpoint::load);
                let attributes = kept.as_ref().map_or(0, |metadata| metadata.iter().count());
                let error = Chain(&error);
                tracing::warn!(%error, attributes, "Metadata service away; kept attributes count");
                (kept.unwrap_or_default(), false)
            }
        }
    }

    /// What the service says now, kept for a restart.
    pub async fn ask(&self) -> Result<CloudMetadata, MetadataError> {
        let metadata = read(self.provider, &self.base, Patience::default()).await?;
        let store = |checkpoint: &Checkpoint| checkpoint.store(&metadata);
        if let Some(Err(error)) =
            self.checkpoint.as_ref().filter(|_| self.provider != CloudProvider::None).map(store)
        {
            tracing::warn!(%error, "Attributes of the cloud not kept for a restart");
        }
        Ok(metadata)
    }
}
