//! The partner join: a NIC publishes, under the GPU driver's own attribute
//! name, the UUID of the GPU that the graph pairs it with.
//!
//! `matchAttribute` looks names up fully qualified, so the plain `uuid` of
//! driver `gpu.nvidia.com` and an explicit `gpu.nvidia.com/uuid` on a NIC are
//! the same attribute (`lookupAttribute` in `structured/internal/…/allocator_*.go`).

use super::{Candidate, Question};
use crate::claim::{Demand, exactly, match_attribute};
use crate::selector::Selector;
use cluster_model::names::{self, attribute};
use cluster_model::node_devices::{NodeDevices, text};
use topology_graph::PciAddress;

/// Pairs in one claim beyond which a half-busy node costs the scheduler more
/// steps than any node is worth: 4 pairs were 4,897 at worst, 5 were 51,121.
const PAIRS_MAX: u32 = 4;

/// One NIC for each GPU, where the nodes' pairs allow it.
pub(super) fn propose(question: Question<'_>) -> Option<Candidate> {
    let Question { intent, classes, nodes } = question;
    let uuid = intent.gpu_driver.uuid_attribute?;
    if intent.nics != intent.gpus || intent.gpus > PAIRS_MAX {
        return None;
    }
    let mut selectable_nics = Vec::with_capacity(nodes.len());
    for node in nodes {
        let nics = partners(node, uuid)?;
        let enough = nics.len() >= intent.gpus as usize;
        selectable_nics.push(if enough { nics } else { Vec::new() });
    }
    let gpu = Demand {
        class: &classes.gpu,
        count: 1,
        selector: Selector::driver(intent.gpu_driver.driver)
            .and_string(intent.gpu_driver.kind_attribute, intent.gpu_driver.gpu_kind),
    };
    let nic = Demand {
        class: &classes.nic,
        count: 1,
        selector: Selector::driver(names::DRIVER).and_true(attribute::dranet::RDMA),
    };
    let pairs: Vec<_> =
        (0..intent.gpus).map(|i| (format!("gpu-{i}"), format!("nic-{i}"))).collect();
    Some(Candidate {
        join: "partner",
        why: format!(
            "each NIC carries the {uuid} of the GPU that the graph pairs it with, so one \
             constraint per pair picks both"
        ),
        requests: pairs
            .iter()
            .flat_map(|(g, n)| [exactly(g, gpu.clone()), exactly(n, nic.clone())])
            .collect(),
        constraints: pairs
            .iter()
            .map(|(g, n)| match_attribute(vec![g.clone(), n.clone()], uuid))
            .collect(),
        nic_requests: pairs.into_iter().map(|(_, n)| n).collect(),
        selectable_nics,
    })
}

/// The NICs whose published partner is the graph's. `None` where a published
/// value contradicts the graph: the constraint would then pick a wrong pair.
fn partners(node: &NodeDevices<'_>, uuid: &str) -> Option<Vec<PciAddress>> {
    let pairs = node.topology.pairs();
    let mut partners = Vec::new();
    for (nic, nic_device) in &node.nics {
        let Some(value) = text(nic_device, uuid) else { continue };
        let Some((gpu, _)) = node.gpus.iter().find(|(_, gpu)| text(gpu, uuid) == Some(value))
        else {
            continue;
        };
        if !pairs.iter().any(|pair| pair.gpu == *gpu && pair.nic == *nic) {
            return None;
        }
        partners.push(*nic);
    }
    Some(partners)
}
