//! A kernel that a test plays, with the interfaces of adapters. It moves interfaces and forgets their settings
//! as the kernel does; which of them move, and where, decides the code of this module's siblings.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::dhcp::Leases;
use crate::kernel::attach::enter::{Entered, Inside, Moving, Step, due};
use crate::kernel::attach::host_links::HostNetwork;
use crate::kernel::attach::identity::{at_home, identity, in_pod, name_of};
use crate::kernel::attach::known::{BeforeAttach, Indices};
use crate::kernel::attach::leave::{Patience, Returned};
use crate::kernel::attach::netns::NetNs;
use crate::kernel::attach::node_network::{Journal, NodeNetwork, Tell};
use crate::model::host_link::{HostAddress, HostLink};
use crate::model::plan::{Plan, PlannedDevice, PlannedLink};
use crate::protocol::Life;
use cluster_model::network_config::{IpPrefix, LinkName, MacAddress};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of a pod's namespace.
pub(crate) type Number = usize;

/// Where an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Host,
    Pod(Number),
    /// Its namespace has ended, and the kernel has not returned it yet.
    Between,
}

/// The interface of an adapter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Adapter {
    /// The adapter's PCI address.
    pub(crate) parent: &'static str,
    pub(crate) place: Place,
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mtu: u32,
    pub(crate) addresses: Vec<IpPrefix>,
    pub(crate) is_up: bool,
}

/// The interfaces, and who needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Interfaces {
    pub(crate) adapters: Vec<Adapter>,
    /// The namespaces in which a container runs.
    pub(crate) busy: BTreeSet<Number>,
    /// What must never happen.
    pub(crate) faults: Vec<&'static str>,
}

/// The kernel. Processes share it.
#[derive(Debug)]
pub(crate) struct PlayedKernel {
    interfaces: Mutex<Interfaces>,
    /// The pods' namespaces by their numbers.
    namespaces: Vec<NetNs>,
    /// Where it shows the host's interfaces.
    sys: PathBuf,
    shown: Mutex<BTreeMap<&'static str, String>>,
}

/// The kernel as one process has it, until that ends.
#[derive(Clone, Debug)]
pub(crate) struct PlayedNetwork {
    pub(crate) kernel: Arc<PlayedKernel>,
    pub(crate) life: Arc<Life>,
}

impl Adapter {
    /// As the kernel tells of it.
    fn message(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = self.index;
        message.header.link_layer_type = LinkLayerType::Ether;
        message.header.flags.set(LinkFlags::Up, self.is_up);
        let address = self.hardware_address();
        message.attributes = vec![
            LinkAttribute::IfName(self.name.clone()),
            LinkAttribute::Mtu(self.mtu),
            LinkAttribute::Address(address.clone()),
            LinkAttribute::PermAddress(address),
            LinkAttribute::ParentDevName(self.parent.to_owned()),
        ];
        message
    }

    /// Digits of the PCI address: no two adapters have the same.
    fn hardware_address(&self) -> Vec<u8> {
        let bytes = self.parent.bytes().skip(5).take(2);
        [0x02, 0, 0, 0].into_iter().chain(bytes).collect()
    }

    /// In the state to restore.
    fn host_link(&self) -> HostLink {
        HostLink {
            name: self.name.clone(),
            parent: Some(self.parent.to_owned()),
            hardware_addr: MacAddress::from_bytes(&self.hardware_address()),
            mtu: self.mtu,
            up: self.is_up,
            identity: identity(&self.message()),
            addresses: self.addresses.iter().map(|prefix| host_address(*prefix)).collect(),
            ..HostLink::default()
        }
    }

    /// Moves it. In another namespace it is down and has no addresses.
    fn go(&mut self, place: Place, name: String, index: u32) {
        (self.place, self.name, self.index) = (place, name, index);
        self.forget();
    }

    fn forget(&mut self) {
        self.is_up = false;
        self.addresses.clear();
    }
}

fn host_address(prefix: IpPrefix) -> HostAddress {
    HostAddress {
        prefix,
        scope: 0,
        peer: None,
        broadcast: None,
        label: None,
        flags: 0,
        metric: None,
        protocol: None,
        preferred: None,
        seconds: None,
    }
}

impl Interfaces {
    fn at(&self, place: Place) -> Vec<LinkMessage> {
        let here = self.adapters.iter().filter(|adapter| adapter.place == place);
        here.map(Adapter::message).collect()
    }

    /// The adapter behind a message.
    fn of(&mut self, message: &LinkMessage) -> &mut Adapter {
        let parent = identity(message).parent;
        self.adapters.iter_mut().find(|it| Some(it.parent) == parent.as_deref()).unwrap()
    }

