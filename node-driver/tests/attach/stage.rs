//! A host and a pod: two network namespaces, and a claim whose interface moves from one
//! to the other and back.

use futures::TryStreamExt;
use nix::sched::{CloneFlags, unshare};
use node_driver::kernel::attach::host_links::HostNetwork;
use node_driver::kernel::attach::known::{BeforeAttach, Indices};
use node_driver::kernel::attach::leave::{Patience, Returned, leave, restore};
use node_driver::kernel::attach::netns::NetNs;
use node_driver::kernel::attach::node_network::{KernelNetwork, NodeNetwork};
use node_driver::kernel::attach::rdma::NetnsMode;
use node_driver::kernel::attach::{AttachError, SYSCTL};
use node_driver::model::claim::{ClaimRef, PodRef};
use node_driver::model::plan::Plan;
use node_driver::prepare::claim::{AllocatedClaim, AllocatedDevice};
use node_driver::prepare::inventory::Inventory;
use node_driver::prepare::plan::{Facts, Policy, plan};
use process::chain::Chain;
use publication::cloud::CloudNic;
use publication::network::Interface;
use publication::nic::NicState;
use rtnetlink::LinkUnspec;
use rtnetlink::packet_route::link::LinkAttribute;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::thread;

/// The host's interface that a claim gets. Its veth peer is `far`.
pub(crate) const RAIL: &str = "rail0";

/// The two namespaces.
pub(crate) struct Stage {
    pub(crate) host: NetNs,
    pub(crate) pod: NetNs,
}

/// A claim's interfaces in the pod.
pub(crate) struct Attached {
    plan: Plan,
    links: Indices,
}

impl Attached {
    /// Another plan, whose record says the same about the pod.
    pub(crate) fn with_plan(&self, plan: Plan) -> Self {
        Self { plan, links: self.links.clone() }
    }
}

impl Stage {
    /// Creates both namespaces and a veth pair, and runs these `ip` lines on the host.
    pub(crate) fn with(lines: &[&str]) -> Self {
        let stage = Self { host: namespace(), pod: namespace() };
        let pair = "link add rail0 address 02:00:00:00:aa:00 mtu 9000 type veth peer name far";
        for line in [pair].iter().chain(lines) {
            run(&stage.host, &format!("ip {line}"));
        }
        stage
    }

    /// The plan for a claim with these parameters.
    pub(crate) fn plan(&self, parameters: Value) -> Plan {
        self.plan_in(&[], parameters)
    }

    /// The same, with this cloud metadata about the machine's interfaces.
    pub(crate) fn plan_in(&self, cloud_nics: &[CloudNic], parameters: Value) -> Plan {
        self.decide(&[RAIL], cloud_nics, parameters, None)
    }

    /// The plan for a claim with several interfaces of the host.
    pub(crate) fn plan_of(&self, names: &[&str], parameters: Value) -> Plan {
        self.decide(names, &[], parameters, None)
    }

    /// The plan for a claim with a share of the NIC, with this bandwidth in bits per
    /// second.
    pub(crate) fn plan_share(&self, parameters: Value, bandwidth: u64) -> Plan {
        self.decide(&[RAIL], &[], parameters, Some(bandwidth))
    }

    #[expect(clippy::needless_pass_by_value, reason = "tests write the parameters in the call")]
    fn decide(
        &self,
        names: &[&str],
        cloud_nics: &[CloudNic],
        parameters: Value,
        share: Option<u64>,
    ) -> Plan {
        let network = HostNetwork::read(&self.host, &BTreeSet::new()).unwrap();
        let owned: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let links = network.links(&self.host, &owned).unwrap();
        // Kinds that are not published act as NICs too.
        let nics = owned.iter().map(|name| nic(name)).collect();
        let inventory = Inventory { nics, ..Inventory::default() };
        let mut devices = owned;
        devices.sort();
        let facts = Facts {
            inventory: &inventory,
            links: &links,
            abilities: &BTreeMap::new(),
            netns_mode: NetnsMode::Shared,
            held: &[],
            policy: Policy::default(),
            boot_id: None,
            cloud_nics,
        };
        plan(&claim(devices, &parameters, share), &facts).unwrap()
    }

    /// Attaches the claim.
    pub(crate) fn attach(&self, plan: Plan) -> Attached {
        let mut links = Indices::new();
        self.try_attach(&plan, &mut links, false).unwrap();
        Attached { plan, links }
    }

    /// Attaches the claim; why that is refused.
    pub(crate) fn refusal(&self, plan: &Plan) -> String {
        self.try_attach(plan, &mut Indices::new(), false).unwrap_err().to_string()
    }

    fn try_attach(
        &self,
        plan: &Plan,
        links: &mut Indices,
        is_attached: bool,
    ) -> Result<(), AttachError> {
        let (leases, before) = (BTreeMap::new(), links.clone());
        let sysctl = Path::new(SYSCTL);
        let known = BeforeAttach { leases: &leases, links: &before, is_attached, sysctl };
        let attached =
            KernelNetwork.attach(plan, known, [&self.host, &self.pod], &mut |now: &Indices| {
                links.clone_from(now);
                Ok(())
            });
        attached.map(drop)
    }

