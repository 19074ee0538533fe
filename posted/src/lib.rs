//! Reads what people post in bug reports: the listings of `lspci` and hwloc as a machine, and the
//! matrices of `nvidia-smi topo -m` and `rocm-smi --showtopo` to compare with one.
//!
//! A listing shows less than sysfs does. What it does not show is unknown, as on any machine.

mod compare;
mod hwloc;
mod lspci;
mod machine;
mod matrix;
mod plain;

use topology_graph::Snapshot;

pub use compare::{Comparison, Difference};
pub use machine::PostedError;
pub use matrix::{PostedMatrix, PostedMatrixError};

/// Parses a listing: XML of hwloc, or the output of `lspci -tv`, `lspci -vvv`, or both.
pub fn listing(text: &str) -> Result<Snapshot, PostedError> {
    let text = plain::typed(text);
    let snapshot = match hwloc::part(&text) {
        Some(xml) => hwloc::read(xml)?,
        None => lspci::read(&text)?,
    };
    if snapshot.pci.is_empty() {
        if text.lines().any(|line| line.trim_start().starts_with("HostBridge")) {
            return Err(PostedError::Lstopo);
        }
        return Err(PostedError::NoFunction);
    }
    Ok(snapshot)
}

#[cfg(test)]
mod tests;
