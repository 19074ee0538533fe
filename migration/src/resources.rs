//! Converts resources of device plugins to DeviceClasses.

use crate::allocate::Allocate;
use crate::names::object_name;
use crate::note::{Note, note};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Vendor names that the driver publishes, by PCI ID (pci.ids).
const VENDORS: [(&str, &str); 4] = [
    ("14e4", "Broadcom Inc. and subsidiaries"),
    ("15b3", "Mellanox Technologies"),
    ("1d0f", "Amazon.com, Inc."),
    ("8086", "Intel Corporation"),
];
/// Fields of a `NicClusterPolicy` about where its own pods run.
const SETTINGS: [&str; 3] = ["nodeAffinity", "tolerations", "deploymentTemplate"];
/// The default prefix of the shared plugin's resources.
const SHARED_PREFIX: &str = "rdma";
/// The default prefix of the SR-IOV plugin's resources.
const SRIOV_PREFIX: &str = "intel.com";

/// A resource of a device plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// The name in pods: `rdma/hca_shared_devices_a`.
    pub(crate) name: String,
    /// The DeviceClass that replaces it.
    pub(crate) class: String,
    /// CEL conditions on the NIC.
    selectors: Vec<String>,
    /// What a container gets for a limit.
    pub(crate) allocate: Allocate,
    /// The maximum number of pods per NIC, if configured.
    rdma_hca_max: Option<u64>,
}

impl Resource {
    /// True if its class leaves out NICs with RDMA.
    pub(crate) fn is_selective(&self) -> bool {
        self.selectors.iter().any(|selector| *selector != with_rdma())
    }

    /// True if it has the NICs that its configuration names, wherever they are.
    pub(crate) fn names_nics(&self) -> bool {
        matches!(self.allocate, Allocate::All { named: Some(_) })
    }

    /// True if several pods can use one NIC.
    pub(crate) fn is_shared(&self) -> bool {
        self.allocate.gives_all()
    }
}

/// Returns true if two names mean the same resource. Only one of them may have the prefix of the
/// installation.
pub(crate) fn is_same_resource(one: &str, other: &str) -> bool {
    without_prefix(one) == without_prefix(other)
}

fn without_prefix(name: &str) -> String {
    name.rsplit('/').next().unwrap_or_default().replace('-', "")
}

/// All resources, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resources(BTreeMap<String, Resource>);

impl Resources {
    pub(crate) fn read(objects: &[Value], notes: &mut Vec<Note>) -> Self {
        let mut all = Self::default();
        for object in objects {
            match object["kind"].as_str() {
                Some("NicClusterPolicy") => all.of_policy(object, notes),
                Some("ConfigMap") => all.of_config_map(object, notes),
                Some("SriovNetworkNodePolicy") => all.of_node_policy(object, notes),
                _ => {}
            }
        }
        all
    }

    /// Returns the resource that a pod names. Operators add the prefix of their installation to
    /// names that have none in their objects.
    pub(crate) fn get(&self, name: &str) -> Option<&Resource> {
        let exact = self.0.get(name);
        exact.or_else(|| self.0.values().find(|resource| is_same_resource(&resource.name, name)))
    }

    pub(crate) fn any_shared(&self) -> bool {
        self.0.values().any(Resource::is_shared)
    }

    /// The largest number of pods per NIC that any resource allows.
    pub(crate) fn rdma_hca_max(&self) -> Option<u64> {
        self.0.values().filter_map(|resource| resource.rdma_hca_max).max()
    }

