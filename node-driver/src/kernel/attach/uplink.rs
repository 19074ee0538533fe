//! Refuses to move an interface that the node has begun to use since its claim was prepared: its
//! default route can be absent for a moment, just when the machine is read.

use crate::kernel::attach::AttachError;
use crate::kernel::network::Dump;
use crate::model::host_link::{HostLink, HostRoute};
use std::collections::BTreeSet;

/// Refuses if the node's own traffic now uses one of these interfaces of the thread's namespace, by
/// their indices, by a default route that the interface did not have when its claim was prepared.
/// One that it had then was allowed by the operator.
pub(super) async fn refuse(moving: &[(&HostLink, u32)]) -> Result<(), AttachError> {
    if moving.is_empty() {
        return Ok(());
    }
    let uplinks = Dump::read_defaults(&BTreeSet::new()).await?.facts().uplinks();
    let found = moving.iter().find(|(link, index)| uplinks.contains(index) && !had_default(link));
    match found {
        Some((link, _)) => Err(AttachError::Uplink { link: link.name.clone() }),
        None => Ok(()),
    }
}

fn had_default(link: &HostLink) -> bool {
    link.router.is_some() || link.routes.iter().any(HostRoute::is_default)
}
