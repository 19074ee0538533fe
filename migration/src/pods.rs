//! Rewrites pods that get NICs from device plugins and secondary networks.
//!
//! A pod with GPUs gets the annotation, so that its NICs are aligned with its GPUs. A pod without
//! GPUs gets its own claim template.

use crate::names::object_name;
use crate::networks::{Network, Networks};
use crate::note::{Note, note};
use crate::options::Options;
use crate::resources::{Resource, Resources, is_same_resource};
use cluster_model::gpu_drivers;
use cluster_model::names::{annotation, capacity};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Multus' annotation.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// The name of the claim in a pod.
const CLAIM: &str = "nics";
const NIC_CLASS: &str = "dranet.net";

/// What conversions created besides the pods.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// ResourceClaimTemplates.
    pub(crate) templates: Vec<Value>,
    /// Namespaces whose claims set addresses.
    pub(crate) guarded: BTreeSet<String>,
    /// True if a claim requests a share of a NIC.
    pub(crate) uses_shares: bool,
}

/// Rewrites pods.
pub(crate) struct Converter<'a> {
    resources: &'a Resources,
    networks: &'a Networks,
    options: &'a Options,
    made: Made,
}

/// What one pod requests.
struct Wanted<'a> {
    /// The networks that the pod names; `None` for unknown ones.
    networks: Vec<(String, Option<&'a Network>)>,
    /// Resources of device plugins, with the amount that the pod requests.
    resources: Vec<(String, Option<&'a Resource>, u64)>,
    gpus: u64,
    /// Resources of parts of GPUs, with the amount that the pod requests.
    partitions: Vec<(String, u64)>,
}

/// Whether an extended resource is whole GPUs, which stay in the pod.
fn is_gpu(name: &str) -> bool {
    gpu_drivers::all().iter().any(|driver| driver.extended_resources.contains(&name))
}

/// Whether an extended resource is parts or shares of GPUs.
fn is_part_of_gpu(name: &str) -> bool {
    let mut prefixes = gpu_drivers::all().iter().flat_map(|driver| driver.partial_resources);
    prefixes.any(|prefix| name.starts_with(prefix))
}

/// The driver whose parts of GPUs claims can request by this extended resource.
fn driver_of_part(name: &str) -> Option<&'static str> {
    let mut parts = gpu_drivers::parts().iter();
    parts
        .find(|it| {
            it.part
                .and_then(|part| part.profile_resources)
                .is_some_and(|prefix| name.starts_with(prefix))
        })
        .map(|driver| driver.driver)
}

impl<'a> Converter<'a> {
    pub(crate) fn new(
        resources: &'a Resources,
        networks: &'a Networks,
        options: &'a Options,
    ) -> Self {
        Self { resources, networks, options, made: Made::default() }
    }

    pub(crate) fn made(self) -> Made {
        self.made
    }

    /// Returns the object with its pods rewritten; `None` if no pod has such NICs.
    pub(crate) fn convert(&mut self, object: &Value, notes: &mut Vec<Note>) -> Option<Value> {
        let mut converted = object.clone();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        let mut is_changed = false;
        let mut templates = Vec::new();
        pod_templates(&mut converted, &mut templates);
        let several = templates.len() > 1;
        for (index, template) in templates.into_iter().enumerate() {
            let name = object["metadata"]["name"].as_str();
            let name =
                name.or_else(|| object["metadata"]["generateName"].as_str()).unwrap_or("pod");
            let name = object_name(name);
            let name = if several { format!("{name}-{index}") } else { name };
            is_changed |= self.rewrite(template, &namespace, &name, object, notes);
        }
        is_changed.then_some(converted)
    }

