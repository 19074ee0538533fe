//! Pods that are bound and evicted later: taints with the effect `NoExecute` that are tolerated for a
//! time only.

use super::node_facts::NO_EXECUTE;
use super::nodes::NodeInfo;
use super::{Ask, NodeFacts, Room};
use dra_allocator::{ClaimAllocation, Device, DeviceId, DeviceResult};
use std::fmt;

/// The end of a pod after it is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// For how many seconds the taint is tolerated: that of a device since it was added, that of a node
    /// since the pod was bound.
    pub seconds: i64,
    /// The key of the taint.
    pub taint: Box<str>,
    /// The device that has it; `None` if the node has it.
    pub device: Option<DeviceId>,
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seconds, taint, device } = self;
        match device {
            Some(device) => write!(
                f,
                "it is bound and then evicted: device {} has the taint {taint}:{NO_EXECUTE}, which its \
                 claim tolerates for {seconds} s after the taint was added",
                device.device
            ),
            None => write!(
                f,
                "it is bound and then evicted: the node has the taint {taint}:{NO_EXECUTE}, which the \
                 pod tolerates for {seconds} s"
            ),
        }
    }
}

impl Room<'_> {
    /// Whether a pod that gets these devices of a node is evicted there, and after the shortest time.
    pub fn eviction(
        &self,
        node: &str,
        ask: &Ask,
        allocations: &[ClaimAllocation],
    ) -> Option<Eviction> {
        let facts = self.nodes.get(node).and_then(NodeInfo::facts);
        let of_node = facts.and_then(|facts| of_node(facts, ask));
        let devices = self.view.inventory().devices_on(node, self.view.settings());
        let devices = devices.unwrap_or_default();
        let results = allocations.iter().flat_map(|allocation| &allocation.results);
        let of_devices = results.filter_map(|result| {
            let device = devices.iter().find(|device| *device.id() == result.device)?;
            of_device(device, result)
        });
        of_devices.chain(of_node).min_by_key(|eviction| eviction.seconds)
    }
}

fn of_node(facts: &NodeFacts, ask: &Ask) -> Option<Eviction> {
    let (taint, seconds) = facts.tolerated_for(&ask.tolerations)?;
    Some(Eviction { seconds, taint: taint.into(), device: None })
}

/// As `claimEvictionTime` in `pkg/controller/devicetainteviction`: only tolerations with this very effect
/// count, although one without an effect lets the scheduler allocate the device.
fn of_device(device: &Device, result: &DeviceResult) -> Option<Eviction> {
    let evicting = device.taints().iter().filter(|taint| &*taint.effect == NO_EXECUTE);
    let ends = evicting.filter_map(|taint| {
        let own = result.tolerations.iter();
        let own = own.filter(|it| &*it.effect == NO_EXECUTE && it.tolerates(taint));
        let mut seconds = own.map(|it| it.seconds).peekable();
        if seconds.peek().is_none() {
            return Some((0, taint));
        }
        // A toleration without a time is for ever.
        let seconds: Option<Vec<i64>> = seconds.collect();
        Some((seconds?.into_iter().min()?.max(0), taint))
    });
    let (seconds, taint) = ends.min_by_key(|(seconds, _)| *seconds)?;
    Some(Eviction { seconds, taint: (&*taint.key).into(), device: Some(device.id().clone()) })
}
