//! NUMA nodes, from `devices/system/node`
//! (`Documentation/ABI/stable/sysfs-devices-node`).

use super::tree::Tree;
use crate::snapshot::NumaNodeFacts;
use crate::{CpuSet, NumaNode};

const NODES: &str = "devices/system/node";

pub(super) fn nodes(sys: &mut Tree) -> Vec<NumaNodeFacts> {
    let mut numbers: Vec<u32> = sys.names(NODES).iter().filter_map(|name| number(name)).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(|number| node(sys, number)).collect()
}

fn node(sys: &mut Tree, number: u32) -> NumaNodeFacts {
    let path = format!("{NODES}/node{number}");
    let cpus: CpuSet = sys.value(&format!("{path}/cpulist")).unwrap_or_default();
    let distances = sys.parsed(&format!("{path}/distance"), |text| {
        text.split_whitespace().map(|distance| distance.parse().ok()).collect()
    });
    let socket = cpus.first().and_then(|cpu| {
        sys.parsed(&format!("devices/system/cpu/cpu{cpu}/topology/physical_package_id"), |text| {
            text.parse::<i64>().ok()
        })
    });
    NumaNodeFacts {
        node: NumaNode(number),
        cpus,
        distances: distances.unwrap_or_default(),
        socket: socket.and_then(|socket| u32::try_from(socket).ok()),
    }
}

fn number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("node")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
