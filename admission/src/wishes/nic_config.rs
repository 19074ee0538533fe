//! The driver's network configuration, parsed with the driver's own code, so that the webhook
//! denies what the driver would reject on the node. An address pool is a field of it.

use super::Asker;
use crate::denial::Denial;
use crate::dns::is_label;
use cluster_model::machines::Machine;
use cluster_model::names::{self, annotation, attribute};
use cluster_model::network_config::{
    InterfaceConfig, InterfaceKind, LateBindingConfig, LinkNamePattern, NetworkConfig,
};
use cluster_model::nic_pool::POOL_NAME_MAX;
use cluster_model::view::{ClusterView, KnownPool};
use k8s_openapi::api::resource::v1::{DeviceClaimConfiguration, OpaqueDeviceConfiguration};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::{Value, json};
use std::error::Error;
use topology_graph::LinkLayer;

/// The maximum size of opaque parameters in bytes (limit of the API server).
const PARAMETERS_MAX: usize = 10 << 10;

/// A valid network configuration, as compact JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NicConfig(String);

impl NicConfig {
    /// Reads the configuration, and adds the pool of the other annotation.
    pub(super) fn read(asker: &Asker<'_>) -> Result<Option<Self>, Denial> {
        let own = asker.annotation(annotation::NIC_CONFIG);
        let own = own.map(|value| read(value, asker)).transpose()?;
        match asker.annotation(annotation::NIC_POOL) {
            Some(pool) => with_pool(pool, own.as_deref(), asker).map(|json| Some(Self(json))),
            None => Ok(own.map(Self)),
        }
    }

    /// The configuration of NICs that the driver chooses when the pod starts: `own` if there is one,
    /// and what the driver must know then.
    pub(crate) fn with_late_binding(
        own: Option<&Self>,
        wanted: &LateBindingConfig,
    ) -> Option<Self> {
        let mut json: Value = serde_json::from_str(own.map_or("{}", Self::json)).ok()?;
        let wanted = serde_json::to_value(wanted).ok()?;
        json.as_object_mut()?.insert("lateBinding".to_owned(), wanted);
        Some(Self(json.to_string()))
    }

    /// The configuration as compact JSON.
    pub fn json(&self) -> &str {
        &self.0
    }

    /// Whether it moves a NIC's own interface into the pod.
    pub(super) fn is_passthrough(&self) -> bool {
        let config = self.parsed();
        config.and_then(|config| config.interface.kind) == Some(InterfaceKind::Passthrough)
    }

    /// Denies guarded fields, which affect more than the pod (routes, addresses, routing domains),
    /// outside the namespaces that the operator allows.
    pub(crate) fn check_namespace(
        &self,
        namespace: &str,
        allowed: &[String],
    ) -> Result<(), Denial> {
        let Some(config) = self.parsed() else { return Ok(()) };
        let Some(field) = config.forbidden_field(namespace, allowed) else { return Ok(()) };
        let there = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
        Err(self.deny(format!(
            "`{field}` may be set only in namespaces that the operator allows ({there}), and the \
                 pod is in `{namespace}`"
        )))
    }

