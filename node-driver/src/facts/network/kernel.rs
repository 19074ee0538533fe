//! Reads the interfaces of this process's network namespace, and remembers what they were for.
//!
//! `changes` has the notifications, on another socket.

use super::changes::Changes;
use super::server::ApiServers;
use super::uplinks::Uplinks;
use crate::kernel::network::{Dump, NetworkError};
use publication::network::NetworkFacts;

/// Reads this process's network namespace.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    servers: ApiServers,
    uplinks: Uplinks,
}

impl Kernel {
    /// Subscribes to changes, and returns the reader.
    pub fn open() -> Result<(Self, Changes), NetworkError> {
        let changes = Changes::open().map_err(|source| NetworkError::Open { source })?;
        Ok((Self::default(), changes))
    }

    /// Also looks up the routes to these API servers.
    #[must_use]
    pub fn reaching(mut self, servers: ApiServers) -> Self {
        self.servers = servers;
        self
    }

    /// Also remembers uplinks.
    #[must_use]
    pub fn remembering(mut self, uplinks: Uplinks) -> Self {
        self.uplinks = uplinks;
        self
    }

    /// Reads everything.
    pub async fn read(&self) -> Result<NetworkFacts, NetworkError> {
        Ok(self.uplinks.complete(Dump::read_defaults(&self.servers.now()).await?.facts()))
    }
}
