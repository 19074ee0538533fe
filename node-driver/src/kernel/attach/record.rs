//! Records what was attached for a claim, for the driver that undoes it. Stored in a
//! directory that is empty after a boot, as the namespaces are gone then too.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::dhcp::{Lease, Leases};
use crate::kernel::attach::known::{BeforeAttach, Indices};
use crate::kernel::attach::netns::{NetNs, NetNsId};
use crate::kernel::attach::node_network::NodeNetwork;
use crate::model::plan::Plan;
use cluster_model::network_config::LinkName;
use node_files::durable::{self, FileError};
use process::chain::Chain;
use serde::{Deserialize, Serialize};
use std::fs;
use std::ops::Not;
use std::path::Path;

/// Which namespace has a claim's interfaces. Written before the first of them moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachRecord {
    /// The pod's network namespace.
    pub namespace: NetNsId,
    /// The runtime's sandbox ID, known only with NRI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// Leases that DHCP servers have given to its interfaces.
    #[serde(default, skip_serializing_if = "Leases::is_empty")]
    pub leases: Leases,
    /// Indices of the interfaces in that namespace, by their names in the pod. Written
    /// before they move.
    #[serde(default, skip_serializing_if = "Indices::is_empty")]
    pub links: Indices,
    /// Whether all of them have been attached and configured.
    #[serde(default)]
    pub is_attached: bool,
    /// Whether the sandbox has stopped, and an interface of the host had not come back then. It is
    /// looked for again when the claim ends.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub is_left: bool,
}

impl AttachRecord {
    /// Reads the record; `None` if there is none or it is damaged.
    pub fn load(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Starts the record for this namespace. If another container of the same pod has
    /// started before, keeps what was recorded then.
    pub fn begin(path: &Path, namespace: NetNsId, sandbox: Option<String>) -> Self {
        let known = Self::load(path).filter(|record| record.namespace.is(&namespace));
        let Some(known) = known else {
            let (leases, links) = (Leases::new(), Indices::new());
            let (is_attached, is_left) = (false, false);
            return Self { namespace, sandbox, leases, links, is_attached, is_left };
        };
        Self { namespace, sandbox, is_left: false, ..known }
    }

    /// Stores the indices that the claim's interfaces will have.
    pub fn journal(&mut self, links: &Indices, path: &Path) -> Result<(), FileError> {
        self.links.clone_from(links);
        self.store(path)
    }

    /// Stores that everything is attached, and the leases that were given.
    pub fn attached(&mut self, given: Leases, path: &Path) -> Result<(), FileError> {
        if self.is_attached && given.is_empty() {
            return Ok(());
        }
        self.leases.extend(given);
        self.is_attached = true;
        self.store(path)
    }

    /// Stores that the sandbox has stopped, and not everything has come back.
    pub fn left(path: &Path) -> Result<(), FileError> {
        let Some(record) = Self::load(path) else { return Ok(()) };
        Self { is_attached: false, is_left: true, ..record }.store(path)
    }

    /// Stores another lease. If that fails, the old one is still good enough: it is what
    /// is requested next time.
    pub fn note_lease(path: &Path, link: &LinkName, lease: &Lease) {
        let Some(mut record) = Self::load(path) else { return };
        record.leases.insert(link.clone(), lease.clone());
        if let Err(error) = record.store(path) {
            tracing::warn!(%link, error = %Chain(&error), "DHCP lease not saved");
        }
    }

    /// The plan with the addresses that DHCP has given.
    pub fn complete(&self, mut plan: Plan) -> Plan {
        for link in plan.devices.iter_mut().filter_map(|device| device.link.as_mut()) {
            if let Some(lease) = self.leases.get(&link.name) {
                link.config.interface.addresses = vec![lease.prefix];
            }
        }
        plan
    }

    /// Writes the record.
    pub fn store(&self, path: &Path) -> Result<(), FileError> {
        if let Some(folder) = path.parent() {
            durable::create_dir(folder)?;
        }
        durable::write_json(path, self)
    }
}

/// Attaches the plan's devices and records them: the namespace and the interfaces' indices are written
/// before they move.
///
/// `path` is the record's, `sysctl` the directory in which the kernel's network settings can be
/// written.
pub fn attach_recorded(
    network: &dyn NodeNetwork,
    plan: &Plan,
    record: &mut AttachRecord,
    [path, sysctl]: [&Path; 2],
    [host, pod]: [&NetNs; 2],
) -> Result<Leases, AttachError> {
    let AttachRecord { leases, links, is_attached, .. } = record.clone();
    let known = BeforeAttach { leases: &leases, links: &links, is_attached, sysctl };
    network.attach(plan, known, [host, pod], &mut |links| Ok(record.journal(links, path)?))
}
