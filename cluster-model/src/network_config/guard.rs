//! Fields that affect more than their own pod. Only namespaces that the operator names may set
//! them. Admission enforces this for annotations, the driver for claims.

use super::{InterfaceConfig, NetworkConfig, VirtualFunctionConfig};

/// Matches every namespace.
pub const ALL_NAMESPACES: &str = "*";

impl NetworkConfig {
    /// The paths of the guarded fields that are set.
    pub fn guarded_fields(&self) -> Vec<&'static str> {
        let Self { interface, routes, rules, neighbors, virtual_function, .. } = self;
        let is_set = |it: &VirtualFunctionConfig| *it != VirtualFunctionConfig::default();
        let InterfaceConfig {
            addresses,
            address_range,
            dhcp,
            disable_ebpf_programs,
            hardware_addr,
            forwarding,
            macvlan_mode,
            pkey,
            vrf,
            ..
        } = interface;
        let fields = [
            ("interface.addresses", !addresses.is_empty()),
            ("interface.addressRange", address_range.is_some()),
            ("interface.dhcp", *dhcp == Some(true)),
            ("interface.disableEbpfPrograms", *disable_ebpf_programs == Some(true)),
            ("interface.hardwareAddr", hardware_addr.is_some()),
            ("interface.forwarding", *forwarding == Some(true)),
            // With `passthru`, the pod receives frames that are for the host.
            ("interface.macvlanMode", macvlan_mode.is_some()),
            ("interface.pkey", pkey.is_some()),
            ("interface.vrf", vrf.is_some()),
            ("routes", !routes.is_empty()),
            ("rules", !rules.is_empty()),
            ("neighbors", !neighbors.is_empty()),
            ("virtualFunction", virtual_function.as_ref().is_some_and(is_set)),
        ];
        fields.into_iter().filter_map(|(field, is_set)| is_set.then_some(field)).collect()
    }
}

/// Returns true if the operator allows this namespace to set guarded fields.
pub fn may_set_guarded(namespace: &str, allowed: &[String]) -> bool {
    allowed.iter().any(|name| name == namespace || name == ALL_NAMESPACES)
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
    fn the_operator_names_namespaces_or_all() {
        let allowed = ["net".to_owned()];
        assert!(may_set_guarded("net", &allowed) && !may_set_guarded("team", &allowed));
        assert!(!may_set_guarded("team", &[]) && may_set_guarded("team", &["*".to_owned()]));
    }
}
