//! RDMA devices of a machine whose RDMA subsystem is in exclusive mode: there a
//! device is in one network namespace, and only processes in that namespace can
//! open it (`rdma-system(8)`, `rdma-dev(8)`). Into a pod's namespace and back.

mod netlink;

use crate::attach::AttachError;
use crate::attach::netns::NetNs;
pub use netlink::NetnsMode;
pub(crate) use netlink::netns_mode;

/// From the host's namespace into the pod's. One that is there is left alone.
pub(super) fn enter(name: &str, host: &NetNs, pod: &NetNs) -> Result<(), AttachError> {
    if pod.run(async |_| index_of(name))?.is_some() {
        return Ok(());
    }
    host.run(async |_| {
        let index = index_of(name)?.ok_or_else(|| AttachError::NoRdma { name: name.to_owned() })?;
        let verb = || format!("move RDMA device `{name}` into the pod's network namespace");
        netlink::move_to(index, pod).map_err(|source| AttachError::system(verb(), source))
    })
}

/// From the pod's namespace to the host's. From one that has ended the kernel
/// moves it by itself.
pub fn bring_back(name: &str, host: &NetNs, pod: &NetNs) -> Result<(), AttachError> {
    if host.id()? == pod.id()? {
        return Ok(());
    }
    pod.run(async |_| {
        let Some(index) = index_of(name)? else { return Ok(()) };
        let verb = || format!("move RDMA device `{name}` to the host's network namespace");
        netlink::move_to(index, host).map_err(|source| AttachError::system(verb(), source))
    })
}

fn index_of(name: &str) -> Result<Option<u32>, AttachError> {
    let verb = || format!("look for RDMA device `{name}`");
    netlink::index_of(name).map_err(|source| AttachError::system(verb(), source))
}
