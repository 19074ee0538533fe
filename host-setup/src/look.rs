//! The setup's part of the driver: at each look at the machine it does what is due, and says what that means
//! for the NICs.

use crate::args::SetupArgs;
use crate::modules::{ModulesReport, REPORT, condition};
use crate::notice;
use crate::vendor_driver::follow::VendorDriver;
use crate::virtual_functions::create::{Functions, Place};
use kube::Client;
use process::chain::Chain;
use publication::host_setup::{HostSetup, Looked, Machine, SetUp};
use publication::notice::Notice;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::sync::Notify;
use topology_graph::{HostCondition, HostRoot};

/// The setup of one host.
#[derive(Debug)]
pub struct Setup {
    /// The directory with the init container's report on modules.
    run_dir: PathBuf,
    /// Virtual functions, if there are policies for them.
    functions: Option<Functions>,
    /// A vendor's driver of the NICs, where the operator has said that a container loads one.
    vendor_driver: Option<VendorDriver>,
    /// The last report of missing modules.
    lacking: String,
    /// What was said last of the vendor's driver.
    said: Option<&'static str>,
    notices: Vec<Notice>,
}

/// Everything needed to start it.
#[expect(missing_debug_implementations, reason = "a client has none")]
pub struct Start<'a> {
    /// The flags.
    pub args: &'a SetupArgs,
    /// A client, and the node's name.
    pub node: (&'a Client, &'a str),
    /// The machine.
    pub host: &'a HostRoot,
    /// The directory with the init container's report on modules.
    pub run_dir: PathBuf,
    /// Where virtual functions can be created; `None` if claims are not prepared, or the machine is a
    /// recorded one.
    pub place: Option<Place>,
    /// Woken when something has changed.
    pub wake: &'a Arc<Notify>,
}

impl Setup {
    /// Starts it.
    pub async fn start(Start { args, node, host, run_dir, place, wake }: Start<'_>) -> Self {
        let policies = Some(args.virtual_functions.clone()).filter(|it| !it.is_empty());
        let functions = policies.zip(place);
        let functions = functions.map(|(policies, place)| Functions::new(policies, place, wake));
        let vendor_driver = VendorDriver::start(&args.vendor_driver, node, host, wake).await;
        let (lacking, notices) = (String::new(), Vec::new());
        Self { run_dir, functions, vendor_driver, lacking, said: None, notices }
    }

    /// Does what is due.
    async fn look_at(&mut self, machine: Machine<'_>) -> SetUp {
        let Machine { snapshot, network, is_known, has_claims, now } = machine;
        let mut setup = SetUp { modules: self.modules(), ..SetUp::default() };
        self.notices.extend(notice::of_modules(&mut self.lacking, setup.modules.as_ref()));
        if let Some(vendor) = &mut self.vendor_driver {
            let (decision, devices) = vendor.look(snapshot, has_claims);
            if decision.withholds {
                setup.withheld.clone_from(&devices);
            }
            if decision.evicts {
                setup.evicted = devices;
            }
            setup.vendor_driver = decision.condition;
        }
        self.notices.extend(notice::of_vendor_driver(&mut self.said, setup.vendor_driver.as_ref()));
        if let Some(functions) = &mut self.functions {
            setup.not_ready = functions.look(snapshot, network, is_known, now).await;
            self.notices.extend(functions.notices());
        }
        setup
    }

    /// The condition by the init container's report; `None` if it was not asked to load modules.
    fn modules(&self) -> Option<HostCondition> {
        let report = ModulesReport::read(&self.run_dir.join(REPORT)).unwrap_or_else(|error| {
            tracing::warn!(error = %Chain(&error), "Continuing without the report on modules");
            None
        });
        report.as_ref().map(condition::condition)
    }
}

impl HostSetup for Setup {
    fn look<'a>(&'a mut self, machine: Machine<'a>) -> Looked<'a> {
        Box::pin(self.look_at(machine))
    }

    fn published(&mut self, now: Instant) {
        if let Some(functions) = &mut self.functions {
            functions.published(now);
        }
    }

    fn is_awaited(&self, now: Instant) -> bool {
        self.functions.as_ref().is_some_and(|functions| functions.is_awaited(now))
    }

    fn next_change(&self, now: Instant) -> Option<Instant> {
        self.functions.as_ref().and_then(|functions| functions.next_change(now))
    }

    fn notices(&mut self) -> Vec<Notice> {
        mem::take(&mut self.notices)
    }

    fn missing_functions(&self) -> i64 {
        self.functions.as_ref().map_or(0, Functions::missing)
    }

    fn stamp(&self) -> Box<dyn Fn() -> Option<SystemTime> + Send> {
        match &self.vendor_driver {
            Some(vendor) => Box::new(vendor.stamp()),
            None => Box::new(|| None),
        }
    }
}
