//! The networks that a pod names.

use serde_json::{Map, Value};

/// A network that a pod names in an annotation.
pub(crate) struct NamedNetwork {
    /// Its namespace: the pod's own if none is named.
    pub(crate) namespace: String,
    /// Its name.
    pub(crate) name: String,
    /// The pod's own settings, such as addresses and the interface name.
    pub(crate) own: Vec<String>,
}

/// Parses the networks in an annotation: `a, ns/b@net1`, or JSON.
pub(crate) fn named(text: &str, namespace: &str) -> Result<Vec<NamedNetwork>, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        let list: Vec<Map<String, Value>> = serde_json::from_str(text)?;
        return Ok(list
            .iter()
            .filter_map(|network| {
                let others = network
                    .iter()
                    .filter(|(key, _)| !["name", "namespace"].contains(&key.as_str()));
                Some(NamedNetwork {
                    namespace: text_of(network, "namespace")
                        .unwrap_or_else(|| namespace.to_owned()),
                    name: text_of(network, "name")?,
                    own: others.map(|(key, value)| format!("`{key}: {value}`")).collect(),
                })
            })
            .collect());
    }
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    Ok(names
        .map(|name| {
            let (name, interface) = name.split_once('@').unwrap_or((name, ""));
            let (own, name) = name.split_once('/').unwrap_or((namespace, name));
            let interface = Some(interface).filter(|it| !it.is_empty());
            NamedNetwork {
                namespace: own.to_owned(),
                name: name.to_owned(),
                own: interface.into_iter().map(|it| format!("`interface: {it}`")).collect(),
            }
        })
        .collect())
}

fn text_of(network: &Map<String, Value>, field: &str) -> Option<String> {
    network.get(field)?.as_str().map(str::to_owned)
}
