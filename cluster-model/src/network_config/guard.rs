//! Fields that affect more than their own pod. Only namespaces that the operator names may set
//! them, all or some. Admission enforces this for annotations, the driver for claims.

use super::{InterfaceConfig, NetworkConfig, VirtualFunctionConfig};

/// Matches every namespace.
pub const ALL_NAMESPACES: &str = "*";

impl NetworkConfig {
    /// The first guarded field that is set although no permission of the operator allows it in
    /// this namespace.
    pub fn forbidden_field(&self, namespace: &str, permissions: &[String]) -> Option<&'static str> {
        let mut fields = self.guarded_fields().into_iter();
        fields.find(|field| !may_set(namespace, field, permissions))
    }

    /// The paths of the guarded fields that are set.
    pub fn guarded_fields(&self) -> Vec<&'static str> {
        let Self { interface, routes, rules, neighbors, virtual_function, .. } = self;
        let InterfaceConfig {
            addresses,
            address_range,
            dhcp,
            disable_ebpf_programs,
            hardware_addr,
            forwarding,
            accept_router_advertisements,
            macvlan_mode,
            pkey,
            vrf,
            ..
        } = interface;
        let has_function_settings =
            virtual_function.as_ref().is_some_and(|it| *it != VirtualFunctionConfig::default());
        let fields = [
            ("interface.addresses", !addresses.is_empty()),
            ("interface.addressRange", address_range.is_some()),
            ("interface.dhcp", *dhcp == Some(true)),
            ("interface.disableEbpfPrograms", *disable_ebpf_programs == Some(true)),
            ("interface.hardwareAddr", hardware_addr.is_some()),
            ("interface.forwarding", *forwarding == Some(true)),
            ("interface.acceptRouterAdvertisements", *accept_router_advertisements == Some(true)),
            // With `passthru`, the pod receives frames that are for the host.
            ("interface.macvlanMode", macvlan_mode.is_some()),
            ("interface.pkey", pkey.is_some()),
            ("interface.vrf", vrf.is_some()),
            ("routes", !routes.is_empty()),
            ("rules", !rules.is_empty()),
            ("neighbors", !neighbors.is_empty()),
            ("virtualFunction", has_function_settings),
        ];
        fields.into_iter().filter_map(|(field, is_set)| is_set.then_some(field)).collect()
    }
}

/// The guarded fields.
const GUARDED: [&str; 14] = [
    "interface.addresses",
    "interface.addressRange",
    "interface.dhcp",
    "interface.disableEbpfPrograms",
    "interface.hardwareAddr",
    "interface.forwarding",
    "interface.acceptRouterAdvertisements",
    "interface.macvlanMode",
    "interface.pkey",
    "interface.vrf",
    "routes",
    "rules",
    "neighbors",
    "virtualFunction",
];

/// A permission names a field that needs none, or no namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PermissionError {
    /// The field is not guarded.
    #[error("`{field}` is not a guarded field; they are {}", GUARDED.join(", "))]
    Field {
        /// The field.
        field: String,
    },
    /// There is no namespace.
    #[error("names no namespace; allowed: NAMESPACE or NAMESPACE=FIELD,FIELD")]
    Namespace,
}

/// Checks a permission of the operator: `NAMESPACE` for all guarded fields, or
/// `NAMESPACE=FIELD,FIELD`; `*` means every namespace.
pub fn permission(text: &str) -> Result<String, PermissionError> {
    let (namespace, fields) = text.split_once('=').unwrap_or((text, GUARDED[0]));
    if namespace.is_empty() {
        return Err(PermissionError::Namespace);
    }
    match fields.split(',').find(|field| !GUARDED.contains(field)) {
        Some(field) => Err(PermissionError::Field { field: field.to_owned() }),
        None => Ok(text.to_owned()),
    }
}

