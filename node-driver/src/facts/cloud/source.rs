//! Gets the cloud's attributes from the metadata service or from an earlier answer.

use super::http::{MetadataError, Patience};
use super::{CloudMetadata, CloudProvider, dmi, read};
use node_files::boot_file::BootFile;
use process::chain::Chain;
use topology_graph::HostRoot;

/// File with what the service answered during this boot. If the service is unreachable
/// when the driver restarts, templates that rely on its attributes stay schedulable. The
/// file does not outlive a reboot, because a virtual machine may boot on another host.
const KEPT: &str = "cloud.json";
/// Version of that file's format.
const KEPT_VERSION: u32 = 3;

/// What the cloud has answered about this machine during this boot.
pub(crate) fn kept(host: &HostRoot) -> Option<CloudMetadata> {
    BootFile::new(host, KEPT, KEPT_VERSION)?.load()
}

/// One machine's cloud.
#[derive(Clone, Debug)]
pub struct CloudSource {
    provider: CloudProvider,
    base: String,
    kept: Option<BootFile<CloudMetadata>>,
}

impl CloudSource {
    /// Selects this cloud, otherwise the one that the firmware names, and this address of its metadata
    /// service, otherwise its own.
    pub fn new(cloud: Option<CloudProvider>, url: Option<String>, host: &HostRoot) -> Self {
        let provider = cloud.unwrap_or_else(|| dmi::detect(host));
        let base = url.unwrap_or_else(|| provider.metadata_url().to_owned());
        let has_any = provider != CloudProvider::None;
        let kept = has_any.then(|| BootFile::new(host, KEPT, KEPT_VERSION)).flatten();
        Self { provider, base, kept }
    }

    /// Returns an earlier answer of this boot without waiting, and asks the service only
    /// if there is none. The flag is true if the service answered now.
    pub async fn recall(&self) -> (CloudMetadata, bool) {
        match self.kept.as_ref().and_then(BootFile::load) {
            Some(kept) => (kept, false),
            None => self.read().await,
        }
    }

    /// Asks the service; the flag is true if it answered now. If it is unreachable, logs
    /// a warning and returns its earlier answer of this boot.
    pub async fn read(&self) -> (CloudMetadata, bool) {
        match self.ask().await {
            Ok(metadata) => (metadata, true),
            Err(error) => {
                let kept = self.kept.as_ref().and_then(BootFile::load);
                let attributes = kept.as_ref().map_or(0, |metadata| metadata.iter().count());
                let error = Chain(&error);
                tracing::warn!(%error, attributes, "Metadata service not reachable; using its last answer");
                (kept.unwrap_or_default(), false)
            }
        }
    }

    /// Asks the service and stores the answer for a restart.
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
        let (azure, url) = (Some(CloudProvider::Azure), Some(url.to_owned()));
        CloudSource::new(azure, url, &HostRoot::at(root))
    }

    fn boot(root: &Path, id: &str) {
        let folder = root.join("proc/sys/kernel/random");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("boot_id"), id).unwrap();
    }

    #[tokio::test]
    async fn the_last_answer_of_this_boot_is_used_while_unreachable() {
        let root = tempfile::tempdir().unwrap();
        boot(root.path(), "1b1c2d3e-0000-4000-8000-000000000001\n");
        let (said, answered) = source(root.path(), &serve().await).read().await;
        assert_eq!((said.iter().count(), answered), (2, true));

        // Port 1 of the loopback interface: nobody listens there.
        let away = "http://127.0.0.1:1";
        assert_eq!(source(root.path(), away).read().await, (said.clone(), false));
        // A service that never answers is not even asked.
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        assert_eq!(source(root.path(), &url).recall().now_or_never(), Some((said, false)));
        boot(root.path(), "1b1c2d3e-0000-4000-8000-000000000002\n");
        let (none, answered) = source(root.path(), away).read().await;
        assert_eq!((none.iter().count(), answered), (0, false), "it may be elsewhere now");
    }
}
