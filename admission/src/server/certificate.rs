//! The certificate that the leader maintains in a Secret and every replica serves.

use cluster_model::names::object;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use process::chain::Chain;
use serve::authority::CertificateBundle;
use serve::tls::Identity;
use serve::tls::clients::Clients;
use std::collections::BTreeMap;

/// Keys of the Secret: those of type `kubernetes.io/tls`, and those of the authority.
pub(crate) mod key {
    pub(crate) const AUTHORITIES: &str = "ca.crt";
    pub(crate) const AUTHORITY_KEY: &str = "ca.key";
    pub(crate) const CERTIFICATE: &str = "tls.crt";
    pub(crate) const KEY: &str = "tls.key";
}

/// Names for the certificate: those with which the API server calls a Service, and additional ones
/// from the operator.
pub(super) fn names(service: &str, namespace: &str, more: Vec<String>) -> Vec<String> {
    let own =
        [format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")];
    own.into_iter().chain(more).collect()
}

/// The content of a Secret; absent entries are empty.
pub(crate) fn bundle(secret: &Secret) -> CertificateBundle {
    CertificateBundle {
        authorities: text(secret, key::AUTHORITIES),
        authority_key: text(secret, key::AUTHORITY_KEY),
        certificate: text(secret, key::CERTIFICATE),
        key: text(secret, key::KEY),
    }
}

fn text(secret: &Secret, key: &str) -> String {
    let value = secret.data.as_ref().and_then(|data| data.get(key));
    value.map(|ByteString(bytes)| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

/// The data of a Secret with these certificates.
pub(crate) fn data(bundle: &CertificateBundle) -> BTreeMap<String, ByteString> {
    let CertificateBundle { authorities, authority_key, certificate, key } = bundle;
    let entries = [
        (key::AUTHORITIES, authorities),
        (key::AUTHORITY_KEY, authority_key),
        (key::CERTIFICATE, certificate),
        (key::KEY, key),
    ];
    let entries = entries.into_iter();
    entries.map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes()))).collect()
}

/// A watch of the Secret.
pub(super) struct OwnCertificate(BoxStream<'static, watcher::Result<Secret>>);

impl OwnCertificate {
    pub(super) fn watch(client: Client, namespace: &str) -> Self {
        let config =
            watcher::Config::default().fields(&format!("metadata.name={}", object::CERTIFICATES));
        let secrets: Api<Secret> = Api::namespaced(client, namespace);
        Self(watcher(secrets, config).default_backoff().applied_objects().boxed())
    }

    /// Waits for the first valid certificate.
    pub(super) async fn first(&mut self, clients: &Clients) -> Identity {
        loop {
            let bundle = self.next().await;
            match Identity::new(&bundle.certificate, &bundle.key, clients.clone()) {
                Ok(identity) => return identity,
                Err(error) => tracing::info!(reason = %Chain(&error), "No certificate yet"),
            }
        }
    }

    /// Serves each later certificate.
    pub(super) async fn follow(mut self, identity: &Identity) {
        loop {
            let bundle = self.next().await;
            match identity.replace(&bundle.certificate, &bundle.key) {
                Ok(()) => tracing::info!("Loaded the certificate from its Secret"),
                Err(error) => {
                    tracing::warn!(error = %Chain(&error), "Failed to load the certificate");
                }
            }
        }
    }

    async fn next(&mut self) -> CertificateBundle {
        loop {
            match self.0.try_next().await {
                Ok(Some(secret)) => return bundle(&secret),
                // A watcher has no end.
                Ok(None) => std::future::pending().await,
                Err(error) => {
                    tracing::warn!(%error, secret = object::CERTIFICATES, "Watch failed; trying again");
                }
            }
        }
    }
}
