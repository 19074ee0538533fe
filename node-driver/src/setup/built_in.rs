//! Crate `host-setup` in the driver, and what it asks of the driver.

use super::{HostSetup, SetupMachine, SetupStart};
use crate::facts::claims;
use crate::facts::held::Claims;
use crate::facts::network::kernel::Kernel;
use crate::facts::ports::KnownPorts;
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::virtual_function_settings;
use crate::model::setup::SetUp;
use crate::prepare::effects::Faults;
use crate::publish::events::Notice;
use cluster_model::names::DRIVER;
use futures::future::BoxFuture;
use host_setup::node::{Driver, DriverError, Node};
use kube::Client;
use node_files::paths::Paths;
use publication::network::NetworkFacts;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use std::{fmt, io};

pub(super) async fn start(start: SetupStart<'_>) -> host_setup::HostSetup {
    let SetupStart { args, client, host, ports, is_this_machine, wake } = start;
    let paths = args.plugin.paths(DRIVER).filter(|_| is_this_machine && !args.once);
    let place = paths.map(|paths| {
        let (client, pool) = (client.clone(), args.node_name.clone());
        let (ports, faults) = (ports.clone(), args.plugin.faults());
        let driver = SetupDriver { node: ProgramNode::new(&paths), client, pool, ports, faults };
        (paths, Arc::new(driver) as Arc<dyn Driver>)
    });
    let node = (client, args.node_name.as_str());
    let (args, run_dir) = (&args.setup, args.plugin.run_dir.clone());
    let start = host_setup::Start { args, node, host, run_dir, place, wake };
    host_setup::HostSetup::start(start).await
}

impl HostSetup for host_setup::HostSetup {
    fn look<'a>(&'a mut self, machine: SetupMachine<'a>) -> BoxFuture<'a, SetUp> {
        let SetupMachine { snapshot, network, is_known, has_claims, now } = machine;
        let machine = host_setup::Machine { snapshot, network, has_claims, now };
        Box::pin(async move {
            let setup = self.look(machine, is_known).await;
            let host_setup::SetUp { modules, vendor_driver, not_ready, withheld, evicted } = setup;
            SetUp { modules, vendor_driver, not_ready, withheld, evicted }
        })
    }

    fn published(&mut self, now: Instant) {
        self.published(now);
    }

    fn is_awaited(&self, now: Instant) -> bool {
        self.is_awaited(now)
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        self.next_change(now)
    }

    fn notices(&mut self) -> Vec<Notice> {
        let notices = self.notices().into_iter().map(|it| {
            let notice = if it.is_warning { Notice::warning } else { Notice::normal };
            notice(it.reason, &it.note)
        });
        notices.collect()
    }

    fn missing_functions(&self) -> i64 {
        self.missing_functions()
    }

    fn stamp(&self) -> Box<dyn Fn() -> Option<SystemTime> + Send> {
        self.stamp()
    }
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
        self.claims.claims()
    }

    fn held(&self) -> io::Result<BTreeSet<String>> {
        self.claims.names()
    }

    fn network(&self) -> BoxFuture<'_, Result<NetworkFacts, DriverError>> {
        Box::pin(async { Ok(Kernel::default().read().await?) })
    }
}

/// The driver.
struct SetupDriver {
    node: ProgramNode,
    client: Client,
    pool: String,
    ports: KnownPorts,
    faults: Faults,
}

impl fmt::Debug for SetupDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SetupDriver").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Node for SetupDriver {
    fn claims(&self) -> io::Result<BTreeSet<String>> {
        self.node.claims()
    }

    fn held(&self) -> io::Result<BTreeSet<String>> {
        self.node.held()
    }

    fn network(&self) -> BoxFuture<'_, Result<NetworkFacts, DriverError>> {
        self.node.network()
    }
}

impl Driver for SetupDriver {
    fn allocated(&self) -> BoxFuture<'_, Result<BTreeMap<String, String>, DriverError>> {
        Box::pin(async { Ok(claims::allocated(&self.client, &self.pool).await?) })
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
