//! A TCP proxy that can be held or cut: bytes pass through it in both directions, wait, or are lost with their
//! connections.

use std::net::{IpAddr, SocketAddr};

use anyhow::Context;
use tokio::{
    io::{self, AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

/// Forwards connections to one server. It accepts no more when dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    held: watch::Sender<bool>,
    cut: watch::Sender<()>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    /// Listens on a free port of the loopback interface for `server`, `ADDRESS:PORT`.
    pub async fn start(server: &str) -> anyhow::Result<Self> {
        Self::start_on([127, 0, 0, 1].into(), server).await
    }

    /// Like [`Self::start`], on another address of this machine.
    pub async fn start_on(address: IpAddr, server: &str) -> anyhow::Result<Self> {
        let server: SocketAddr =
            server.parse().with_context(|| format!("`{server}` is not an address with a port"))?;
        let listener = TcpListener::bind((address, 0)).await?;
        let address = listener.local_addr()?;
        let (held, is_held) = watch::channel(false);
        let (cut, is_cut) = watch::channel(());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (held, mut cut) = (is_held.clone(), is_cut.clone());
                cut.mark_unchanged();
                tokio::spawn(async move {
                    tokio::select! {
                        () = pass(client, server, held) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Ok(Self { address, held, cut, accepting })
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds all data from now on, in both directions, or releases it.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Ends all connections. New ones are accepted.
    pub fn cut(&self) {
        self.cut.send_replace(());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Forwards one connection. If it breaks on one side, it breaks on the other.
async fn pass(client: TcpStream, server: SocketAddr, held: watch::Receiver<bool>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    tokio::select! {
        _ = pump(from_client, to_server, held.clone()) => {}
        _ = pump(from_server, to_client, held) => {}
    }
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut held: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let count = from.read(&mut bytes).await?;
        held.wait_for(|held| !held).await.map_err(io::Error::other)?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&bytes[..count]).await?;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn held_data_arrives_later_and_complete() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(&server.local_addr().unwrap().to_string()).await.unwrap();
        let mut client = TcpStream::connect(proxy.address()).await.unwrap();
        let (mut peer, _) = server.accept().await.unwrap();
        let mut got = [0; 3];
        client.write_all(b"one").await.unwrap();
        peer.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"one");

        proxy.hold(true);
        client.write_all(b"two").await.unwrap();
        let read = timeout(Duration::from_millis(100), peer.read_exact(&mut got)).await;
        assert!(read.is_err(), "it is held");
        proxy.hold(false);
        peer.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"two");
        drop(client);
        assert_eq!(peer.read(&mut got).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_connection_that_is_cut_ends_on_both_sides_and_the_next_one_is_served() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(&server.local_addr().unwrap().to_string()).await.unwrap();
        for _ in 0..2 {
            let mut client = TcpStream::connect(proxy.address()).await.unwrap();
            let (mut peer, _) = server.accept().await.unwrap();
            let mut got = [0; 3];
            client.write_all(b"one").await.unwrap();
            peer.read_exact(&mut got).await.unwrap();
            proxy.cut();
            assert_eq!(client.read(&mut got).await.unwrap_or_default(), 0);
            assert_eq!(peer.read(&mut got).await.unwrap_or_default(), 0);
        }
    }
}
