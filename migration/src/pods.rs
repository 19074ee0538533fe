//! Rewrites pods that get NICs from device plugins and secondary networks.
//!
//! A pod with GPUs gets the annotation, so that its NICs are aligned with its GPUs. A pod without
//! GPUs gets its own claim template.

use crate::allocate::{Allocate, is_of_cloud};
use crate::containers::{amounts, containers, containers_mut, pod_templates};
use crate::fields::{entry, push, take};
use crate::gpu_resources::{driver_of_part, is_gpu, is_part_of_gpu};
use crate::host::HostAccess;
use crate::named_networks::{NamedNetwork, named};
use crate::names::object_name;
use crate::networks::{Network, Networks};
use crate::note::{Note, note};
use crate::options::Options;
use crate::resources::{Resource, Resources, is_same_resource};
use crate::{environment, gke};
use cluster_model::names::{annotation, capacity};
use cluster_model::nic_plugins::{can_be_nics, is_nics};
use dra_allocator::allocate::MAX_DEVICES;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

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
    /// Limits on resources of device plugins.
    limits: Vec<Limit<'a>>,
    gpus: u64,
    /// Resources of parts of GPUs, with the amount that the pod requests.
    partitions: Vec<(String, u64)>,
}

/// A pod's limit on a resource of a device plugin.
struct Limit<'a> {
    name: String,
    /// The resource, if it is in the input.
    resource: Option<&'a Resource>,
    /// The sum of its containers.
    amount: u64,
}

impl<'a> Limit<'a> {
    /// Whether other pods use the same NICs. What the input does not have is shared if it is named so.
    fn is_shared(&self) -> bool {
        self.resource.map_or_else(|| self.name.contains("shared"), Resource::is_shared)
    }

