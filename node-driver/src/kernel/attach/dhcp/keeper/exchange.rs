//! Replaces one lease by another on an interface that is in use.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::addresses::{add_address, del_address};
use crate::kernel::attach::dhcp::{Given, Lease, set};
use crate::kernel::attach::routes::del_route;
use crate::kernel::attach::rules::del_rule;
use crate::model::plan::PlannedLink;
use rtnetlink::Handle;

/// Prefix length of a network with a single address.
const ALONE: u8 = 32;

/// Applies the new lease, and removes what only the old one gave.
///
/// The interface always keeps an address, because its routes and neighbours are removed
/// with the last one. An address in the network of another is secondary and is removed
/// with it (`promote_secondaries`), so the new address is in a separate network until the
/// old one is gone.
pub(super) async fn exchange(
    handle: &Handle,
    link: &PlannedLink,
    index: u32,
    [was, is]: [&Lease; 2],
) -> Result<(), AttachError> {
    let name = link.name.as_str();
    let mut alone = is.address();
    (alone.prefix.prefix_len, alone.broadcast) = (ALONE, None);
    let is_other = was.prefix != is.prefix;
    if is_other {
        add_address(handle, name, index, &alone).await?;
        del_address(handle, name, index, was.prefix).await?;
    }
    set(handle, link, index, is).await?;
    if is_other && alone.prefix != is.prefix {
        del_address(handle, name, index, alone.prefix).await?;
    }
    let now = Given::read(handle, link, index, is).await?;
    let before = Given::read(handle, link, index, was).await?;
    for rule in before.rules.iter().filter(|rule| !now.rules.contains(rule)) {
        del_rule(handle, name, rule).await?;
    }
    for old in &before.routes {
        let place = (old.destination, old.table);
        if now.routes.iter().all(|route| (route.destination, route.table) != place) {
            del_route(handle, name, index, old).await?;
        }
    }
    Ok(())
}
