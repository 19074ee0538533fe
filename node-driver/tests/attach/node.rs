//! A node of the driver in a folder: its machine is below `root`.

use node_driver::facts::network::server::ApiServers;
use node_driver::facts::network::uplinks::Uplinks;
use node_driver::facts::ports::KnownPorts;
use node_driver::kernel::attach::dhcp::keeper::Keepers;
use node_driver::kernel::attach::namespaces::Namespaces;
use node_driver::kernel::attach::node_network::KernelNetwork;
use node_driver::kernel::attach::{AttachMode, SYSCTL};
use node_driver::prepare::Abandoned;
use node_driver::prepare::cdi;
use node_driver::prepare::effects::{Effects, Faults};
use node_driver::prepare::late::LateNics;
use node_driver::prepare::local::{Ended, LocalPreparer};
use node_driver::prepare::metrics::PluginMetrics;
use node_driver::prepare::notices::Notices;
use node_driver::prepare::plan::Policy;
use node_files::paths::Paths;
use std::path::Path;
use std::sync::Arc;
use topology_graph::HostRoot;

pub(crate) fn node(folder: &Path, attach: AttachMode) -> LocalPreparer {
    let paths = Paths {
        kubelet: folder.join("kubelet"),
        driver: "dra.net".into(),
        cdi: folder.join("cdi"),
        run: folder.join("run"),
        netns: folder.join("netns"),
        sysctl: SYSCTL.into(),
    };
    let settings = cdi::SpecSettings {
        runtime_root: folder.join("root"),
        attach,
        environment: cdi::Environment::default(),
        locked_memory: true,
    };
    let effects = Effects {
        namespaces: Arc::new(Namespaces::new(&paths.netns)),
        paths,
        settings,
        network: Box::new(KernelNetwork),
        leases: Keepers::default(),
        notices: Notices::default(),
        faults: Faults::default(),
    };
    LocalPreparer {
        host: HostRoot::at(folder.join("root")),
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