    fn rewrite(
        &mut self,
        pod: &mut Value,
        namespace: &str,
        name: &str,
        object: &Value,
        notes: &mut Vec<Note>,
    ) -> bool {
        let text = pod["metadata"]["annotations"][NETWORKS].as_str().unwrap_or_default();
        let named = match named(text, namespace) {
            Ok(named) => named,
            Err(error) => {
                let text = format!(
                    "`{NETWORKS}` is not a list of networks, so the pod is unchanged: {error}"
                );
                note(notes, object, text);
                return false;
            }
        };
        for NamedNetwork { name, own, .. } in named.iter().filter(|it| !it.own.is_empty()) {
            let text = format!(
                "the pod's settings for the network `{name}` are not converted: {}; add them to \
                 `interface` in its claim template or `dranet.io/nic-config`",
                own.join(", ")
            );
            note(notes, object, text);
        }
        let wanted = self.wanted(pod, named);
        if wanted.networks.is_empty() && wanted.resources.is_empty() {
            return false;
        }
        for (network, _) in wanted.networks.iter().filter(|(_, found)| found.is_none()) {
            note(notes, object, format!("the network `{network}` is not in the input"));
        }
        for (resource, ..) in wanted.resources.iter().filter(|(_, found, _)| found.is_none()) {
            let text = format!(
                "the resource `{resource}` is not in the input: the pod gets any NIC of class \
                 `{NIC_CLASS}`"
            );
            note(notes, object, text);
        }
        let holders = remove(pod, &wanted);
        for resource in left(pod) {
            let text = format!(
                "its limit on `{resource}` stays: nothing in the input says what it is; if a device \
                 plugin offers NICs by it, remove it"
            );
            note(notes, object, text);
        }
        if wanted.networks.iter().flat_map(|(_, network)| network).any(|it| it.is_guarded) {
            self.made.guarded.insert(namespace.to_owned());
        }
        if wanted.gpus > 0 || wanted.one_part().is_some() {
            self.made.uses_shares |= wanted.is_shared();
            annotate(pod, &wanted, self.options, object, notes);
        } else {
            for (partition, _) in &wanted.partitions {
                let text = format!(
                    "`{partition}` is a part or a share of a GPU: the pod's NICs are not aligned with \
                     it, since only whole GPUs, or one part that a DRA driver publishes, can be"
                );
                note(notes, object, text);
            }
            self.claim(pod, &wanted, namespace, name, &holders);
        }
        true
    }

    fn wanted(&self, pod: &Value, named: Vec<NamedNetwork>) -> Wanted<'a> {
        let networks = named.into_iter().map(|it| {
            let network = self.networks.get(&it.namespace, &it.name);
            (it.name, network)
        });
        let networks: Vec<_> = networks.collect();
        let (mut resources, mut gpus): (Vec<(String, _, u64)>, u64) = (Vec::new(), 0);
        let mut partitions = Vec::new();
        for container in containers(pod) {
            for (name, amount) in limits(container) {
                if is_gpu(&name) {
                    gpus += amount;
                    continue;
                }
                if is_part_of_gpu(&name) {
                    partitions.push((name, amount));
                    continue;
                }
                let found = self.resources.get(&name);
                let mut networks = networks.iter().filter_map(|(_, network)| *network);
                let is_nic = name.starts_with("rdma/") || networks.any(|it| it.has(&name));
                if found.is_none() && !is_nic {
                    continue;
                }
                match resources.iter_mut().find(|(other, ..)| *other == name) {
                    Some((.., sum)) => *sum += amount,
                    None => resources.push((name, found, amount)),
                }
            }
        }
        Wanted { networks, resources, gpus, partitions }
    }

    fn claim(
        &mut self,
        pod: &mut Value,
        wanted: &Wanted<'_>,
        namespace: &str,
        name: &str,
        holders: &[String],
    ) {
        let (mut requests, mut configs) = (Vec::new(), Vec::new());
        for (index, (resource, network)) in wanted.nics().into_iter().enumerate() {
            let request = format!("nic{index}");
            let class = resource.map_or(NIC_CLASS, |resource| resource.class.as_str());
            let mut exactly = json!({"deviceClassName": class});
            let selectors = network.map(|network| network.selectors.as_slice()).unwrap_or_default();
            if !selectors.is_empty() {
                let expression = selectors.join(" && ");
                exactly["selectors"] = json!([{"cel": {"expression": expression}}]);
            }
            if resource.is_some_and(|it| it.is_shared) || network.is_some_and(|it| it.is_shared) {
                self.made.uses_shares = true;
                let mut requests = json!({capacity::SHARES: "1"});
                if let Some(share) = &self.options.share {
                    requests[capacity::BANDWIDTH] = share.as_str().into();
                }
                exactly["capacity"] = json!({"requests": requests});
            }
            requests.push(json!({"name": request, "exactly": exactly}));
            if let Some(network) = network.filter(|network| !network.config.is_empty()) {
                let opaque = json!({"driver": "dra.net", "parameters": network.config});
                configs.push(json!({"requests": [request], "opaque": opaque}));
            }
        }
        let template = format!("{name}-{CLAIM}");
        let mut devices = json!({"requests": requests});
        if !configs.is_empty() {
            devices["config"] = Value::Array(configs);
        }
        self.made.templates.push(json!({
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": template, "namespace": namespace},
            "spec": {"spec": {"devices": devices}},
        }));
        let claims = json!({"name": CLAIM, "resourceClaimTemplateName": template});
        push(&mut pod["spec"], "resourceClaims", claims);
        for container in containers_mut(pod) {
            let name = container["name"].as_str().unwrap_or_default();
            if holders.is_empty() || holders.iter().any(|holder| holder == name) {
                push(&mut container["resources"], "claims", json!({"name": CLAIM}));
            }
        }
    }
}

