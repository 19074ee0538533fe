//! Where the API server is, as addresses: the interface that leads there is the
//! host's own, whatever the default route says.

use process::client::Server;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// Longest wait for a name. The driver can live without the answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The addresses of the server; none where nobody tells them.
pub async fn addresses(server: &Server) -> BTreeSet<IpAddr> {
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

    #[tokio::test]
    async fn addresses_and_names() {
        for (host, expected) in
            [("10.0.0.1", &["10.0.0.1"][..]), ("fd00::1", &["fd00::1"]), ("", &[])]
        {
            let found = addresses(&Server { host: host.to_owned(), port: 443 }).await;
            let expected = expected.iter().map(|text| text.parse::<IpAddr>().unwrap()).collect();
            assert_eq!(found, expected, "{host}");
        }
        let local = addresses(&Server { host: "localhost".to_owned(), port: 443 }).await;
        assert!(local.iter().all(IpAddr::is_loopback) && !local.is_empty(), "{local:?}");
    }
}
