//! Whether an interface is set up.

use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::model::host_link::HostLink;
use netlink_packet_route::link::LinkFlags;
use rtnetlink::LinkUnspec;

/// The state that an administrator sets. An interface comes back down.
pub(super) struct Up;

impl Setting for Up {
    fn name(&self) -> &'static str {
        "Link state"
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        host.up = found.link.header.flags.contains(LinkFlags::Up);
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(async {
            if !home.former().up {
                return Vec::new();
            }
            let message = LinkUnspec::new_with_index(home.index()).up().build();
            vec![home.set(message, "set it up").await]
        })
    }
}