/// A NIC of a pod: its resource and its network.
type Nic<'a> = (Option<&'a Resource>, Option<&'a Network>);

impl<'a> Wanted<'a> {
    /// The NICs: one for each network, or without networks one for each device of the resources. A
    /// shared resource gives access to all NICs of the node, so it counts once.
    fn nics(&self) -> Vec<Nic<'a>> {
        if self.networks.is_empty() {
            return self
                .resources
                .iter()
                .flat_map(|(_, resource, amount)| {
                    let is_shared = resource.is_some_and(|it| it.is_shared);
                    let count = if is_shared { 1 } else { usize::try_from(*amount).unwrap_or(1) };
                    vec![(*resource, None); count]
                })
                .collect();
        }
        self.networks
            .iter()
            .map(|(_, network)| {
                let own = network.and_then(|it| it.resource.as_deref());
                (own.and_then(|name| self.of_name(name)).or_else(|| self.first()), *network)
            })
            .collect()
    }

    /// Returns true if another pod may use any of the NICs.
    fn is_shared(&self) -> bool {
        self.nics().iter().any(|(resource, network)| {
            resource.is_some_and(|it| it.is_shared) || network.is_some_and(|it| it.is_shared)
        })
    }

    /// The pod's only part of a GPU, and its driver, if a claim can request it.
    fn one_part(&self) -> Option<(&str, &'static str)> {
        match self.partitions.as_slice() {
            [(name, 1)] if self.gpus == 0 => Some((name, driver_of_part(name)?)),
            _ => None,
        }
    }

    fn first(&self) -> Option<&'a Resource> {
        self.resources.iter().find_map(|(_, resource, _)| *resource)
    }

    /// Returns the pod's resource that a network names, with or without a prefix.
    fn of_name(&self, name: &str) -> Option<&'a Resource> {
        let all = self.resources.iter().filter_map(|(_, resource, _)| *resource);
        let mut all = all.filter(|resource| is_same_resource(&resource.name, name));
        all.next()
    }
}

/// Annotates a pod with GPUs.
fn annotate(
    pod: &mut Value,
    wanted: &Wanted<'_>,
    options: &Options,
    object: &Value,
    notes: &mut Vec<Note>,
) {
    let nics = wanted.nics();
    let count = u64::try_from(nics.len()).unwrap_or(u64::MAX);
    let value = if wanted.gpus > 1 && count == wanted.gpus {
        "per-gpu".to_owned()
    } else {
        count.to_string()
    };
    if let Some((part, driver)) = wanted.one_part() {
        let text = format!(
            "`{part}` is a part of a GPU: the pod gets the NICs next to that GPU, if the DRA driver \
             {driver} publishes such parts instead of the device plugin"
        );
        note(notes, object, text);
    }
    let is_shared = wanted.is_shared();
    let mut configs: Vec<Map<String, Value>> = nics
        .iter()
        .filter_map(|(_, network)| Some(network.as_ref()?.config.clone()))
        .map(|config| if is_shared { config } else { whole(config) })
        .filter(|config| !config.is_empty())
        .collect();
    configs.dedup();
    if is_shared {
        note(
            notes,
            object,
            "shares its NICs with other pods, as before, and gets those next to its GPUs; for \
             exclusive NICs, remove `dranet.io/nic-sharing`",
        );
    }
    if nics.iter().any(|(_, network)| network.is_some_and(|it| !it.selectors.is_empty())) {
        let text = "its networks name interfaces, but the annotation gives it the NICs next to its \
                    GPUs, whatever their names";
        note(notes, object, text);
    }
    let annotations = entry(entry(pod, "metadata"), "annotations");
    annotations[annotation::ALIGNED_NICS] = value.into();
    if is_shared {
        annotations[annotation::NIC_SHARING] = "shared".into();
        if let Some(share) = &options.share {
            annotations[annotation::NIC_BANDWIDTH] = share.as_str().into();
        }
    }
    match configs.as_slice() {
        [] => {}
        [config] => annotations[annotation::NIC_CONFIG] = json!(config).to_string().into(),
        _ => note(
            notes,
            object,
            "its networks differ, but `dranet.io/nic-config` applies to all NICs of a pod: write a \
             claim template for it",
        ),
    }
}

/// The configuration for a NIC that the pod does not share.
fn whole(mut config: Map<String, Value>) -> Map<String, Value> {
    if let Some(interface) = config.get_mut("interface").and_then(Value::as_object_mut) {
        // An InfiniBand NIC has only interfaces that are created on it.
        if interface.get("type").is_some_and(|kind| kind != "ipoib") {
            interface.remove("type");
        }
        if interface.is_empty() {
            config.remove("interface");
        }
    }
    config
}

