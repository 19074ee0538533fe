//! The page: one HTML document that contains its style, its script and its data, and loads nothing.
//!
//! Names in the data are written by tenants. The data is in a block that no browser runs, in which no tag
//! can end, and the script inserts it as text only. A policy in the document allows exactly this style and
//! this script.

use super::ask::Known;
use super::board::Board;
use super::model::Update;
use anyhow::Context as _;
use cluster_model::view::ClusterView;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use topology_graph::{PathKind, Theme, svg};

const HTML: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The paths between a GPU and a NIC.
const PATHS: [PathKind; 5] =
    [PathKind::Pix, PathKind::Pxb, PathKind::Phb, PathKind::Node, PathKind::Sys];

/// The most pictures of layouts that a file contains.
const PICTURES_MAX: usize = 64;

/// The most workloads that wait whose explanation a file contains.
const EXPLAINED_MAX: usize = 20;

/// The data of a page.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    title: String,
    /// When it was made.
    time: String,
    /// Whether the program that made it still answers.
    is_served: bool,
    /// Whether the cluster is watched.
    is_live: bool,
    /// The revision of what it shows.
    revision: u64,
    /// What could not be read.
    notes: Vec<String>,
    /// What the words of paths mean.
    paths: BTreeMap<String, &'static str>,
    #[serde(flatten)]
    everything: Update,
    /// The picture of each layout.
    pictures: BTreeMap<usize, String>,
    /// What `explain` says of a pod, by namespace and name.
    explained: BTreeMap<String, String>,
}

impl Page {
    /// A page that answers from its own data.
    pub(crate) fn of_file(known: &Known, title: String, time: Timestamp) -> anyhow::Result<Self> {
        let (everything, _) = Board::of_cluster(known)?.since(0);
        let mut explained = BTreeMap::new();
        for waiting in everything.waiting.iter().flatten().take(EXPLAINED_MAX) {
            let Some(pod) = waiting.pods.first() else { continue };
            let text = known.explain(&waiting.namespace, pod)?;
            explained.insert(format!("{}/{pod}", waiting.namespace), text);
        }
        let mut pictures = BTreeMap::new();
        for node in &everything.nodes {
            if pictures.len() < PICTURES_MAX
                && !pictures.contains_key(&node.layout())
                && let Some(picture) = picture(&known.view, node.name())
            {
                pictures.insert(node.layout(), picture);
            }
        }
        let page = Self::served(title, time, (everything, 0));
        Ok(Self { pictures, explained, is_served: false, ..page })
    }

    /// A page that asks the program that serves it.
    pub(crate) fn served(
        title: String,
        time: Timestamp,
        (everything, revision): (Update, u64),
    ) -> Self {
        Self {
            title,
            time: crate::text::moment(time),
            is_served: true,
            is_live: false,
            revision,
            notes: Vec::new(),
            paths: PATHS.iter().map(|path| (path.to_string(), path.meaning())).collect(),
            everything,
            pictures: BTreeMap::new(),
            explained: BTreeMap::new(),
        }
    }

    /// The same for a cluster that is watched.
    #[cfg(feature = "live")]
    pub(crate) fn live(self) -> Self {
        Self { is_live: true, ..self }
    }

    /// The same with notes about what could not be read.
    pub(crate) fn with_notes(self, notes: Vec<String>) -> Self {
        Self { notes, ..self }
    }

    /// The document.
    pub(crate) fn html(&self) -> anyhow::Result<String> {
        let data = harmless(&serde_json::to_string(self)?);
        let parts = [("POLICY", policy()?), ("STYLE", STYLE.to_owned()), ("DATA", data)];
        let parts = parts.into_iter().chain([("SCRIPT", SCRIPT.to_owned())]);
        let (mut out, mut rest) = (String::new(), HTML);
        for (mark, text) in parts {
            let (before, after) = rest
                .split_once(&format!("{{{{{mark}}}}}"))
                .with_context(|| format!("the page has no place for {mark}"))?;
            out.push_str(before);
            out.push_str(&text);
            rest = after;
        }
        Ok(out + rest)
    }
}

/// The tree of a node; its boxes have the addresses of their devices.
pub(crate) fn picture(view: &ClusterView, node: &str) -> Option<String> {
    view.topology(node).map(|topology| svg(topology, Theme::Light))
}

/// What the document may load and run: its own style and script, and answers of the program that serves
/// it.
pub(crate) fn policy() -> anyhow::Result<String> {
    let (style, script) = (hash(STYLE)?, hash(SCRIPT)?);
    Ok(format!(
        "default-src 'none'; style-src '{style}'; script-src '{script}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'"
    ))
}

/// The hash of an inline style or script (Content Security Policy, level 3).
fn hash(text: &str) -> anyhow::Result<String> {
    let hash = ByteString(Sha256::digest(text).to_vec());
    let hash = serde_json::to_value(hash)?;
    Ok(format!("sha256-{}", hash.as_str().context("bytes are written as text")?))
}

/// JSON in which no tag begins or ends, with the same meaning.
fn harmless(json: &str) -> String {
    json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_ends_the_block_of_the_data() {
        let name = "</script><script>alert(1)</script><!--";
        let json = harmless(&serde_json::to_string(name).unwrap());
        assert!(!json.contains(['<', '>']), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), name);
    }

    /// The value that browsers compute: that of the example of the standard.
    #[test]
    fn the_policy_names_the_hash_of_the_script() {
        let expected = "sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=";
        assert_eq!(hash("alert('Hello, world.');").unwrap(), expected);
        assert!(policy().unwrap().contains(&hash(SCRIPT).unwrap()));
    }
}
