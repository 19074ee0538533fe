//! Features and private flags of an interface's driver, which it takes into a pod and back
//! (`ethtool -K`, `--set-priv-flags`).

use super::{Feature, netlink, set};
use crate::kernel::attach::AttachError;
use crate::kernel::attach::setting::{Found, Home, Restored, Setting};
use crate::model::host_link::HostLink;
use cluster_model::network_config::EthtoolConfig;
use std::collections::BTreeMap;
use std::future::ready;

/// The features that can be changed.
pub(in crate::kernel::attach) struct Features;

/// The private flags that the claim's configuration changes.
pub(in crate::kernel::attach) struct PrivateFlags;

impl Setting for Features {
    fn name(&self) -> &'static str {
        "Features"
    }

    fn read(&self, found: &Found<'_>, host: &mut HostLink) {
        let ethtool = found.sources.ethtool();
        let requested = ethtool.and_then(|it| netlink::requested(it, found.name()).ok());
        if requested.is_some() {
            host.tuning.get_or_insert_default().features = requested;
        }
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(ready(restore_features(home).into_iter().collect()))
    }
}

fn restore_features(home: &Home<'_>) -> Option<Result<(), AttachError>> {
    let now = netlink::features(home.sources.ethtool()?, home.name()).ok()?;
    let features = differing(&now, home.former());
    let settings = EthtoolConfig { features, ..EthtoolConfig::default() };
    Some(set(home.name(), &settings))
}

/// The features that can be changed and differ, with their former values: those that the claim's
/// configuration changes have theirs by name, and of the others those that were on are listed.
fn differing(now: &BTreeMap<String, Feature>, former: &HostLink) -> BTreeMap<String, bool> {
    let on = former.tuning.as_ref().and_then(|tuning| tuning.features.as_ref());
    let named = former.ethtool.as_ref().map(|ethtool| &ethtool.features);
    let mut differing = BTreeMap::new();
    for (name, feature) in now.iter().filter(|(_, feature)| feature.changeable) {
        let named = named.and_then(|named| named.get(name).copied());
        let former = named.or_else(|| on.map(|on| on.contains(name)));
        if former.is_some_and(|former| former != feature.wanted) {
            differing.insert(name.clone(), !feature.wanted);
        }
    }
    differing
}

impl Setting for PrivateFlags {
    fn name(&self) -> &'static str {
        "Private flags"
    }

    fn restore<'a>(&'a self, home: &'a Home<'a>) -> Restored<'a> {
        Box::pin(ready(restore_flags(home).into_iter().collect()))
    }
}

/// Restores the flags that the interface still has: another one may have taken its place.
fn restore_flags(home: &Home<'_>) -> Option<Result<(), AttachError>> {
    let mut former = home.former().ethtool.clone()?.private_flags;
    let now = netlink::private_flags(home.sources.ethtool()?, home.name()).ok()?;
    former.retain(|name, on| now.get(name).is_some_and(|is_on| is_on != on));
    let settings = EthtoolConfig { private_flags: former, ..EthtoolConfig::default() };
    Some(set(home.name(), &settings))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::host_link::Tuning;

    fn feature(wanted: bool, changeable: bool) -> Feature {
        Feature { wanted, active: wanted, changeable }
    }

    /// The former state with these features on, and these values of what a configuration changes.
    fn former(on: &[&str], named: &[(&str, bool)]) -> HostLink {
        let features = on.iter().map(|name| (*name).to_owned()).collect();
        let tuning = Tuning { features: Some(features), ..Tuning::default() };
        let features = named.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
        let ethtool = EthtoolConfig { features, ..EthtoolConfig::default() };
        HostLink { tuning: Some(tuning), ethtool: Some(ethtool), ..HostLink::default() }
    }

    #[test]
    fn features_that_a_pod_switched_are_switched_back() {
        let now = BTreeMap::from([
            ("rx-gro", feature(true, true)),
            ("tx-nocache-copy", feature(true, true)),
            ("rx-lro", feature(false, true)),
            ("highdma", feature(true, false)),
        ]);
        let now = now.into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
        let differ = |on: &[&str], named: &[(&str, bool)]| {
            differing(&now, &former(on, named)).into_iter().collect::<Vec<_>>()
        };
        let none: Vec<(String, bool)> = Vec::new();
        assert_eq!(differ(&["rx-gro", "tx-nocache-copy"], &[]), none);
        let two = [("rx-lro".to_owned(), true), ("tx-nocache-copy".to_owned(), false)];
        assert_eq!(differ(&["rx-gro", "rx-lro"], &[]), two);
        let named = [("rx-lro", true), ("tx-nocache-copy", false), ("highdma", false)];
        assert_eq!(differ(&["rx-gro"], &named), two, "the configuration changed them");
        assert_eq!(differing(&now, &HostLink::default()).len(), 0, "nothing is known");
    }
}
