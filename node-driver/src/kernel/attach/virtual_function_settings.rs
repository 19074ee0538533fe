//! Settings of a virtual function that its physical function controls: VLAN, trust, spoof
//! check, rates, link state and GUIDs. The kernel keeps them at the physical function's
//! interface (`IFLA_VFINFO_LIST`, `do_setvfinfo` of `net/core/rtnetlink.c`).
//!
//! Each setting is a separate message, so that an error names the setting that the driver
//! does not support.

use crate::kernel::attach::AttachError;
use crate::kernel::attach::identity::{identity, name_of};
use crate::kernel::attach::link::{all, by_name};
use crate::kernel::attach::netns::NetNs;
use crate::model::plan::PlannedFunction;
use cluster_model::network_config::{Guid, LinkState, VirtualFunctionConfig, VlanProto};
use futures::TryStreamExt;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkMessage, LinkVfInfo, VfInfo, VfInfoGuid, VfInfoLinkState,
    VfInfoRate, VfInfoSpoofCheck, VfInfoTrust, VfInfoVlan, VfLinkState, VfVlan, VfVlanInfo,
    VlanProtocol,
};
use rtnetlink::{Handle, LinkUnspec};

/// `EOPNOTSUPP`, and `EPROTONOSUPPORT` for the protocol of a VLAN.
const NOT_SUPPORTED: [i32; 2] = [95, 93];

/// Reads the settings of the virtual function with this number from the physical
/// function's interface with this name; `None` if there is no such interface or function.
pub fn read(
    host: &NetNs,
    link: &str,
    index: u32,
) -> Result<Option<VirtualFunctionConfig>, AttachError> {
    host.run(async |handle| {
        let Some(found) = by_name(&handle, link).await? else { return Ok(None) };
        settings(&handle, &found, index).await
    })
}

/// Sets the requested settings that differ. Calls `told` after each.
pub fn set<'p>(
    host: &NetNs,
    functions: impl Iterator<Item = &'p PlannedFunction> + Send,
    told: &(dyn Fn() + Sync),
) -> Result<(), AttachError> {
    host.run(async |handle| {
        for function in functions {
            let found = physical(&handle, function)
                .await?
                .ok_or_else(|| AttachError::Gone { link: function.link.clone() })?;
            let now = settings(&handle, &found, function.index).await?.unwrap_or_default();
            for (field, info) in changes(function.index, function.asked, now) {
                change(&handle, &found, field, info).await?;
                told();
            }
        }
        Ok(())
    })
}

/// Sets the node and port GUID of each virtual function of an InfiniBand port, in the order of
/// their numbers.
pub fn set_guids(host: &NetNs, link: &str, guids: &[u64]) -> Result<(), AttachError> {
    host.run(async |handle| {
        let found = by_name(&handle, link)
            .await?
            .ok_or_else(|| AttachError::Gone { link: link.to_owned() })?;
        for (index, guid) in (0..).zip(guids) {
            for (name, info) in guids_of(index, *guid) {
                let sent = send(&handle, &found, info).await;
                sent.map_err(|source| {
                    AttachError::netlink(
                        link,
                        format!("set the {name} GUID of virtual function {index}"),
                        source,
                    )
                })?;
            }
        }
        Ok(())
    })
}

/// The messages that give a virtual function a GUID.
fn guids_of(index: u32, guid: u64) -> [(&'static str, VfInfo); 2] {
    let info = VfInfoGuid::new(index, guid);
    [("node", VfInfo::IbNodeGuid(info)), ("port", VfInfo::IbPortGuid(info))]
}

/// Restores the former values of the requested settings. Returns the result for each virtual
/// function, [`AttachError::Gone`] if its physical function is absent. Calls `told` after each
/// setting.
pub fn restore<'p>(
    host: &NetNs,
    functions: impl Iterator<Item = &'p PlannedFunction> + Send,
    told: &(dyn Fn() + Sync),
) -> Result<Vec<Result<(), AttachError>>, AttachError> {
    host.run(async |handle| {
        let mut outcomes = Vec::new();
        for function in functions {
            outcomes.push(restore_one(&handle, function, told).await);
        }
        Ok(outcomes)
    })
}

