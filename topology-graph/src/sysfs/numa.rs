//! NUMA nodes, from `devices/system/node`
//! (`Documentation/ABI/stable/sysfs-devices-node`).

use super::tree::Tree;
use crate::snapshot::NumaNodeFacts;
use crate::{CpuSet, NumaNode};

const NODES: &str = "devices/system/node";
/// The wanted line: `Node 0 MemTotal:       98765432 kB`.
pub(super) const MEMORY: &str = "MemTotal:";

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
    NumaNodeFacts {
        node: NumaNode(number),
        cpus,
        distances: distances.unwrap_or_default(),
        memory_bytes: sys.parsed(&format!("{path}/meminfo"), memory),
    }
}

fn number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("node")?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Parses the memory in bytes; the kernel's `kB` are 1024 bytes.
fn memory(text: &str) -> Option<u64> {
    let total = text.lines().find_map(|line| line.split_once(MEMORY))?.1;
    let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_bytes() {
        let text = "\nNode 1 MemTotal:       16384 kB\nNode 1 MemFree:        1 kB\n";
        assert_eq!(memory(text), Some(16 << 20));
        for text in ["", "Node 0 MemTotal: x kB", "Node 0 MemTotal: 18446744073709551615 kB"] {
            assert_eq!(memory(text), None, "{text}");
        }
    }
}
