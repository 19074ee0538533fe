//! The capabilities that preparing claims needs (`capabilities(7)`), and which of them
//! this process lacks. Said at start: later, the kernel's refusal would be a pod's.

use rustix::io;
use rustix::thread::{CapabilitySet, capabilities};

/// One capability and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// As a container's security context names it, `NET_ADMIN`.
    pub name: &'static str,
    /// What cannot be done without it.
    pub purpose: &'static str,
    set: CapabilitySet,
}

/// All that is needed, and nothing that is not. The attach hook is no part of it: it
/// runs with the container runtime's rights.
pub const NEEDED: [Needed; 2] = [
    Needed {
        name: "NET_ADMIN",
        purpose: "bring interfaces and RDMA devices back from pods",
        set: CapabilitySet::NET_ADMIN,
    },
    Needed {
        name: "SYS_ADMIN",
        purpose: "enter the network namespaces of pods",
        set: CapabilitySet::SYS_ADMIN,
    },
];

/// Those that a process with these capabilities lacks.
fn missing(effective: CapabilitySet) -> impl Iterator<Item = Needed> {
    NEEDED.into_iter().filter(move |needed| !effective.contains(needed.set))
}

/// Says which are missing. RDMA devices alone are given to containers without any, so
/// it is no reason to end.
pub(super) fn check() -> io::Result<()> {
    for Needed { name, purpose, .. } in missing(capabilities(None)?.effective) {
        tracing::error!(
            capability = name,
            "A capability is missing; the driver cannot {purpose}. Add it to \
             `securityContext.capabilities.add` of the driver's container"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let names = |set| missing(set).map(|needed| needed.name).collect::<Vec<_>>();
        assert_eq!(names(CapabilitySet::empty()), ["NET_ADMIN", "SYS_ADMIN"]);
        assert_eq!(names(CapabilitySet::NET_ADMIN | CapabilitySet::CHOWN), ["SYS_ADMIN"]);
        assert_eq!(names(CapabilitySet::all()), [""; 0]);
    }
}