async fn restore_one(
    handle: &Handle,
    function: &PlannedFunction,
    told: &(dyn Fn() + Sync),
) -> Result<(), AttachError> {
    let found = physical(handle, function)
        .await?
        .ok_or_else(|| AttachError::Gone { link: function.link.clone() })?;
    // A virtual function that no longer exists has nothing to restore.
    let Some(now) = settings(handle, &found, function.index).await? else { return Ok(()) };
    let mut restored = Ok(());
    for (field, info) in changes(function.index, former(function), now) {
        restored = restored.and(change(handle, &found, field, info).await);
        told();
    }
    restored
}

/// The former values of the settings that were changed on request.
fn former(PlannedFunction { asked, former, .. }: &PlannedFunction) -> VirtualFunctionConfig {
    let has_rate = asked.min_tx_rate.is_some() || asked.max_tx_rate.is_some();
    let has_vlan = asked.vlan.is_some();
    VirtualFunctionConfig {
        vlan: former.vlan.filter(|_| has_vlan),
        vlan_qos: former.vlan_qos.filter(|_| has_vlan),
        vlan_proto: former.vlan_proto.filter(|_| has_vlan),
        trust: asked.trust.and(former.trust),
        spoof_check: asked.spoof_check.and(former.spoof_check),
        min_tx_rate: former.min_tx_rate.filter(|_| has_rate),
        max_tx_rate: former.max_tx_rate.filter(|_| has_rate),
        link_state: asked.link_state.and(former.link_state),
        port_guid: asked.port_guid.and(former.port_guid),
    }
}

/// The physical function's interface, even if it was renamed.
async fn physical(
    handle: &Handle,
    function: &PlannedFunction,
) -> Result<Option<LinkMessage>, AttachError> {
    let links = all(handle).await?;
    let mut candidates =
        links.iter().filter(|link| identity(link).parent.as_deref() == Some(&function.physical));
    let named = candidates.clone().find(|link| name_of(link) == function.link);
    Ok(named.or_else(|| candidates.next()).cloned())
}

async fn settings(
    handle: &Handle,
    physical: &LinkMessage,
    index: u32,
) -> Result<Option<VirtualFunctionConfig>, AttachError> {
    let request = handle.link().get().match_index(physical.header.index);
    let request = request.set_filter_mask(AddressFamily::Unspec, vec![LinkExtentMask::Vf]);
    let found = request.execute().try_next().await.map_err(|source| {
        AttachError::netlink(name_of(physical), "read its virtual functions", source)
    })?;
    let attributes = found.map(|found| found.attributes).unwrap_or_default();
    Ok(attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::VfInfoList(functions) => functions
            .iter()
            .map(|LinkVfInfo(infos)| infos)
            .find_map(|infos| function_config(infos, index)),
        _ => None,
    }))
}

/// The settings of one virtual function in the kernel's answer.
fn function_config(infos: &[VfInfo], index: u32) -> Option<VirtualFunctionConfig> {
    let mut settings = VirtualFunctionConfig::default();
    let mut is_it = false;
    for info in infos {
        let number = match info {
            VfInfo::Vlan(it) => {
                settings.vlan = u16::try_from(it.vlan_id).ok();
                settings.vlan_qos = u8::try_from(it.qos).ok();
                it.vf_id
            }
            VfInfo::VlanList(vlans) => {
                let Some(VfVlan::Info(it)) = vlans.first() else { continue };
                let is_service = it.protocol == VlanProtocol::Ieee8021Ad;
                settings.vlan_proto = is_service.then_some(VlanProto::Service);
                it.vf_id
            }
            VfInfo::Rate(it) => {
                settings.min_tx_rate = Some(it.min_tx_rate);
                settings.max_tx_rate = Some(it.max_tx_rate);
                it.vf_id
            }
            VfInfo::SpoofCheck(it) => {
                settings.spoof_check = Some(it.enabled);
                it.vf_id
            }
            VfInfo::Trust(it) => {
                settings.trust = Some(it.enabled);
                it.vf_id
            }
            VfInfo::LinkState(it) => {
                settings.link_state = match it.state {
                    VfLinkState::Auto => Some(LinkState::Auto),
                    VfLinkState::Enable => Some(LinkState::Enable),
                    VfLinkState::Disable => Some(LinkState::Disable),
                    _ => None,
                };
                it.vf_id
            }
            VfInfo::IbPortGuid(it) => {
                settings.port_guid = Guid::new(it.guid);
                it.vf_id
            }
            _ => continue,
        };
        is_it |= number == index;
    }
    is_it.then_some(settings)
}

