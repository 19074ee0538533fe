//! Network interfaces and the PCI functions behind them, from `class/net`. Their addresses and
//! states come from rtnetlink, outside this crate.

use super::tree::{Tree, pci_parent};
use crate::snapshot::{Netdev, scalable_function};

const INTERFACES: &str = "class/net";

pub(super) fn netdevs(sys: &mut Tree) -> Vec<Netdev> {
    let names = sys.names(INTERFACES);
    names.into_iter().filter_map(|name| netdev(sys, name)).collect()
}

/// `None` for `bonding_masters`, a file in the same directory.
fn netdev(sys: &mut Tree, name: String) -> Option<Netdev> {
    let place = sys.link(&format!("{INTERFACES}/{name}"))?;
    let part = scalable_function(&place).map(str::to_owned).or_else(|| {
        let port = sys.text(&format!("{INTERFACES}/{name}/phys_port_name"));
        port.filter(|port| !is_own_port(port))
    });
    Some(Netdev { pci: pci_parent(&place), part, name })
}

/// Returns true if the port name is the function's own physical port, `p0`, or a split part of it,
/// `p0s1`. Other names are `pf0vf1`, `pf0sf88`, `c1pf0` (`net/devlink/port.c`).
fn is_own_port(port: &str) -> bool {
    let rest = port.strip_prefix('p').unwrap_or_default();
    !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b's')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_ports_and_those_of_others() {
        for (port, expected) in [
            ("p0", true),
            ("p12", true),
            ("p0s1", true),
            ("pf0vf1", false),
            ("pf0sf88", false),
            ("pf0", false),
            ("c1pf0", false),
            ("", false),
        ] {
            assert_eq!(is_own_port(port), expected, "{port}");
        }
        let place = "devices/pci0000:00/0000:3b:00.0/mlx5_core.sf.4/net/enp59s0s88";
        assert_eq!(scalable_function(place), Some("mlx5_core.sf.4"));
        assert_eq!(scalable_function("devices/pci0000:00/0000:3b:00.0/net/enp59s0"), None);
    }
}
