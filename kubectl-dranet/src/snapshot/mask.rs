//! Masks names that identify the cluster's owner: each is replaced by the same text
//! everywhere. The sort order is kept, so that decisions stay the same.

use cluster_model::names::{ADMISSION_NAMESPACE, annotation, label};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// Namespaces that every cluster has.
const KNOWN_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", ADMISSION_NAMESPACE];

/// Domains of labels and annotations that describe a machine or a pod, not its owner.
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

/// Characters between the parts of a text.
const SEPARATORS: [char; 4] = ['/', ',', '"', '\''];

/// Fields with label values, or with values that must equal them.
const LABEL_FIELDS: [&str; 4] = ["labels", "annotations", "matchLabels", "nodeSelector"];

/// The replacement of each text.
#[derive(Debug)]
pub(super) struct Masked {
    /// Names and addresses, which are replaced everywhere.
    names: HashMap<String, String>,
    /// Label values, which are replaced only in labels and selectors: a value may be a
    /// common word such as `true`.
    values: HashMap<String, String>,
}

/// Texts to replace, by kind.
#[derive(Debug, Default)]
pub(super) struct Names {
    names: BTreeMap<&'static str, BTreeSet<String>>,
    values: BTreeSet<String>,
}

impl Masked {
    pub(super) fn new(found: Names) -> Self {
        let mut names = HashMap::new();
        for (kind, of_kind) in found.names {
            for (number, name) in of_kind.into_iter().enumerate() {
                names.entry(name).or_insert_with(|| replacement(kind, number));
            }
        }
        let values = found.values.into_iter().enumerate();
        let values = values.map(|(number, value)| (value, replacement("value", number)));
        Self { names, values: values.collect() }
    }

    /// The text, or its replacement.
    pub(super) fn text(&self, text: &str) -> String {
        self.other(text).unwrap_or_else(|| text.to_owned())
    }

    /// The replacement of a text; `None` if it contains nothing to replace.
    fn other(&self, text: &str) -> Option<String> {
        if let Some(other) = self.names.get(text) {
            return Some(other.clone());
        }
        // Lists of addresses, `namespace/name`, literals in CEL expressions.
        let mut out: Option<String> = None;
        let (mut copied, mut at) = (0, 0);
        for token in text.split(SEPARATORS) {
            if let Some(other) = self.names.get(token) {
                let out = out.get_or_insert_default();
                out.push_str(&text[copied..at]);
                out.push_str(other);
                copied = at + token.len();
            }
            // Every separator is one byte.
            at += token.len() + 1;
        }
        if let Some(out) = &mut out {
            out.push_str(&text[copied..]);
        }
        out
    }

    /// Replaces the texts in an object.
    pub(super) fn apply(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(other) = self.other(text) {
                    *text = other;
                }
            }
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

/// Whether a label describes an object and not its owner.
fn is_known(key: &str) -> bool {
    key != label::FABRIC_GROUP && KNOWN_DOMAINS.iter().any(|domain| key.starts_with(domain))
}

/// Removes fields that identify the owner and that no command reads, and the registries
/// of images.
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
                    Value::String(image) if key == "image" => without_registry(image),
                    Value::Array(names) if key == "names" => {
                        for name in names {
                            if let Value::String(name) = name {
                                without_registry(name);
                            }
                        }
                    }
                    value => images(value),
                }
            }
        }
        _ => {}
    }
}

fn without_registry(image: &mut String) {
    *image = image.rsplit('/').next().unwrap_or_default().to_owned();
}

impl Names {
    fn add(&mut self, kind: &'static str, name: &Value) {
        if let Some(name) = name.as_str().filter(|name| !name.is_empty()) {
            self.names.entry(kind).or_default().insert(name.to_owned());
        }
    }

    /// Adds the names in an object.
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
            "Namespace" if !KNOWN_NAMESPACES.iter().any(|it| metadata["name"] == *it) => {
                self.add("namespace", &metadata["name"]);
            }
            "PersistentVolume" => self.add("volume", &metadata["name"]),
            "PersistentVolumeClaim" if !is_system => self.add("volume-claim", &metadata["name"]),
            "Service" if !is_system => self.add("service", &metadata["name"]),
            "LimitRange" if !is_system => self.add("limit-range", &metadata["name"]),
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

    /// Adds addresses and UUIDs anywhere in a value.
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

/// The kind of address that a text is.
fn address(text: &str) -> Option<&'static str> {
    // Fast path: most texts are neither.
    if !text.contains(['.', ':', '-']) {
        return None;
    }
    let uuid = text.strip_prefix("GPU-").unwrap_or(text);
    if uuid.len() == 36 && uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
        return Some(if uuid.len() == text.len() { "uuid" } else { "gpu" });
    }
    match () {
        () if is_grouped(text, 6, 2) => Some("mac"),
        () if is_grouped(text, 4, 4) => Some("guid"),
        () if text.contains(['.', ':']) => match text.parse::<IpAddr>().ok()? {
            IpAddr::V4(_) => Some("ipv4"),
            IpAddr::V6(_) => Some("ipv6"),
        },
        () => None,
    }
}

/// Whether a text is this number of groups of this many hexadecimal digits, between colons.
fn is_grouped(text: &str, number: usize, length: usize) -> bool {
    text.len() == number * (length + 1) - 1
        && text.bytes().enumerate().all(|(at, byte)| match (at + 1) % (length + 1) {
            0 => byte == b':',
            _ => byte.is_ascii_hexdigit(),
        })
}

/// A replacement with the same format that keeps the sort order.
fn replacement(kind: &str, number: usize) -> String {
    let [.., a, b, c] = number.to_be_bytes();
    match kind {
        "mac" => format!("02:00:00:{a:02x}:{b:02x}:{c:02x}"),
        "guid" => format!("0000:0000:{a:04x}:{b:02x}{c:02x}"),
        "uuid" => format!("00000000-0000-0000-0000-{number:012x}"),
        "gpu" => format!("GPU-00000000-0000-0000-0000-{number:012x}"),
        // The address ranges for benchmarks (RFC 2544) and for documentation (RFC 3849).
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
    fn names_are_found_between_separators() {
        let mut names = Names::default();
        for name in ["a", "bc"] {
            names.add("node", &name.into());
        }
        let masked = Masked::new(names);
        for (text, expected) in [
            ("a", "node-000000"),
            ("ab", "ab"),
            ("x/a,bc", "x/node-000000,node-000001"),
            ("'a' == \"bc\" é", "'node-000000' == \"node-000001\" é"),
            (",a,", ",node-000000,"),
            ("", ""),
        ] {
            assert_eq!(masked.text(text), expected);
        }
    }

    #[test]
    fn addresses_are_recognized_by_their_format() {
        for (text, expected) in [
            ("00:11:22:33:44:5f", Some("mac")),
            ("00:11:22:33:44", None),
            ("0:011:22:33:44:55", None),
            ("0000:1111:2222:333f", Some("guid")),
            ("10.0.0.1", Some("ipv4")),
            ("2001:db8::1", Some("ipv6")),
            ("ad11da28-1111-2222-3333-444444444444", Some("uuid")),
            ("GPU-ad11da28-1111-2222-3333-444444444444", Some("gpu")),
            ("0101:00:00.0", None),
            ("v1.2.3", None),
            ("plain", None),
        ] {
            assert_eq!(address(text), expected, "{text}");
        }
    }

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
        for object in &objects {
            names.of_object(object);
        }
        let masked = Masked::new(names);
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
