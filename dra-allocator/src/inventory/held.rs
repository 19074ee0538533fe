//! The devices that claims hold, and the holders of a device.

use crate::hash::HashMap;
use crate::name::{ClaimName, DeviceId};
use crate::state::AllocatedState;
use crate::wire::HeldDevice;

/// The devices that claims hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    claims: HashMap<ClaimName, Vec<HeldDevice>>,
    holders: HashMap<DeviceId, Vec<ClaimName>>,
    state: AllocatedState,
}

impl Held {
    /// Records that a claim now holds exactly these devices.
    pub(super) fn apply(&mut self, claim: ClaimName, held: Vec<HeldDevice>) {
        self.delete(&claim);
        if held.is_empty() {
            return;
        }
        for device in &held {
            self.holders.entry(device.device.clone()).or_default().push(claim.clone());
            hold(&mut self.state, device);
        }
        self.state.settle();
        self.claims.insert(claim, held);
    }

    /// Records that a claim holds nothing.
    pub(super) fn delete(&mut self, claim: &ClaimName) {
        let Some(held) = self.claims.remove(claim) else { return };
        for HeldDevice { device, .. } in &held {
            if let Some(holders) = self.holders.get_mut(device) {
                holders.retain(|holder| holder != claim);
                if holders.is_empty() {
                    self.holders.remove(device);
                }
            }
            self.state.remove(device);
            self.restore(device);
        }
        self.state.settle();
    }

    /// Marks a device again as far as other claims still hold it.
    fn restore(&mut self, device: &DeviceId) {
        for holder in self.holders.get(device).into_iter().flatten() {
            let held = self.claims.get(holder).into_iter().flatten();
            held.filter(|held| held.device == *device).for_each(|held| hold(&mut self.state, held));
        }
    }

    pub(super) fn state(&self) -> &AllocatedState {
        &self.state
    }

    /// The devices that a claim holds.
    pub(super) fn held_by<'h>(
        &'h self,
        claim: &ClaimName,
    ) -> impl Iterator<Item = &'h DeviceId> + use<'h> {
        self.claims.get(claim).into_iter().flatten().map(|held| &held.device)
    }

    /// The claims that hold the device or shares of it.
    pub(super) fn holders(&self, device: &DeviceId) -> &[ClaimName] {
        self.holders.get(device).map(Vec::as_slice).unwrap_or_default()
    }
}

fn hold(state: &mut AllocatedState, held: &HeldDevice) {
    match &held.share {
        Some(consumed) => state.insert_share(held.device.clone(), consumed),
        None => {
            state.insert(held.device.clone());
        }
    }
}
