//! What uses the functions of the modules besides claims and open devices: virtual functions of
//! virtual machines, interfaces that other plugins have moved, interfaces on top of them, and the
//! node's own traffic.

use publication::network::NetworkFacts;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use topology_graph::{PciAddress, scalable_function};

/// PCI class of Ethernet controllers.
const ETHERNET: &str = "0x0200";

/// Each use of a function that is bound to one of these modules, as text.
pub(super) fn uses(sys: &Path, modules: &[String], network: &NetworkFacts) -> Vec<String> {
    let mut uses = Vec::new();
    for address in functions(sys, modules) {
        let directory = sys.join("bus/pci/devices").join(&address);
        uses.extend(virtual_machines(&directory, modules));
        let interfaces = names(&directory.join("net"));
        let class = fs::read_to_string(directory.join("class")).unwrap_or_default();
        if interfaces.is_empty() && class.starts_with(ETHERNET) {
            uses.push(format!(
                "the interface of function {address} is in another network namespace"
            ));
        }
        let scalable = names(&directory).into_iter().filter(|it| scalable_function(it).is_some());
        let of_scalable = scalable.flat_map(|part| names(&directory.join(part).join("net")));
        let all: Vec<_> = interfaces.into_iter().chain(of_scalable).collect();
        uses.extend(all.iter().filter_map(|name| network.use_of(network.interface(name)?)));
    }
    uses
}

/// The functions that are bound to the modules, by address.
fn functions(sys: &Path, modules: &[String]) -> BTreeSet<String> {
    modules
        .iter()
        .flat_map(|module| names(&sys.join("bus/pci/drivers").join(module)))
        .filter(|name| name.parse::<PciAddress>().is_ok())
        .collect()
}

/// Virtual functions of a function that another driver has.
fn virtual_machines(directory: &Path, modules: &[String]) -> Vec<String> {
    let links = names(directory).into_iter().filter(|name| name.starts_with("virtfn"));
    let foreign = links.filter_map(|link| {
        let function = directory.join(link);
        let driver = file_name(&function.join("driver"))?;
        let address = file_name(&function)?;
        (!modules.contains(&driver))
            .then(|| format!("driver {driver} has virtual function {address}"))
    });
    foreign.collect()
}

/// The target of a link, by its last component.
fn file_name(link: &Path) -> Option<String> {
    Some(fs::read_link(link).ok()?.file_name()?.to_str()?.to_owned())
}

/// The names in a directory, sorted; empty if it does not exist.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
