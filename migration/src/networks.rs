//! Converts secondary networks into our network configurations.

use crate::addresses::{self, Addresses, Pools};
use crate::note::{Note, note};
use crate::resources::is_same_resource;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The namespace of networks whose objects set none.
const DEFAULT_NAMESPACE: &str = "default";

/// A network that pods refer to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Network {
    /// The resource that its devices come from, such as `rdma/hca_shared_devices_a`.
    pub(crate) resource: Option<String>,
    /// CEL conditions on the NIC: the host interface of the network.
    pub(crate) selectors: Vec<String>,
    /// True if pods share the host's interface.
    pub(crate) is_shared: bool,
    /// The driver's parameters; empty if the driver cannot create such an interface.
    pub(crate) config: Map<String, Value>,
    /// True if the operator must allow its fields in the namespace.
    pub(crate) is_guarded: bool,
}

impl Network {
    /// Whether its devices come from this resource.
    pub(crate) fn has(&self, resource: &str) -> bool {
        self.resource.as_deref().is_some_and(|own| is_same_resource(own, resource))
    }
}

/// All networks, by namespace and name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Networks {
    all: BTreeMap<(String, String), Network>,
    pools: Pools,
}

impl Networks {
    pub(crate) fn read(objects: &[Value], notes: &mut Vec<Note>) -> Self {
        let mut pools = Pools::read(objects);
        let mut all = BTreeMap::new();
        for object in objects {
            let spec = &object["spec"];
            let (settings, namespace) = match object["kind"].as_str() {
                Some("MacvlanNetwork") => (of_macvlan(spec), &spec["networkNamespace"]),
                Some("HostDeviceNetwork") => (of_device(spec), &spec["networkNamespace"]),
                Some("SriovNetwork" | "SriovIBNetwork") => {
                    (of_sriov(spec), &spec["networkNamespace"])
                }
                Some("IPoIBNetwork") => (of_ipoib(spec), &spec["networkNamespace"]),
                Some("NetworkAttachmentDefinition") => {
                    (of_attachment(object), &object["metadata"]["namespace"])
                }
                _ => continue,
            };
            let namespace = namespace.as_str().or_else(|| object["metadata"]["namespace"].as_str());
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let network = settings.network(&mut pools, object, notes);
            all.insert((namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned(), name), network);
        }
        Self { all, pools }
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Network> {
        self.all.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The pools that their addresses come from.
    pub(crate) fn pools(&self) -> impl Iterator<Item = Value> {
        self.pools.documents()
    }
}

/// How the interface is created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    MacVlan,
    IpVlan,
    Ipoib,
    #[default]
    Device,
}

/// The settings in a network's object.
#[derive(Clone, Debug, Default)]
struct NetworkSpec {
    way: Way,
    resource: Option<String>,
    master: Option<String>,
    pci_address: Option<String>,
    mtu: Option<u64>,
    /// Of a macvlan.
    mode: Option<String>,
    pkey: Option<String>,
    virtual_function: Map<String, Value>,
    ipam: Value,
    notes: Vec<String>,
}

impl NetworkSpec {
    fn network(self, pools: &mut Pools, object: &Value, notes: &mut Vec<Note>) -> Network {
        for text in &self.notes {
            note(notes, object, text.as_str());
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let addresses = addresses::read(name, &self.ipam, pools);
        for text in &addresses.notes {
            note(notes, object, text.as_str());
        }
        let is_guarded = addresses.is_guarded()
            || self.mode.is_some()
            || self.pkey.is_some()
            || !self.virtual_function.is_empty();
        let selectors = [
            (r#"["dra.net"].?ifName"#, self.master),
            (r#"["resource.kubernetes.io"].?pciBusID"#, self.pci_address),
        ];
        let selectors = selectors.into_iter().filter_map(|(attribute, value)| {
            // JSON's quoting is valid in CEL too.
            let value = json!(value?);
            Some(format!(r#"device.attributes{attribute}.orValue("") == {value}"#))
        });
        Network {
            resource: self.resource,
            // The interface of an InfiniBand port is not one of its attributes.
            selectors: if self.way == Way::Ipoib { Vec::new() } else { selectors.collect() },
            is_shared: self.way != Way::Device,
            config: config(
                self.way,
                self.mtu,
                [self.mode, self.pkey],
                self.virtual_function,
                addresses,
            ),
            is_guarded,
        }
    }
}

fn config(
    way: Way,
    mtu: Option<u64>,
    [mode, pkey]: [Option<String>; 2],
    virtual_function: Map<String, Value>,
    addresses: Addresses,
) -> Map<String, Value> {
    let mut interface = addresses.interface;
    match way {
        Way::MacVlan => drop(interface.insert("type".to_owned(), json!("macvlan"))),
        Way::IpVlan => drop(interface.insert("type".to_owned(), json!("ipvlan"))),
        Way::Ipoib => drop(interface.insert("type".to_owned(), json!("ipoib"))),
        Way::Device => {}
    }
    if let Some(mode) = mode {
        interface.insert("macvlanMode".to_owned(), mode.into());
    }
    if let Some(pkey) = pkey {
        interface.insert("pkey".to_owned(), pkey.into());
    }
    if let Some(mtu) = mtu.filter(|mtu| *mtu > 0) {
        interface.insert("mtu".to_owned(), json!(mtu));
    }
    let mut config = Map::new();
    if !interface.is_empty() {
        config.insert("interface".to_owned(), Value::Object(interface));
    }
    if !virtual_function.is_empty() {
        config.insert("virtualFunction".to_owned(), Value::Object(virtual_function));
    }
    if !addresses.routes.is_empty() {
        config.insert("routes".to_owned(), Value::Array(addresses.routes));
    }
    config
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// Parses a field of a network object, `ipam` or `config`, which is JSON in a string.
fn embedded(field: &str, value: &Value, notes: &mut Vec<String>) -> Value {
    match value {
        Value::String(text) if !text.trim().is_empty() => serde_json::from_str(text)
            .unwrap_or_else(|error| {
                notes.push(format!("its `{field}` is not JSON and is skipped: {error}"));
                Value::Null
            }),
        other => other.clone(),
    }
}

fn of_macvlan(spec: &Value) -> NetworkSpec {
    let mut notes = Vec::new();
    let mode = text(&spec["mode"]).filter(|mode| mode != "bridge");
    let ipam = embedded("ipam", &spec["ipam"], &mut notes);
    let (master, mtu) = (text(&spec["master"]), spec["mtu"].as_u64());
    NetworkSpec { way: Way::MacVlan, mode, master, mtu, ipam, notes, ..NetworkSpec::default() }
}

fn of_device(spec: &Value) -> NetworkSpec {
    let mut notes = Vec::new();
    let ipam = embedded("ipam", &spec["ipam"], &mut notes);
    NetworkSpec { resource: text(&spec["resourceName"]), ipam, notes, ..NetworkSpec::default() }
}

fn of_ipoib(spec: &Value) -> NetworkSpec {
    let mut notes = Vec::new();
    let ipam = embedded("ipam", &spec["ipam"], &mut notes);
    let master = text(&spec["master"]);
    let pkey = master.as_deref().and_then(partition);
    NetworkSpec { way: Way::Ipoib, master, pkey, ipam, notes, ..NetworkSpec::default() }
}

/// The partition in an interface name such as `ib0.8001`.
fn partition(master: &str) -> Option<String> {
    let (_, key) = master.split_once('.')?;
    u16::from_str_radix(key, 16).ok().filter(|key| key & 0x7fff != 0)?;
    Some(format!("0x{key}"))
}

fn of_sriov(spec: &Value) -> NetworkSpec {
    let mut notes = Vec::new();
    let ipam = embedded("ipam", &spec["ipam"], &mut notes);
    let virtual_function = virtual_function(spec, &mut notes);
    for field in ["metaPlugins", "capabilities"] {
        let value = &spec[field];
        if !value.is_null() && *value != json!(0) && *value != json!("") {
            notes.push(format!("`{field}: {value}` has no counterpart"));
        }
    }
    // In SriovIBNetwork this belongs to the virtual function.
    if let Some(pkey) = text(&spec["pKey"]) {
        notes.push(format!("claims do not set `pKey: {pkey}`; set it on the virtual functions"));
    }
    let resource = text(&spec["resourceName"]);
    NetworkSpec { resource, virtual_function, ipam, notes, ..NetworkSpec::default() }
}

/// The settings of the network's virtual functions.
fn virtual_function(spec: &Value, notes: &mut Vec<String>) -> Map<String, Value> {
    let mut found = Map::new();
    for (field, ours) in [
        ("vlan", "vlan"),
        ("vlanQoS", "vlanQos"),
        ("minTxRate", "minTxRate"),
        ("maxTxRate", "maxTxRate"),
    ] {
        if let Some(number) = spec[field].as_u64().filter(|number| *number > 0) {
            found.insert(ours.to_owned(), number.into());
        }
    }
    for (field, ours) in [("trust", "trust"), ("spoofChk", "spoofCheck")] {
        match spec[field].as_str() {
            Some("on") => drop(found.insert(ours.to_owned(), true.into())),
            Some("off") => drop(found.insert(ours.to_owned(), false.into())),
            _ => {}
        }
    }
    if let Some(state @ ("auto" | "enable" | "disable")) = spec["linkState"].as_str() {
        found.insert("linkState".to_owned(), state.into());
    }
    match text(&spec["vlanProto"]).map(|it| it.to_ascii_lowercase()).as_deref() {
        Some("802.1ad") if found.contains_key("vlan") => {
            found.insert("vlanProto".to_owned(), "802.1ad".into());
        }
        None | Some("802.1q" | "802.1ad") => {}
        Some(protocol) => {
            notes.push(format!(
                "`vlanProto: {protocol}` has no counterpart: VLANs are 802.1Q or 802.1ad"
            ));
        }
    }
    found
}

fn of_attachment(object: &Value) -> NetworkSpec {
    let mut notes = Vec::new();
    let config = embedded("config", &object["spec"]["config"], &mut notes);
    let plugins: Vec<&Value> = match config["plugins"].as_array() {
        Some(plugins) => plugins.iter().collect(),
        None => vec![&config],
    };
    let mut settings = NetworkSpec::default();
    let mut is_known = false;
    for plugin in plugins {
        let way = match plugin["type"].as_str().unwrap_or_default() {
            "macvlan" => Way::MacVlan,
            "ipvlan" => Way::IpVlan,
            "ipoib" => Way::Ipoib,
            "host-device" | "sriov" | "ib-sriov" => Way::Device,
            // The claim includes the RDMA device.
            "rdma" => continue,
            other => {
                notes.push(format!("the CNI plugin `{other}` has no counterpart"));
                continue;
            }
        };
        is_known = true;
        settings = NetworkSpec {
            way,
            resource: None,
            master: text(&plugin["master"]).or_else(|| text(&plugin["device"])),
            pci_address: text(&plugin["pciBusID"]),
            mtu: plugin["mtu"].as_u64(),
            mode: text(&plugin["mode"]).filter(|mode| way == Way::MacVlan && mode != "bridge"),
            pkey: text(&plugin["master"])
                .filter(|_| way == Way::Ipoib)
                .and_then(|master| partition(&master)),
            virtual_function: Map::new(),
            ipam: plugin["ipam"].clone(),
            notes: Vec::new(),
        };
    }
    if !is_known {
        notes.push(
            "no supported CNI plugin found: its pods get a NIC with the host's settings".into(),
        );
    }
    settings.resource = text(&object["metadata"]["annotations"]["k8s.v1.cni.cncf.io/resourceName"]);
    settings.notes = notes;
    settings
}
