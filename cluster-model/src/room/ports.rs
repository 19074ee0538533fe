//! Ports of its node that a pod takes (`plugins/nodeports`).

use crate::pod_containers::{ContainerKind, in_order};
use k8s_openapi::api::core::v1::PodSpec;

/// The address of every interface (`DefaultBindAllHostIP` in `kube-scheduler/framework`).
const ANY: &str = "0.0.0.0";

/// A port of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct HostPort {
    /// The number.
    pub(super) number: i32,
    protocol: Box<str>,
    ip: Box<str>,
}

impl HostPort {
    /// The ports that a pod takes while it runs: those of its containers and sidecars. With the
    /// node's network, every port of a container is one of the node (`SetDefaults_Pod` in
    /// `pkg/apis/core/v1/defaults.go`).
    pub(super) fn of(spec: &PodSpec) -> Vec<Self> {
        let is_host = spec.host_network == Some(true);
        let containers = in_order(spec).filter(|(kind, _)| *kind != ContainerKind::Init);
        let ports = containers.flat_map(|(_, container)| container.ports.iter().flatten());
        let taken = ports.filter_map(|port| {
            let own = port.host_port.filter(|number| *number > 0);
            let number = own.or_else(|| is_host.then_some(port.container_port))?;
            let protocol = port.protocol.as_deref().filter(|it| !it.is_empty()).unwrap_or("TCP");
            let ip = port.host_ip.as_deref().filter(|it| !it.is_empty()).unwrap_or(ANY);
            Some(Self { number, protocol: protocol.into(), ip: ip.into() })
        });
        taken.collect()
    }

    /// As `CheckConflict` of `HostPortInfo` in `kube-scheduler/framework`.
    pub(super) fn conflicts_with(&self, other: &Self) -> bool {
        let is_shared = self.ip == other.ip || &*self.ip == ANY || &*other.ip == ANY;
        self.number == other.number && self.protocol == other.protocol && is_shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ports(spec: &Value) -> Vec<HostPort> {
        HostPort::of(&serde_json::from_value(spec.clone()).unwrap())
    }

    #[test]
    fn ports_conflict_by_number_protocol_and_address() {
        let one = |port: Value| {
            let mut port = port;
            port["containerPort"] = 80.into();
            ports(&json!({"containers": [{"name": "c", "ports": [port]}]}))
        };
        let own = one(json!({"hostPort": 80}));
        for (other, expected) in [
            (json!({}), None),
            (json!({"hostPort": 81}), Some(false)),
            (json!({"hostPort": 80}), Some(true)),
            (json!({"hostPort": 80, "protocol": "UDP"}), Some(false)),
            (json!({"hostPort": 80, "hostIP": "10.0.0.1"}), Some(true)),
        ] {
            let other = one(other);
            assert_eq!(other.first().map(|it| it.conflicts_with(&own[0])), expected, "{other:?}");
        }
        let addresses = ["10.0.0.1", "10.0.0.2"];
        let [a, b] = addresses.map(|ip| one(json!({"hostPort": 80, "hostIP": ip})));
        assert!(!a[0].conflicts_with(&b[0]));
    }

    #[test]
    fn sidecars_have_ports_and_init_containers_have_none() {
        let port = json!([{"containerPort": 80, "hostPort": 80}]);
        for (policy, expected) in [(Value::Null, 0), (json!("Always"), 1)] {
            let init = json!([{"name": "i", "restartPolicy": policy, "ports": port}]);
            let spec = json!({"containers": [], "initContainers": init});
            assert_eq!(ports(&spec).len(), expected, "{spec}");
        }
        let bare = json!([{"name": "c", "ports": [{"containerPort": 80}]}]);
        assert_eq!(ports(&json!({"containers": bare, "hostNetwork": true})).len(), 1);
    }
}
