//! The whole graph as versioned JSON.
//!
//! `topology` is the graph in the form of the Kubernetes object; only this is read back. The rest
//! is derived from it for the convenience of other programs.

mod document;

use serde::Deserialize;

use crate::{Level, NodeTopologySpec, PathKind, PciAddress, Route, SpecError, Topology};
use document::{CellOf, Document, PathBetween};

/// The version of the document that this crate writes and reads.
const VERSION: u32 = 1;

/// A text is not a graph.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The text is not JSON of this form.
    #[error("failed to read the graph as JSON")]
    Json(#[source] serde_json::Error),
    /// The document has another version.
    #[error("unsupported version {0}: this program reads version {VERSION}")]
    Version(u32),
    /// Its topology is not a graph.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// The part that is read back.
#[derive(Deserialize)]
struct Read {
    version: u32,
    topology: NodeTopologySpec,
}

/// The graph as JSON.
#[expect(clippy::missing_panics_doc, reason = "it does not panic")]
pub fn json(topology: &Topology) -> String {
    let document = Document {
        version: VERSION,
        topology: topology.to_spec(),
        paths: paths(topology),
        cells: Level::ALL.into_iter().flat_map(|level| cells(topology, level)).collect(),
        pairs: topology
            .pairs()
            .into_iter()
            .map(|pair| between(topology, pair.gpu, pair.nic))
            .collect(),
    };
    let text = serde_json::to_string_pretty(&document);
    text.expect("strings, numbers and lists have a JSON form") + "\n"
}

/// Parses the output of [`json`].
pub fn from_json(text: &str) -> Result<Topology, JsonError> {
    let Read { version, topology } = serde_json::from_str(text).map_err(JsonError::Json)?;
    if version != VERSION {
        return Err(JsonError::Version(version));
    }
    Ok(Topology::from_spec(&topology)?)
}

/// Each pair of devices once.
fn paths(topology: &Topology) -> Vec<PathBetween> {
    let devices = topology.endpoints();
    let pairs = devices.iter().enumerate();
    let pairs = pairs.flat_map(|(index, a)| devices.iter().skip(index + 1).map(|b| (*a, *b)));
    pairs.map(|(a, b)| between(topology, a, b)).collect()
}

fn between(topology: &Topology, a: PciAddress, b: PciAddress) -> PathBetween {
    let route = topology.route(a, b);
    let bottleneck = route.as_ref().and_then(Route::bottleneck);
    PathBetween {
        a,
        b,
        path: route.map_or(PathKind::Unknown, |route| route.kind),
        megabytes_per_second: bottleneck.map(|link| link.megabytes_per_second),
    }
}

fn cells(topology: &Topology, level: Level) -> impl Iterator<Item = CellOf> {
    let cells = topology.cells(level).into_iter();
    cells.map(move |cell| CellOf { level, key: cell.key, gpus: cell.gpus, nics: cell.nics })
}
