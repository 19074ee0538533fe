//! Remembered machines: one node of each kind and pool, as its drivers published it. They are kept
//! in a ConfigMap for when the pool is scaled to zero.

use crate::gpu_drivers;
use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};
use k8s_openapi::api::core::v1::{Node, NodeStatus};
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use topology_graph::NodeTopology;

/// A label that differs on a new node of the pool.
const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// The prefix of a remembered machine's name in the view. No node name contains a slash.
const PREFIX: &str = "remembered/";

/// The maximum unpacked size of an entry in bytes. Real entries have about ten kilobytes.
const UNPACKED_MAX: u64 = 10 << 20;

/// A remembered machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remembered {
    /// The node, reduced to its labels and the GPUs of its device plugin.
    pub node: Node,
    /// Its ResourceSlices of GPUs and NICs.
    pub slices: Vec<ResourceSlice>,
    /// Its graph.
    pub topology: NodeTopology,
}

/// An entry cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RememberedError {
    /// It cannot be packed or unpacked.
    #[error("failed to compress or decompress the entry")]
    Unpack(#[source] io::Error),
    /// Its content is invalid.
    #[error("failed to parse the entry")]
    Parse(#[source] serde_json::Error),
}

impl Remembered {
    /// Keeps everything about a node and its slices except names of the node.
    pub fn new(node: Node, slices: Vec<ResourceSlice>, topology: NodeTopology) -> Self {
        let mut labels = node.metadata.labels.unwrap_or_default();
        labels.remove(HOSTNAME_LABEL);
        let metadata = ObjectMeta { labels: Some(labels), ..ObjectMeta::default() };
        let status = node.status.and_then(plugin_status);
        let node = Node { metadata, status, ..Node::default() };
        let topology = NodeTopology { metadata: ObjectMeta::default(), ..topology };
        Self {
            node,
            slices: slices
                .into_iter()
                .map(|slice| ResourceSlice { metadata: ObjectMeta::default(), ..slice })
                .collect(),
            topology,
        }
    }

    /// The objects for a node with this name.
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

    /// Encodes the machine as compressed JSON.
    pub fn encode(&self) -> Result<Vec<u8>, RememberedError> {
        let json = serde_json::to_vec(self).map_err(RememberedError::Parse)?;
        let mut packed = Vec::new();
        let mut encoder = GzEncoder::new(json.as_slice(), Compression::best());
        encoder.read_to_end(&mut packed).map_err(RememberedError::Unpack)?;
        Ok(packed)
    }

    /// Decodes the output of [`Self::encode`].
    pub fn decode(packed: &[u8]) -> Result<Self, RememberedError> {
        let mut json = Vec::new();
        let mut decoder = GzDecoder::new(packed).take(UNPACKED_MAX);
        decoder.read_to_end(&mut json).map_err(RememberedError::Unpack)?;
        serde_json::from_slice(&json).map_err(RememberedError::Parse)
    }
}

/// The status with the GPUs of a device plugin only; `None` if there are none.
fn plugin_status(status: NodeStatus) -> Option<NodeStatus> {
    let [allocatable, capacity] = [status.allocatable, status.capacity].map(|amounts| {
        let mut amounts = amounts.unwrap_or_default();
        amounts.retain(|name, amount| gpu_drivers::is_resource(name) && amount.0 != "0");
        (!amounts.is_empty()).then_some(amounts)
    });
    let allocatable = Some(allocatable?);
    Some(NodeStatus { allocatable, capacity, ..NodeStatus::default() })
}

/// The name in the view of the machine with this key.
pub(crate) fn name(key: &str) -> String {
    format!("{PREFIX}{key}")
}

/// Returns true if a node of the view is a remembered machine instead of a real node.
pub(crate) fn is_name(node: &str) -> bool {
    node.starts_with(PREFIX)
}
