//! A network partition between the API server and the kubelet with its driver: connections
//! through a proxy end, and new ones too. The proxy outlives its test: kubelet and driver go on.

use std::{fs, path::PathBuf, sync::Arc};

use anyhow::Context;
use tests::ControlPlane;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

#[derive(Debug)]
pub(crate) struct ApiPartition {
    port: u16,
    is_open: Arc<watch::Sender<bool>>,
}

impl ApiPartition {
    /// Starts the proxy to this control plane's API server; the partition has not begun.
    pub(crate) async fn proxy(plane: &ControlPlane) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let address = plane.url().strip_prefix("https://").context("an address")?.to_owned();
        let (is_open, state) = watch::channel(true);
        tokio::spawn(serve(listener, address, state));
        Ok(Self { port, is_open: Arc::new(is_open) })
    }

    /// A kubeconfig that leads through the proxy.
    pub(crate) fn kubeconfig(&self, plane: &ControlPlane) -> anyhow::Result<PathBuf> {
        let text = fs::read_to_string(plane.kubeconfig())?;
        let path = plane.directory().join(format!("partition-{}.kubeconfig", self.port));
        fs::write(&path, text.replace(plane.url(), &format!("https://127.0.0.1:{}", self.port)))?;
        Ok(path)
    }

    /// Ends all connections, and new ones at once.
    pub(crate) fn begin(&self) {
        self.is_open.send_replace(false);
    }

    /// Lets new connections through.
    pub(crate) fn end(&self) {
        self.is_open.send_replace(true);
    }
}

async fn serve(listener: TcpListener, address: String, state: watch::Receiver<bool>) {
    while let Ok((client, _)) = listener.accept().await {
        if *state.borrow() {
            tokio::spawn(pass(client, address.clone(), state.clone()));
        }
    }
}

/// Copies bytes both ways, until either end is done or the partition begins.
async fn pass(mut client: TcpStream, address: String, mut state: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(address).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        Ok(_) = state.wait_for(|is_open| !is_open) => {}
    }
}
