//! Paths of the plugin's files on the host, all below directories given at start.

use std::path::{Path, PathBuf};

/// The host's directories as the driver sees them. Those of the kubelet and the runtime
/// are mounted at the same path as on the host, because their paths are passed to both.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Kubelet's root directory, `/var/lib/kubelet`.
    pub kubelet: PathBuf,
    /// The driver's name, which is also the name of its directory.
    pub driver: String,
    /// Where the runtime looks for CDI specs, `/var/run/cdi`.
    pub cdi: PathBuf,
    /// Directory for files that last until the next boot, `/run/dranet`.
    pub run: PathBuf,
    /// Where the host's named network namespaces are, `/run/netns`.
    pub netns: PathBuf,
    /// Directory with writable network settings of the kernel, `/proc/sys/net`. A
    /// container cannot write there; the host's is mounted elsewhere for it.
    pub sysctl: PathBuf,
}

impl Paths {
    /// The driver's directory, `<kubelet>/plugins/<driver>`.
    pub fn plugin(&self) -> PathBuf {
        self.kubelet.join("plugins").join(&self.driver)
    }

    /// Where the kubelet looks for registration sockets.
    pub fn registry(&self) -> PathBuf {
        self.kubelet.join("plugins_registry")
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> PathBuf {
        self.plugin().join("checkpoint.json")
    }

    /// Room for the checkpoint on a full disk.
    pub fn reserve(&self) -> PathBuf {
        self.plugin().join("reserve")
    }

    /// The NICs that the machine has had, over which rails are counted.
    pub fn rails(&self) -> PathBuf {
        self.plugin().join("rails.json")
    }

    /// Lock file, held while any driver instance prepares or unprepares a claim.
    pub fn lock(&self) -> PathBuf {
        self.plugin().join("serialize.lock")
    }

    /// The files of all claims.
    pub fn claims(&self) -> PathBuf {
        self.plugin().join("claims")
    }

    /// The files of one claim.
    pub fn claim(&self, uid: &str) -> PathBuf {
        self.claims().join(uid)
    }

    /// The plan of one claim, which the attach hook reads.
    pub fn plan(&self, uid: &str) -> PathBuf {
        self.claim(uid).join("plan.json")
    }

    /// Copies of all plans in memory, which a fault of the disk does not reach.
    pub fn plan_copies(&self) -> PathBuf {
        self.run.join("plans")
    }

    /// The copy of one plan.
    pub fn plan_copy(&self, uid: &str) -> PathBuf {
        self.plan_copies().join(format!("{uid}.json"))
    }

    /// The file that a container sees as `/etc/dranet/devices.json`.
    pub fn devices(&self, uid: &str) -> PathBuf {
        self.claim(uid).join("devices.json")
    }

    /// The file that `NCCL_TOPO_FILE` names in a container.
    pub fn nccl(&self, uid: &str) -> PathBuf {
        self.claim(uid).join("nccl-topology.xml")
    }

    /// The device metadata of one request of a claim.
    pub fn metadata(&self, uid: &str, request: &str) -> PathBuf {
        self.claim(uid).join(format!("metadata-{request}.json"))
    }

    /// The CDI spec of one claim.
    pub fn cdi_spec(&self, uid: &str) -> PathBuf {
        self.cdi.join(format!("{}{uid}.json", self.cdi_prefix()))
    }

    /// Prefix of the names of this driver's CDI specs.
    pub fn cdi_prefix(&self) -> String {
        format!("{}-claim-", self.driver)
    }

    /// The record of what was attached for a claim.
    pub fn attached(&self, uid: &str) -> PathBuf {
        self.run.join("attached").join(format!("{uid}.json"))
    }

    /// A link to the network namespace of a claim's pod, created when its interfaces are
    /// there. With NRI, a container mounts it, so that it cannot start before.
    pub fn ready(&self, uid: &str) -> PathBuf {
        self.run.join("ready").join(uid)
    }

    /// Nothing is ever here. With NRI, a container of a claim that several pods can have mounts it, unless the
    /// driver removes the mount since the interfaces are in that container's pod.
    pub fn never(&self, uid: &str) -> PathBuf {
        self.run.join("never").join(uid)
    }

    /// The devices that had an interface in this boot.
    pub fn interfaces(&self) -> PathBuf {
        self.run.join("interfaces.json")
    }

    /// The socket on which the hook hands network namespaces to the driver.
    pub fn namespaces_socket(&self) -> PathBuf {
        namespaces_socket(&self.run)
    }

    /// The driver's binary as the runtime starts it.
    pub fn hook(&self) -> PathBuf {
        self.plugin().join("bin/node-driver")
    }
}

/// The socket below a run directory, for the hook, which knows only that directory.
pub fn namespaces_socket(run: &Path) -> PathBuf {
    run.join("namespaces.sock")
}