/// The messages for settings that differ, with the field that requests each. The kernel
/// has both rates in one message, and the VLAN with its priority in one.
fn changes(
    index: u32,
    asked: VirtualFunctionConfig,
    now: VirtualFunctionConfig,
) -> Vec<(&'static str, VfInfo)> {
    let mut changes = Vec::new();
    if let Some(vlan) = asked.vlan {
        let qos = asked.vlan_qos.unwrap_or_default();
        if is_service(asked) {
            if !is_service(now) || (now.vlan, now.vlan_qos) != (Some(vlan), Some(qos)) {
                let protocol = VlanProtocol::Ieee8021Ad;
                let info = VfVlanInfo::new(index, vlan.into(), qos.into(), protocol);
                let list = VfInfo::VlanList(vec![VfVlan::Info(info)]);
                changes.push(("virtualFunction.vlanProto", list));
            }
        } else if is_service(now) || (now.vlan, now.vlan_qos) != (Some(vlan), Some(qos)) {
            // The kernel takes this for 802.1Q.
            let info = VfInfoVlan::new(index, vlan.into(), qos.into());
            changes.push(("virtualFunction.vlan", VfInfo::Vlan(info)));
        }
    }
    if let Some(on) = asked.spoof_check.filter(|on| now.spoof_check != Some(*on)) {
        let info = VfInfoSpoofCheck::new(index, on);
        changes.push(("virtualFunction.spoofCheck", VfInfo::SpoofCheck(info)));
    }
    if let Some(on) = asked.trust.filter(|on| now.trust != Some(*on)) {
        changes.push(("virtualFunction.trust", VfInfo::Trust(VfInfoTrust::new(index, on))));
    }
    let has_rate = asked.min_tx_rate.is_some() || asked.max_tx_rate.is_some();
    let (min, max) = (asked.min_tx_rate.or(now.min_tx_rate), asked.max_tx_rate.or(now.max_tx_rate));
    if has_rate && (min, max) != (now.min_tx_rate, now.max_tx_rate) {
        let info = VfInfoRate::new(index, min.unwrap_or_default(), max.unwrap_or_default());
        let is_min = asked.min_tx_rate.is_some_and(|rate| rate > 0);
        let field = if is_min { "virtualFunction.minTxRate" } else { "virtualFunction.maxTxRate" };
        changes.push((field, VfInfo::Rate(info)));
    }
    if let Some(state) = asked.link_state.filter(|state| now.link_state != Some(*state)) {
        let state = match state {
            LinkState::Auto => VfLinkState::Auto,
            LinkState::Enable => VfLinkState::Enable,
            LinkState::Disable => VfLinkState::Disable,
        };
        let info = VfInfoLinkState::new(index, state);
        changes.push(("virtualFunction.linkState", VfInfo::LinkState(info)));
    }
    if let Some(guid) = asked.port_guid.filter(|guid| now.port_guid != Some(*guid)) {
        let info = VfInfoGuid::new(index, guid.number());
        changes.push(("virtualFunction.portGuid", VfInfo::IbPortGuid(info)));
    }
    changes
}

/// Whether its VLAN is one of 802.1ad.
fn is_service(settings: VirtualFunctionConfig) -> bool {
    settings.vlan_proto == Some(VlanProto::Service)
}

async fn change(
    handle: &Handle,
    physical: &LinkMessage,
    field: &'static str,
    info: VfInfo,
) -> Result<(), AttachError> {
    let link = name_of(physical);
    match send(handle, physical, info).await {
        Err(rtnetlink::Error::NetlinkError(error))
            if NOT_SUPPORTED.contains(&error.raw_code().abs()) =>
        {
            Err(AttachError::NoFunctionSetting { link: link.to_owned(), field })
        }
        other => other.map_err(|source| {
            AttachError::netlink(link, format!("set `{field}` of a virtual function"), source)
        }),
    }
}

async fn send(
    handle: &Handle,
    physical: &LinkMessage,
    info: VfInfo,
) -> Result<(), rtnetlink::Error> {
    let list = LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![info])]);
    let message = LinkUnspec::new_with_index(physical.header.index).append_extra_attribute(list);
    handle.link().set(message.build()).execute().await
}

#[cfg(test)]
mod tests;
