//! Settings that are attributes of an interface's message (`rtnetlink(7)`).

use crate::kernel::attach::link::{properties, set_attributes};
use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::model::host_link::HostLink;
use cluster_model::network_config::MacAddress;
use netlink_packet_route::link::LinkAttribute;

/// A setting of attributes.
pub(super) struct Attributes {
    name: &'static str,
    /// Takes what belongs to it.
    read: fn(&LinkAttribute, &mut HostLink),
    /// The attributes of the former state, in the order in which they are set.
    former: fn(&HostLink) -> Vec<LinkAttribute>,
}

pub(super) const ALIAS: Attributes = Attributes {
    name: "Alias",
    read: |attribute, host| {
        if let LinkAttribute::IfAlias(text) = attribute {
            host.carried.alias = Some(text.clone());
        }
    },
    former: |host| vec![LinkAttribute::IfAlias(host.carried.alias.clone().unwrap_or_default())],
};

pub(super) const QUEUE_LENGTH: Attributes = Attributes {
    name: "Queue length",
    read: |attribute, host| {
        if let LinkAttribute::TxQueueLen(length) = attribute {
            host.carried.queue_length = *length;
        }
    },
    former: |host| vec![LinkAttribute::TxQueueLen(host.carried.queue_length)],
};

pub(super) const GROUP: Attributes = Attributes {
    name: "Group",
    read: |attribute, host| {
        if let LinkAttribute::Group(group) = attribute {
            host.carried.group = *group;
        }
    },
    former: |host| vec![LinkAttribute::Group(host.carried.group)],
};

pub(super) const LINK_MODE: Attributes = Attributes {
    name: "Link mode",
    read: |attribute, host| {
        if let LinkAttribute::Mode(mode) = attribute {
            host.carried.modes.link_mode = (*mode).into();
        }
    },
    former: |host| vec![LinkAttribute::Mode(host.carried.modes.link_mode.into())],
};

pub(super) const BROADCAST: Attributes = Attributes {
    name: "Broadcast address",
    read: |attribute, host| {
        if let LinkAttribute::Broadcast(bytes) = attribute {
            host.carried.modes.broadcast = MacAddress::from_bytes(bytes);
        }
    },
    former: |host| {
        let address = host.carried.modes.broadcast.iter();
        address.map(|it| LinkAttribute::Broadcast(it.bytes().to_vec())).collect()
    },
};

pub(super) const SEGMENTS: Attributes = Attributes {
    name: "Number of segments",
    read: |attribute, host| {
        if let LinkAttribute::GsoMaxSegs(number) = attribute {
            host.carried.modes.segments = Some(*number);
        }
    },
    former: |host| host.carried.modes.segments.map(LinkAttribute::GsoMaxSegs).into_iter().collect(),
};

pub(super) const MTU: Attributes = Attributes {
    name: "MTU",
    read: |attribute, host| {
        if let LinkAttribute::Mtu(mtu) = attribute {
            host.mtu = *mtu;
        }
    },
    former: |host| vec![LinkAttribute::Mtu(host.mtu)],
};

pub(super) const HARDWARE_ADDRESS: Attributes = Attributes {
    name: "Hardware address",
    read: |attribute, host| {
        if let LinkAttribute::Address(bytes) = attribute {
            host.hardware_addr = MacAddress::from_bytes(bytes);
        }
    },
    former: |host| {
        let address = host.hardware_addr.iter();
        address.map(|it| LinkAttribute::Address(it.bytes().to_vec())).collect()
    },
};

pub(super) const SEGMENT_SIZES: Attributes = Attributes {
    name: "Segment sizes",
    read: |attribute, HostLink { sizes, .. }| match attribute {
        LinkAttribute::GsoMaxSize(size) => sizes.gso = Some(*size),
        LinkAttribute::GroMaxSize(size) => sizes.gro = Some(*size),
        LinkAttribute::GsoIpv4MaxSize(size) => sizes.gso_ipv4 = Some(*size),
        LinkAttribute::GroIpv4MaxSize(size) => sizes.gro_ipv4 = Some(*size),
        _ => {}
    },
    former: |host| properties(None, None, host.sizes).collect(),
};

impl Setting for Attributes {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        for attribute in &found.link.attributes {
            (self.read)(attribute, host);
        }
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        let former = (self.former)(home.former());
        let former = former.into_iter().filter(|it| !is_absent(it, &home.found.attributes));
        Box::pin(set_attributes(home.handle, home.name(), home.found, former))
    }
}

/// Whether it is an empty alias, and the interface has none.
fn is_absent(attribute: &LinkAttribute, found: &[LinkAttribute]) -> bool {
    matches!(attribute, LinkAttribute::IfAlias(text) if text.is_empty())
        && !found.iter().any(|it| matches!(it, LinkAttribute::IfAlias(_)))
}