    /// A NIC of the resource.
    fn nic(&self) -> Nic<'a> {
        let is_shared = self.is_shared();
        Nic { resource: self.resource, network: None, is_all: false, is_shared }
    }

    /// What the plugin gives for it.
    fn allocate(&self) -> Allocate {
        let known = self.resource.map(|resource| resource.allocate);
        known.unwrap_or_else(|| Allocate::guess(&self.name, self.amount))
    }

    /// What the pod had by it, for a note.
    fn described(&self) -> String {
        let Self { name, amount, .. } = self;
        match self.allocate() {
            Allocate::All { .. } => format!("all NICs of `{name}`"),
            Allocate::OnePerUnit => format!("{amount} of `{name}`"),
        }
    }
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
        if is_changed {
            let mut templates = Vec::new();
            pod_templates(&mut converted, &mut templates);
            for pod in templates {
                environment::clean(pod, object, notes);
            }
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
        let host = HostAccess::of(pod);
        if wanted.networks.is_empty() && wanted.limits.is_empty() {
            return without_plugin(pod, &wanted, &host, object, notes);
        }
        for (network, _) in wanted.networks.iter().filter(|(_, found)| found.is_none()) {
            note(notes, object, format!("the network `{network}` is not in the input"));
        }
        let unknown = wanted.limits.iter().filter(|limit| limit.resource.is_none());
        for limit in unknown.filter(|limit| !is_of_cloud(&limit.name)) {
            let text = format!(
                "the resource `{}` is not in the input: the pod had {}, as far as the name says, and gets \
                 any NIC of class `{NIC_CLASS}`",
                limit.name,
                limit.described()
            );
            note(notes, object, text);
        }
        let holders = remove(pod, &wanted);
        gke::remove(pod, object, notes);
        for removed in host.remove_volumes(pod) {
            let text =
                format!("{removed} is removed: the claim gives containers the files of its NICs");
            note(notes, object, text);
        }
        tell_of_privilege(&host, object, notes);
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
        let (mut limits, mut gpus): (Vec<Limit<'a>>, u64) = (Vec::new(), 0);
        let mut partitions = Vec::new();
        for container in containers(pod) {
            for (name, amount) in amounts(container) {
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
                let is_nic = is_nics(&name) || networks.any(|it| it.has(&name));
                if found.is_none() && !is_nic {
                    continue;
                }
                let amount = if gke::is_addresses(&name) { 0 } else { amount };
                match limits.iter_mut().find(|limit| limit.name == name) {
                    Some(limit) => limit.amount += amount,
                    None => limits.push(Limit { name, resource: found, amount }),
                }
            }
        }
        for name in gke::resources(pod) {
            if !limits.iter().any(|limit| limit.name == name) {
                limits.push(Limit { name, resource: None, amount: 1 });
            }
        }
        Wanted { networks, limits, gpus, partitions }
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
        for (index, nic) in wanted.nics().into_iter().enumerate() {
            let Nic { resource, network, is_all, is_shared } = nic;
            let request = format!("nic{index}");
            let class = resource.map_or(NIC_CLASS, |resource| resource.class.as_str());
            let mut exactly = json!({"deviceClassName": class});
            let selectors = network.map(|network| network.selectors.as_slice()).unwrap_or_default();
            if !selectors.is_empty() {
                let expression = selectors.join(" && ");
                exactly["selectors"] = json!([{"cel": {"expression": expression}}]);
            }
            if is_all {
                exactly["allocationMode"] = "All".into();
            }
            if is_shared {
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

/// A NIC of a pod.
#[derive(Clone, Copy)]
struct Nic<'a> {
    resource: Option<&'a Resource>,
    network: Option<&'a Network>,
    /// True if it stands for all NICs of the resource.
    is_all: bool,
    /// True if another pod may use it.
    is_shared: bool,
}

impl<'a> Wanted<'a> {
    /// The NICs: one for each network and each unit that no network takes. A resource that gave all
    /// its NICs gives a pod with GPUs one for each of them, and other pods all again.
    fn nics(&self) -> Vec<Nic<'a>> {
        let mut nics: Vec<Nic<'a>> = self
            .networks
            .iter()
            .map(|(_, network)| {
                let own = network.and_then(|it| it.resource.as_deref());
                let resource = own.and_then(|name| self.of_name(name)).or_else(|| self.first());
                let mut limits = self.limits.iter().filter(|limit| limit.resource == resource);
                let is_shared = network.is_some_and(|it| it.is_shared)
                    || limits.any(Limit::is_shared)
                    || resource.is_some_and(Resource::is_shared);
                Nic { resource, network: *network, is_all: false, is_shared }
            })
            .collect();
        let mut networks = nics.len();
        for limit in self.limits.iter().filter(|limit| !limit.allocate().gives_all()) {
            let units = usize::try_from(limit.amount).unwrap_or(usize::MAX).min(MAX_DEVICES);
            let taken = units.min(networks);
            networks -= taken;
            nics.extend(vec![limit.nic(); units - taken]);
        }
        let all: Vec<_> = self.limits.iter().filter(|it| it.allocate().gives_all()).collect();
        if !self.is_alone() {
            let near = self.near(&all).saturating_sub(nics.len());
            nics.extend(all.first().into_iter().flat_map(|first| vec![first.nic(); near]));
        } else if self.networks.is_empty() {
            nics.extend(
                all.into_iter().map(|limit| Nic { is_all: limit.is_shared(), ..limit.nic() }),
            );
        }
        nics
    }

    /// Whether nothing in the pod says near what its NICs are.
    fn is_alone(&self) -> bool {
        self.gpus == 0 && self.one_part().is_none()
    }

    /// The number of NICs near the GPUs: one for each GPU, if there are as many.
    fn near(&self, limits: &[&Limit<'_>]) -> usize {
        let named: Option<u64> = limits
            .iter()
            .map(|limit| match limit.allocate() {
                Allocate::All { named } => named,
                Allocate::OnePerUnit => None,
            })
            .sum();
        let gpus = self.gpus.max(1);
        usize::try_from(named.map_or(gpus, |named| named.min(gpus))).unwrap_or(MAX_DEVICES)
    }

    /// Returns true if another pod may use any of the NICs.
    fn is_shared(&self) -> bool {
        self.nics().iter().any(|nic| nic.is_shared)
    }

    /// The pod's only part of a GPU, and its driver, if a claim can request it.
    fn one_part(&self) -> Option<(&str, &'static str)> {
        match self.partitions.as_slice() {
            [(name, 1)] if self.gpus == 0 => Some((name, driver_of_part(name)?)),
            _ => None,
        }
    }

    fn first(&self) -> Option<&'a Resource> {
        self.resources().next()
    }

    /// The pod's resources that the input has.
    fn resources(&self) -> impl Iterator<Item = &'a Resource> {
        self.limits.iter().filter_map(|limit| limit.resource)
    }

    /// Returns the pod's resource that a network names, with or without a prefix.
    fn of_name(&self, name: &str) -> Option<&'a Resource> {
        self.resources().find(|resource| is_same_resource(&resource.name, name))
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
    let count = within_claim(u64::try_from(nics.len()).unwrap_or(u64::MAX), wanted, object, notes);
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
        .filter_map(|nic| Some(nic.network?.config.clone()))
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
    if let Some(limit) = wanted.limits.iter().find(|limit| limit.allocate().gives_all()) {
        let text = format!(
            "had {}, and gets {count}: one for each of its GPUs, if the resource has as many; for more, \
             change `{}`",
            limit.described(),
            annotation::ALIGNED_NICS
        );
        note(notes, object, text);
    }
    let resource = only_resource(wanted, object, notes);
    let networks = wanted.networks.len();
    if networks > 0 && networks < nics.len() {
        let text = format!(
            "had interfaces of {networks} networks, and gets one on each of its {count} NICs"
        );
        note(notes, object, text);
    }
    if nics.iter().any(|nic| nic.network.is_some_and(|it| !it.selectors.is_empty())) {
        let text = "its networks name interfaces, but the annotation gives it the NICs next to its \
                    GPUs, whatever their names";
        note(notes, object, text);
    }
    let annotations = entry(entry(pod, "metadata"), "annotations");
    annotations[annotation::ALIGNED_NICS] = value.into();
    if let Some(resource) = resource {
        annotations[annotation::NIC_CLASS] = resource.class.as_str().into();
        if resource.names_nics() {
            annotations[annotation::ALIGNMENT_POLICY] = "preferred".into();
        }
    }
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

/// The only resource of the pod, if it has not all NICs of the node.
fn only_resource<'a>(
    wanted: &Wanted<'a>,
    object: &Value,
    notes: &mut Vec<Note>,
) -> Option<&'a Resource> {
    let resources: BTreeMap<&str, &Resource> =
        wanted.resources().map(|resource| (resource.name.as_str(), resource)).collect();
    if resources.values().any(|resource| !resource.is_selective()) {
        return None;
    }
    if resources.len() > 1 {
        let names: Vec<_> = resources.keys().map(|name| format!("`{name}`")).collect();
        let text = format!(
            "had NICs of {}, and gets those next to its GPUs, of whatever resource: `{}` is one class for all \
             NICs of a pod",
            names.join(", "),
            annotation::NIC_CLASS
        );
        note(notes, object, text);
        return None;
    }
    let resource = resources.into_values().next()?;
    let text = format!(
        "gets NICs of `{}` only, as before{}; for any NIC next to its GPUs, remove `{}`",
        resource.name,
        if resource.names_nics() { ", and next to its GPUs if they are" } else { "" },
        annotation::NIC_CLASS
    );
    note(notes, object, text);
    Some(resource)
}

