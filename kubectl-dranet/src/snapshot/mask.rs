//! Names that tell whose cluster it is, replaced: each by the same text everywhere, and in the
//! same order, so that decisions stay as they are.

use cluster_model::names::{ADMISSION_NAMESPACE, annotation, label};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Namespaces that every cluster has.
const KNOWN_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", ADMISSION_NAMESPACE];

/// Labels and annotations of these domains say what a machine or a pod is, not whose.
const KNOWN_DOMAINS: [&str; 8] = [
    annotation::DOMAIN,
    "topology.dranet.io/",
    "app.kubernetes.io/",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/",
    "nvidia.com/",
    "feature.node.kubernetes.io/",
];

/// Between the parts of a text.
const SEPARATORS: [char; 4] = ['/', ',', '"', '\''];

/// Fields whose values are labels, or must equal them.
const LABEL_FIELDS: [&str; 4] = ["labels", "annotations", "matchLabels", "nodeSelector"];

/// What each text becomes.
#[derive(Debug)]
pub(super) struct Masked {
    /// Names and addresses, wherever they are.
    names: BTreeMap<String, String>,
    /// Values of labels, among labels and selectors only: `true` is a value, too.
    values: BTreeMap<String, String>,
}

/// Texts to be replaced, by what they are.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: BTreeMap<&'static str, BTreeSet<String>>,
    values: BTreeSet<String>,
}

impl Masked {
    pub(super) fn of(found: Names) -> Self {
        let mut names = BTreeMap::new();
        for (kind, of_kind) in found.names {
            for (number, name) in of_kind.into_iter().enumerate() {
                names.entry(name).or_insert_with(|| replacement(kind, number));
            }
        }
        let values = found.values.into_iter().enumerate();
        let values = values.map(|(number, value)| (value, replacement("value", number)));
        Self { names, values: values.collect() }
    }

    /// The text, or what it becomes.
    pub(super) fn text(&self, text: &str) -> String {
        if let Some(other) = self.names.get(text) {
            return other.clone();
        }
        // Lists of addresses, `namespace/name`, literals of CEL expressions.
        let parts = text.split_inclusive(SEPARATORS).map(|part| {
            let token = part.trim_end_matches(SEPARATORS);
            match self.names.get(token) {
                Some(other) => other.clone() + &part[token.len()..],
                None => part.to_owned(),
            }
        });
        parts.collect()
    }

    /// Replaces the texts of an object.
    pub(super) fn apply(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.apply(item)),
            Value::Object(fields) => {
                let of = fields.get("key").and_then(Value::as_str).map(str::to_owned);
                for (key, value) in fields {
                    match value {
                        Value::Object(labels) if LABEL_FIELDS.contains(&key.as_str()) => {
                            labels.iter_mut().for_each(|(key, value)| self.label(key, value));
                        }
                        Value::Array(values) if key == "values" => {
                            let key = of.as_deref().unwrap_or_default();
                            for value in values {
                                self.label(key, value);
                            }
                        }
                        value => self.apply(value),
                    }
                }
            }
            _ => {}
        }
    }

    fn label(&self, key: &str, value: &mut Value) {
        match value.as_str().and_then(|text| self.values.get(text)) {
            Some(other) if !is_known(key) => *value = other.as_str().into(),
            _ => self.apply(value),
        }
    }
}

/// Whether a label says what something is, not whose.
fn is_known(key: &str) -> bool {
    key != label::FABRIC_GROUP && KNOWN_DOMAINS.iter().any(|domain| key.starts_with(domain))
}

/// Leaves out what tells whose cluster it is and no command reads, and of images whose registry
/// they are in.
pub(super) fn scrub(object: &mut Value) {
    for (field, names) in [
        ("metadata", &["generateName"][..]),
        ("spec", &["providerID", "serviceAccountName", "serviceAccount", "hostname", "subdomain"]),
        ("status", &["nodeInfo"]),
    ] {
        if let Some(fields) = object.get_mut(field).and_then(Value::as_object_mut) {
            for name in names {
                fields.remove(*name);
            }
        }
    }
    images(object);
}

fn images(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(images),
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(image) if key == "image" => {
                        *image = image.rsplit('/').next().unwrap_or_default().to_owned();
                    }
                    value => images(value),
                }
            }
        }
        _ => {}
    }
}