    /// The DeviceClasses.
    pub(crate) fn classes(&self) -> Vec<Value> {
        self.0
            .values()
            .map(|resource| {
                let mut conditions = vec![r#"device.driver == "dra.net""#.to_owned()];
                conditions.extend(resource.selectors.iter().cloned());
                json!({
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "DeviceClass",
                    "metadata": {"name": resource.class},
                    "spec": {"selectors": [{"cel": {"expression": conditions.join(" && ")}}]},
                })
            })
            .collect()
    }

    fn of_policy(&mut self, object: &Value, notes: &mut Vec<Note>) {
        let spec = &object["spec"];
        for plugin in ["rdmaSharedDevicePlugin", "sriovDevicePlugin"] {
            if let Some(text) = spec[plugin]["config"].as_str() {
                self.of_text(text, object, notes);
            }
        }
        let told = [
            (
                "ofedDriver",
                "`ofedDriver`: vendor drivers are not installed; keep this part of the operator, \
                 or install the driver in the node image",
            ),
            (
                "secondaryNetwork",
                "`secondaryNetwork`: Multus and the CNI plugins are not needed for these NICs; \
                 keep them if other pods use them",
            ),
            ("nvIpam", "`nvIpam`: NicPools replace its pools; remove it when no pod uses them"),
            (
                "ibKubernetes",
                "`ibKubernetes`: a claim selects a partition by `interface.pkey`, but nothing adds its \
                 port to that partition; keep this part of the operator",
            ),
            (
                "nicFeatureDiscovery",
                "`nicFeatureDiscovery`: the driver publishes each NIC with its attributes",
            ),
            (
                "docaTelemetryService",
                "`docaTelemetryService`: has no counterpart; keep this part of the operator",
            ),
            (
                "devicePlugin",
                "`devicePlugin`: claims replace the device plugin; remove it when no pod uses its \
                 resources",
            ),
            (
                "nvPeerDriver",
                "`nvPeerDriver`: the chart value `nodeDriver.modules.peerMemory` loads \
                 nvidia_peermem where NVIDIA's driver needs it",
            ),
            (
                "nicConfigurationOperator",
                "`nicConfigurationOperator`: firmware is not changed; keep this part of the \
                 operator",
            ),
        ];
        for (_, text) in told.iter().filter(|(field, _)| !spec[*field].is_null()) {
            note(notes, object, *text);
        }
        let read = ["rdmaSharedDevicePlugin", "sriovDevicePlugin"];
        let known = told.iter().map(|(field, _)| field).chain(&read).chain(&SETTINGS);
        let known: Vec<&str> = known.copied().collect();
        let fields = spec.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        for (field, _) in fields.filter(|(field, _)| !known.contains(&field.as_str())) {
            let text = format!(
                "`{field}`: not known to this program and not converted; check whether pods need it"
            );
            note(notes, object, text);
        }
    }

    fn of_config_map(&mut self, object: &Value, notes: &mut Vec<Note>) {
        for text in object["data"].as_object().into_iter().flatten().filter_map(|it| it.1.as_str())
        {
            let is_ours = text.contains("\"configList\"") || text.contains("\"resourceList\"");
            if is_ours {
                self.of_text(text, object, notes);
            }
        }
    }

    /// Reads the configuration of either plugin.
    fn of_text(&mut self, text: &str, object: &Value, notes: &mut Vec<Note>) {
        let config: Value = match serde_json::from_str(text) {
            Ok(config) => config,
            Err(error) => {
                let text = format!("the device plugin's configuration is not valid JSON: {error}");
                note(notes, object, text);
                return;
            }
        };
        for entry in config["configList"].as_array().into_iter().flatten() {
            let name = self.add(entry, SHARED_PREFIX, true, object, notes);
            let Some(max) = entry["rdmaHcaMax"].as_u64().filter(|max| *max > 0) else { continue };
            let before = self.rdma_hca_max();
            if let Some(other) = before.filter(|other| *other != max) {
                let text = format!(
                    "`rdmaHcaMax: {max}` of `{name}` differs from another resource's {other}; \
                     `nodeDriver.rdmaHcaMax` applies to all NICs of a node and is set to the larger"
                );
                note(notes, object, text);
            }
            if let Some(resource) = self.0.get_mut(&name) {
                resource.rdma_hca_max = Some(max);
            }
        }
        for entry in config["resourceList"].as_array().into_iter().flatten() {
            self.add(entry, SRIOV_PREFIX, false, object, notes);
        }
    }

    fn of_node_policy(&mut self, object: &Value, notes: &mut Vec<Note>) {
        let spec = &object["spec"];
        let nics = &spec["nicSelector"];
        let entry = json!({
            "resourceName": spec["resourceName"],
            "selectors": {
                "vendors": [nics["vendor"]],
                "devices": [nics["deviceID"]],
                "rootDevices": nics["rootDevices"],
                "pfNames": nics["pfNames"],
                "isRdma": spec["isRdma"],
                "isVf": true,
            },
        });
        self.add(&entry, "openshift.io", false, object, notes);
        note(
            notes,
            object,
            format!(
                "`numVfs: {}`: the driver creates virtual functions from the chart value \
                 `nodeDriver.virtualFunctions`; add {}, and remove this policy",
                spec["numVfs"],
                virtual_functions(spec)
            ),
        );
    }

    /// Adds a resource; returns its name.
    fn add(
        &mut self,
        entry: &Value,
        prefix: &str,
        is_shared: bool,
        object: &Value,
        notes: &mut Vec<Note>,
    ) -> String {
        let name = entry["resourceName"].as_str().unwrap_or_default();
        let prefix = entry["resourcePrefix"].as_str().unwrap_or(prefix);
        let name = if name.contains('/') { name.to_owned() } else { format!("{prefix}/{name}") };
        // The SR-IOV plugin takes one group of conditions or a list of them.
        let groups: Vec<&Value> = match &entry["selectors"] {
            Value::Array(groups) => groups.iter().collect(),
            group => vec![group],
        };
        if groups.len() > 1 {
            let text = format!("`{name}` has several selector groups; only the first is used");
            note(notes, object, text);
        }
        let mut selectors = Vec::new();
        if let Some(group) = groups.first() {
            selectors = conditions(group, is_shared, &name, object, notes);
        }
        let class = object_name(&name);
        let allocate = match groups.first().filter(|_| is_shared) {
            Some(group) => Allocate::All { named: named(group) },
            None if is_shared => Allocate::All { named: None },
            None => Allocate::OnePerUnit,
        };
        let resource =
            Resource { name: name.clone(), class, selectors, allocate, rdma_hca_max: None };
        self.0.insert(name.clone(), resource);
        name
    }
}

/// The number of NICs of a group of selectors that names them.
fn named(group: &Value) -> Option<u64> {
    let lists = ["ifNames", "pciAddresses"].into_iter();
    let lists = lists.filter_map(|field| group[field].as_array().map(Vec::len));
    lists.filter(|names| *names > 0).min().and_then(|names| u64::try_from(names).ok())
}

/// An attribute of our driver in CEL.
fn dranet(name: &str, default: &str) -> String {
    format!(r#"device.attributes["dra.net"].?{name}.orValue({default})"#)
}

/// The condition that a NIC has RDMA.
fn with_rdma() -> String {
    format!("{} == true", dranet("rdma", "false"))
}

/// CEL conditions for the selectors of a device plugin.
fn conditions(
    group: &Value,
    is_shared: bool,
    resource: &str,
    object: &Value,
    notes: &mut Vec<Note>,
) -> Vec<String> {
    let mut found = Vec::new();
    if is_shared || group["isRdma"] == json!(true) {
        found.push(with_rdma());
    }
    let (mut names, mut unknown) = (Vec::new(), Vec::new());
    for id in list(group, "vendors") {
        match VENDORS.iter().find(|(vendor, _)| *vendor == id) {
            Some((_, name)) => names.push((*name).to_owned()),
            None => unknown.push(id),
        }
    }
    if !unknown.is_empty() {
        note(
            notes,
            object,
            format!(
                "vendor IDs {} of `{resource}` cannot be selected; add a condition on \
                 `dra.net/pciVendor`",
                unknown.join(", ")
            ),
        );
    } else if !names.is_empty() {
        found.push(format!("{} in {}", dranet("pciVendor", r#""""#), json!(names)));
    }
    let interfaces = list(group, "ifNames");
    if !interfaces.is_empty() {
        found.push(format!("{} in {}", dranet("ifName", r#""""#), json!(interfaces)));
    }
    let addresses = list(group, "pciAddresses");
    if !addresses.is_empty() {
        let bus = r#"device.attributes["resource.kubernetes.io"].?pciBusID.orValue("")"#;
        found.push(format!("{bus} in {}", json!(addresses)));
    }
    if group["isVf"] == json!(true) {
        found.push(format!("{} == true", dranet("isSriovVf", "false")));
    }
    let links = list(group, "linkTypes").into_iter();
    let links: Vec<_> =
        links.map(|link| if link == "ether" { "ethernet".to_owned() } else { link }).collect();
    if !links.is_empty() {
        let link = r#"device.attributes["dranet.io"].?linkType.orValue("")"#;
        found.push(format!("{link} in {}", json!(links)));
    }
    let ids: Vec<_> = list(group, "deviceIDs").into_iter().chain(list(group, "devices")).collect();
    let physical: Vec<_> =
        list(group, "pfNames").into_iter().chain(list(group, "rootDevices")).collect();
    for (what, values, attribute) in [
        ("device ids", ids, "dra.net/pciDevice"),
        ("drivers", list(group, "drivers"), "dra.net/pciDevice"),
        ("physical functions", physical, "resource.kubernetes.io/pciBusID"),
    ] {
        if !values.is_empty() {
            note(
                notes,
                object,
                format!(
                    "{what} {} of `{resource}` are not attributes: if other NICs match the class, \
                     add a condition on `{attribute}`",
                    values.join(", ")
                ),
            );
        }
    }
    found
}

/// The texts of a list of a selector.
fn list(group: &Value, field: &str) -> Vec<String> {
    let list = group[field].as_array().into_iter().flatten();
    list.filter_map(Value::as_str).filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

/// The entries of the chart value for a node policy: one for each combination of its lists. An
/// interface name may have a range of its functions as a suffix, `ens1f0#0-3`.
fn virtual_functions(spec: &Value) -> String {
    let nics = &spec["nicSelector"];
    let mut entries = Vec::new();
    for pf_name in alternatives(nics, "pfNames") {
        for root_device in alternatives(nics, "rootDevices") {
            let fields = [
                ("vendor", nics["vendor"].as_str()),
                ("deviceID", nics["deviceID"].as_str()),
                ("pfName", pf_name),
                ("rootDevice", root_device),
            ];
            let fields = fields.into_iter().filter_map(|(key, value)| {
                let value = value.filter(|value| !value.is_empty())?;
                Some(format!(", {key}: \"{value}\""))
            });
            entries.push(format!("`{{numVfs: {}{}}}`", spec["numVfs"], fields.collect::<String>()));
        }
    }
    entries.join(", ")
}

/// The values of a list, without the ranges of functions; a single `None` if there are none.
fn alternatives<'n>(nics: &'n Value, field: &str) -> Vec<Option<&'n str>> {
    let items = nics[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let items: Vec<_> = items.map(|item| item.split('#').next()).collect();
    if items.is_empty() { vec![None] } else { items }
}
