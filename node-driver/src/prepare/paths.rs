//! Where the plugin keeps its files on the host. Every path is below a
//! directory given at start.

use std::path::{Path, PathBuf};

/// The host's directories, as the driver sees them. The kubelet's and the
/// runtime's are mounted at the same path as on the host, since these paths
/// travel to both.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Kubelet's root directory, `/var/lib/kubelet`.
    pub kubelet: PathBuf,
    /// Name of the driver, which names its directory.
    pub driver: String,
    /// Where the runtime looks for CDI specs, `/var/run/cdi`.
    pub cdi: PathBuf,
    /// What lasts until the next boot, `/run/dranet`.
    pub run: PathBuf,
    /// Where the host's named network namespaces are, `/run/netns`.
    pub netns: PathBuf,
    /// Where the kernel's settings of networks can be written, `/proc/sys/net`: a container
    /// may not write there, and has it elsewhere.
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

    /// Held while a claim is prepared or unprepared, over driver instances.
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

    /// What a container sees as `/etc/dranet/devices.json`.
    pub fn devices(&self, uid: &str) -> PathBuf {
        self.claim(uid).join("devices.json")
    }

    /// What a container is given as `NCCL_TOPO_FILE`.
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

    /// How the names of our CDI specs begin.
    pub fn cdi_prefix(&self) -> String {
        format!("{}-claim-", self.driver)
    }

    /// Where is noted what was attached.
    pub fn attached(&self, uid: &str) -> PathBuf {
        self.run.join("attached").join(format!("{uid}.json"))
    }

    /// A name of the network namespace of a claim's pod, from when its interfaces are
    /// there: what a container mounts that must not start before. With NRI only.
    pub fn ready(&self, uid: &str) -> PathBuf {
        self.run.join("ready").join(uid)
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

/// The socket below a run directory, for the hook, which knows no more.
pub fn namespaces_socket(run: &Path) -> PathBuf {
    run.join("namespaces.sock")
}
