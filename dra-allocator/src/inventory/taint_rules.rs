//! `DeviceTaintRules`: taints that an administrator adds to devices of any driver.
//!
//! kube-scheduler sees slices to which a tracker has added these taints
//! (`resourceslice/tracker/tracker.go`). Here too the index holds merged slices, and keeps the
//! published ones beside them.

use std::sync::Arc;

use k8s_openapi::api::resource::v1;
use k8s_openapi::jiff::Timestamp;

use crate::device::{Device, DeviceTaint};
use crate::slice::Slice;
use crate::wire::{self, Interner};

/// A rule that selects devices. A rule without a selector selects none and is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaintRule {
    /// `None` selects every driver.
    driver: Option<Arc<str>>,
    /// `None` selects every pool.
    pool: Option<Arc<str>>,
    /// `None` selects every device.
    device: Option<Arc<str>>,
    taint: DeviceTaint,
    added: Option<Timestamp>,
}

impl TaintRule {
    /// Reads a rule; `None` if it has no selector.
    pub(super) fn new(wire: &v1::DeviceTaintRule, texts: &mut Interner) -> Option<Self> {
        let selector = wire.spec.device_selector.as_ref()?;
        let taint = &wire.spec.taint;
        Some(Self {
            driver: selector.driver.as_ref().map(|driver| texts.text(driver)),
            pool: selector.pool.as_ref().map(|pool| texts.text(pool)),
            device: selector.device.as_ref().map(|device| texts.text(device)),
            taint: wire::taint(taint, texts),
            added: taint.time_added.as_ref().map(|time| time.0),
        })
    }

    /// Whether it selects a device of the slice.
    pub(super) fn concerns(&self, slice: &Slice) -> bool {
        self.driver.as_ref().is_none_or(|driver| *driver == slice.pool.driver)
            && self.pool.as_ref().is_none_or(|pool| *pool == slice.pool.pool)
            && slice.devices.iter().any(|device| self.selects(device))
    }

    fn selects(&self, device: &Device) -> bool {
        self.device.as_ref().is_none_or(|name| *name == device.id.device)
    }
}

/// The slice with the taints of these rules, all of which concern it.
pub(super) fn merged(slice: &Slice, rules: &[&TaintRule], texts: &mut Interner) -> Slice {
    let mut slice = Slice {
        devices: slice
            .devices
            .iter()
            .map(|device| {
                let of_rules = rules.iter().filter(|rule| rule.selects(device));
                let of_rules = of_rules.map(|rule| (rule.taint.clone(), rule.added));
                let own = device.timed_taints().map(|(taint, added)| (taint.clone(), added));
                let is_selected = rules.iter().any(|rule| rule.selects(device));
                if is_selected {
                    device.with_taints(own.chain(of_rules).collect())
                } else {
                    device.clone()
                }
            })
            .collect(),
        ..slice.clone()
    };
    slice.likeness = texts.likeness(&slice);
    slice
}
