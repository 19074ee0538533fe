//! The connections of our programs to the API server, each by a proxy of its own, so that they can be cut.

use std::{collections::BTreeMap, time::Duration};

use anyhow::Context;
use tests::proxy::Proxy;
use tokio::time::sleep;

/// The proxies, by the process ID of the program.
#[derive(Debug)]
pub(crate) struct Lines {
    /// `ADDRESS:PORT` of the API server.
    server: String,
    lines: BTreeMap<u32, Proxy>,
}

impl Lines {
    /// To the API server at this URL.
    pub(crate) fn to(url: &str) -> anyhow::Result<Self> {
        let server = url.strip_prefix("https://").context("the API server has TLS")?.to_owned();
        Ok(Self { server, lines: BTreeMap::new() })
    }

    /// A line that no program has yet.
    pub(crate) async fn draw(&self) -> anyhow::Result<Proxy> {
        Proxy::start(&self.server).await
    }

    /// Keeps the line of a program.
    pub(crate) fn keep(&mut self, pid: u32, line: Proxy) {
        self.lines.insert(pid, line);
    }

    /// Forgets the line of a program that has ended.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.lines.remove(&pid);
    }

    /// Ends all connections; programs connect again.
    pub(crate) fn cut(&self) {
        self.lines.values().for_each(Proxy::cut);
    }

    /// Lets nothing pass between a program and the API server for this time.
    pub(crate) async fn cut_off(&self, pid: u32, time: Duration) -> anyhow::Result<()> {
        let line = self.lines.get(&pid).context("it has a line of its own")?;
        line.hold(true);
        sleep(time).await;
        line.hold(false);
        Ok(())
    }
}
