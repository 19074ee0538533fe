//! CPU sockets, from `devices/system/cpu/cpu*/topology`
//! (`Documentation/admin-guide/cputopology.rst`).
//!
//! One CPU lists all CPUs of its socket, so hundreds of CPUs need only one read per socket. If a
//! CPU does not list them, every CPU is read.

use std::collections::BTreeMap;

use super::tree::Tree;
use crate::CpuSet;
use crate::snapshot::{NumaNodeFacts, SocketFacts};

/// The files with the CPUs of a socket: the current name, and the one before kernel 5.3.
const CPUS: [&str; 2] = ["package_cpus_list", "core_siblings_list"];

/// The sockets of the nodes' CPUs.
pub(super) fn sockets(sys: &mut Tree, nodes: &[NumaNodeFacts]) -> Vec<SocketFacts> {
    let mut sockets: BTreeMap<u32, CpuSet> = BTreeMap::new();
    for cpu in nodes.iter().flat_map(|node| node.cpus.iter()) {
        if sockets.values().any(|cpus| cpus.contains(cpu)) {
            continue;
        }
        let topology = format!("devices/system/cpu/cpu{cpu}/topology");
        // A kernel writes -1 if it does not know the socket.
        let socket = sys.parsed(&format!("{topology}/physical_package_id"), |text| {
            text.parse::<i64>().ok().filter(|socket| *socket >= -1)
        });
        let Some(Ok(socket)) = socket.map(u32::try_from) else { continue };
        let told = CPUS.iter().find_map(|file| sys.value::<CpuSet>(&format!("{topology}/{file}")));
        let cpus = told.unwrap_or_default().with(&CpuSet::new(cpu));
        let known = sockets.remove(&socket).unwrap_or_default();
        sockets.insert(socket, known.with(&cpus));
    }
    sockets.into_iter().map(|(socket, cpus)| SocketFacts { socket, cpus }).collect()
}
