//! The driver's network configuration, parsed with the driver's own code, so that the webhook
//! denies what the driver would reject on the node.

use super::Intent;
use crate::denial::Denial;
use crate::sharing::SHARED;
use cluster_model::machines::Machine;
use cluster_model::names::{self, annotation, attribute};
use cluster_model::network_config::{
    InterfaceConfig, InterfaceKind, LinkNamePattern, NetworkConfig,
};
use cluster_model::nic_pool::POOL_NAME_MAX;
use k8s_openapi::api::resource::v1::{DeviceClaimConfiguration, OpaqueDeviceConfiguration};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;
use std::error::Error;
use topology_graph::LinkLayer;

/// The maximum size of opaque parameters in bytes (limit of the API server).
const PARAMETERS_MAX: usize = 10 << 10;

/// Checks the annotation's value; returns it as compact JSON.
pub(super) fn read(value: &str, nics: u32, host_network: bool) -> Result<String, Denial> {
    let deny = |why: String| Denial::new(annotation::NIC_CONFIG, value, why);
    let config = NetworkConfig::from_json(value.as_bytes()).map_err(|error| {
        let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        deny(format!("{error}{source}"))
    })?;
    if host_network {
        return Err(deny(
            "the pod shares the host's network, where nothing is configured".to_owned(),
        ));
    }
    let name = config.interface.name.as_ref().and_then(LinkNamePattern::single);
    if nics > 1 && (name.is_some() || !config.interface.addresses.is_empty()) {
        let why = format!("one interface name or address cannot be used for {nics} NICs");
        return Err(deny(why).allowed("a pattern such as \"rail%d\", an address range or a pool"));
    }
    let json: serde_json::Value =
        serde_json::from_str(value).map_err(|error| deny(format!("it is not JSON: {error}")))?;
    let json = json.to_string();
    if json.len() > PARAMETERS_MAX {
        return Err(deny(format!("it has {} bytes; {PARAMETERS_MAX} are allowed", json.len())));
    }
    Ok(json)
}

/// Adds the address pool to a configuration.
pub(super) fn with_pool(
    pool: &str,
    config: Option<&str>,
    host_network: bool,
) -> Result<String, Denial> {
    let deny = |why: String| Denial::new(annotation::NIC_POOL, pool, why);
    if !is_pool_name(pool) {
        return Err(deny("invalid value: not the name of a NicPool".to_owned())
            .allowed("a name in lower case of at most 63 characters, for example \"rdma\""));
    }
    if host_network {
        return Err(deny(
            "the pod shares the host's network, where no interface gets an address".to_owned(),
        ));
    }
    let config = config.unwrap_or("{}");
    let mut json: serde_json::Value =
        serde_json::from_str(config).map_err(|error| deny(format!("it is not JSON: {error}")))?;
    let named = json["interface"]["pool"].as_str().filter(|named| *named != pool);
    if let Some(named) = named {
        return Err(deny(format!("{} names another pool, `{named}`", annotation::NIC_CONFIG)));
    }
    let interface = json.as_object_mut().map(|json| json.entry("interface").or_insert(json!({})));
    let Some(interface) = interface.and_then(serde_json::Value::as_object_mut) else {
        return Err(deny(format!(
            "{} must be a JSON object, and its field interface too",
            annotation::NIC_CONFIG
        )));
    };
    interface.insert("pool".to_owned(), pool.into());
    NetworkConfig::parse(&json).map_err(|error| deny(error.to_string()))?;
    Ok(json.to_string())
}

/// Denies `passthrough` for shared NICs: the NIC's own interface can be in only one pod.
pub(super) fn check_shared(config: Option<&str>) -> Result<(), Denial> {
    let config = config.and_then(|json| NetworkConfig::from_json(json.as_bytes()).ok());
    let kind = config.and_then(|config| config.interface.kind);
    if kind != Some(InterfaceKind::Passthrough) {
        return Ok(());
    }
    let why = "`interface.type: passthrough` moves the NIC's own interface into the pod, which \
               other pods cannot share then";
    let denial = Denial::new(annotation::NIC_SHARING, SHARED, why);
    Err(denial.allowed("another type in dranet.io/nic-config, or none"))
}

/// Returns true if the name is valid both as a label value and as an object name.
fn is_pool_name(name: &str) -> bool {
    let is_end = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    name.len() <= POOL_NAME_MAX
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
        && is_end(bytes.first())
        && is_end(bytes.last())
        && !name.contains("..")
}

/// Denies guarded fields, which affect more than the pod (routes, addresses, routing domains),
/// outside the namespaces that the operator allows.
pub(crate) fn check_namespace(
    intent: &Intent,
    namespace: &str,
    allowed: &[String],
) -> Result<(), Denial> {
    let Some(config) = parsed(intent) else { return Ok(()) };
    let Some(field) = config.forbidden_field(namespace, allowed) else { return Ok(()) };
    let there = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
    Err(deny(
        intent,
        format!(
            "`{field}` may be set only in namespaces that the operator allows ({there}), and the \
             pod is in `{namespace}`"
        ),
    ))
}

/// Denies interface configuration if NICs are InfiniBand NICs without an interface.
pub(crate) fn check_machines(intent: &Intent, machines: &[Machine<'_>]) -> Result<(), Denial> {
    let Some(config) = parsed(intent) else { return Ok(()) };
    let Err(error) = config.check_rdma_only() else { return Ok(()) };
    let rdma_only = |machine: &&Machine<'_>| {
        machine.devices.nics.iter().any(|(address, nic)| {
            let link = machine.devices.topology.nic(*address).and_then(|nic| nic.link_layer);
            link == Some(LinkLayer::InfiniBand)
                && nic.attribute(attribute::dranet::IF_NAME).is_none()
        })
    };
    match machines.iter().find(rdma_only) {
        Some(machine) => Err(deny(
            intent,
            format!("{error} (NICs of node `{}`)", machine.nodes.first().unwrap_or(&"")),
        )),
        None => Ok(()),
    }
}

/// The configuration as a part of the claim, for the requests for NICs.
pub(crate) fn claim_config(
    intent: &Intent,
    nic_requests: &[String],
) -> Option<Vec<DeviceClaimConfiguration>> {
    let json = intent.nic_config.as_ref()?;
    let parameters = serde_json::from_str(json).ok()?;
    Some(vec![DeviceClaimConfiguration {
        requests: Some(nic_requests.to_vec()),
        opaque: Some(OpaqueDeviceConfiguration {
            driver: names::DRIVER.to_owned(),
            parameters: RawExtension(parameters),
        }),
    }])
}

fn parsed(intent: &Intent) -> Option<NetworkConfig> {
    NetworkConfig::from_json(intent.nic_config.as_ref()?.as_bytes()).ok()
}

/// Creates a denial that names the annotation that the user set.
fn deny(intent: &Intent, why: String) -> Denial {
    if let Some(config) = parsed(intent)
        && let Some(pool) = config.interface.pool.clone()
    {
        let interface = InterfaceConfig { pool: Some(pool.clone()), ..InterfaceConfig::default() };
        if config == (NetworkConfig { interface, ..NetworkConfig::default() }) {
            return Denial::new(annotation::NIC_POOL, pool, why);
        }
    }
    Denial::new(annotation::NIC_CONFIG, intent.nic_config.clone().unwrap_or_default(), why)
}
