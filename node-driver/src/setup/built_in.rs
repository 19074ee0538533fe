//! Crate `host-setup` in the driver, and what it asks of the driver.

use super::{SetupStart, allocated};
use crate::facts::held::Claims;
use crate::facts::network::kernel::Kernel;
use crate::facts::ports::KnownPorts;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::virtual_function_settings;
use crate::prepare::effects::Faults;
use cluster_model::names::DRIVER;
use futures::future::BoxFuture;
use host_setup::Place;
use host_setup::node::{Driver, DriverError, Node};
use kube::Client;
use node_files::paths::Paths;
use publication::network::NetworkFacts;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::{fmt, io};

pub(super) async fn start(start: SetupStart<'_>) -> host_setup::Setup {
    let SetupStart { args, client, host, ports, is_this_machine, wake } = start;
    let paths = args.plugin.paths(DRIVER).filter(|_| is_this_machine && !args.once);
    let place = paths.map(|paths| {
        let (client, pool) = (client.clone(), args.node_name.clone());
        let (ports, faults) = (ports.clone(), args.plugin.faults());
        let node: Arc<dyn Node> = Arc::new(ProgramNode::new(&paths));
        let driver: Arc<dyn Driver> = Arc::new(SetupDriver { client, pool, ports, faults });
        let sysfs = args.setup.sysfs_dir.clone().unwrap_or_else(|| host.sys());
        Place { sysfs, paths, node, driver }
    });
    let node = (client, args.node_name.as_str());
    let (args, run_dir) = (&args.setup, args.plugin.run_dir.clone());
    let start = host_setup::Start { args, node, host, run_dir, place, wake };
    host_setup::Setup::start(start).await
}

/// The node as programs know it that run without the driver.
#[derive(Debug)]
pub(crate) struct ProgramNode {
    claims: Claims,
}

impl ProgramNode {
    /// The node with these files.
    pub(crate) fn new(paths: &Paths) -> Self {
        Self { claims: Claims::new(Some(paths.checkpoint())) }
    }
}

impl Node for ProgramNode {
    fn claims(&self) -> io::Result<BTreeSet<String>> {
        let records = self.claims.read()?.claims.into_values();
        Ok(records.map(|record| record.plan.claim.to_string()).collect())
    }

    fn held(&self) -> io::Result<BTreeSet<String>> {
        let plans = self.claims.read()?.claims.into_values().map(|record| record.plan);
        Ok(plans.flat_map(|plan| plan.devices).map(|device| device.device).collect())
    }

    fn network(&self) -> BoxFuture<'_, Result<NetworkFacts, DriverError>> {
        Box::pin(async { Ok(Kernel::default().read().await?) })
    }
}

/// The driver.
struct SetupDriver {
    client: Client,
    pool: String,
    ports: KnownPorts,
    faults: Faults,
}

impl fmt::Debug for SetupDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetupDriver").field("pool", &self.pool).finish_non_exhaustive()
    }
}

impl Driver for SetupDriver {
    fn allocated(&self) -> BoxFuture<'_, Result<BTreeMap<String, String>, DriverError>> {
        Box::pin(async { Ok(allocated::allocated(&self.client, &self.pool).await?) })
    }

    fn changing(&self, directory: &str) -> Box<dyn Any + Send> {
        Box::new(self.ports.reads().change(directory))
    }

    fn give_guids(&self, link: &str, guids: &[u64]) -> Result<(), DriverError> {
        Ok(virtual_function_settings::set_guids(&NetNs::current()?, link, guids)?)
    }

    fn reached(&self, point: &str) {
        self.faults.reached(point);
    }
}
