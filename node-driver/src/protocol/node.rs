//! A node on which processes of the product run: its machine has one adapter.

use super::files::{Disk, Tree};
use super::process::{self, Life};
use crate::facts::network::server::ApiServers;
use crate::facts::network::uplinks::Uplinks;
use crate::facts::ports::KnownPorts;
use crate::kernel::attach::AttachMode;
use crate::kernel::attach::dhcp::keeper::Keepers;
use crate::kernel::attach::namespaces::Namespaces;
use crate::kernel::attach::netns::{NetNs, NetNsId};
use crate::kernel::attach::played::{Interfaces, Number, PlayedKernel, PlayedNetwork};
use crate::prepare::Abandoned;
use crate::prepare::cdi;
use crate::prepare::effects::{Effects, Faults};
use crate::prepare::late::LateNics;
use crate::prepare::local::{Ended, LocalPreparer};
use crate::prepare::metrics::PluginMetrics;
use crate::prepare::notices::Notices;
use crate::prepare::plan::Policy;
use node_files::paths::Paths;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::TempDir;
use topology_graph::{HostRoot, fixture};

/// The adapter's PCI address, and its device in slices.
pub(super) const ADAPTER: &str = "0000:11:00.0";
pub(super) const DEVICE: &str = "pci-0000-11-00-0";

/// One adapter with RDMA. The kernel that is played shows its interface.
const MACHINE: &str = "\
[sys/devices/system/node/node0]
cpulist = 0-3
distance = 10
[sys/devices/pci0000:11/0000:11:00.0]
class = 0x020000
vendor = 0x15b3
device = 0x1021
numa_node = 0
driver -> /sys/bus/pci/drivers/mlx5_core
/sys/bus/pci/devices/0000:11:00.0 -> .
infiniband/mlx5_0/node_guid = 0000:0000:0000:0001
infiniband/mlx5_0/sys_image_guid = 0000:0000:0000:0001
infiniband/mlx5_0/ports/1/state = 4: ACTIVE
infiniband/mlx5_0/ports/1/link_layer = Ethernet
/sys/class/infiniband/mlx5_0 -> ./infiniband/mlx5_0
infiniband_verbs/uverbs0/ibdev = mlx5_0
/sys/class/infiniband_verbs/uverbs0 -> ./infiniband_verbs/uverbs0
";

/// The machine of all states; each run of a process begins with one of them.
pub(super) struct Node {
    folder: TempDir,
    mode: AttachMode,
    disk: Arc<Mutex<Disk>>,
    pub(super) kernel: Arc<PlayedKernel>,
    /// The files of all namespaces. That of a namespace with a name has another link.
    namespaces: Vec<PathBuf>,
    named: BTreeSet<Number>,
    ids: Vec<NetNsId>,
}

/// What a process finds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) boot: u8,
    pub(super) tree: Tree,
    pub(super) interfaces: Interfaces,
    /// The namespaces that have a name.
    pub(super) named: BTreeSet<Number>,
    /// The namespaces that the driver holds, by claim; `None` if it does not run.
    pub(super) driver: Option<BTreeMap<String, Number>>,
}

/// What a driver leaves if it dies before a step, which has a name.
type Left = (String, State);

/// What is done with a driver.
pub(super) type Work<'a, T> = &'a dyn Fn(&LocalPreparer) -> T;

impl Node {
    pub(super) fn new(mode: AttachMode, namespaces: Number) -> Self {
        // In memory if that has files.
        let memory = Path::new("/dev/shm");
        let folder =
            if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.unwrap();
        let root = folder.path().join("root");
        fixture::plant(MACHINE, &root).unwrap();
        fs::create_dir_all(root.join("dev/infiniband")).unwrap();
        for name in ["uverbs0", "rdma_cm"] {
            symlink("/dev/null", root.join("dev/infiniband").join(name)).unwrap();
        }
        fs::create_dir_all(root.join("proc/sys/kernel/random")).unwrap();
        let (pool, netns) = (folder.path().join("pool"), folder.path().join("netns"));
        fs::create_dir(&pool).unwrap();
        fs::create_dir(netns).unwrap();
        let files: Vec<_> = (0..namespaces).map(|number| pool.join(number.to_string())).collect();
        for file in &files {
            fs::write(file, "").unwrap();
        }
        let opened: Vec<_> = files.iter().map(|file| NetNs::open(file).unwrap()).collect();
        let ids = opened.iter().map(|namespace| namespace.id().unwrap()).collect();
        let kernel = Arc::new(PlayedKernel::new(opened, root.join("sys")));
        let disk = Arc::new(Mutex::new(Disk::new(folder.path().join("files"))));
        Self { folder, mode, disk, kernel, namespaces: files, named: BTreeSet::new(), ids }
    }

    pub(super) fn is_nri(&self) -> bool {
        self.mode == AttachMode::Nri
    }

    pub(super) fn paths(&self) -> Paths {
        let files = self.folder.path().join("files");
        Paths {
            kubelet: files.join("kubelet"),
            driver: "dra.net".into(),
            cdi: files.join("cdi"),
            run: files.join("run"),
            netns: self.folder.path().join("netns"),
            sysctl: "/proc/sys/net".into(),
        }
    }

    pub(super) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// The name of a namespace.
    pub(super) fn name(&self, namespace: Number) -> PathBuf {
        self.paths().netns.join(namespace.to_string())
    }

