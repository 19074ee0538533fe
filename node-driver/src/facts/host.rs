//! Reads the facts of a machine's kernel.

use crate::facts::ports::KnownPorts;
use crate::facts::rdma;
use crate::facts::reads::{MachineError, RDMA_NETLINK, Watched};
use crate::kernel::attach::rdma::netns_mode;
use node_files::boot::is_this_machine;
use process::chain::Chain;
use publication::netns_mode::NetnsMode;
use std::sync::Arc;
use topology_graph::{HostRoot, ReadError, ReadObserver, Snapshot};

/// Reads a machine from sysfs and, if the root is this machine, from RDMA netlink. Devices that
/// do not answer keep the facts that were read last. Blocks, with a limit.
pub(crate) fn snapshot(host: &HostRoot, ports: &KnownPorts) -> Result<Snapshot, MachineError> {
    let (host, known) = (host.clone(), ports.clone());
    ports.reads().read(move |observer| read_with(&host, &known, &observer))
}

/// Reads the machine. Blocks as long as a device that does not answer; the observer notices.
fn read_with(
    host: &HostRoot,
    ports: &KnownPorts,
    observer: &Arc<Watched>,
) -> Result<Snapshot, ReadError> {
    let unread = ports.unresponsive();
    let machine =
        host.clone().without_ports_of(unread.clone()).observed_by(Arc::<Watched>::clone(observer));
    let mut snapshot = topology_graph::read(&machine)?;
    if is_this_machine(host) && observer.begins(RDMA_NETLINK) {
        match rdma::read(&unread) {
            Ok(devices) => {
                let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
                tracing::debug!(?names, "RDMA netlink reports devices");
                rdma::complete(&mut snapshot, &devices);
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "Continuing without RDMA netlink");
            }
        }
    }
    ports.complete(&mut snapshot, &unread);
    Ok(snapshot)
}

/// The mode of the machine's RDMA subsystem; unknown for a recorded machine.
pub(crate) fn rdma_namespaces(host: &HostRoot) -> Option<NetnsMode> {
    if !is_this_machine(host) {
        return None;
    }
    netns_mode()
        .map_err(|error| tracing::warn!(error = %Chain(&error), "RDMA namespace mode is unknown"))
        .ok()
}
