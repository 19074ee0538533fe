//! What became of the vendor's driver in this boot.

use node_files::boot_file::BootFile;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use topology_graph::HostRoot;

/// Name of the file, below the host's `run/dranet`.
pub const FILE: &str = "vendor-driver.json";

/// Name of the file with the node's turn, beside it.
const GRANT_FILE: &str = "vendor-driver-turn.json";

/// Version of the format of both.
const VERSION: u32 = 1;

/// The state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VendorDriverState {
    /// Version of the vendor's driver.
    pub version: String,
    /// How far it is.
    pub stage: Stage,
    /// The builds of the modules that were loaded then, by name.
    pub modules: BTreeMap<String, String>,
    /// Why it waits or failed; otherwise empty.
    pub detail: String,
    /// Whether it waits only for the node's turn.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_turn: bool,
}

/// The version that the node may load in its turn. The driver writes it while it has the turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Empty if it is not the node's turn.
    pub version: String,
}

/// How far the vendor's driver is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Something uses the modules that it replaces.
    Waiting,
    /// The vendor's image runs; no claim is prepared.
    Loading,
    /// The vendor's image has reported that its modules are loaded.
    Ready,
    /// The vendor's image ended before.
    Failed,
}

/// A loaded module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadedModule {
    /// Differs between two builds of the module.
    pub build: String,
    /// References that are not those of other modules: open devices, mostly.
    pub openers: u32,
}

/// Loaded modules by name.
pub type Modules = BTreeMap<String, LoadedModule>;

/// The file; `None` if the root has no boot ID.
pub fn file(host: &HostRoot) -> Option<BootFile<VendorDriverState>> {
    BootFile::new(host, FILE, VERSION)
}

/// The version that is being loaded now on the machine with this root, if any. No claim is prepared then: this
/// is recorded in the driver's turn, after it was seen that none is.
pub fn loading(host: &HostRoot) -> Option<String> {
    let state = file(host)?.load()?;
    (state.stage == Stage::Loading).then_some(state.version)
}

/// The file with the [`Grant`]; `None` if the root has no boot ID.
pub fn grant_file(host: &HostRoot) -> Option<BootFile<Grant>> {
    BootFile::new(host, GRANT_FILE, VERSION)
}

/// `version 25.04 waits: claim default/a uses NICs of this node`.
impl fmt::Display for VendorDriverState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, stage, detail, .. } = self;
        match stage {
            Stage::Waiting => write!(f, "version {version} waits: {detail}"),
            Stage::Loading => write!(f, "version {version} is being loaded"),
            Stage::Ready => write!(f, "version {version} is loaded"),
            Stage::Failed => write!(f, "version {version} was not loaded: {detail}"),
        }
    }
}
