//! Where the cloud's attributes come from: the service, or what it said before.

use super::http::{MetadataError, Patience};
use super::{CloudMetadata, CloudProvider, dmi, read};
use crate::args::{Args, Cloud};
use crate::facts::boot_file::BootFile;
use process::chain::Chain;
use topology_graph::HostRoot;

/// What the cloud said during this boot: a metadata service that is away when
/// the driver restarts must not make templates unschedulable that rely on it. A
/// virtual machine that boots again may be elsewhere.
const KEPT: &str = "cloud.json";
/// The form of that file.
const KEPT_VERSION: u32 = 3;

/// What the cloud has said of this machine during this boot.
pub(crate) fn kept(host: &HostRoot) -> Option<CloudMetadata> {
    BootFile::of(host, KEPT, KEPT_VERSION)?.load()
}

/// One machine's cloud.
#[derive(Clone, Debug)]
pub struct CloudSource {
    provider: CloudProvider,
    base: String,
    kept: Option<BootFile<CloudMetadata>>,
}

impl CloudSource {
    /// The cloud of the flags; where they leave it open, that of the firmware.
    pub fn new(args: &Args, host: &HostRoot) -> Self {
        let provider = match args.cloud {
            Cloud::Auto => dmi::detect(host),
            Cloud::Provider(provider) => provider,
        };
        let base = args.imds_url.clone().unwrap_or_else(|| provider.metadata_url().to_owned());
        let has_any = provider != CloudProvider::None;
        let kept = has_any.then(|| BootFile::of(host, KEPT, KEPT_VERSION)).flatten();
        Self { provider, base, kept }
    }

    /// What is known without waiting: what the service said earlier during this boot, and
    /// only without that what it says now. And whether it said it now.
    pub async fn recall(&self) -> (CloudMetadata, bool) {
        match self.kept.as_ref().and_then(BootFile::load) {
            Some(kept) => (kept, false),
            None => self.read().await,
        }
    }

    /// What the service says, and whether it said it now. A service that is away
    /// is a warning; what it said earlier during this boot then counts.
    pub async fn read(&self) -> (CloudMetadata, bool) {
        match self.ask().await {
            Ok(metadata) => (metadata, true),
            Err(error) => {
                let kept = self.kept.as_ref().and_then(BootFile::load);
                let attributes = kept.as_ref().map_or(0, |metadata| metadata.iter().count());
                let error = Chain(&error);
                tracing::warn!(%error, attributes, "Metadata service not reachable; using the attributes of before");
                (kept.unwrap_or_default(), false)
            }
        }
    }

    /// What the service says now, kept for a restart.
    pub async fn ask(&self) -> Result<CloudMetadata, MetadataError> {
        let metadata = read(self.provider, &self.base, Patience::default()).await?;
        if let Some(Err(error)) = self.kept.as_ref().map(|file| file.store(&metadata)) {
            let error = Chain(&error);
            tracing::warn!(%error, "Attributes of the cloud not saved for a restart");
        }
        Ok(metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::routing::get;
    use clap::Parser;
    use futures::FutureExt;
    use std::fs;
    use std::path::Path;
    use tokio::net::TcpListener;

    const SAYS: &str = r#"{"placementGroupId": "c6c749e8", "vmSize": "Standard_ND96"}"#;

    /// An Azure metadata service.
    async fn serve() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().route("/metadata/instance/compute", get(|| async { SAYS }));
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    fn source(root: &Path, url: &str) -> CloudSource {
        let args = ["node-driver", "--node-name", "n", "--cloud", "azure", "--imds-url", url];
        CloudSource::new(&Args::parse_from(args), &HostRoot::at(root))
    }

    fn boot(root: &Path, id: &str) {
        let folder = root.join("proc/sys/kernel/random");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("boot_id"), id).unwrap();
    }

    #[tokio::test]
    async fn what_it_said_during_this_boot_counts_while_it_is_away() {
        let root = tempfile::tempdir().unwrap();
        boot(root.path(), "1b1c2d3e-0000-4000-8000-000000000001\n");
        let (said, answered) = source(root.path(), &serve().await).read().await;
        assert_eq!((said.iter().count(), answered), (2, true));

        // Port 1 of the loopback interface: nobody listens there.
        let away = "http://127.0.0.1:1";
        assert_eq!(source(root.path(), away).read().await, (said.clone(), false));
        // One that never answers is not even asked.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        assert_eq!(source(root.path(), &url).recall().now_or_never(), Some((said, false)));
        boot(root.path(), "1b1c2d3e-0000-4000-8000-000000000002\n");
        let (none, answered) = source(root.path(), away).read().await;
        assert_eq!((none.iter().count(), answered), (0, false), "it may be elsewhere now");
    }
}
