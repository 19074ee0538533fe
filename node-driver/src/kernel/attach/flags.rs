//! Settings that are flags of an interface (`netdevice(7)`).

use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::model::host_link::{Carried, HostLink};
use netlink_packet_route::link::LinkFlags;
use rtnetlink::LinkUnspec;

/// A setting of flags.
pub(super) struct Flags {
    name: &'static str,
    flags: &'static [Flag],
}

struct Flag {
    bit: LinkFlags,
    /// Whether the state has its opposite.
    is_inverse: bool,
    /// The flag in the state.
    of: fn(&mut Carried) -> &mut bool,
}

pub(super) const RECEIVE_ALL: Flags = Flags {
    name: "Promiscuous modes",
    flags: &[
        Flag { bit: LinkFlags::Promisc, is_inverse: false, of: |it| &mut it.promiscuous },
        Flag { bit: LinkFlags::Allmulti, is_inverse: false, of: |it| &mut it.all_multicast },
    ],
};

pub(super) const ARP: Flags = Flags {
    name: "ARP",
    flags: &[Flag { bit: LinkFlags::Noarp, is_inverse: true, of: |it| &mut it.modes.arp }],
};

pub(super) const MULTICAST: Flags = Flags {
    name: "Multicast",
    flags: &[Flag {
        bit: LinkFlags::Multicast,
        is_inverse: false,
        of: |it| &mut it.modes.multicast,
    }],
};

impl Setting for Flags {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        for Flag { bit, is_inverse, of } in self.flags {
            *of(&mut host.carried) = found.link.header.flags.contains(*bit) != *is_inverse;
        }
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(async {
            let mut former = home.former().carried.clone();
            let mut message = LinkUnspec::new_with_index(home.index()).build();
            for Flag { bit, is_inverse, of } in self.flags {
                let was_set = *of(&mut former) != *is_inverse;
                if was_set != home.found.header.flags.contains(*bit) {
                    message.header.flags.set(*bit, was_set);
                    message.header.change_mask |= *bit;
                }
            }
            if message.header.change_mask.is_empty() {
                return Vec::new();
            }
            vec![home.set(message, "restore its modes").await]
        })
    }
}
