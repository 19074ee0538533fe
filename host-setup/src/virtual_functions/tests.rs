//! A machine with a physical function and two virtual functions, in all the ways in which a
//! virtual function can be in use.

use super::*;
use publication::network::{DefaultRoute, Interface};
use std::time::{Duration, Instant};
use topology_graph::{HostRoot, RdmaPort, fixture};

pub(crate) const PHYSICAL: &str = "0000:86:00.0";
pub(crate) const GUID: u64 = 0x0c42_a103_0065_4c3e;
const FIRST: &str = "0000:86:10.0";
const SECOND: &str = "0000:86:10.2";

fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

fn policies(texts: &[&str]) -> Vec<SriovPolicy> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

/// What the driver knows.
pub(crate) struct Known {
    pub(crate) snapshot: Snapshot,
    pub(crate) network: NetworkFacts,
    pub(crate) held: BTreeSet<String>,
    guided: BTreeSet<PciAddress>,
}

impl Known {
    /// A physical function with this many virtual functions.
    pub(crate) fn with(number: usize) -> Self {
        let root = tempfile::tempdir().unwrap();
        fixture::plant(fixture::machine("azure-gb300").unwrap(), root.path()).unwrap();
        let mut snapshot = topology_graph::read(&HostRoot::at(root.path())).unwrap();
        let model = snapshot.pci.iter().find(|it| it.class >> 16 == 2).unwrap().clone();
        let function = |place: &str| PciFunction {
            address: address(place),
            path: format!("devices/pci0000:80/{place}"),
            class: 0x02_00_00,
            vendor: 0x15b3,
            device: 0x1021,
            driver: Some("mlx5_core".to_owned()),
            physical_function: None,
            sriov_total_vfs: None,
            sriov_num_vfs: None,
            ..model.clone()
        };
        let virtuals = [(FIRST, "vf0"), (SECOND, "vf1")].into_iter().take(number);
        let physical = PciFunction {
            sriov_total_vfs: Some(16),
            sriov_num_vfs: u16::try_from(number).ok(),
            ..function(PHYSICAL)
        };
        snapshot.pci = vec![physical];
        snapshot.netdevs.clear();
        snapshot.rdma.clear();
        let mut known = Self {
            snapshot,
            network: NetworkFacts::default(),
            held: BTreeSet::new(),
            guided: BTreeSet::new(),
        };
        known.interface(PHYSICAL, "rail3");
        for (place, interface) in virtuals {
            let physical_function = Some(address(PHYSICAL));
            known.snapshot.pci.push(PciFunction { physical_function, ..function(place) });
            known.interface(place, interface);
        }
        known
    }

    /// Adds an interface in the host's namespace.
    fn interface(&mut self, place: &str, name: &str) {
        let index = u32::try_from(self.network.interfaces.len() + 1).unwrap();
        let interface = Interface { index, name: name.to_owned(), ..Interface::default() };
        self.network.interfaces.push(interface);
        let netdev =
            topology_graph::Netdev { name: name.to_owned(), pci: Some(address(place)), part: None };
        self.snapshot.netdevs.push(netdev);
    }

    fn rdma(&mut self, place: &str, name: &str) {
        let device = serde_json::json!({
            "name": name, "pci": place, "nodeGuid": null, "sysImageGuid": null, "ports": [],
            "uverbs": [], "umad": [], "issm": [],
        });
        self.snapshot.rdma.push(serde_json::from_value(device).unwrap());
    }

    /// Makes all functions InfiniBand; the virtual functions get these node GUIDs.
    pub(crate) fn infiniband(&mut self, guids: &[u64]) {
        let functions = [(PHYSICAL, GUID)].into_iter();
        let functions = functions.chain([FIRST, SECOND].into_iter().zip(guids.iter().copied()));
        for (index, (place, guid)) in functions.enumerate() {
            self.rdma(place, &format!("mlx5_{index}"));
            let device = self.snapshot.rdma.last_mut().unwrap();
            let words = (0..4).rev().map(|word| format!("{:04x}", guid >> (16 * word) & 0xffff));
            device.node_guid = Some(words.collect::<Vec<_>>().join(":"));
            device.ports = vec![RdmaPort {
                number: 1,
                state: None,
                rate_megabits: None,
                link_layer: Some(LinkLayer::InfiniBand),
                subnet: None,
            }];
        }
    }

