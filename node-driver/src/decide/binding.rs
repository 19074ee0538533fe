//! Whether a node binds its NICs by name or late: as it is set to, but never under pods that have got
//! NICs the other way. Pure.
//!
//! The scheduler must go on seeing what running pods hold, and claims that it has allocated must be
//! prepared as it meant them. So a node whose setting changes keeps its way until no claim holds a NIC
//! by it. The claims' own records say which way that is, so a restart changes nothing.

use crate::facts::held::GivenNics;
use publication::judge::BindNics;
use publication::nic::NicState;
use topology_graph::HostCondition;

/// Whether the node binds its NICs as it is set to.
pub(crate) const AS_SET: &str = "NICsBoundAsSet";

/// How a node binds its NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    /// The way that it publishes.
    pub(crate) now: BindNics,
    /// The way that flags and labels say.
    pub(crate) wanted: BindNics,
}

impl Binding {
    /// Decides. `before` is the way at the last look; `None` at the first. `given` is what claims hold
    /// of these NICs; `None` if that cannot be read, and then nothing changes.
    pub(crate) fn decide<'n>(
        before: Option<BindNics>,
        wanted: BindNics,
        given: Option<&GivenNics>,
        nics: impl Iterator<Item = &'n NicState>,
    ) -> Self {
        let mut compute = nics.filter(|nic| nic.is_compute());
        let named = given.map(|given| compute.any(|nic| given.named.contains(&nic.name)));
        let is_held = |way: BindNics| match (way, given) {
            (BindNics::Late, Some(given)) => !given.places.is_empty(),
            (BindNics::Named, Some(_)) => named == Some(true),
            (_, None) => before.is_some(),
        };
        let other = match wanted {
            BindNics::Late => BindNics::Named,
            BindNics::Named => BindNics::Late,
        };
        let stays = match before {
            Some(before) => before == other && is_held(other),
            // After a restart, claims of both ways say that the change had been made.
            None => is_held(other) && !is_held(wanted),
        };
        Self { now: if stays { other } else { wanted }, wanted }
    }

    /// What is said of it; nothing on a node that has only named NICs.
    pub(crate) fn condition(self) -> Option<HostCondition> {
        let Self { now, wanted } = self;
        let (reason, message) = match (now, wanted) {
            (BindNics::Named, BindNics::Named) => return None,
            (BindNics::Late, BindNics::Late) => ("AsSet", ""),
            (BindNics::Named, BindNics::Late) => (
                "PodsHaveNICs",
                "it is set to bind NICs late and still binds them by name, until the pods that have NICs \
                 have ended; drain it to change it at once",
            ),
            (BindNics::Late, BindNics::Named) => (
                "PodsHaveNICs",
                "it is set to bind NICs by name and still binds them late, until the pods that have NICs \
                 have ended; drain it to change it at once",
            ),
        };
        Some(HostCondition {
            kind: AS_SET,
            holds: now == wanted,
            reason,
            message: message.to_owned(),
            entries: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use publication::decision::decide;
    use publication::live::facts;

    /// A compute NIC of the machine, and something that is none.
    const NIC: &str = "pci-0101-00-00-0";
    const OTHER: &str = "pci-0001-00-00-0";

    fn given(named: &[&str], places: &[(&str, &str)]) -> GivenNics {
        GivenNics {
            named: named.iter().map(|name| (*name).to_owned()).collect(),
            places: places.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
        }
    }

    #[test]
    fn a_node_changes_when_no_claim_holds_a_nic_the_other_way() {
        use BindNics::{Late, Named};
        let nics = decide(&facts("aks-gb300")).nics;
        let (none, named) = (given(&[], &[]), given(&[NIC], &[]));
        let (late, both) = (given(&[], &[("late-0", NIC)]), given(&[NIC], &[("late-1", OTHER)]));
        for (before, wanted, given, expected) in [
            (None, Late, Some(&none), Late),
            (None, Late, Some(&named), Named),
            (None, Late, Some(&late), Late),
            (None, Late, Some(&both), Late),
            (None, Late, None, Late),
            (None, Named, Some(&late), Late),
            (None, Named, Some(&named), Named),
            (None, Named, Some(&both), Named),
            (Some(Named), Late, Some(&named), Named),
            (Some(Named), Late, Some(&both), Named),
            (Some(Named), Late, Some(&given(&[OTHER], &[])), Late),
            (Some(Named), Late, Some(&none), Late),
            (Some(Named), Late, None, Named),
            (Some(Late), Named, Some(&late), Late),
            (Some(Late), Named, Some(&named), Named),
            (Some(Late), Named, None, Late),
            // A claim that was allocated by name before the change is prepared after it.
            (Some(Late), Late, Some(&named), Late),
            (Some(Named), Named, Some(&late), Named),
        ] {
            let now = Binding::decide(before, wanted, given, nics.iter()).now;
            assert_eq!(now, expected, "{before:?}, set to {wanted:?}, {given:?}");
        }
    }

    #[test]
    fn what_waits_is_said() {
        use BindNics::{Late, Named};
        let line = |now, wanted| {
            let condition = Binding { now, wanted }.condition()?;
            Some(format!("{} {} {}", condition.holds, condition.reason, condition.message))
        };
        assert_eq!(line(Named, Named), None);
        assert_eq!(line(Late, Late).as_deref(), Some("true AsSet "));
        let waits = [line(Named, Late).unwrap(), line(Late, Named).unwrap()];
        assert!(waits.iter().all(|it| it.starts_with("false PodsHaveNICs it is set to bind")));
    }
}
