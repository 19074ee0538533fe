//! Resolves the API server's addresses: the interface that leads there belongs to the
//! host, whatever the default route says.
//!
//! A pod's configuration names the Service `kubernetes`. Its address is virtual and is
//! rewritten on the way, so the servers behind it are looked up too.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, Client};
use process::client::Server;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::time::{sleep, timeout};

/// Longest wait for a name, and for the servers behind the Service. The driver works
/// without the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lookup interval: a control plane is replaced machine by machine.
const PERIOD: Duration = Duration::from_mins(5);

/// Namespace and name of the `EndpointSlice` in which the API servers list themselves
/// (`pkg/controlplane/reconcilers`).
const ENDPOINTS: (&str, &str) = ("default", "kubernetes");

/// The last known addresses of the API servers. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ApiServers(Arc<Mutex<BTreeSet<IpAddr>>>);

impl ApiServers {
    /// The addresses now.
    pub fn now(&self) -> BTreeSet<IpAddr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the addresses, unless none were found.
    pub fn set(&self, servers: BTreeSet<IpAddr>) {
        if !servers.is_empty() {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = servers;
        }
    }

    /// Looks the addresses up once.
    pub async fn look(&self, client: &Client, server: &Server) {
        let mut servers = addresses(server).await;
        servers.extend(behind_service(client).await);
        self.set(servers);
    }

    /// Looks the addresses up periodically.
    pub async fn follow(self, client: Client, server: Server) {
        loop {
            sleep(PERIOD).await;
            self.look(&client, &server).await;
        }
    }
}

/// The servers behind the Service; empty if they cannot be read.
async fn behind_service(client: &Client) -> BTreeSet<IpAddr> {
    let (namespace, name) = ENDPOINTS;
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
    match timeout(PATIENCE, slices.get_opt(name)).await {
        Ok(Ok(slice)) => slice.map(|slice| addresses_of(&slice)).unwrap_or_default(),
        Ok(Err(error)) => {
            tracing::warn!(%error, "EndpointSlice of the API servers not read; the interface that leads to them may be published");
            BTreeSet::new()
        }
        Err(_) => {
            tracing::warn!("EndpointSlice of the API servers not read in time");
            BTreeSet::new()
        }
    }
}

fn addresses_of(slice: &EndpointSlice) -> BTreeSet<IpAddr> {
    let addresses = slice.endpoints.iter().flatten().flat_map(|endpoint| &endpoint.addresses);
    addresses.filter_map(|address| address.parse().ok()).collect()
}

/// The addresses of the configured server; empty if it cannot be resolved.
async fn addresses(server: &Server) -> BTreeSet<IpAddr> {
    let Server { host, port } = server;
    if let Ok(address) = host.parse() {
        return BTreeSet::from([address]);
    }
    match timeout(PATIENCE, lookup_host((host.as_str(), *port))).await {
        Ok(Ok(found)) => found.map(|address| address.ip()).collect(),
        Ok(Err(error)) => {
            tracing::warn!(host, %error, "No address of the API server; its interface may be published");
            BTreeSet::new()
        }
        Err(_) => {
            tracing::warn!(
                host,
                "No address of the API server in time; its interface may be published"
            );
            BTreeSet::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ips(texts: &[&str]) -> BTreeSet<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[tokio::test]
    async fn addresses_and_names() {
        for (host, expected) in
            [("10.0.0.1", &["10.0.0.1"][..]), ("fd00::1", &["fd00::1"]), ("", &[])]
        {
            let found = addresses(&Server { host: host.to_owned(), port: 443 }).await;
            assert_eq!(found, ips(expected), "{host}");
        }
        let local = addresses(&Server { host: "localhost".to_owned(), port: 443 }).await;
        assert!(local.iter().all(IpAddr::is_loopback) && !local.is_empty(), "{local:?}");
    }

    #[test]
    fn the_servers_behind_the_service() {
        let slice: EndpointSlice = serde_json::from_value(json!({
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.1.0.4"], "conditions": {"ready": true}},
                {"addresses": ["10.1.0.5", "not an address"]},
            ],
        }))
        .unwrap();
        assert_eq!(addresses_of(&slice), ips(&["10.1.0.4", "10.1.0.5"]));
        let servers = ApiServers::default();
        servers.set(addresses_of(&slice));
        servers.set(BTreeSet::new());
        assert_eq!(servers.clone().now(), ips(&["10.1.0.4", "10.1.0.5"]), "still known");
    }
}
