//! Features and private flags of an interface's driver, by the names that `ethtool -k`
//! and `ethtool --show-priv-flags` show.
//!
//! A request is checked against the interface's features before anything is set, because
//! the kernel silently ignores what it cannot change (`net/ethtool/features.c`). The
//! decision is pure; `netlink` talks to the kernel.

pub(super) mod features;
mod names;
mod netlink;
pub(super) mod numbers;

use crate::kernel::attach::AttachError;
use crate::kernel::attach::netns::NetNs;
use cluster_model::network_config::EthtoolConfig;
use std::collections::BTreeMap;
use std::fmt;

/// Features and private flags of an interface, and their current values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Every feature that the kernel knows, by the kernel's name.
    pub features: BTreeMap<String, Feature>,
    /// The driver's private flags.
    pub private_flags: BTreeMap<String, bool>,
}

/// One feature of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feature {
    /// Whether it was requested to be on.
    pub wanted: bool,
    /// Whether it is on.
    pub active: bool,
    /// Whether it can be changed.
    pub changeable: bool,
}

/// The interface does not support the requested features.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EthtoolError {
    /// No such feature.
    #[error("`ethtool.features` names `{name}`, which no interface has; `{link}` can change {has}")]
    UnknownFeature {
        /// The interface.
        link: String,
        /// What was asked for.
        name: String,
        /// Features that it can change.
        has: Words,
    },
    /// The feature cannot be changed.
    #[error(
        "`ethtool.features` asks for `{name}` {asked}, which interface `{link}` cannot change; it can change {has}"
    )]
    FixedFeature {
        /// The interface.
        link: String,
        /// What was asked for.
        name: String,
        /// Whether on or off was requested.
        asked: OnOff,
        /// Features that it can change.
        has: Words,
    },
    /// The kernel accepted the request, but the feature did not change.
    #[error(
        "`ethtool.features` asks for `{name}` {asked}, but interface `{link}` did not change it, because it depends on another feature; see `ethtool -k`"
    )]
    KeptFeature {
        /// The interface.
        link: String,
        /// What was asked for.
        name: String,
        /// Whether on or off was requested.
        asked: OnOff,
    },
    /// The driver has no such flag.
    #[error(
        "`ethtool.privateFlags` names `{name}`, which interface `{link}` does not support; it supports {has}"
    )]
    UnknownFlag {
        /// The interface.
        link: String,
        /// What was asked for.
        name: String,
        /// Flags that it has.
        has: Words,
    },
}

/// A list of names in an error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words(Vec<String>);

/// The requested state of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnOff(bool);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let quoted: Vec<_> = self.0.iter().map(|word| format!("`{word}`")).collect();
        f.write_str(&quoted.join(", "))
    }
}

impl fmt::Display for OnOff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "on" } else { "off" })
    }
}

impl Abilities {
    /// Translates the request to the kernel's names, if the interface `link` supports it.
    /// A name of `ethtool` for several features means those that can be changed, as with
    /// `ethtool -K`.
    pub fn resolve(
        &self,
        link: &str,
        asked: &EthtoolConfig,
    ) -> Result<EthtoolConfig, EthtoolError> {
        let mut resolved = EthtoolConfig::default();
        for (name, on) in &asked.features {
            for found in self.features_of(link, name, *on)? {
                resolved.features.insert(found.clone(), *on);
            }
        }
        for (name, on) in &asked.private_flags {
            if !self.private_flags.contains_key(name) {
                let has = Words(self.private_flags.keys().cloned().collect());
                let (link, name) = (link.to_owned(), name.clone());
                return Err(EthtoolError::UnknownFlag { link, name, has });
            }
            resolved.private_flags.insert(name.clone(), *on);
        }
        Ok(resolved)
    }

    fn features_of(&self, link: &str, name: &str, on: bool) -> Result<Vec<&String>, EthtoolError> {
        let of_name = self.features.iter().filter(|(it, _)| names::is_meant(name, it));
        let known: Vec<_> = of_name.collect();
        let changeable: Vec<_> =
            known.iter().filter(|(_, it)| it.changeable).map(|(name, _)| *name).collect();
        let is_so = known.iter().any(|(_, it)| it.active == on);
        let (link, name) = (link.to_owned(), name.to_owned());
        if known.is_empty() {
            return Err(EthtoolError::UnknownFeature { link, name, has: self.changeable() });
        }
        if changeable.is_empty() && !is_so {
            let (asked, has) = (OnOff(on), self.changeable());
            return Err(EthtoolError::FixedFeature { link, name, asked, has });
        }
        Ok(changeable)
    }

    fn changeable(&self) -> Words {
        let names = self.features.iter().filter(|(_, feature)| feature.changeable);
        Words(names.map(|(name, _)| name.clone()).collect())
    }

    /// The current values of what these settings name.
    pub fn former(&self, settings: &EthtoolConfig) -> EthtoolConfig {
        EthtoolConfig {
            features: settings
                .features
                .keys()
                .filter_map(|name| Some((name.clone(), self.features.get(name)?.wanted)))
                .collect(),
            private_flags: settings
                .private_flags
                .keys()
                .filter_map(|name| Some((name.clone(), *self.private_flags.get(name)?)))
                .collect(),
        }
    }

    /// The settings that can be changed and still differ.
    fn missing(&self, settings: &EthtoolConfig) -> EthtoolConfig {
        let mut missing = settings.clone();
        missing.features.retain(|name, on| {
            self.features.get(name).is_some_and(|it| it.changeable && it.wanted != *on)
        });
        missing
            .private_flags
            .retain(|name, on| self.private_flags.get(name).is_some_and(|is_on| is_on != on));
        missing
    }

    /// Checks, after the kernel has accepted the settings, that all of them are in
    /// effect.
    fn check(&self, link: &str, settings: &EthtoolConfig) -> Result<(), EthtoolError> {
        let kept = settings
            .features
            .iter()
            .find(|(name, on)| self.features.get(*name).is_some_and(|it| it.active != **on));
        kept.map_or(Ok(()), |(name, on)| {
            let (link, name) = (link.to_owned(), name.clone());
            Err(EthtoolError::KeptFeature { link, name, asked: OnOff(*on) })
        })
    }
}

/// Reads the features of these interfaces of a namespace, by interface name.
pub fn read_all(
    namespace: &NetNs,
    links: Vec<String>,
) -> Result<BTreeMap<String, Abilities>, AttachError> {
    if links.is_empty() {
        return Ok(BTreeMap::new());
    }
    namespace.run(async move |_| {
        links.into_iter().map(|link| read(&link).map(|abilities| (link, abilities))).collect()
    })
}

/// Sets the features on an interface of the calling thread's namespace, unless they are
/// already set, and checks the result.
pub(super) fn apply(link: &str, asked: &EthtoolConfig) -> Result<(), AttachError> {
    let before = read(link)?;
    let settings = before.resolve(link, asked)?;
    set(link, &before.missing(&settings))?;
    Ok(read(link)?.check(link, &settings)?)
}

fn read(link: &str) -> Result<Abilities, AttachError> {
    netlink::read(link).map_err(|source| {
        AttachError::system("read the features of an interface (ethtool netlink)", source)
    })
}

fn set(link: &str, settings: &EthtoolConfig) -> Result<(), AttachError> {
    netlink::write(link, settings).map_err(|source| {
        let names = settings.features.keys().chain(settings.private_flags.keys());
        let names: Vec<_> = names.map(String::as_str).collect();
        AttachError::system(format!("set {} of interface `{link}`", names.join(", ")), source)
    })
}

#[cfg(test)]
mod tests;
