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

/// What a pod asks for by `dranet.io/fabric-level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LevelRequest {
    /// The level.
    pub level: FabricLevel,
    /// Whether the pods wait for it.
    pub is_required: bool,
}

/// The value of `dranet.io/fabric-level` names no level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a level of a fabric")]
pub struct UnknownLevel;

impl LevelRequest {
    /// The value that asks for nothing nearer than the fabric.
    pub const FABRIC: &str = "fabric";

    /// Parses the value of the annotation: a level, with `=preferred` or `=required`, which is the
    /// default. `None` for the fabric itself.
    ///
    /// # Errors
    /// The value is none of these.
    pub fn parse(value: &str) -> Result<Option<Self>, UnknownLevel> {
        if value == Self::FABRIC {
            return Ok(None);
        }
        let (name, policy) = value.split_once('=').unwrap_or((value, "required"));
        let level = FabricLevel::named(name).ok_or(UnknownLevel)?;
        match policy {
            "required" => Ok(Some(Self { level, is_required: true })),
            "preferred" => Ok(Some(Self { level, is_required: false })),
            _ => Err(UnknownLevel),
        }
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
        let request = |level, is_required| Ok(Some(LevelRequest { level, is_required }));
        for (value, expected) in [
            ("fabric", Ok(None)),
            ("nvlink", request(FabricLevel::Nvlink, true)),
            ("nvlink=required", request(FabricLevel::Nvlink, true)),
            ("block=preferred", request(FabricLevel::Block, false)),
            ("spine", Err(UnknownLevel)),
            ("block=", Err(UnknownLevel)),
            ("block=often", Err(UnknownLevel)),
            ("", Err(UnknownLevel)),
        ] {
            assert_eq!(LevelRequest::parse(value), expected, "{value}");
        }
    }
}