    /// Denies interface configuration if NICs are InfiniBand NICs without an interface.
    pub(super) fn check_machines(&self, machines: &[Machine<'_>]) -> Result<(), Denial> {
        let Some(config) = self.parsed() else { return Ok(()) };
        let Err(error) = config.check_rdma_only() else { return Ok(()) };
        match machines.iter().find(|machine| has_rdma_alone(machine)) {
            Some(machine) => Err(self.deny(format!(
                "{error} (NICs of node `{}`)",
                machine.nodes.first().unwrap_or(&""),
            ))),
            None => Ok(()),
        }
    }

    /// The configuration as a part of the claim, for the requests for NICs.
    pub(crate) fn claim_config(&self, nic_requests: &[String]) -> Option<DeviceClaimConfiguration> {
        let parameters = serde_json::from_str(&self.0).ok()?;
        Some(DeviceClaimConfiguration {
            requests: Some(nic_requests.to_vec()),
            opaque: Some(OpaqueDeviceConfiguration {
                driver: names::DRIVER.to_owned(),
                parameters: RawExtension(parameters),
            }),
        })
    }

    /// Returns a warning if the pod cannot start now because of the pool of its NICs, which may be
    /// created after the pod.
    pub(crate) fn pool_warning(&self, namespace: &str, view: &ClusterView) -> Option<String> {
        let pool = self.parsed()?.interface.pool?;
        match view.nic_pools().get(&pool)? {
            KnownPool::Missing => {
                let names: Vec<_> =
                    view.nic_pools().names().map(|name| format!("`{name}`")).collect();
                let there = if names.is_empty() {
                    "has none".to_owned()
                } else {
                    format!("has {}", names.join(", "))
                };
                Some(format!(
                    "there is no NicPool `{pool}`; the cluster {there}: the pod does not start before \
                     the NicPool is created"
                ))
            }
            KnownPool::Invalid(why) => Some(format!(
                "NicPool `{pool}` is invalid and gives no addresses: {why}; the pod does not start \
                 before the NicPool is corrected"
            )),
            KnownPool::For(Some(namespaces)) if !namespaces.iter().any(|it| it == namespace) => {
                Some(format!(
                    "NicPool `{pool}` gives no addresses to namespace `{namespace}`: the pod does not \
                     start before the NicPool's field namespaces names it"
                ))
            }
            KnownPool::For(_) => None,
        }
    }

    fn parsed(&self) -> Option<NetworkConfig> {
        NetworkConfig::from_json(self.0.as_bytes()).ok()
    }

    /// Creates a denial that names the annotation that the user set.
    fn deny(&self, why: String) -> Denial {
        if let Some(config) = self.parsed()
            && let Some(pool) = config.interface.pool.clone()
        {
            let interface =
                InterfaceConfig { pool: Some(pool.clone()), ..InterfaceConfig::default() };
            if config == (NetworkConfig { interface, ..NetworkConfig::default() }) {
                return deny_pool(&pool, why);
            }
        }
        deny_config(&self.0, why)
    }
}

fn deny_config(value: &str, why: impl Into<String>) -> Denial {
    Denial::new(annotation::NIC_CONFIG, value, why)
}

fn deny_pool(pool: &str, why: impl Into<String>) -> Denial {
    Denial::new(annotation::NIC_POOL, pool, why)
}

/// Checks the annotation's value; returns it as compact JSON.
fn read(value: &str, asker: &Asker<'_>) -> Result<String, Denial> {
    let config = NetworkConfig::from_json(value.as_bytes()).map_err(|error| {
        let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        deny_config(value, format!("{error}{source}"))
    })?;
    if asker.is_on_host_network() {
        return Err(deny_config(
            value,
            "the pod shares the host's network, where nothing is configured",
        ));
    }
    let name = config.interface.name.as_ref().and_then(LinkNamePattern::single);
    if asker.nics > 1 && (name.is_some() || !config.interface.addresses.is_empty()) {
        let why = format!("one interface name or address cannot be used for {} NICs", asker.nics);
        return Err(deny_config(value, why)
            .allowed("a pattern such as \"rail%d\", an address range or a pool"));
    }
    let json: Value = serde_json::from_str(value)
        .map_err(|error| deny_config(value, format!("it is not JSON: {error}")))?;
    let json = json.to_string();
    if json.len() > PARAMETERS_MAX {
        let why = format!("it has {} bytes; {PARAMETERS_MAX} are allowed", json.len());
        return Err(deny_config(value, why));
    }
    Ok(json)
}

/// Adds the address pool to a configuration.
fn with_pool(pool: &str, config: Option<&str>, asker: &Asker<'_>) -> Result<String, Denial> {
    if !is_pool_name(pool) {
        return Err(deny_pool(pool, "invalid value: not the name of a NicPool")
            .allowed("a name in lower case of at most 63 characters, for example \"rdma\""));
    }
    if asker.is_on_host_network() {
        return Err(deny_pool(
            pool,
            "the pod shares the host's network, where no interface gets an address",
        ));
    }
    let config = config.unwrap_or("{}");
    let mut json: Value = serde_json::from_str(config)
        .map_err(|error| deny_pool(pool, format!("it is not JSON: {error}")))?;
    let named = json["interface"]["pool"].as_str().filter(|named| *named != pool);
    if let Some(named) = named {
        let why = format!("{} names another pool, `{named}`", annotation::NIC_CONFIG);
        return Err(deny_pool(pool, why));
    }
    let interface = json.as_object_mut().map(|json| json.entry("interface").or_insert(json!({})));
    let Some(interface) = interface.and_then(Value::as_object_mut) else {
        let name = annotation::NIC_CONFIG;
        let why = format!("{name} must be a JSON object, and its field interface too");
        return Err(deny_pool(pool, why));
    };
    interface.insert("pool".to_owned(), pool.into());
    NetworkConfig::parse(&json).map_err(|error| deny_pool(pool, error.to_string()))?;
    Ok(json.to_string())
}

/// Returns true if the name is valid both as a label value and as an object name.
fn is_pool_name(name: &str) -> bool {
    name.len() <= POOL_NAME_MAX && name.split('.').all(is_label)
}

/// Whether the machine has an InfiniBand NIC without an interface.
fn has_rdma_alone(machine: &Machine<'_>) -> bool {
    machine.devices.nics.iter().any(|(address, nic)| {
        let link = machine.devices.topology.nic(*address).and_then(|nic| nic.link_layer);
        link == Some(LinkLayer::InfiniBand) && nic.attribute(attribute::dranet::IF_NAME).is_none()
    })
}
