//! What claims get on every machine, as it was recorded: the checkpoint and the CDI file, or why there is none.
//!
//! Snapshots of `plan` and `wiring` hold single devices of a few machines; this record holds every NIC of all
//! machines, with several configurations.

#![allow(clippy::panic, clippy::unwrap_used, reason = "a test may panic")]

#[path = "recorded/machine.rs"]
mod machine;
#[path = "../../tests/recorded/record.rs"]
mod record;

use kernel::attach::AttachMode;
use machine::planned;
use model::plan::Plan;
// The crate's own tests name these by `crate`.
use model::checkpoint::{Checkpoint, Phase, Record};
use node_driver::{kernel, model, prepare};
use node_files::paths::Paths;
use prepare::cdi;
use prepare::published::SliceDevices;
use prepare::wiring::wiring;
use process::chain::Chain;
use publication::live;
use publication::network::NetworkFacts;
use serde_json::json;
use std::fmt::Write as _;
use std::path::Path;
use topology_graph::{HostRoot, Topology, fixture};

/// The checkpoint and the CDI file of a claim for each NIC, with each of these parameters; or why there is none.
fn prepared(root: &Path, network: Option<&NetworkFacts>) -> String {
    let parameters = [
        None,
        Some(json!({"interface": {"addresses": ["10.0.0.7/24"], "mtu": 4096}})),
        Some(json!({"interface": {"type": "macvlan", "addresses": ["10.0.0.7/24"]}})),
        Some(json!({"interface": {"type": "passthrough"}})),
    ];
    let topology = topology_graph::read(&HostRoot::at(root)).unwrap();
    let (topology, _) = Topology::build(&topology, None);
    let mut text = String::new();
    for parameters in parameters {
        planned(root, network.cloned(), parameters.as_ref(), |nic, plan| {
            let told = match plan {
                Ok(plan) => files(plan, &topology),
                Err(error) => Chain(&error).to_string(),
            };
            writeln!(text, "{}: {told}", nic.name).unwrap();
        });
    }
    text
}

/// The checkpoint with this plan alone, and its CDI file.
fn files(mut plan: Plan, topology: &Topology) -> String {
    plan.wiring = wiring(&plan, "dra.net", topology, &SliceDevices::default());
    let settings = cdi::SpecSettings {
        runtime_root: "/".into(),
        attach: AttachMode::Hook,
        environment: cdi::Environment::default(),
        locked_memory: true,
    };
    let cdi = json!(cdi::spec(&plan, &paths(), &settings));
    let claims = [("u".to_owned(), Record { phase: Phase::Prepared, plan })].into();
    let checkpoint = Checkpoint { claims, unrestored: vec![] }.to_text().unwrap();
    format!("{}\n{cdi}", String::from_utf8(checkpoint).unwrap())
}

fn paths() -> Paths {
    Paths {
        kubelet: "/var/lib/kubelet".into(),
        driver: "dra.net".into(),
        cdi: "/var/run/cdi".into(),
        run: "/run/dranet".into(),
        netns: "/run/netns".into(),
        sysctl: "/proc/sys/net".into(),
    }
}

#[test]
fn what_is_prepared_on_every_machine_is_as_recorded() {
    let live = live::MACHINES.map(|name| format!("{name} live"));
    let machines = fixture::MACHINES.iter().map(|(name, _)| (*name).to_owned());
    let machines: Vec<String> = machines.chain(live).collect();
    record::compare("prepared", &machines, |machine| {
        if let Some(name) = machine.strip_suffix(" live") {
            return prepared(live::plant(name).path(), Some(&live::network(name)));
        }
        let root = tempfile::tempdir().unwrap();
        fixture::plant(fixture::machine(machine).unwrap(), root.path()).unwrap();
        prepared(root.path(), None)
    });
}
