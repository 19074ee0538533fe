//! The way to the API server, which can be shut: connections through it end, and
//! new ones too. When its test has ended it stays as it was: kubelet and driver go on.

use std::{fs, path::PathBuf, sync::Arc};

use anyhow::Context;
use tests::ControlPlane;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};

#[derive(Debug)]
pub(crate) struct Door {
    port: u16,
    is_open: Arc<watch::Sender<bool>>,
}

impl Door {
    /// Opens one to this control plane's API server.
    pub(crate) async fn open(plane: &ControlPlane) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let address = plane.url().strip_prefix("https://").context("an address")?.to_owned();
        let (is_open, state) = watch::channel(true);
        tokio::spawn(serve(listener, address, state));
        Ok(Self { port, is_open: Arc::new(is_open) })
    }

    /// A kubeconfig that leads through it.
    pub(crate) fn kubeconfig(&self, plane: &ControlPlane) -> anyhow::Result<PathBuf> {
        let text = fs::read_to_string(plane.kubeconfig())?;
        let path = plane.directory().join(format!("door-{}.kubeconfig", self.port));
        fs::write(&path, text.replace(plane.url(), &format!("https://127.0.0.1:{}", self.port)))?;
        Ok(path)
    }

    pub(crate) fn shut(&self) {
        self.is_open.send_replace(false);
    }

    pub(crate) fn open_again(&self) {
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

/// Bytes both ways, until either end is done or the door is shut.
async fn pass(mut client: TcpStream, address: String, mut state: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(address).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        Ok(_) = state.wait_for(|is_open| !is_open) => {}
    }
}
