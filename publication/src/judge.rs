//! Whether pods can get a NIC: as what, or why not. [`judge`] is the only judge; all it needs to know is in
//! the [`NicState`] and the [`Rules`]. Pure.
//!
//! A reason to withhold a NIC is a variant of [`WithheldReason`], an arm of `judge`, in the order of the
//! table in `docs/reference/attributes.md`, and a row there.

use crate::filter::Filter;
use crate::health::taint::TaintArgs;
use crate::network::Withheld;
use crate::nic::{NicState, OtherFunction, device_name, holder};
use crate::sharing::{Shares, SharingArgs};
use cluster_model::names::MANAGEMENT_TAINT;
use k8s_openapi::api::resource::v1::DeviceTaint;
use serde::Serialize;
use std::fmt;
use topology_graph::NicRole;

/// The taint that has pods evicted whose NIC's driver is to be replaced.
pub const VENDOR_DRIVER_TAINT: &str = "dranet.io/vendor-driver";

/// What the operator wants of NICs. The default gives out every NIC that the host can give, without
/// taints.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Which NICs are published.
    pub filter: Filter,
    /// What NICs are for. Like the rails, it sees the attributes that follow from the facts alone.
    pub nic_role: Filter,
    /// The rails of compute NICs.
    pub nic_rail: Filter,
    /// Which NICs claims can share.
    pub sharing: SharingArgs,
    /// How pods get compute NICs.
    pub bind_nics: BindNics,
    /// The taints of NICs with problems; `None` if NICs get no taints at all.
    pub taints: Option<TaintArgs>,
    /// Each port is given out once: whoever has a physical function controls its virtual functions, and
    /// both have one link.
    pub one_function_per_port: bool,
    /// A NIC has an interface or an RDMA device, which a description of a machine may leave out.
    pub something_to_give: bool,
}

impl Rules {
    /// Whether places stand for the compute NICs.
    pub(crate) fn is_late(&self) -> bool {
        self.bind_nics == BindNics::Late
    }
}

/// How pods get the compute NICs of this node.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindNics {
    /// The scheduler chooses each NIC by its name.
    #[default]
    Named,
    /// The scheduler counts NICs, and the driver chooses those near the GPUs that a device plugin has
    /// given the pod.
    Late,
}

/// What is decided about a NIC.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Pods can get it.
    Given(Given),
    /// They cannot.
    Withheld(WithheldReason),
}

/// How pods can get a NIC.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    /// The capacities that claims divide, if they can share it.
    pub sharing: Option<Shares>,
    /// What keeps pods away from it.
    pub taints: Vec<DeviceTaint>,
    /// A place stands for it.
    pub late: bool,
}

/// Judges a NIC.
pub fn judge(nic: &NicState, rules: &Rules) -> Verdict {
    let NicState { function, kept, lag, now, .. } = nic;
    let own = nic.address();
    let other = now.other_function.as_ref().filter(|_| rules.one_function_per_port);
    Verdict::Withheld(match (function, kept, lag) {
        (Some(function), ..) if function.driver.is_none() => {
            WithheldReason::Unbound { is_virtual: function.physical_function.is_some() }
        }
        (Some(function), ..) if let Some(driver) = holder(function) => {
            WithheldReason::Reserved { driver: driver.clone() }
        }
        (_, Some(kept), _) => WithheldReason::Host(kept.reason.clone()),
        (_, _, Some(lag)) if own != Some(lag.first) => WithheldReason::PortOfBond {
            bond: lag.bond.name.clone(),
            first: device_name(lag.first),
        },
        _ if now.is_not_ready => WithheldReason::NotReady,
        _ if now.is_dropped => WithheldReason::Filter,
        _ if rules.something_to_give && is_bare(nic) => WithheldReason::NothingToGive,
        _ if let Some(other) = other => other.clone().into(),
        _ if now.driver_is_loading => WithheldReason::VendorDriver,
        _ => return Verdict::Given(given(nic, rules)),
    })
}

fn given(nic: &NicState, rules: &Rules) -> Given {
    let is_late = rules.is_late();
    Given {
        // A NIC that is bound late is for one pod.
        sharing: if is_late { None } else { rules.sharing.shares(nic) },
        taints: rules.taints.map(|effects| taints(nic, effects)).unwrap_or_default(),
        late: is_late && nic.is_compute(),
    }
}

/// The taints of a NIC that pods must not have, that has problems, or that its pods must give back.
fn taints(nic: &NicState, effects: TaintArgs) -> Vec<DeviceTaint> {
    let is_management = nic.role == Some(NicRole::Management);
    let management = is_management.then(|| taint(MANAGEMENT_TAINT, "NoSchedule"));
    let awaited = nic.now.driver_is_awaited.then(|| taint(VENDOR_DRIVER_TAINT, "NoExecute"));
    management.into_iter().chain(effects.taints(&nic.now.problems)).chain(awaited).collect()
}

fn taint(key: &str, effect: &str) -> DeviceTaint {
    DeviceTaint { key: key.to_owned(), effect: effect.to_owned(), ..DeviceTaint::default() }
}

/// Whether a pod would get nothing of a function: the host has neither an interface nor an RDMA device of
/// it. If a pod has the NIC, these are the pod's.
fn is_bare(nic: &NicState) -> bool {
    nic.function.is_some()
        && nic.rdma.is_none()
        && nic.netdev.is_none()
        && nic.now.holding.is_none()
}

/// Something that could be a NIC of pods and is not published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WithheldNic {
    /// The name that the device would have in a slice.
    pub name: String,
    /// Its network interface, if the host has that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Why.
    #[serde(serialize_with = "text")]
    pub reason: WithheldReason,
}

