//! Network interfaces and the functions behind them, from `class/net`. Their
//! addresses and states are rtnetlink's business, not this crate's.

use super::tree::{Tree, pci_parent};
use crate::snapshot::Netdev;

const INTERFACES: &str = "class/net";

pub(super) fn netdevs(sys: &mut Tree) -> Vec<Netdev> {
    let names = sys.names(INTERFACES);
    names.into_iter().filter_map(|name| netdev(sys, name)).collect()
}

/// `bonding_masters` is a file beside the interfaces.
fn netdev(sys: &mut Tree, name: String) -> Option<Netdev> {
    let place = sys.link(&format!("{INTERFACES}/{name}"))?;
    Some(Netdev { pci: pci_parent(&place), name })
}
