//! The capabilities that preparing claims needs (`capabilities(7)`). Missing ones are
//! reported at start, because later the kernel's refusal would fail a pod.

use rustix::io;
use rustix::thread::{CapabilitySet, capabilities};

/// One capability and what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needed {
    /// Its name in a container's security context, `NET_ADMIN`.
    pub name: &'static str,
    /// What the driver needs it for.
    pub purpose: &'static str,
    set: CapabilitySet,
}

/// All capabilities that the driver needs, and no more. The attach hook does not count:
/// it runs with the container runtime's privileges.
pub const NEEDED: [Needed; 4] = [
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
    Needed {
        name: "NET_RAW",
        purpose: "renew what DHCP servers gave to pods",
        set: CapabilitySet::NET_RAW,
    },
    Needed {
        name: "NET_BIND_SERVICE",
        purpose: "renew what DHCP servers gave to pods, from port 68",
        set: CapabilitySet::NET_BIND_SERVICE,
    },
];

/// The capabilities that a process with this set lacks.
fn missing(effective: CapabilitySet) -> impl Iterator<Item = Needed> {
    NEEDED.into_iter().filter(move |needed| !effective.contains(needed.set))
}

/// Logs missing capabilities. A container that needs only RDMA devices needs none of
/// them, so the driver continues.
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
    fn missing_capabilities_are_named() {
        let names = |set| missing(set).map(|needed| needed.name).collect::<Vec<_>>();
        assert_eq!(
            names(CapabilitySet::empty()),
            ["NET_ADMIN", "SYS_ADMIN", "NET_RAW", "NET_BIND_SERVICE"]
        );
        let some = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::CHOWN;
        assert_eq!(names(some), ["SYS_ADMIN", "NET_BIND_SERVICE"]);
        assert_eq!(names(CapabilitySet::all()), [""; 0]);
    }
}