/// Why a NIC is not published. Each reason says what to do, because an operator sees only that a NIC is
/// missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WithheldReason {
    /// No driver is bound to the function.
    Unbound {
        /// Whether it is a virtual function.
        is_virtual: bool,
    },
    /// A driver reserves it for a virtual machine or a program.
    Reserved {
        /// The driver.
        driver: String,
    },
    /// The host itself uses it, or the operator keeps it for the host.
    Host(Withheld),
    /// Its port is one of a bond that is published as one NIC.
    PortOfBond {
        /// The bond's interface.
        bond: String,
        /// The function that is published, as a device in a slice.
        first: String,
    },
    /// Its virtual functions are being created, or it is one of them.
    NotReady,
    /// The filter drops it.
    Filter,
    /// It has neither an interface nor an RDMA device that the host could give.
    NothingToGive,
    /// It is a physical function whose virtual functions are given out.
    HasVirtualFunctions {
        /// One of them, as a device in a slice.
        function: String,
    },
    /// It is a virtual function, and a pod has its physical function.
    PhysicalFunctionInPod {
        /// The physical function, as a device in a slice.
        physical: String,
    },
    /// Its driver is being loaded from a vendor's container.
    VendorDriver,
}

impl From<OtherFunction> for WithheldReason {
    fn from(other: OtherFunction) -> Self {
        match other {
            OtherFunction::Virtual(function) => Self::HasVirtualFunctions { function },
            OtherFunction::Physical(physical) => Self::PhysicalFunctionInPod { physical },
        }
    }
}

impl WithheldNic {
    pub(crate) fn new(nic: &NicState, reason: WithheldReason) -> Self {
        let interface = match (&nic.kept, &reason) {
            (Some(kept), WithheldReason::Host(_)) => kept.interface.as_deref(),
            _ if reason.turn() == 0 => nic.interface.as_ref().map(|it| it.name.as_str()),
            _ => nic.own_interface().map(|it| it.name.as_str()),
        };
        Self { name: nic.name.clone(), interface: interface.map(str::to_owned), reason }
    }
}

impl WithheldReason {
    /// The reason in metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unbound { .. } => "no-driver",
            Self::Reserved { .. } => "reserved",
            Self::Host(Withheld::Uplink) => "uplink",
            Self::Host(Withheld::EarlierUplink) => "earlier-uplink",
            Self::Host(Withheld::Member(_)) => "member",
            Self::Host(Withheld::Below(_)) => "below-another",
            Self::Host(Withheld::OfOthers) => "routes-pods",
            Self::Host(Withheld::SwitchPort) => "switch-port",
            Self::Host(Withheld::Operator) => "host-nic",
            Self::PortOfBond { .. } => "port-of-bond",
            Self::NotReady => "not-ready",
            Self::Filter => "filter",
            Self::NothingToGive => "nothing-to-give",
            Self::HasVirtualFunctions { .. } => "has-virtual-functions",
            Self::PhysicalFunctionInPod { .. } => "physical-function-in-pod",
            Self::VendorDriver => "vendor-driver",
        }
    }

    /// Whether the host, the operator or another function needs it, so that nobody has to do anything.
    pub(crate) fn is_expected(&self) -> bool {
        !matches!(
            self,
            Self::Unbound { .. } | Self::NothingToGive | Self::NotReady | Self::VendorDriver
        )
    }

    /// Its turn among the reasons that are listed: first those that follow from the machine alone, whatever
    /// the operator wants and pods have.
    pub(crate) fn turn(&self) -> u8 {
        match self {
            Self::Unbound { .. }
            | Self::Reserved { .. }
            | Self::Host(_)
            | Self::PortOfBond { .. } => 0,
            Self::NotReady => 1,
            Self::Filter => 2,
            Self::NothingToGive => 3,
            Self::HasVirtualFunctions { .. } | Self::PhysicalFunctionInPod { .. } => 4,
            Self::VendorDriver => 5,
        }
    }
}

impl fmt::Display for WithheldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(reason) => reason.fmt(f),
            Self::Unbound { is_virtual: false } => {
                f.write_str("no kernel driver is bound to it; bind one, or load its module")
            }
            Self::Unbound { is_virtual: true } => f.write_str(
                "no kernel driver is bound to this virtual function; set sriov_drivers_autoprobe of \
                 its physical function to 1 before it is created, or bind a driver",
            ),
            Self::Reserved { driver } => {
                write!(f, "driver `{driver}` reserves it for a virtual machine or a program")
            }
            Self::HasVirtualFunctions { function } => write!(
                f,
                "it has virtual functions, among them `{function}`, and whoever has it controls \
                 them; remove them to give it out whole"
            ),
            Self::PhysicalFunctionInPod { physical } => {
                write!(f, "a pod has its physical function `{physical}`")
            }
            Self::PortOfBond { bond, first } => write!(
                f,
                "its port is one of `{bond}`, which is one NIC with one RDMA device: `{first}`"
            ),
            Self::NothingToGive => f.write_str(
                "the host has neither a network interface nor an RDMA device of it; load the module \
                 for RDMA, or look for what has moved them",
            ),
            Self::NotReady => f.write_str("its virtual functions are being created"),
            Self::VendorDriver => f.write_str("its driver is being loaded from a container"),
            Self::Filter => f.write_str("--filter drops it"),
        }
    }
}

/// Serializes the reason as text for people.
fn text<S: serde::Serializer>(reason: &WithheldReason, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(reason)
}

#[cfg(test)]
mod tests;