    fn named(&mut self, name: &str) -> &mut Interface {
        self.network.interfaces.iter_mut().find(|it| it.name == name).unwrap()
    }

    fn function(&mut self, place: &str) -> &mut PciFunction {
        self.snapshot.pci.iter_mut().find(|it| it.address == address(place)).unwrap()
    }

    fn machine(&self) -> VfFacts<'_> {
        VfFacts {
            snapshot: &self.snapshot,
            network: &self.network,
            held: &self.held,
            guided: &self.guided,
        }
    }

    fn judged(&self, policy: &str) -> BTreeMap<PciAddress, Judged> {
        judge(&policies(&[policy]), self.machine())
    }

    fn verdict(&self, policy: &str) -> Verdict {
        self.judged(policy).remove(&address(PHYSICAL)).expect("it is selected").verdict
    }

    fn obstacle(&self, policy: &str) -> String {
        match self.verdict(policy) {
            Verdict::Wait(obstacle) => obstacle.to_string(),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn infiniband_functions_without_a_guid_are_recreated() {
    let two = "numVfs=2,vendor=15b3";
    let guid = |known: &Known| known.judged(two)[&address(PHYSICAL)].guid;
    let mut known = Known::with(2);
    assert_eq!(guid(&known), None, "Ethernet");
    known.infiniband(&[7, 8]);
    assert_eq!(guid(&known), Some(GUID));
    assert_eq!(known.verdict(two), Verdict::Nothing, "all have one");

    let lacking = || {
        let mut known = Known::with(2);
        known.infiniband(&[7, 0]);
        known
    };
    assert_eq!(lacking().verdict(two), Verdict::Replace);
    let mut known = lacking();
    known.held.insert("pci-0000-86-10-0".to_owned());
    assert!(known.obstacle(two).contains("pci-0000-86-10-0"), "a claim has one");
    let mut known = lacking();
    known.guided.insert(address(PHYSICAL));
    assert_eq!(known.verdict(two), Verdict::Nothing, "they were recreated");
    // The kernel accepts GUIDs only through the interface.
    let mut known = lacking();
    known.network.interfaces.retain(|it| it.name != "rail3");
    assert_eq!((guid(&known), known.verdict(two)), (None, Verdict::Nothing));
    let mut known = lacking();
    for device in &mut known.snapshot.rdma {
        device.ports[0].link_layer = Some(LinkLayer::Ethernet);
    }
    assert_eq!((guid(&known), known.verdict(two)), (None, Verdict::Nothing), "RoCE");
}

#[test]
fn functions_are_made_where_there_are_none() {
    let known = Known::with(0);
    assert_eq!(known.verdict("numVfs=4,vendor=15b3"), Verdict::Make);
    assert_eq!(known.verdict("numVfs=0,vendor=15b3"), Verdict::Nothing);
    assert!(known.judged("numVfs=4,vendor=8086").is_empty(), "another vendor");
    let judged =
        judge(&policies(&["numVfs=4,pfName=rail3", "numVfs=8,vendor=15b3"]), known.machine());
    assert_eq!(judged[&address(PHYSICAL)].wanted, 4, "the first matching policy");
}

#[test]
fn the_right_number_stays_another_needs_a_replacement() {
    let known = Known::with(2);
    assert_eq!(known.verdict("numVfs=2,vendor=15b3"), Verdict::Nothing);
    for other in ["numVfs=4,vendor=15b3", "numVfs=1,vendor=15b3", "numVfs=0,vendor=15b3"] {
        assert_eq!(known.verdict(other), Verdict::Replace, "{other}");
    }
    let judged = known.judged("numVfs=4,vendor=15b3");
    assert_eq!(judged.len(), 1, "no policy selects virtual functions");
    let judged = &judged[&address(PHYSICAL)];
    assert_eq!(judged.interface.as_deref(), Some("rail3"));
    assert_eq!((judged.present, judged.wanted), (2, 4));
    assert_eq!(Vec::from_iter(&judged.functions), ["pci-0000-86-10-0", "pci-0000-86-10-2"]);
}

/// Every way in which a virtual function can be in use, one at a time.
#[test]
fn a_function_in_use_blocks_the_change() {
    const POLICY: &str = "numVfs=4,vendor=15b3";
    type Change = fn(&mut Known);
    let cases: [(&str, Change); 7] = [
        ("a claim on this node has `pci-0000-86-10-2`", |known| {
            known.held.insert("pci-0000-86-10-2".to_owned());
        }),
        ("driver `vfio-pci` has `pci-0000-86-10-2`", |known| {
            known.function(SECOND).driver = Some("vfio-pci".to_owned());
        }),
        ("another network namespace has `pci-0000-86-10-2`", |known| {
            known.network.interfaces.retain(|it| it.name != "vf1");
        }),
        // Sysfs shows no interfaces of other namespaces either.
        ("another network namespace has `pci-0000-86-10-0`", |known| {
            known.network.interfaces.retain(|it| it.name != "vf0");
            known.snapshot.netdevs.retain(|it| it.name != "vf0");
            known.rdma(FIRST, "mlx5_4");
        }),
        ("the host itself has `pci-0000-86-10-2`", |known| {
            let interface = known.named("vf1").index;
            let route = DefaultRoute { ipv6: false, metric: 0, interface, advertised: false };
            known.network.default_routes.push(route);
        }),
        ("the host itself has `pci-0000-86-10-2`", |known| {
            let bond = Interface { index: 99, name: "bond0".to_owned(), ..Interface::default() };
            known.network.interfaces.push(bond);
            known.named("vf1").master = Some(99);
        }),
        ("a pod has it; drain the node", |known| {
            known.held.insert("pci-0000-86-00-0".to_owned());
        }),
    ];
    for (text, change) in cases {
        let mut known = Known::with(2);
        change(&mut known);
        let obstacle = known.obstacle(POLICY);
        assert!(obstacle.starts_with(text), "{obstacle}, expected {text}");
        // allowUplink makes no difference.
        let obstacle = known.obstacle(&format!("{POLICY},allowUplink=true"));
        assert!(obstacle.starts_with(text), "{obstacle}, expected {text}");
        assert_eq!(known.verdict("numVfs=2,vendor=15b3"), Verdict::Nothing, "{text}");
    }
    // A function without a driver is not in use.
    let mut known = Known::with(2);
    known.function(SECOND).driver = None;
    known.network.interfaces.retain(|it| it.name != "vf1");
    assert_eq!(known.verdict(POLICY), Verdict::Replace);
    // An InfiniBand function may have an RDMA device and no interface.
    for place in [FIRST, SECOND] {
        known.function(place).class = 0x02_07_00;
        known.rdma(place, place);
    }
    known.network.interfaces.retain(|it| it.name == "rail3");
    assert_eq!(known.verdict(POLICY), Verdict::Replace);
}

#[test]
fn uplinks_are_left_alone_unless_the_policy_allows_them() {
    const POLICY: &str = "numVfs=4,vendor=15b3";
    const ALLOWED: &str = "numVfs=4,vendor=15b3,allowUplink=true";
    let mut known = Known::with(0);
    let interface = known.named("rail3").index;
    let route = DefaultRoute { ipv6: false, metric: 0, interface, advertised: false };
    known.network.default_routes.push(route);
    let text = "the node's own traffic goes through `rail3`; select others, or set allowUplink";
    assert_eq!(known.obstacle(POLICY), text);
    assert_eq!(known.verdict(ALLOWED), Verdict::Make);

    let mut known = Known::with(0);
    let bond = Interface { index: 99, name: "bond0".to_owned(), ..Interface::default() };
    known.network.interfaces.push(bond);
    known.named("rail3").master = Some(99);
    let text = "`rail3` belongs to `bond0`; select others, or set allowUplink";
    assert_eq!(known.obstacle(POLICY), text);
    assert_eq!(known.verdict(ALLOWED), Verdict::Make);
}

#[test]
fn impossible_policies_are_explained() {
    let mut known = Known::with(0);
    let text = "it supports at most 16; lower numVfs";
    assert_eq!(known.obstacle("numVfs=17,vendor=15b3"), text);
    assert_eq!(known.verdict("numVfs=16,vendor=15b3"), Verdict::Make);
    for driver in [None, Some("vfio-pci")] {
        known.function(PHYSICAL).driver = driver.map(str::to_owned);
        let text = "it is not bound to a kernel driver; bind it to one";
        assert_eq!(known.obstacle("numVfs=4,vendor=15b3"), text);
    }
    known.function(PHYSICAL).sriov_total_vfs = None;
    assert!(known.judged("numVfs=4,vendor=15b3").is_empty(), "it supports none");
}

const POLICY: &str = "numVfs=4,vendor=15b3";

#[test]
fn the_number_is_written_once_and_retried_after_a_pause() {
    let (begin, mut progress) = (Instant::now(), Progress::default());
    let after = |seconds| begin + Duration::from_secs(seconds);
    let judged = Known::with(0).judged(POLICY);
    let make = [Action::Make(address(PHYSICAL))];
    assert_eq!(progress.next(&judged, begin), make);
    progress.writing(address(PHYSICAL));
    assert!(progress.is_making(begin));
    assert_eq!(progress.next(&judged, after(500)), [], "the write is in progress");
    progress.failed(address(PHYSICAL), after(500));
    assert!(!progress.is_making(after(500)));
    assert_eq!(progress.next_change(after(500)), Some(after(560)));
    assert_eq!(progress.next(&judged, after(559)), []);
    assert_eq!(progress.next(&judged, after(560)), make);
}

/// Schedulers must see the withdrawal before the virtual functions are removed.
#[test]
fn functions_are_withdrawn_before_they_are_recreated() {
    let (begin, mut progress) = (Instant::now(), Progress::default());
    let after = |seconds| begin + Duration::from_secs(seconds);
    let mut known = Known::with(2);
    let judged = known.judged(POLICY);
    // Whoever got the physical function now would control the virtual functions.
    let mut all = judged[&address(PHYSICAL)].functions.clone();
    all.insert(device_name(address(PHYSICAL)));
    let withheld = |progress: &mut Progress, known: &Known| {
        progress.withheld(&known.judged(POLICY), known.machine(), |_: &str| true, begin)
    };
    assert_eq!(progress.next(&judged, begin), [Action::Withdraw(address(PHYSICAL))]);
    progress.withdrawn(address(PHYSICAL));
    assert_eq!(withheld(&mut progress, &known), all);
    assert_eq!(progress.next(&judged, after(500)), [], "the withdrawal is not published yet");
    progress.published(after(500));
    progress.published(after(505));
    assert_eq!(progress.next_change(after(500)), Some(after(510)));
    assert_eq!(progress.next(&judged, after(509)), []);

    // A claim was prepared in the meantime: all are published again until none is in use.
    known.held.insert("pci-0000-86-10-0".to_owned());
    assert_eq!(progress.next(&known.judged(POLICY), after(509)), []);
    assert_eq!(withheld(&mut progress, &known), BTreeSet::new());
    assert_eq!(progress.next(&judged, after(520)), [Action::Withdraw(address(PHYSICAL))]);
    progress.withdrawn(address(PHYSICAL));
    progress.published(after(520));
    assert_eq!(progress.next(&judged, after(530)), [Action::Replace(address(PHYSICAL))]);
}

#[test]
fn a_new_function_is_published_when_it_is_complete() {
    let (begin, mut progress) = (Instant::now(), Progress::default());
    let after = |seconds| begin + Duration::from_secs(seconds);
    let mut known = Known::with(2);
    known.rdma(PHYSICAL, "mlx5_3");
    known.rdma(FIRST, "mlx5_4");
    let mut withheld = |known: &Known, was_published: &dyn Fn(&str) -> bool, now| {
        let judged = known.judged("numVfs=2,vendor=15b3");
        let withheld = progress.withheld(&judged, known.machine(), was_published, now);
        (withheld.into_iter().collect::<Vec<_>>(), progress.is_making(now))
    };
    let (never, before) = (&|_: &str| false, &|_: &str| true);
    let second = || vec!["pci-0000-86-10-2".to_owned()];
    assert_eq!(withheld(&known, never, begin), (second(), true));
    assert_eq!(withheld(&known, never, after(29)), (second(), true));
    assert_eq!(withheld(&known, never, after(30)), (vec![], false), "it may never get one");
    assert_eq!(withheld(&known, before, after(0)).0, [""; 0], "a restart makes nothing vanish");
    known.rdma(SECOND, "mlx5_5");
    assert_eq!(withheld(&known, never, after(0)), (vec![], false));
    // A virtual function in a pod is not withheld.
    known.network.interfaces.retain(|it| it.name != "vf0");
    known.held.insert("pci-0000-86-10-0".to_owned());
    assert_eq!(withheld(&known, never, after(0)), (vec![], false));
}

/// From a machine's files, as adapters create virtual functions: `node_guid` is there, and zero.
#[test]
fn virtual_functions_with_a_zero_guid_in_sysfs_are_made_again() {
    let function = |address: &str, rdma: &str, guid: &str, more: &str| {
        format!(
            "[sys/devices/pci0000:80/{address}]\n\
             class = 0x020700\nvendor = 0x15b3\ndevice = 0x101e\n\
             driver -> /sys/bus/pci/drivers/mlx5_core\n\
             /sys/bus/pci/devices/{address} -> .\n\
             infiniband/{rdma}/node_guid = {guid}\n\
             infiniband/{rdma}/ports/1/link_layer = InfiniBand\n\
             infiniband/{rdma}/device -> .\n\
             /sys/class/infiniband/{rdma} -> ./infiniband/{rdma}\n{more}"
        )
    };
    let physical = "sriov_totalvfs = 8\nsriov_numvfs = 1\nnet/ib0/type = 32\n\
                    /sys/class/net/ib0 -> ./net/ib0\n";
    let virtual_function = format!("physfn -> /sys/devices/pci0000:80/{PHYSICAL}\n");
    for (guid, expected) in
        [("0000:0000:0000:0000", Verdict::Replace), ("0e42:a103:0065:4c3e", Verdict::Nothing)]
    {
        let text = [
            function(PHYSICAL, "mlx5_0", "0c42:a103:0065:4c3e", physical),
            function(FIRST, "mlx5_1", guid, &virtual_function),
        ];
        let root = tempfile::tempdir().unwrap();
        fixture::plant(&text.concat(), root.path()).unwrap();
        let snapshot = topology_graph::read(&HostRoot::at(root.path())).unwrap();
        let ib0 = Interface { index: 2, name: "ib0".to_owned(), ..Interface::default() };
        let network = NetworkFacts { interfaces: vec![ib0], ..NetworkFacts::default() };
        let (held, guided) = (BTreeSet::new(), BTreeSet::new());
        let machine =
            VfFacts { snapshot: &snapshot, network: &network, held: &held, guided: &guided };
        let policies = policies(&[&format!("numVfs=1,rootDevice={PHYSICAL}")]);
        let judged = judge(&policies, machine);
        assert_eq!(judged[&address(PHYSICAL)].verdict, expected, "{guid}");
    }
}
