//! What is published about a machine: each NIC is judged, and those that pods can get become devices. Pure:
//! the same facts always give the same result.

use crate::attributes::encode;
use crate::judge::{Rules, Verdict, WithheldNic, WithheldReason, judge};
use crate::late::{LateNic, places};
use crate::machine::{Facts, Machine, Usage};
use crate::nic::NicState;
use crate::nic_conditions;
use crate::rails::KnownRails;
use k8s_openapi::api::resource::v1::Device;
use std::collections::BTreeMap;
use topology_graph::{Anomaly, HostCondition, NodeTopologySpec};

/// What is published.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The devices of the slices: NICs, and places for those that are bound late.
    pub devices: Vec<Device>,
    /// The NICs that pods can get.
    pub nics: Vec<NicState>,
    /// The NICs behind the places.
    pub late: Vec<LateNic>,
    /// What could be a NIC of pods and is not published.
    pub withheld: Vec<WithheldNic>,
    /// The topology graph.
    pub topology: NodeTopologySpec,
    /// Inconsistencies found in the machine's data.
    pub anomalies: Vec<Anomaly>,
    /// Conditions of the node: those of the machine, then of its NICs.
    pub host: Vec<HostCondition>,
}

impl Machine {
    /// Judges each NIC. `held` are the NICs of prepared claims by the place that stands for them.
    pub fn decide(self, rules: &Rules, held: &BTreeMap<String, String>) -> Decision {
        let (mut given, mut withheld) = (Vec::new(), Vec::new());
        for nic in self.nics {
            match judge(&nic, rules) {
                Verdict::Given(verdict) => given.push((nic, verdict)),
                // Interfaces of pods would change what is withheld with each pod.
                Verdict::Withheld(WithheldReason::Filter) if nic.is_veth() => {}
                Verdict::Withheld(reason) => withheld.push(WithheldNic::new(&nic, reason)),
            }
        }
        withheld.sort_by_key(|nic| nic.reason.turn());
        let conditions = nic_conditions::conditions(&given, &withheld);
        let (late, named): (Vec<_>, Vec<_>) =
            given.iter().cloned().partition(|(_, given)| given.late);
        let mut devices: Vec<_> = named.iter().map(|(nic, given)| encode(nic, given)).collect();
        if rules.is_late() {
            devices.extend(places(&late, held));
        }
        Decision {
            devices,
            nics: given.into_iter().map(|(nic, _)| nic).collect(),
            late: late.iter().filter_map(|(nic, given)| LateNic::new(nic, given)).collect(),
            withheld,
            topology: self.topology,
            anomalies: self.anomalies,
            host: self.host.into_iter().chain(conditions).collect(),
        }
    }
}

/// Decides what to publish for these facts about a machine that was never seen before: every NIC that the
/// host can give, without taints.
pub fn decide(facts: &Facts) -> Decision {
    decide_with(facts, &Rules::default())
}

