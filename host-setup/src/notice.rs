//! What people must know about the setup of the host: events on the Node.

use crate::vendor_driver::verdict::reason;
use publication::notice::Notice;
use topology_graph::HostCondition;

/// The event for missing kernel modules, if it differs from the one before. `before` stores it.
pub(crate) fn of_modules(before: &mut String, now: Option<&HostCondition>) -> Option<Notice> {
    let lacking = now.filter(|it| !it.holds);
    let now = lacking.map(|condition| condition.message.clone()).unwrap_or_default();
    let is_new = now != *before && !now.is_empty();
    before.clone_from(&now);
    is_new.then(|| Notice::warning("KernelModulesLacking", &now))
}

/// What is to be said of a vendor's driver where it was something else before, which is
/// remembered.
pub(crate) fn of_vendor_driver(
    before: &mut Option<&'static str>,
    now: Option<&HostCondition>,
) -> Option<Notice> {
    let is_new = now.map(|it| it.reason) != *before;
    *before = now.map(|it| it.reason);
    let HostCondition { reason: of_condition, message, .. } = now.filter(|_| is_new)?;
    match *of_condition {
        reason::LOADED => Some(Notice::normal("VendorDriverLoaded", message)),
        reason::FAILED => Some(Notice::warning("VendorDriverFailed", message)),
        reason::DRAINING => Some(Notice::normal("VendorDriverDraining", message)),
        reason::WAITING => Some(Notice::normal("VendorDriverWaiting", message)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::condition::KERNEL_MODULES;
    use crate::vendor_driver::verdict::VENDOR_DRIVER;

    #[test]
    fn missing_modules_are_reported_once() {
        let condition = |holds, message: &str| HostCondition {
            kind: KERNEL_MODULES,
            holds,
            reason: "Absent",
            message: message.to_owned(),
            entries: vec![],
        };
        let mut before = String::new();
        let mut said =
            |now: &[HostCondition]| of_modules(&mut before, now.first()).map(|notice| notice.note);
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[condition(true, "ib_umad loaded")]), None);
        let lacking = condition(false, "irdma is absent");
        assert_eq!(said(std::slice::from_ref(&lacking)).as_deref(), Some("irdma is absent"));
        assert_eq!(said(std::slice::from_ref(&lacking)), None);
        assert_eq!(said(&[condition(true, "irdma loaded")]), None);
        assert_eq!(said(&[lacking]).as_deref(), Some("irdma is absent"));
    }

    #[test]
    fn each_stage_of_a_vendors_driver_is_told_once() {
        let condition = |reason| HostCondition {
            kind: VENDOR_DRIVER,
            holds: reason == "Loaded",
            reason,
            message: "version 1".to_owned(),
            entries: vec![],
        };
        let mut before = None;
        let mut said = |now: &[HostCondition]| {
            of_vendor_driver(&mut before, now.first()).map(|notice| notice.reason)
        };
        assert_eq!(said(&[]), None);
        assert_eq!(said(&[condition("Expected")]), None);
        assert_eq!(said(&[condition("Waiting")]), Some("VendorDriverWaiting"));
        assert_eq!(said(&[condition("Waiting")]), None);
        assert_eq!(said(&[condition("Draining")]), Some("VendorDriverDraining"));
        assert_eq!(said(&[condition("Failed")]), Some("VendorDriverFailed"));
        assert_eq!(said(&[condition("Loaded")]), Some("VendorDriverLoaded"));
        assert_eq!(said(&[]), None);
    }
}
