//! Pods that leave: what they use is free then, and so are the devices of their claims.

use super::nodes::BoundPod;
use super::{Ask, Nodes, PodKey, Room};
use crate::view::ObjectKey;
use dra_allocator::ClaimName;
use std::sync::Arc;

impl Room<'_> {
    /// The same when these claims have given back their devices, and their pods have ended. A device
    /// that claims share is free when all of them have left.
    #[must_use]
    pub fn without(&self, leaving: &[&ClaimName]) -> Self {
        let mut room = self.clone();
        for claim in leaving {
            room.gone.insert((*claim).clone());
            let key =
                ObjectKey { namespace: claim.namespace.to_string(), name: claim.name.to_string() };
            let pod = self.view.claim(&key).and_then(|known| known.pod.as_ref());
            let namespace = Arc::clone(&claim.namespace);
            room.left.extend(pod.map(|(name, _)| PodKey { namespace, name: name.as_str().into() }));
        }
        for claim in leaving {
            room.release(claim);
        }
        room
    }

    /// A pod leaves its node. A claim that other pods use as well keeps its devices.
    pub fn let_leave(&mut self, node: &str, pod: &PodKey) {
        if !self.left.insert(pod.clone()) {
            return;
        }
        for (claim, is_made) in self.nodes.claims_of(node, pod) {
            if is_made || !self.is_used(&claim) {
                self.gone.insert(claim.clone());
                self.release(&claim);
            }
        }
    }

    /// A pod that was to leave stays.
    pub fn let_stay(&mut self, node: &str, pod: &PodKey) {
        if !self.left.remove(pod) {
            return;
        }
        let inventory = self.view.inventory();
        for (claim, _) in self.nodes.claims_of(node, pod) {
            if self.gone.remove(&claim) {
                for device in inventory.held_by(&claim) {
                    self.state.put_back(device, inventory.state());
                }
            }
        }
    }

    /// Frees the devices of a claim that has left, but for those that others share.
    fn release(&mut self, claim: &ClaimName) {
        let inventory = self.view.inventory();
        for device in inventory.held_by(claim) {
            if inventory.holders(device).iter().all(|holder| self.gone.contains(holder)) {
                self.state.remove(device);
            }
        }
    }

    /// Whether a pod that has not left names this claim, or one that waits.
    fn is_used(&self, claim: &ClaimName) -> bool {
        let mut bound = self.nodes.pods();
        let mut waiting = self.nodes.waiting();
        bound.any(|(_, key, pod)| {
            let devices = pod.devices.as_deref().filter(|_| *key.namespace == *claim.namespace);
            let mut named = devices.into_iter().flat_map(|(_, ask)| ask.named_claims());
            named.any(|name| *name == *claim.name) && !self.has_left(key)
        }) || waiting.any(|(key, pod)| {
            *key.namespace == *claim.namespace && pod.claims.iter().any(|name| *name == *claim.name)
        })
    }

    /// Whether a pod counts no more for another: it has left, or gives way.
    pub(super) fn is_away(&self, key: &PodKey, pod: &BoundPod, for_pod: &Ask) -> bool {
        self.has_left(key) || for_pod.gives_way_below.is_some_and(|below| pod.is_below(below))
    }

    fn has_left(&self, pod: &PodKey) -> bool {
        !self.left.is_empty() && self.left.contains(pod)
    }
}

impl Nodes {
    /// What a pod on a node asks for, if it has devices and can be created again elsewhere: not if it
    /// names a claim that exists.
    pub fn movable_kind(&self, node: &str, pod: &PodKey) -> Option<&Arc<Ask>> {
        let (_, ask) = self.get(node)?.pod(pod)?.devices.as_deref()?;
        ask.named_claims().next().is_none().then_some(ask)
    }

    /// The claims of a pod on a node, and whether each was created for it alone.
    pub fn claims_of<'n>(
        &'n self,
        node: &str,
        pod: &'n PodKey,
    ) -> impl Iterator<Item = (ClaimName, bool)> + use<'n> {
        let bound = self.get(node).and_then(|info| info.pod(pod));
        bound.and_then(|bound| bound.devices.as_deref()).into_iter().flat_map(|(made, ask)| {
            let made = made.iter().map(|name| (name.as_str(), true));
            let all = made.chain(ask.named_claims().map(|name| (name, false)));
            all.map(|(name, is_made)| (ClaimName::new(Arc::clone(&pod.namespace), name), is_made))
        })
    }
}
