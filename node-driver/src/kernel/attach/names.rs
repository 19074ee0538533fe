//! An interface's name and its alternative names (`ip link property`). An alternative name must be
//! unique in a namespace like a name, so those in conflict are removed before an interface moves
//! (`__dev_change_net_namespace` in `net/core/dev.c`).

use crate::kernel::attach::AttachError;
use crate::kernel::attach::identity::{alternative_names, name_of};
use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::model::host_link::HostLink;
use netlink_packet_route::link::LinkMessage;
use rtnetlink::{Handle, LinkUnspec};

/// The name. Alternative names that a pod added are removed before it is restored: one of them may be the
/// same.
pub(super) struct Name;

/// The alternative names that the host's interface had.
pub(super) struct AlternativeNames;

impl Setting for Name {
    fn name(&self) -> &'static str {
        "Name"
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        found.name().clone_into(&mut host.name);
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(async {
            let added = added_names(home.former(), home.found);
            vec![remove_names(home.handle, home.found, &added).await, rename(home).await]
        })
    }
}

async fn rename(home: &Home<'_>) -> Result<(), AttachError> {
    if name_of(home.found) == home.name() {
        return Ok(());
    }
    let message = LinkUnspec::new_with_index(home.index()).down().name(home.name()).build();
    let renamed = home.handle.link().set(message).execute().await;
    renamed.map_err(|source| {
        let verb = format!("rename it to `{}`", home.name());
        AttachError::netlink(name_of(home.found), verb, source)
    })
}

impl Setting for AlternativeNames {
    fn name(&self) -> &'static str {
        "Alternative names"
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        let names = alternative_names(found.link).into_iter();
        host.carried.alternative_names = names.map(str::to_owned).collect();
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(async {
            let now = alternative_names(home.found);
            let former = home.former().carried.alternative_names.iter();
            let mut outcomes = Vec::new();
            for lost in former.filter(|name| !now.contains(name.as_str())) {
                let request = home.handle.link().property_add(home.index()).alt_ifname(&[lost]);
                let added = request.execute().await;
                outcomes.push(added.map_err(|source| {
                    let verb = format!("add its alternative name `{lost}`");
                    AttachError::netlink(home.name(), verb, source)
                }));
            }
            outcomes
        })
    }
}

/// Removes alternative names of an interface.
pub(super) async fn remove_names(
    handle: &Handle,
    link: &LinkMessage,
    names: &[&str],
) -> Result<(), AttachError> {
    let mut removed = Ok(());
    for name in names {
        let request = handle.link().property_del(link.header.index).alt_ifname(&[name]);
        let outcome = request.execute().await;
        let outcome = outcome.map_err(|it| {
            AttachError::netlink(name_of(link), format!("remove its alternative name `{name}`"), it)
        });
        removed = removed.and(outcome);
    }
    removed
}

/// The alternative names that the host's interface did not have.
pub(super) fn added_names<'l>(former: &HostLink, link: &'l LinkMessage) -> Vec<&'l str> {
    let names = alternative_names(link).into_iter();
    names.filter(|name| !former.carried.alternative_names.contains(*name)).collect()
}