    /// Attaches again, as for another container of the pod.
    pub(crate) fn again(&self, attached: &mut Attached) {
        self.try_attach(&attached.plan, &mut attached.links, true).unwrap();
    }

    /// Attaches again, as after a hook that was killed in the middle.
    pub(crate) fn once_more(&self, attached: &mut Attached) {
        self.try_attach(&attached.plan, &mut attached.links, false).unwrap();
    }

    /// Another pod.
    pub(crate) fn new_pod(&mut self) {
        self.pod = namespace();
    }

    /// Moves everything back to the host without restoring it.
    pub(crate) fn leaves(&self, attached: &Attached) {
        let devices: Vec<_> = attached.plan.devices.iter().collect();
        leave(&devices, &attached.links, &self.host, &self.pod).unwrap();
    }

    /// Moves everything back to the host, which lacks nothing then.
    pub(crate) fn take_back(&self, attached: &Attached) {
        assert_eq!(self.try_take_back(attached), Vec::<String>::new());
    }

    /// Moves everything back to the host; what could not be restored.
    pub(crate) fn try_take_back(&self, attached: &Attached) -> Vec<String> {
        self.leaves(attached);
        self.restored(attached)
    }

    /// Restores what is back on the host; what could not be restored.
    pub(crate) fn restored(&self, attached: &Attached) -> Vec<String> {
        let devices: Vec<_> = attached.plan.devices.iter().collect();
        let mut all = Vec::new();
        let tell = |_: &_, returned| match returned {
            Returned::Home(lacking) => all.extend(lacking.iter().map(|it| Chain(it).to_string())),
            Returned::Removed => {}
            Returned::Gone => panic!("it is gone"),
        };
        restore(&devices, &self.host, Patience::default(), Path::new(SYSCTL), tell).unwrap();
        all
    }

    /// Output of a command in the pod.
    pub(crate) fn in_pod(&self, line: &str) -> String {
        run(&self.pod, line)
    }

    /// Output of a command on the host.
    pub(crate) fn on_host(&self, line: &str) -> String {
        run(&self.host, line)
    }
}

/// A network namespace that exists as long as the value.
pub(crate) fn namespace() -> NetNs {
    let made = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        NetNs::current().unwrap()
    });
    made.join().unwrap()
}

/// Index and attributes of an interface.
pub(crate) fn link(namespace: &NetNs, name: &str) -> (u32, Vec<LinkAttribute>) {
    let found = namespace.run(async |handle| {
        let mut links = handle.link().get().match_name(name.to_owned()).execute();
        Ok(links.try_next().await.unwrap().unwrap())
    });
    let found = found.unwrap();
    (found.header.index, found.attributes)
}

/// Sets an attribute of an interface.
pub(crate) fn set(namespace: &NetNs, name: &str, attribute: LinkAttribute) {
    let message = LinkUnspec::new_with_index(link(namespace, name).0);
    let message = message.append_extra_attribute(attribute).build();
    let outcome = namespace.run(async |handle| Ok(handle.link().set(message).execute().await));
    outcome.unwrap().unwrap();
}

/// Runs a command line in a namespace; words are split at spaces.
pub(crate) fn run(namespace: &NetNs, line: &str) -> String {
    let started = namespace.run(async |_| {
        let mut words = line.split(' ');
        Ok(Command::new(words.next().unwrap()).args(words).output())
    });
    let output = started.unwrap().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "`{line}` failed: {}", error.trim());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn nic(name: &str) -> NicState {
    let interface = Some(Interface { name: name.to_owned(), ..Interface::default() });
    NicState { name: name.to_owned(), interface, ..NicState::default() }
}

pub(crate) fn claim(
    devices: Vec<String>,
    parameters: &Value,
    bandwidth: Option<u64>,
) -> AllocatedClaim {
    let uid = "c1a1f0ea-0000-4000-8000-000000000001".to_owned();
    AllocatedClaim {
        claim: ClaimRef { namespace: "ns".to_owned(), name: "claim".to_owned(), uid },
        pods: vec![PodRef { name: "pod".to_owned(), uid: "p-1".to_owned() }],
        pod_claim_name: None,
        devices: devices.into_iter().map(|name| device(name, parameters, bandwidth)).collect(),
        others: vec![],
    }
}

fn device(device: String, parameters: &Value, bandwidth: Option<u64>) -> AllocatedDevice {
    AllocatedDevice {
        request: "nic".to_owned(),
        pool: "n1".to_owned(),
        device,
        place: None,
        share_id: bandwidth.map(|_| "5a4e0000-0000-4000-8000-000000000001".to_owned()),
        consumed: bandwidth
            .map(|bits| ("dranet.io/bandwidth".to_owned(), i64::try_from(bits).unwrap()))
            .into_iter()
            .collect(),
        is_whole: false,
        admin_access: false,
        parameters: Some(parameters.clone()),
        claimed: None,
        address: None,
    }
}