    /// A namespace has ended: the kernel returns its adapters later.
    pub(crate) fn end(&mut self, namespace: Number) {
        self.busy.remove(&namespace);
        for adapter in &mut self.adapters {
            if adapter.place == Place::Pod(namespace) {
                adapter.place = Place::Between;
                adapter.forget();
            }
        }
    }

    /// The kernel returns what it has, with the names of the pods where these are free.
    pub(crate) fn arrive(&mut self) {
        for index in 0..self.adapters.len() {
            if self.adapters[index].place == Place::Between {
                let name = self.free_name(&self.adapters[index].name);
                let adapter = &mut self.adapters[index];
                (adapter.place, adapter.name) = (Place::Host, name);
            }
        }
    }

    /// This name on the host, or another one if it is taken.
    fn free_name(&self, name: &str) -> String {
        let there = self.adapters.iter().filter(|adapter| adapter.place == Place::Host);
        let taken: BTreeSet<&str> = there.map(|adapter| &*adapter.name).collect();
        let numbers = (0..).map(|number| format!("dev{number}"));
        let mut names = [name.to_owned()].into_iter().chain(numbers);
        names.find(|name| !taken.contains(&**name)).unwrap()
    }
}

impl PlayedKernel {
    /// A kernel with these namespaces, which shows the host's interfaces below this directory.
    pub(crate) fn new(namespaces: Vec<NetNs>, sys: PathBuf) -> Self {
        let (interfaces, shown) = (Mutex::default(), Mutex::default());
        Self { interfaces, namespaces, sys, shown }
    }

    pub(crate) fn interfaces(&self) -> Interfaces {
        self.lock().clone()
    }

    pub(crate) fn set(&self, interfaces: Interfaces) {
        *self.lock() = interfaces;
        self.show();
    }

    /// Shows the host's interfaces in sysfs.
    fn show(&self) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let interfaces = self.lock();
        let here = interfaces.adapters.iter().filter(|adapter| adapter.place == Place::Host);
        let now: BTreeMap<_, _> = here.map(|it| (it.parent, it.name.clone())).collect();
        for (parent, name) in shown.iter().filter(|(parent, name)| now.get(*parent) != Some(*name))
        {
            fs::remove_dir_all(self.devices(parent)).unwrap();
            fs::remove_file(self.sys.join("class/net").join(name)).unwrap();
        }
        for (parent, name) in now.iter().filter(|(parent, name)| shown.get(*parent) != Some(*name))
        {
            let device = self.devices(parent).join(name);
            fs::create_dir_all(&device).unwrap();
            fs::write(device.join("type"), "1\n").unwrap();
            fs::create_dir_all(self.sys.join("class/net")).unwrap();
            symlink(&device, self.sys.join("class/net").join(name)).unwrap();
        }
        *shown = now;
    }

    /// The directory with the interface of an adapter.
    fn devices(&self, parent: &str) -> PathBuf {
        let bus = &parent[..7];
        self.sys.join(format!("devices/pci{bus}/{parent}/net"))
    }

    /// The number of a namespace; `None` for the host's.
    fn number(&self, namespace: &NetNs) -> Option<Number> {
        self.namespaces.iter().position(|it| it.is_same(namespace).unwrap())
    }

    fn place(&self, namespace: &NetNs) -> Place {
        self.number(namespace).map_or(Place::Host, Place::Pod)
    }

    fn lock(&self) -> MutexGuard<'_, Interfaces> {
        self.interfaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlayedNetwork {
    fn at(&self, place: Place) -> Vec<LinkMessage> {
        self.kernel.lock().at(place)
    }

    /// Changes an adapter, if the process still lives.
    fn change(&self, point: &str, message: &LinkMessage, change: impl FnOnce(&mut Adapter)) {
        self.life.step(point);
        change(self.kernel.lock().of(message));
        self.kernel.show();
    }

    fn leave_one(&self, link: &PlannedLink, indices: &Indices, pod: &NetNs) {
        let number = self.kernel.number(pod).unwrap();
        let inside = self.at(Place::Pod(number));
        let Some(found) = in_pod(&inside, link, indices) else { return };
        let mut interfaces = self.kernel.lock();
        if interfaces.busy.contains(&number) {
            interfaces.faults.push("an interface is taken from a running container");
        }
        let name = interfaces.free_name(&link.host.name);
        drop(interfaces);
        let index = link.host.identity.index;
        self.change("kernel:leave", found, |it| it.go(Place::Host, name, index));
    }

    /// Restores what differs, one after the other.
    fn restore_one(&self, link: &PlannedLink, found: &LinkMessage) {
        let host = &link.host;
        if name_of(found) != host.name {
            let name = self.kernel.lock().free_name(&host.name);
            self.change("kernel:restore:name", found, |it| it.name = name);
        }
        let now = self.kernel.lock().of(found).clone();
        if now.mtu != host.mtu {
            self.change("kernel:restore:mtu", found, |it| it.mtu = host.mtu);
        }
        let addresses: Vec<_> = host.addresses.iter().map(|address| address.prefix).collect();
        if now.addresses != addresses {
            self.change("kernel:restore:addresses", found, |it| it.addresses = addresses);
        }
        if now.is_up != host.up {
            self.change("kernel:restore:up", found, |it| it.is_up = host.up);
        }
    }
}