/// The extended resources in a pod's limits, without GPUs.
fn left(pod: &Value) -> BTreeSet<String> {
    let names = containers(pod).flat_map(limits).map(|(name, _)| name);
    names.filter(|name| name.contains('/') && !is_gpu(name) && !is_part_of_gpu(name)).collect()
}

/// Removes Multus' annotation and the plugins' resources; returns the containers that had the
/// resources.
fn remove(pod: &mut Value, wanted: &Wanted<'_>) -> Vec<String> {
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        take(metadata, "annotations", &[NETWORKS]);
    }
    let names: Vec<_> = wanted.resources.iter().map(|(name, ..)| name.as_str()).collect();
    let mut holders = Vec::new();
    for container in containers_mut(pod) {
        let name = container["name"].as_str().unwrap_or_default().to_owned();
        let Some(resources) = container["resources"].as_object_mut() else { continue };
        let had_limits = take(resources, "limits", &names);
        if take(resources, "requests", &names) || had_limits {
            holders.push(name);
        }
    }
    holders
}

/// Removes keys from a map, and the map if it becomes empty. Returns true if it had any of them.
fn take(object: &mut Map<String, Value>, field: &str, keys: &[&str]) -> bool {
    let Some(map) = object.get_mut(field).and_then(Value::as_object_mut) else { return false };
    let before = map.len();
    map.retain(|key, _| !keys.contains(&key.as_str()));
    let (is_empty, is_changed) = (map.is_empty(), map.len() < before);
    if is_empty {
        object.remove(field);
    }
    is_changed
}

/// A network that a pod names.
struct NamedNetwork {
    namespace: String,
    name: String,
    /// The pod's own settings, such as addresses and the interface name.
    own: Vec<String>,
}

/// Parses the networks in an annotation: `a, ns/b@net1`, or JSON.
fn named(text: &str, namespace: &str) -> Result<Vec<NamedNetwork>, serde_json::Error> {
    if text.trim_start().starts_with('[') {
        let list: Vec<Map<String, Value>> = serde_json::from_str(text)?;
        return Ok(list
            .iter()
            .filter_map(|network| {
                let text = |field: &str| network.get(field)?.as_str().map(str::to_owned);
                let others = network
                    .iter()
                    .filter(|(key, _)| !["name", "namespace"].contains(&key.as_str()));
                Some(NamedNetwork {
                    namespace: text("namespace").unwrap_or_else(|| namespace.to_owned()),
                    name: text("name")?,
                    own: others.map(|(key, value)| format!("`{key}: {value}`")).collect(),
                })
            })
            .collect());
    }
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    Ok(names
        .map(|name| {
            let (name, interface) = name.split_once('@').unwrap_or((name, ""));
            let (own, name) = name.split_once('/').unwrap_or((namespace, name));
            let interface = Some(interface).filter(|it| !it.is_empty());
            NamedNetwork {
                namespace: own.to_owned(),
                name: name.to_owned(),
                own: interface.into_iter().map(|it| format!("`interface: {it}`")).collect(),
            }
        })
        .collect())
}

/// Collects all pods and pod templates in the object.
fn pod_templates<'v>(value: &'v mut Value, found: &mut Vec<&'v mut Value>) {
    if value["spec"]["containers"].is_array() {
        found.push(value);
        return;
    }
    let inner: Vec<&'v mut Value> = match value {
        Value::Object(map) => map.values_mut().collect(),
        Value::Array(list) => list.iter_mut().collect(),
        _ => return,
    };
    for value in inner {
        pod_templates(value, found);
    }
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["spec"]["containers"].as_array().into_iter().flatten()
}

/// Includes init containers: their requests must be removed, and they use the pod's devices.
fn containers_mut(pod: &mut Value) -> impl Iterator<Item = &mut Value> {
    let spec = pod["spec"].as_object_mut().into_iter().flatten();
    let all = spec.filter(|(field, _)| ["containers", "initContainers"].contains(&field.as_str()));
    all.filter_map(|(_, list)| list.as_array_mut()).flatten()
}

/// The limits of a container that are integers.
fn limits(container: &Value) -> Vec<(String, u64)> {
    let amounts = container["resources"]["limits"].as_object().into_iter().flatten();
    amounts
        .filter_map(|(name, value)| {
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
            Some((name.clone(), number))
        })
        .collect()
}

/// Returns the object in a field; creates an empty one if there is none.
fn entry<'v>(value: &'v mut Value, name: &str) -> &'v mut Value {
    if !value[name].is_object() {
        value[name] = Value::Object(Map::new());
    }
    &mut value[name]
}

fn push(value: &mut Value, name: &str, item: Value) {
    match value[name].as_array_mut() {
        Some(list) => list.push(item),
        None => value[name] = Value::Array(vec![item]),
    }
}
