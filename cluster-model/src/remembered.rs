//! Machines worth remembering: one node of each kind and pool, as its drivers
//! published it, kept in a ConfigMap when the pool is scaled to zero.

use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use topology_graph::NodeTopology;

/// A label that a new node of the pool will not have.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// What the name of a remembered machine begins with in the view: no node's name holds
/// a slash.
const PREFIX: &str = "remembered/";

/// An entry is some ten kilobytes unpacked; a thousand times that is no entry.
const UNPACKED_MAX: u64 = 10 << 20;

/// A machine as it was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    /// The node, with its labels only.
    pub node: Node,
    /// Its slices of GPUs and NICs.
    pub slices: Vec<ResourceSlice>,
    /// Its graph.
    pub topology: NodeTopology,
}

/// An entry cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RememberedError {
    /// It cannot be packed, or is not packed as it should be.
    #[error("failed to pack or unpack it")]
    Unpack(#[source] io::Error),
    /// It holds something else.
    #[error("failed to understand it")]
    Parse(#[source] serde_json::Error),
}

impl Remembered {
    /// Keeps of a node and its slices what does not name the node.
    pub fn new(node: Node, slices: Vec<ResourceSlice>, topology: NodeTopology) -> Self {
        let mut labels = node.metadata.labels.unwrap_or_default();
        labels.remove(HOSTNAME_LABEL);
        let named = |labels| ObjectMeta { labels, ..ObjectMeta::default() };
        let node = Node { metadata: named(Some(labels)), ..Node::default() };
        let bare = |slice| ResourceSlice { metadata: named(None), ..slice };
        let topology = NodeTopology { metadata: named(None), ..topology };
        Self { node, slices: slices.into_iter().map(bare).collect(), topology }
    }

    /// The objects of a node of this name.
    #[must_use]
    pub fn as_node(&self, name: &str) -> Self {
        let mut objects = self.clone();
        objects.node.metadata.name = Some(name.to_owned());
        objects.topology.metadata.name = Some(name.to_owned());
        for (index, slice) in objects.slices.iter_mut().enumerate() {
            slice.metadata.name = Some(format!("{name}/{index}"));
            slice.spec.node_name = Some(name.to_owned());
            name.clone_into(&mut slice.spec.pool.name);
        }
        objects
    }

    /// Compressed JSON.
    pub fn encode(&self) -> Result<Vec<u8>, RememberedError> {
        let json = serde_json::to_vec(self).map_err(RememberedError::Parse)?;
        let mut packed = Vec::new();
        let mut encoder = GzEncoder::new(json.as_slice(), Compression::best());
        encoder.read_to_end(&mut packed).map_err(RememberedError::Unpack)?;
        Ok(packed)
    }

    /// Reads what [`Self::encode`] wrote.
    pub fn decode(packed: &[u8]) -> Result<Self, RememberedError> {
        let mut json = Vec::new();
        let mut decoder = GzDecoder::new(packed).take(UNPACKED_MAX);
        decoder.read_to_end(&mut json).map_err(RememberedError::Unpack)?;
        serde_json::from_slice(&json).map_err(RememberedError::Parse)
    }
}

/// The name under which the machine of this key stands in the view.
pub(crate) fn name(key: &str) -> String {
    format!("{PREFIX}{key}")
}

/// Whether a node of the view is a remembered machine, and not one that is there.
pub(crate) fn is_name(node: &str) -> bool {
    node.starts_with(PREFIX)
}