impl NodeNetwork for PlayedNetwork {
    fn read(&self, _: &NetNs, _: &BTreeSet<IpAddr>) -> Result<HostNetwork, AttachError> {
        Ok(HostNetwork::of_links(self.at(Place::Host)))
    }

    fn links(
        &self,
        _: &HostNetwork,
        _: &NetNs,
        names: &[String],
    ) -> Result<BTreeMap<String, HostLink>, AttachError> {
        let interfaces = self.kernel.lock();
        let here = interfaces.adapters.iter().filter(|adapter| adapter.place == Place::Host);
        let wanted = here.filter(|adapter| names.contains(&adapter.name));
        Ok(wanted.map(|adapter| (adapter.name.clone(), adapter.host_link())).collect())
    }

    fn are_home(&self, _: &NetNs, links: &[&HostLink]) -> Result<Vec<bool>, AttachError> {
        let found = self.at(Place::Host);
        Ok(links.iter().map(|link| at_home(&found, link).is_some()).collect())
    }

    fn are_inside(&self, plan: &Plan, links: &Indices, pod: &NetNs) -> Result<bool, AttachError> {
        let inside = self.at(self.kernel.place(pod));
        Ok(plan.links().all(|link| in_pod(&inside, link, links).is_some()))
    }

    fn enter<'p>(
        &self,
        plan: &'p Plan,
        [_, pod]: [&NetNs; 2],
        entered: &mut Entered<'p>,
        journal: &mut Journal<'_>,
    ) -> Result<(), AttachError> {
        let place = self.kernel.place(pod);
        let inside = Inside { links: self.at(place), rdma: BTreeSet::new() };
        let outside = self.at(Place::Host);
        let due = due(plan, &entered.links, &inside, &outside)?;
        self.life.step("kernel:journal");
        for (device, step) in due.record(entered, journal)? {
            entered.devices.push(device);
            let Step::Link(link, Moving { in_pod, .. }) = step else {
                panic!("only interfaces move here: {step:?}");
            };
            let found = at_home(&outside, &link.host).unwrap();
            let name = link.name.to_string();
            self.change("kernel:enter", found, |it| it.go(place, name, in_pod));
        }
        Ok(())
    }

    fn configure(
        &self,
        plan: &Plan,
        known: BeforeAttach<'_>,
        due: &BTreeSet<&LinkName>,
        pod: &NetNs,
    ) -> Result<Leases, AttachError> {
        let inside = self.at(self.kernel.place(pod));
        for link in plan.links().filter(|link| due.contains(&link.name)) {
            let found = in_pod(&inside, link, known.links);
            let found = found.ok_or_else(|| AttachError::Gone { link: link.name.to_string() })?;
            let asked = &link.config.interface;
            self.change("kernel:configure:addresses", found, |it| {
                it.mtu = asked.mtu.unwrap_or(it.mtu);
                it.addresses.clone_from(&asked.addresses);
            });
            self.change("kernel:configure:up", found, |it| it.is_up = true);
        }
        Ok(Leases::new())
    }

    fn leave(
        &self,
        devices: &[&PlannedDevice],
        indices: &Indices,
        [host, pod]: [&NetNs; 2],
    ) -> Result<(), AttachError> {
        if !host.is_same(pod)? {
            let links = devices.iter().filter_map(|device| device.link.as_ref());
            links.for_each(|link| self.leave_one(link, indices, pod));
        }
        Ok(())
    }

    fn restore(
        &self,
        devices: &[&PlannedDevice],
        _: &NetNs,
        (patience, _): (Patience, &Path),
        tell: &mut Tell<'_>,
    ) -> Result<(), AttachError> {
        if patience.hardware > Duration::ZERO {
            self.kernel.lock().arrive();
            self.kernel.show();
        }
        for link in devices.iter().filter_map(|device| device.link.as_ref()) {
            match at_home(&self.at(Place::Host), &link.host) {
                Some(found) => {
                    self.restore_one(link, found);
                    tell(link, Returned::Home(Vec::new()));
                }
                None => tell(link, Returned::Gone),
            }
        }
        Ok(())
    }
}
