//! What the JSON of a graph contains. The documented schema is generated from these types, and the graphs
//! of all machines are read into them (`tests/graph_json.rs`).

use crate::{Level, NodeTopologySpec, PathKind, PciAddress};
#[cfg(test)]
use schemars::JsonSchema;
#[cfg(test)]
use serde::Deserialize;
use serde::Serialize;

/// The graph of a node.
#[derive(Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Document {
    /// The version of this form: 1.
    pub(crate) version: u32,
    /// The graph as in `spec` of a `NodeTopology`. All else is derived from it.
    pub(crate) topology: NodeTopologySpec,
    /// The path between every two devices.
    pub(crate) paths: Vec<PathBetween>,
    /// The cells of each level.
    pub(crate) cells: Vec<CellOf>,
    /// The NIC of each GPU, in a plan for all GPUs.
    pub(crate) pairs: Vec<PathBetween>,
}

/// The path between two devices.
#[derive(Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct PathBetween {
    /// A PCI address; in `pairs` the GPU's.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) a: PciAddress,
    /// A PCI address; in `pairs` the NIC's.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) b: PciAddress,
    /// `PIX`, `PXB`, `PHB`, `NODE`, `SYS`, or another of the paths that the documentation lists.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) path: PathKind,
    /// The capacity of the narrowest link in one direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) megabytes_per_second: Option<u32>,
}

/// Devices that are as near each other as a level says.
#[derive(Serialize)]
#[cfg_attr(test, derive(Deserialize, JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct CellOf {
    /// The level, as in the annotation `dranet.io/alignment`.
    #[cfg_attr(test, schemars(with = "String"))]
    pub(crate) level: Level,
    /// What distinguishes it from other cells of the level.
    pub(crate) key: String,
    /// PCI addresses.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) gpus: Vec<PciAddress>,
    /// PCI addresses.
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(crate) nics: Vec<PciAddress>,
}
