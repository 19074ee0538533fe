//! Network interfaces without a device, as upstream publishes them.

use super::{Slot, slots};
use cluster_model::names::attribute::dranet;

/// The table.
pub(super) const SLOTS: &[Slot] = &[
    Slot { name: dranet::IF_NAME, value: slots::if_name },
    Slot { name: dranet::MAC, value: slots::mac },
    Slot { name: dranet::MTU, value: slots::mtu },
    Slot { name: dranet::ENCAPSULATION, value: slots::encapsulation },
    Slot { name: dranet::ALIAS, value: slots::alias },
    Slot { name: dranet::STATE, value: slots::state },
    Slot { name: dranet::TYPE, value: slots::link_type },
    Slot { name: dranet::IPV4, value: slots::ipv4 },
    Slot { name: dranet::IPV6, value: slots::ipv6 },
    Slot { name: dranet::VIRTUAL, value: slots::virtual_interface },
    Slot { name: dranet::RDMA, value: slots::rdma },
];