/// The number of NICs that fit into a claim with the GPUs, the same for each GPU.
fn within_claim(nics: u64, wanted: &Wanted<'_>, object: &Value, notes: &mut Vec<Note>) -> u64 {
    let gpus = wanted.gpus;
    let room = u64::try_from(MAX_DEVICES).unwrap_or(u64::MAX).saturating_sub(gpus);
    if nics <= room || room == 0 {
        return nics;
    }
    let fit = if gpus > 0 && room >= gpus { room - room % gpus } else { room };
    let text = format!(
        "had {nics} NICs, and gets {fit}: a claim has at most {MAX_DEVICES} devices, and its {gpus} GPUs \
         are in it; if a device plugin gives it the GPUs, `{}: \"{}\"` is possible",
        annotation::ALIGNED_NICS,
        nics.min(room + gpus)
    );
    note(notes, object, text);
    fit
}

/// Rewrites a pod that has NICs of its host without a device plugin, or tells what it has. Returns
/// true if it was changed.
fn without_plugin(
    pod: &mut Value,
    wanted: &Wanted<'_>,
    host: &HostAccess,
    object: &Value,
    notes: &mut Vec<Note>,
) -> bool {
    for resource in left(pod).iter().filter(|resource| can_be_nics(resource)) {
        let text = format!(
            "unchanged: its limit on `{resource}` looks like NICs, but nothing in the input says so; add \
             the device plugin's configuration"
        );
        note(notes, object, text);
    }
    if !host.reaches_nics(wanted.gpus) {
        return false;
    }
    let had = format!("had all NICs of its node, by {}", host.described());
    if wanted.gpus == 0 {
        let text = format!(
            "unchanged: {had}, and has no GPU; for NICs of its own remove these, and add \
             `{}: \"1\"` and `{}: \"0\"`",
            annotation::ALIGNED_NICS,
            annotation::GPUS
        );
        note(notes, object, text);
        return false;
    }
    let removed = host.leave_network(pod).map(str::to_owned);
    let removed: Vec<_> = removed.into_iter().chain(host.remove_volumes(pod)).collect();
    let value = if wanted.gpus > 1 { "per-gpu" } else { "1" };
    entry(entry(pod, "metadata"), "annotations")[annotation::ALIGNED_NICS] = value.into();
    let removed = match removed.join(", ") {
        names if names.is_empty() => names,
        names => format!("; removed: {names}"),
    };
    let text = format!(
        "{had}; gets one for each GPU by `{}: {value}`, with the interface{removed}; check that the pod \
         needs the host for nothing else",
        annotation::ALIGNED_NICS
    );
    note(notes, object, text);
    tell_of_privilege(host, object, notes);
    true
}

/// Tells that a claim does not limit a privileged container.
fn tell_of_privilege(host: &HostAccess, object: &Value, notes: &mut Vec<Note>) {
    if host.is_privileged {
        let text = "`privileged` stays: such a container can open every device of the node, whatever its \
                    claim; remove it if only RDMA needed it";
        note(notes, object, text);
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
    let names = containers(pod).flat_map(amounts).map(|(name, _)| name);
    names.filter(|name| name.contains('/') && !is_gpu(name) && !is_part_of_gpu(name)).collect()
}

/// Removes Multus' annotation and the plugins' resources; returns the containers that had the
/// resources.
fn remove(pod: &mut Value, wanted: &Wanted<'_>) -> Vec<String> {
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        take(metadata, "annotations", &[NETWORKS]);
    }
    let names: Vec<_> = wanted.limits.iter().map(|limit| limit.name.as_str()).collect();
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