impl Names {
    fn add(&mut self, kind: &'static str, name: &Value) {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            self.names.entry(kind).or_default().insert(name.to_owned());
        }
    }

    /// Adds those of an object.
    pub(super) fn of_object(&mut self, object: &Value) {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let is_system = KNOWN_NAMESPACES.contains(&namespace);
        if !is_system {
            self.add("namespace", &metadata["namespace"]);
        }
        match object["kind"].as_str().unwrap_or_default() {
            "Node" | "NodeTopology" => self.add("node", &metadata["name"]),
            "ResourceSlice" => {
                self.add("node", &object["spec"]["nodeName"]);
                self.add("slice", &metadata["name"]);
            }
            "Pod" if !is_system => self.add("pod", &metadata["name"]),
            "ResourceClaim" if !is_system => self.add("claim", &metadata["name"]),
            "ResourceClaimTemplate" if !is_system => self.add("template", &metadata["name"]),
            "ResourceQuota" if !is_system => self.add("quota", &metadata["name"]),
            _ => {}
        }
        for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
            if !is_system {
                self.add("owner", &owner["name"]);
            }
        }
        for field in ["labels", "annotations"] {
            for (key, value) in metadata[field].as_object().into_iter().flatten() {
                if let (Some(value), false) = (value.as_str(), is_known(key) || is_system) {
                    self.values.insert(value.to_owned());
                }
            }
        }
        self.of_texts(object);
    }

    /// Addresses and UUIDs wherever they are.
    fn of_texts(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                for part in text.split(SEPARATORS) {
                    if let Some(kind) = address(part) {
                        self.names.entry(kind).or_default().insert(part.to_owned());
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.of_texts(item)),
            Value::Object(fields) => fields.values().for_each(|value| self.of_texts(value)),
            _ => {}
        }
    }
}

/// What kind of address a text is.
fn address(text: &str) -> Option<&'static str> {
    let groups = |separator: char, lengths: &[usize]| {
        let parts: Vec<&str> = text.split(separator).collect();
        parts.len() == lengths.len()
            && parts.iter().zip(lengths).all(|(part, length)| part.len() == *length)
            && parts.iter().all(|part| part.chars().all(|c| c.is_ascii_hexdigit()))
    };
    let uuid = text.strip_prefix("GPU-").unwrap_or(text);
    if uuid.len() == 36 && uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
        return Some(if uuid.len() == text.len() { "uuid" } else { "gpu" });
    }
    match () {
        () if groups(':', &[2; 6]) => Some("mac"),
        () if groups(':', &[4; 4]) => Some("guid"),
        () if text.contains(['.', ':']) => match text.parse::<IpAddr>().ok()? {
            IpAddr::V4(_) => Some("ipv4"),
            IpAddr::V6(_) => Some("ipv6"),
        },
        () => None,
    }
}

/// Of the same form, and in the same order.
fn replacement(kind: &str, number: usize) -> String {
    let [.., a, b, c] = number.to_be_bytes();
    match kind {
        "mac" => format!("02:00:00:{a:02x}:{b:02x}:{c:02x}"),
        "guid" => format!("0000:0000:{a:04x}:{b:02x}{c:02x}"),
        "uuid" => format!("00000000-0000-0000-0000-{number:012x}"),
        "gpu" => format!("GPU-00000000-0000-0000-0000-{number:012x}"),
        // The addresses for benchmarks (RFC 2544) and for documentation (RFC 3849).
        "ipv4" => format!("198.{}.{b}.{c}", 18 + (a & 1)),
        "ipv6" => format!("2001:db8::{a:x}:{b:02x}{c:02x}"),
        kind => format!("{kind}-{number:06}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_become_the_same_text_everywhere() {
        let mut objects = vec![
            json!({ "kind": "Node", "metadata": { "name": "acme-1", "labels": {
                "kubernetes.io/hostname": "acme-1", "kubernetes.io/arch": "amd64", "team": "acme",
            } } }),
            json!({ "kind": "ResourceSlice", "metadata": { "name": "acme-1-x" }, "spec": {
                "nodeName": "acme-1", "pool": { "name": "acme-1" }, "devices": [
                    { "name": "gpu-0", "attributes": { "uuid": { "string": "GPU-ad11da28-1111-2222-3333-444444444444" } } },
                    { "name": "nic-0", "attributes": {
                        "mac": { "string": "00:11:22:33:44:55" },
                        "ipv4": { "string": "10.1.2.3/24,10.1.2.4/24" },
                    } },
                ],
            } }),
            json!({ "kind": "Pod", "metadata": {
                "name": "secret-job", "namespace": "acme", "generateName": "secret-",
            }, "spec": { "nodeName": "acme-1", "serviceAccountName": "acme-sa", "containers": [
                { "name": "c", "image": "registry.acme.com/team/train:1" },
            ] } }),
            json!({ "kind": "ResourceClaim", "metadata": { "name": "acme-claim", "namespace": "acme" },
                "spec": { "expression": "x == \"GPU-ad11da28-1111-2222-3333-444444444444\" && y == 'acme-1'" } }),
            json!({ "kind": "Pod", "metadata": { "name": "kube-proxy", "namespace": "kube-system" } }),
        ];
        objects.iter_mut().for_each(scrub);
        let mut names = Names::default();
        objects.iter().for_each(|object| names.of_object(object));
        let masked = Masked::of(names);
        for object in &mut objects {
            masked.apply(object);
        }
        insta::assert_json_snapshot!(objects);
        let text = serde_json::to_string(&objects).unwrap();
        for name in ["acme", "secret-job", "ad11da28", "00:11", "10.1"] {
            assert!(!text.contains(name), "`{name}` is left in {text}");
        }
    }
}