/// Decides what to publish by these rules about a machine that was never seen before and that nobody uses.
pub fn decide_with(facts: &Facts, rules: &Rules) -> Decision {
    let mut machine = Machine::read(facts, rules, &KnownRails::default());
    machine.settle(&Usage::default(), rules);
    machine.decide(rules, &BTreeMap::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::held::Holding;
    use crate::live::facts;
    use crate::network::Interface;
    use cluster_model::names::attribute::dranet;
    use topology_graph::{LinkLayer, Netdev, PortState};

    const PHYSICAL: &str = "pci-0101-00-00-0";
    const VIRTUAL: &str = "pci-0101-00-00-1";

    /// A machine on which one NIC has a virtual function with this driver.
    fn with_function(driver: Option<&str>) -> Facts {
        let mut facts = facts("aks-gb300");
        let snapshot = &mut facts.snapshot;
        let physical = "0101:00:00.0".parse().unwrap();
        let mut function = snapshot.function(physical).unwrap().clone();
        function.address = "0101:00:00.1".parse().unwrap();
        function.physical_function = Some(physical);
        function.driver = driver.map(str::to_owned);
        let mut rdma = snapshot.rdma_device(physical).unwrap().clone();
        rdma.name = "mlx5_9".to_owned();
        rdma.pci = Some(function.address);
        snapshot.rdma.push(rdma);
        snapshot.pci.push(function);
        snapshot.pci.sort_by_key(|function| function.address);
        facts
    }

    /// Which of both functions are published, and why the other is not.
    fn given_out(facts: &Facts, held: &[&str]) -> (Vec<String>, Vec<String>) {
        let holding = |name: &&str| ((*name).to_owned(), Holding::default());
        let usage = Usage { held: held.iter().map(holding).collect(), ..Usage::default() };
        let rules =
            Rules { one_function_per_port: true, something_to_give: true, ..Rules::default() };
        let mut machine = Machine::read(facts, &rules, &KnownRails::default());
        machine.settle(&usage, &rules);
        let decision = machine.decide(&rules, &BTreeMap::new());
        let of_both = |name: &&String| [PHYSICAL, VIRTUAL].contains(&name.as_str());
        let published = decision.devices.iter().map(|device| &device.name).filter(of_both);
        let withheld = decision.withheld.iter().filter(|nic| of_both(&&nic.name));
        let reason = |nic: &WithheldNic| format!("{} {}", nic.name, nic.reason.word());
        (published.cloned().collect(), withheld.map(reason).collect())
    }

    #[test]
    fn a_physical_function_and_its_virtual_functions_are_not_given_out_together() {
        let one = |name: &str| vec![name.to_owned()];
        let facts = with_function(Some("mlx5_core"));
        let (published, withheld) = given_out(&facts, &[]);
        assert_eq!(published, one(VIRTUAL));
        assert_eq!(withheld, one("pci-0101-00-00-0 has-virtual-functions"));
        let (published, withheld) = given_out(&facts, &[PHYSICAL]);
        assert_eq!(published, one(PHYSICAL), "a pod has had it before");
        assert_eq!(withheld, one("pci-0101-00-00-1 physical-function-in-pod"));
        let (published, _) = given_out(&facts, &[PHYSICAL, VIRTUAL]);
        assert_eq!(published.len(), 2, "what pods have stays published");

        let (published, withheld) = given_out(&with_function(Some("vfio-pci")), &[]);
        assert_eq!(published, [""; 0], "a virtual machine has the virtual function");
        assert_eq!(withheld.len(), 2);
        let (published, withheld) = given_out(&with_function(None), &[]);
        assert_eq!(published, one(PHYSICAL), "nobody has the virtual function");
        assert_eq!(withheld, one("pci-0101-00-00-1 no-driver"));
    }

    /// The second function of an adapter on two sockets, for example.
    #[test]
    fn a_function_of_which_a_pod_would_get_nothing_is_not_given_out() {
        let mut facts = facts("aks-gb300");
        let address = "0101:00:00.0".parse().unwrap();
        facts.snapshot.rdma.retain(|device| device.pci != Some(address));
        facts.snapshot.netdevs.retain(|netdev| netdev.pci != Some(address));
        let (published, withheld) = given_out(&facts, &[]);
        assert!(!published.contains(&PHYSICAL.to_owned()), "{published:?}");
        assert_eq!(withheld, [format!("{PHYSICAL} nothing-to-give")]);
        let (published, _) = given_out(&facts, &[PHYSICAL]);
        assert!(published.contains(&PHYSICAL.to_owned()), "a pod has it: {published:?}");
    }

    #[test]
    fn every_virtual_function_says_so() {
        let decision = decide(&with_function(Some("mlx5_core")));
        let is_virtual = |device: &&Device| {
            let value = device.attributes.as_ref().unwrap().get(dranet::IS_SRIOV_VF);
            value.is_some_and(|value| value.bool == Some(true))
        };
        let names: Vec<_> =
            decision.devices.iter().filter(is_virtual).map(|device| &device.name).collect();
        assert_eq!(names, [VIRTUAL]);
    }

    /// An Ethernet port is down until its interface is set up.
    #[test]
    fn an_ethernet_port_counts_while_its_interface_is_set_up() {
        let mut facts = facts("aks-gb300");
        let physical = "0101:00:00.0".parse().unwrap();
        let rdma = facts.snapshot.rdma.iter_mut().find(|it| it.pci == Some(physical)).unwrap();
        for port in &mut rdma.ports {
            port.link_layer = Some(LinkLayer::Ethernet);
            port.state = Some(PortState::Down);
        }
        facts.snapshot.netdevs.retain(|netdev| netdev.pci != Some(physical));
        let name = "rail0".to_owned();
        facts.snapshot.netdevs.push(Netdev { name: name.clone(), pci: Some(physical), part: None });
        for (is_up, expected) in [(Some(true), Some(false)), (Some(false), None), (None, None)] {
            let interface =
                Interface { index: 99, name: name.clone(), is_up, ..Interface::default() };
            facts.network.interfaces.retain(|it| it.name != name);
            facts.network.interfaces.push(interface);
            let nics = decide(&facts).nics;
            let vitals = nics.iter().find(|nic| nic.name == PHYSICAL).unwrap().vitals();
            assert_eq!(vitals.port_up, expected, "{is_up:?}");
            assert_eq!(vitals.is_ethernet, expected.is_some());
        }
    }
}