/// Returns true if a permission of the operator allows this namespace to set the guarded field.
fn may_set(namespace: &str, field: &str, permissions: &[String]) -> bool {
    permissions.iter().any(|permission| {
        let (name, fields) = match permission.split_once('=') {
            Some((name, fields)) => (name, Some(fields)),
            None => (permission.as_str(), None),
        };
        let is_namespace = name == namespace || name == ALL_NAMESPACES;
        is_namespace && fields.is_none_or(|fields| fields.split(',').any(|it| it == field))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn exactly_the_fields_that_affect_others_are_guarded() {
        let interface = |field: &str, value| json!({"interface": {field: value}});
        for (config, guarded) in [
            (json!({}), None),
            (interface("name", json!("net1")), None),
            (interface("mtu", json!(9000)), None),
            // The pool itself names the namespaces that may use it.
            (interface("pool", json!("rdma")), None),
            (interface("dhcp", json!(false)), None),
            (json!({"ethtool": {"features": {"gro": false}}}), None),
            (json!({"rdma": {"trafficClass": 106}}), None),
            (interface("addresses", json!(["10.0.0.5/24"])), Some("interface.addresses")),
            (interface("addressRange", json!("10.0.0.5/32")), Some("interface.addressRange")),
            (interface("dhcp", json!(true)), Some("interface.dhcp")),
            (interface("addressing", json!("dhcp")), Some("interface.dhcp")),
            (interface("disableEbpfPrograms", json!(true)), Some("interface.disableEbpfPrograms")),
            (
                json!({"interface": {"type": "macvlan", "macvlanMode": "vepa"}}),
                Some("interface.macvlanMode"),
            ),
            (interface("hardwareAddr", json!("02:00:00:00:00:01")), Some("interface.hardwareAddr")),
            (interface("forwarding", json!(true)), Some("interface.forwarding")),
            (interface("vrf", json!({"name": "blue"})), Some("interface.vrf")),
            (interface("type", json!("ipoib")), None),
            (json!({"virtualFunction": {}}), None),
            (json!({"virtualFunction": {"trust": false}}), Some("virtualFunction")),
            (json!({"interface": {"type": "ipoib", "pkey": "0x8001"}}), Some("interface.pkey")),
            (
                json!({"routes": [{"destination": "10.0.0.0/8", "gateway": "10.1.0.1"}]}),
                Some("routes"),
            ),
            (json!({"rules": [{"source": "10.0.0.0/8", "table": 100}]}), Some("rules")),
            (
                json!({"neighbors": [
                    {"destination": "10.0.0.1", "hardwareAddr": "02:00:00:00:00:01"}
                ]}),
                Some("neighbors"),
            ),
        ] {
            let parsed = NetworkConfig::parse(&config).unwrap();
            assert_eq!(parsed.guarded_fields(), Vec::from_iter(guarded), "{config}");
        }
    }

    #[test]
    fn the_operator_names_namespaces_and_fields() {
        let config = json!({"interface": {"dhcp": true}, "virtualFunction": {"trust": true}});
        let config = NetworkConfig::parse(&config).unwrap();
        let [dhcp, function] = ["interface.dhcp", "virtualFunction"].map(Some);
        for (permissions, forbidden) in [
            (vec![], dhcp),
            (vec!["net"], dhcp),
            (vec!["team"], None),
            (vec!["*"], None),
            (vec!["team=interface.dhcp"], function),
            (vec!["team=virtualFunction,routes"], dhcp),
            (vec!["*=interface.dhcp", "team=virtualFunction"], None),
            (vec!["net=interface.dhcp,virtualFunction"], dhcp),
        ] {
            let permissions: Vec<_> =
                permissions.into_iter().map(|it| permission(it).unwrap()).collect();
            assert_eq!(config.forbidden_field("team", &permissions), forbidden, "{permissions:?}");
        }
        let refused = |text| permission(text).unwrap_err().to_string();
        assert!(
            refused("team=interface.mtu").starts_with("`interface.mtu` is not a guarded field")
        );
        assert!(refused("team=").starts_with("`` is not a guarded field"));
        assert!(refused("=routes").starts_with("names no namespace"));
    }

    #[test]
    fn every_guarded_field_can_be_allowed() {
        for field in GUARDED {
            assert_eq!(permission(&format!("team={field}")), Ok(format!("team={field}")));
        }
    }
}
