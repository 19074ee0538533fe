//! What a NIC of a machine can be for, and the facts that tell. `roles` decides from them.

use std::collections::BTreeMap;

use crate::text::{serde_as_text, words};
use crate::{PciAddress, PortState, Snapshot};

/// What a NIC is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NicRole {
    /// Traffic between GPUs. All compute NICs of a machine have one link type and one rate class.
    Compute,
    /// Storage, the front end, or a data processing unit (DPU).
    Storage,
    /// The management of NVLink switches. Pods must not have such a NIC.
    Management,
}

/// A role and why a NIC has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) role: NicRole,
    pub(crate) reason: String,
}

/// Facts about a NIC that its vertex does not have. They are not part of the shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NicFacts {
    /// The rate of its best port, in megabits per second.
    pub(crate) rate_megabits: Option<u32>,
    /// The state of its best port.
    pub(crate) port_state: Option<PortState>,
    /// The subsystem's device ID, which differs between the models of a vendor's chip.
    pub(crate) subsystem: Option<u16>,
    /// True if its vital product data say that it manages NVLink switches.
    pub(crate) manages_switches: bool,
    /// Whether the description of the machine lists it; `None` if no description lists NICs.
    pub(crate) is_listed: Option<bool>,
    /// The role that the operator or the node's driver has decided.
    pub(crate) decided: Option<Verdict>,
}

/// Facts by NIC.
pub(crate) type FactsOfNics = BTreeMap<PciAddress, NicFacts>;

/// Roles by NIC.
pub(crate) type Verdicts = BTreeMap<PciAddress, Verdict>;

impl NicFacts {
    /// What the kernel reports about a function and its best port: an active one before others,
    /// then a fast one.
    pub(crate) fn new(address: PciAddress, snapshot: &Snapshot) -> Self {
        let function = snapshot.function(address);
        let ports = snapshot.rdma_device(address).into_iter().flat_map(|rdma| &rdma.ports);
        let best = ports.max_by_key(|port| (port.state.map(quality), port.rate_megabits));
        Self {
            rate_megabits: best.and_then(|port| port.rate_megabits),
            port_state: best.and_then(|port| port.state),
            subsystem: function.and_then(|function| function.subsystem_device),
            manages_switches: function.is_some_and(|function| function.manages_switches),
            is_listed: None,
            decided: None,
        }
    }

    /// Returns true if nothing is known about its ports.
    pub(crate) fn is_silent(&self) -> bool {
        self.port_state.is_none() && self.rate_megabits.is_none()
    }

    /// Returns false if the port has no link. Its rate is then that of an idle port.
    pub(crate) fn has_link(&self) -> bool {
        self.port_state != Some(PortState::Down)
    }
}

/// How far a port has come on its way to `Active`.
fn quality(state: PortState) -> u8 {
    match state {
        PortState::Down => 0,
        PortState::Init => 1,
        PortState::Armed => 2,
        PortState::ActiveDefer => 3,
        PortState::Active => 4,
    }
}

/// Returns true for functions of one device on a bus.
pub(crate) fn is_one_adapter(a: PciAddress, b: PciAddress) -> bool {
    (a.domain(), a.bus(), a.device()) == (b.domain(), b.bus(), b.device())
}

words! {
    NicRole, ParseNicRoleError("NIC role"):
    Compute = "compute", Storage = "storage", Management = "management"
}

serde_as_text!(NicRole);
