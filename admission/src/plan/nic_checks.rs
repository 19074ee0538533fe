//! Denies pods to which no NICs of a driver can be given.

use crate::denial::Denial;
use crate::intent::Intent;
use cluster_model::machines::Machine;
use cluster_model::names::{annotation, attribute};
use cluster_model::nic_drivers::NicDriver;
use cluster_model::node_devices::text;
use std::collections::BTreeSet;
use topology_graph::{NicRole, PciAddress};

/// Drops machines on which a claim could take NICs of another role: those with such a NIC whose bus ID
/// is not published, or is that of a NIC of the wanted role on another machine.
pub(super) fn keep_distinct(
    intent: &Intent,
    driver: &NicDriver,
    machines: &mut Vec<Machine<'_>>,
) -> Result<(), Denial> {
    let wanted: BTreeSet<PciAddress> =
        machines.iter().flat_map(|machine| machine.devices.nics.keys().copied()).collect();
    machines.retain(|machine| {
        machine.other_nics.iter().all(|(address, nic)| {
            text(nic, attribute::PCI_BUS_ID).is_some() && !wanted.contains(address)
        })
    });
    if machines.is_empty() {
        return Err(intent.deny(format!(
            "driver {} publishes NICs of several roles, and nothing by which a claim can tell them \
             apart; set {} to a DeviceClass that selects compute NICs only",
            driver.driver,
            annotation::NIC_CLASS
        )));
    }
    Ok(())
}

/// Denies what only this project's driver can do.
pub(super) fn check_driver(intent: &Intent, driver: &NicDriver) -> Result<(), Denial> {
    if driver.is_ours() {
        return Ok(());
    }
    let (name, value, what) = if intent.nic_role != NicRole::Compute {
        (annotation::NIC_ROLE, intent.nic_role.to_string(), "publishes the roles of NICs")
    } else if let Some(config) = &intent.wishes.nic_config {
        (annotation::NIC_CONFIG, config.json().to_owned(), "reads this configuration")
    } else {
        return Ok(());
    };
    Err(Denial::new(
        name,
        value,
        format!(
            "only dranet's node-driver {what}, and the NICs are those of driver {}",
            driver.driver
        ),
    ))
}
