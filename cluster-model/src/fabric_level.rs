//! Levels of a network that are nearer than a fabric: NVLink domains, and blocks of nodes behind one
//! leaf switch. A node has a label with its domain of each level. A domain belongs to one fabric.

use crate::names::label;
use std::fmt;

/// A level below the fabric, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FabricLevel {
    /// GPUs that reach each other over NVLink: NVIDIA's clique.
    Nvlink,
    /// Nodes behind one leaf switch, or a block of a cloud.
    Block,
}

impl FabricLevel {
    /// All levels, nearest first.
    pub const ALL: [Self; 2] = [Self::Nvlink, Self::Block];

    /// Its name in annotations and flags.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nvlink => "nvlink",
            Self::Block => "block",
        }
    }

    /// The node label with the domain of this level.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Nvlink => label::NODE_NVLINK,
            Self::Block => label::NODE_BLOCK,
        }
    }

    /// The node label with the source of [`Self::label`], if it was copied.
    pub const fn source_label(self) -> &'static str {
        match self {
            Self::Nvlink => label::NODE_NVLINK_FROM,
            Self::Block => label::NODE_BLOCK_FROM,
        }
    }

    /// The level with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl fmt::Display for FabricLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nvlink => "NVLink domain",
            Self::Block => "block",
        })
    }
}

/// A level that a pod asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LevelRequest {
    /// The level.
    pub level: FabricLevel,
    /// Whether the pods wait for it.
    pub is_required: bool,
}

/// What a pod asks for by `dranet.io/fabric-level`: at most one request for each level, nearest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LevelRequests(Vec<LevelRequest>);

/// The value of `dranet.io/fabric-level` is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLevels {
    /// A part of it names no level, or no policy.
    #[error("not a level of a fabric")]
    Unknown,
    /// It names a level twice.
    #[error("the same level twice")]
    Twice,
    /// The fabric itself cannot be preferred.
    #[error("a group is always on one fabric, so the fabric cannot be preferred")]
    FabricPreferred,
}

impl LevelRequests {
    /// Nothing nearer than the fabric.
    pub const NONE: Self = Self(Vec::new());

    /// The part that asks for nothing nearer than the fabric.
    const FABRIC: &str = "fabric";

    /// Parses the value of the annotation: levels, separated by commas, each with `=preferred` or
    /// `=required`, which is the default. `fabric` stands for the fabric itself, which is always
    /// required.
    ///
    /// # Errors
    /// The value is none of these.
    pub fn parse(value: &str) -> Result<Self, BadLevels> {
        let mut requests = Vec::new();
        let mut names = Vec::new();
        for part in value.split(',') {
            let (name, policy) = part.split_once('=').unwrap_or((part, "required"));
            let is_required = match policy {
                "required" => true,
                "preferred" => false,
                _ => return Err(BadLevels::Unknown),
            };
            if names.contains(&name) {
                return Err(BadLevels::Twice);
            }
            names.push(name);
            if name != Self::FABRIC {
                let level = FabricLevel::named(name).ok_or(BadLevels::Unknown)?;
                requests.push(LevelRequest { level, is_required });
            } else if !is_required {
                return Err(BadLevels::FabricPreferred);
            }
        }
        requests.sort_by_key(|request| request.level);
        Ok(Self(requests))
    }

    /// Returns true if it asks for nothing nearer than the fabric.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The requests, nearest level first.
    pub fn as_slice(&self) -> &[LevelRequest] {
        &self.0
    }

    /// The nearest level; slices of a group share its domains.
    pub fn nearest(&self) -> Option<FabricLevel> {
        self.0.first().map(|request| request.level)
    }

    /// The levels that the pods wait for, nearest first.
    pub fn required(&self) -> impl Iterator<Item = FabricLevel> + Clone {
        self.0.iter().filter(|request| request.is_required).map(|request| request.level)
    }
}

/// A domain of a level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LevelDomain {
    /// Its level.
    pub level: FabricLevel,
    /// The value of the level's label.
    pub name: String,
}

impl fmt::Display for LevelDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.level, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_required_unless_the_value_says_otherwise() {
        let (nvlink, block) = (FabricLevel::Nvlink, FabricLevel::Block);
        for (value, expected) in [
            ("fabric", Ok(vec![])),
            ("fabric=required", Ok(vec![])),
            ("nvlink", Ok(vec![(nvlink, true)])),
            ("nvlink=required", Ok(vec![(nvlink, true)])),
            ("block=preferred", Ok(vec![(block, false)])),
            ("nvlink=preferred,fabric=required", Ok(vec![(nvlink, false)])),
            ("block,nvlink=preferred", Ok(vec![(nvlink, false), (block, true)])),
            ("nvlink,block=preferred,fabric", Ok(vec![(nvlink, true), (block, false)])),
            ("spine", Err(BadLevels::Unknown)),
            ("block=", Err(BadLevels::Unknown)),
            ("block=often", Err(BadLevels::Unknown)),
            ("", Err(BadLevels::Unknown)),
            ("block,", Err(BadLevels::Unknown)),
            ("block,nvlink,block=preferred", Err(BadLevels::Twice)),
            ("nvlink,fabric=preferred", Err(BadLevels::FabricPreferred)),
        ] {
            let parsed = LevelRequests::parse(value).map(|requests| {
                let pair = |it: &LevelRequest| (it.level, it.is_required);
                requests.as_slice().iter().map(pair).collect::<Vec<_>>()
            });
            assert_eq!(parsed, expected, "{value}");
        }
    }
}