    /// Makes the machine as a process finds it.
    pub(super) fn set(&mut self, state: &State) {
        self.disk.lock().unwrap().set(&state.tree);
        self.kernel.set(state.interfaces.clone());
        for number in self.named.difference(&state.named) {
            fs::remove_file(self.name(*number)).unwrap();
        }
        for number in state.named.difference(&self.named) {
            fs::hard_link(&self.namespaces[*number], self.name(*number)).unwrap();
        }
        self.named.clone_from(&state.named);
        let boot = format!("boot-{}\n", state.boot);
        fs::write(self.root().join("proc/sys/kernel/random/boot_id"), boot).unwrap();
    }

    /// Reads what processes have left.
    fn read(&mut self, state: &mut State) {
        state.tree = self.disk.lock().unwrap().read();
        state.interfaces = self.kernel.interfaces();
    }

    /// A process as this kernel sees it.
    pub(super) fn network(&self, life: &Arc<Life>) -> PlayedNetwork {
        PlayedNetwork { kernel: Arc::clone(&self.kernel), life: Arc::clone(life) }
    }

    /// A driver that holds these namespaces.
    fn driver(&self, held: &BTreeMap<String, Number>, life: &Arc<Life>) -> LocalPreparer {
        let paths = self.paths();
        let namespaces = Arc::new(Namespaces::new(&paths.netns));
        for (uid, number) in held {
            let namespace = NetNs::open(&self.namespaces[*number]).unwrap();
            namespaces.hold(uid, Arc::new(namespace));
        }
        let settings = cdi::SpecSettings {
            runtime_root: self.root(),
            attach: self.mode,
            environment: cdi::Environment::default(),
            locked_memory: false,
        };
        let effects = Effects {
            paths,
            settings,
            network: Box::new(self.network(life)),
            namespaces,
            leases: Keepers::default(),
            notices: Notices::default(),
            faults: Faults::of(life),
        };
        LocalPreparer {
            host: HostRoot::at(self.root()),
            ports: KnownPorts::default(),
            servers: ApiServers::default(),
            uplinks: Uplinks::default(),
            loading: None,
            policy: Policy::default(),
            network_namespaces: Vec::new(),
            effects,
            metrics: PluginMetrics::default(),
            ended: Ended::default(),
            abandoned: Abandoned::default(),
            late: LateNics::default(),
        }
    }

    /// The namespaces that a driver holds.
    fn held(&self, driver: &LocalPreparer) -> BTreeMap<String, Number> {
        let namespaces = &driver.effects.namespaces;
        let held = namespaces.claims().into_iter().filter_map(|uid| {
            let held = namespaces.hold(&uid, Arc::new(NetNs::current().unwrap()))?;
            Some((uid, self.ids.iter().position(|id| held.is(id))?))
        });
        held.collect()
    }

    /// Lets the driver work. Returns also what is left if it dies, for each step before which it could, if
    /// that is wanted.
    pub(super) fn work<T>(
        &mut self,
        state: &mut State,
        can_die: bool,
        work: Work<'_, T>,
    ) -> (T, Vec<Left>) {
        self.set(state);
        let deaths = Arc::new(Mutex::new(Vec::new()));
        let life = Arc::new(if can_die { self.watched(state, &deaths) } else { Life::Free });
        let driver = self.driver(state.driver.as_ref().unwrap(), &life);
        let done = work(&driver);
        state.driver = Some(self.held(&driver));
        self.read(state);
        let deaths = mem::take(&mut *deaths.lock().unwrap());
        (done, deaths)
    }

    /// The life of a driver of which each step is noted that leaves something else than the one before.
    fn watched(&self, state: &State, deaths: &Arc<Mutex<Vec<Left>>>) -> Life {
        let (disk, kernel) = (Arc::clone(&self.disk), Arc::clone(&self.kernel));
        let (state, deaths) = (State { driver: None, ..state.clone() }, Arc::clone(deaths));
        Life::Watched(Box::new(move |point| {
            let (tree, interfaces) = (disk.lock().unwrap().read(), kernel.interfaces());
            let left = State { tree, interfaces, ..state.clone() };
            let mut deaths = deaths.lock().unwrap();
            if deaths.last().is_none_or(|(_, last)| *last != left) {
                deaths.push((point.to_owned(), left));
            }
        }))
    }

    /// Lets a hook work, which the driver answers, if it runs. Each dies after so many steps. Returns `None` if
    /// the hook does.
    pub(super) fn hook<T>(
        &mut self,
        state: &mut State,
        [hook, driver]: [Option<usize>; 2],
        work: impl FnOnce(&PlayedNetwork, &Faults) -> T,
    ) -> Option<T> {
        self.set(state);
        let lives = [hook, driver].map(|steps| Arc::new(Life::of(steps)));
        let held = state.driver.take();
        let driver = held.map(|held| self.driver(&held, &lives[1]));
        let socket = self.paths().namespaces_socket();
        let is_over = &AtomicBool::new(false);
        let done = thread::scope(|scope| {
            let answering = driver.as_ref().map(|driver| {
                let listener = UnixListener::bind(&socket).unwrap();
                scope.spawn(move || process::run(|| answer(driver, &listener, is_over)).is_some())
            });
            let done = process::run(|| work(&self.network(&lives[0]), &Faults::of(&lives[0])));
            is_over.store(true, Ordering::SeqCst);
            drop(UnixStream::connect(&socket));
            let lives = answering.is_some_and(|answering| answering.join().unwrap());
            state.driver = driver.as_ref().filter(|_| lives).map(|driver| self.held(driver));
            done
        });
        drop(fs::remove_file(&socket));
        self.read(state);
        done
    }
}

/// Answers hooks until all is over.
fn answer(driver: &LocalPreparer, listener: &UnixListener, is_over: &AtomicBool) {
    for stream in listener.incoming() {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        // What fails, the hook hears.
        drop(driver.answer_hook(&stream.unwrap()));
    }
}
