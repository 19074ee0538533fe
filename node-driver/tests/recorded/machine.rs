//! Claims on recorded machines. The crate's own tests have this file too.

use crate::kernel::attach::rdma::NetnsMode;
use crate::model::claim::{ClaimRef, PodRef};
use crate::model::host_link::HostLink;
use crate::model::plan::Plan;
use crate::prepare::claim::{AllocatedClaim, AllocatedDevice};
use crate::prepare::inventory::Inventory;
use crate::prepare::plan::{Facts, PlanError, Policy, plan};
use publication::judge::{Rules, Verdict, judge};
use publication::network::{Interface, NetworkFacts};
use publication::nic::NicState;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use topology_graph::{HostRoot, Snapshot};

/// Replaces character devices, which are files in a fixture, by links to one that every machine has.
pub(crate) fn plant_characters(root: &Path) {
    let folder = root.join("dev/infiniband");
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        fs::remove_file(entry.path()).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    for class in ["infiniband_verbs", "infiniband_mad"] {
        let entries = fs::read_dir(root.join("sys/class").join(class));
        for entry in entries.into_iter().flatten().flatten() {
            // Both classes have a file `abi_version`.
            let place = folder.join(entry.file_name());
            if !place.exists() {
                symlink("/dev/null", place).unwrap();
            }
        }
    }
}

/// The interfaces of a machine whose facts have only the names.
pub(crate) fn interfaces(snapshot: &Snapshot) -> NetworkFacts {
    let interfaces = (2..)
        .zip(&snapshot.netdevs)
        .map(|(index, netdev)| Interface {
            index,
            name: netdev.name.clone(),
            ..Interface::default()
        })
        .collect();
    NetworkFacts { interfaces, ..NetworkFacts::default() }
}

pub(crate) fn host_link(interface: &Interface) -> HostLink {
    HostLink {
        name: interface.name.clone(),
        hardware_addr: interface.mac.as_deref().and_then(|mac| mac.parse().ok()),
        mtu: interface.mtu.unwrap_or(1500),
        up: true,
        ..HostLink::default()
    }
}

pub(crate) fn claim(device: &str) -> AllocatedClaim {
    AllocatedClaim {
        claim: ClaimRef { namespace: "team".into(), name: "nic".into(), uid: "u".into() },
        pods: vec![PodRef { name: "train-0".into(), uid: "p-1".into() }],
        pod_claim_name: None,
        devices: vec![AllocatedDevice {
            request: "nics".into(),
            pool: "node-1".into(),
            device: device.into(),
            place: None,
            share_id: None,
            consumed: BTreeMap::new(),
            is_whole: false,
            admin_access: false,
            parameters: None,
            claimed: None,
            address: None,
        }],
        others: vec![],
    }
}

/// Takes each published NIC that has something to give, with what a claim with these parameters gets of it.
pub(crate) fn planned(
    root: &Path,
    network: Option<NetworkFacts>,
    parameters: Option<&Value>,
    mut take: impl FnMut(&NicState, Result<Plan, PlanError>),
) {
    plant_characters(root);
    let host = HostRoot::at(root);
    let snapshot = topology_graph::read(&host).unwrap();
    let network = network.unwrap_or_else(|| interfaces(&snapshot));
    let inventory = Inventory::new(&snapshot, &network, &host);
    let links = network.interfaces.iter().map(|it| (it.name.clone(), host_link(it))).collect();
    let facts = Facts {
        inventory: &inventory,
        links: &links,
        abilities: &BTreeMap::new(),
        netns_mode: NetnsMode::Shared,
        held: &[],
        policy: Policy::default(),
        boot_id: None,
        cloud_nics: &[],
    };
    let rules = Rules { something_to_give: true, ..Rules::default() };
    let is_given = |nic: &&NicState| matches!(judge(nic, &rules), Verdict::Given(_));
    for nic in inventory.nics.iter().filter(is_given) {
        let mut claim = claim(&nic.name);
        claim.devices[0].parameters = parameters.cloned();
        take(nic, plan(&claim, &facts));
    }
}
