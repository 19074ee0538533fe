//! Path kinds: the distance between two devices, in the words of `nvidia-smi topo -m`.
//!
//! The graph decides which kind applies.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::text::serde_as_text;

/// The kind of path between two devices, from near to far.
///
/// `Unknown` sorts as the farthest and satisfies no requirement, not even another `Unknown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PathKind {
    /// `X`: the device itself.
    Same,
    /// `NV18`: this number of NVLinks.
    NvLink(u32),
    /// `XGMI`: AMD's links between GPUs.
    Xgmi,
    /// `PIX`: at most one PCIe switch or bridge.
    Pix,
    /// `PXB`: several switches, but no host bridge.
    Pxb,
    /// `PHB`: through a host bridge, typically the CPU.
    Phb,
    /// `NODE`: between host bridges of one NUMA node.
    Node,
    /// `SYS`: between NUMA nodes.
    Sys,
    /// `?`: the machine does not show it.
    Unknown,
}

/// A text is not a path kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a path kind (`X`, `NV#`, `XGMI`, `PIX`, `PXB`, `PHB`, `NODE`, `SYS` or `?`)")]
pub struct ParsePathKindError(String);

impl PathKind {
    /// The kinds with a fixed word, from near to far.
    pub const WORDS: [Self; 8] = [
        Self::Same,
        Self::Xgmi,
        Self::Pix,
        Self::Pxb,
        Self::Phb,
        Self::Node,
        Self::Sys,
        Self::Unknown,
    ];

    /// Returns true if this path is at least as near as `farthest`.
    pub fn satisfies(self, farthest: Self) -> bool {
        self != Self::Unknown && farthest != Self::Unknown && self <= farthest
    }

    /// The meaning of the kind, in one line.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Same => "Self",
            Self::NvLink(_) => "Connection traversing a bonded set of # NVLinks",
            Self::Xgmi => "Connection traversing XGMI links (AMD Infinity Fabric)",
            Self::Pix => "Connection traversing at most a single PCIe bridge",
            Self::Pxb => {
                "Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)"
            }
            Self::Phb => {
                "Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)"
            }
            Self::Node => {
                "Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node"
            }
            Self::Sys => {
                "Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)"
            }
            Self::Unknown => "Connection unknown: no source shows it",
        }
    }

    /// A sort key: smaller is nearer. More NVLinks are nearer than fewer.
    fn rank(self) -> (u8, u32) {
        match self {
            Self::Same => (0, 0),
            Self::NvLink(links) => (1, u32::MAX - links),
            Self::Xgmi => (2, 0),
            Self::Pix => (3, 0),
            Self::Pxb => (4, 0),
            Self::Phb => (5, 0),
            Self::Node => (6, 0),
            Self::Sys => (7, 0),
            Self::Unknown => (8, 0),
        }
    }
}

impl PartialOrd for PathKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PathKind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Self::Same => "X",
            Self::NvLink(links) => return f.pad(&format!("NV{links}")),
            Self::Xgmi => "XGMI",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
            Self::Unknown => "?",
        };
        f.pad(word)
    }
}

impl FromStr for PathKind {
    type Err = ParsePathKindError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let word = Self::WORDS.into_iter().find(|word| word.to_string() == text);
        word.or_else(|| text.strip_prefix("NV")?.parse().ok().map(Self::NvLink))
            .filter(|kind| kind.to_string() == text)
            .ok_or_else(|| ParsePathKindError(text.to_owned()))
    }
}

serde_as_text!(PathKind);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_ordered_and_read_back() {
        assert!(PathKind::WORDS.is_sorted());
        assert!(PathKind::NvLink(18) < PathKind::NvLink(4));
        for kind in PathKind::WORDS.into_iter().chain([PathKind::NvLink(18)]) {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        for text in ["", "NV", "NV+1", "NV01", "pix", "PIX "] {
            assert_eq!(text.parse::<PathKind>().ok(), None, "{text:?}");
        }
    }

    #[test]
    fn unknown_satisfies_nothing() {
        for kind in PathKind::WORDS {
            assert!(!PathKind::Unknown.satisfies(kind), "{kind}");
            assert!(!kind.satisfies(PathKind::Unknown), "{kind}");
        }
        assert!(PathKind::Pix.satisfies(PathKind::Node));
        assert!(!PathKind::Sys.satisfies(PathKind::Node));
    }
}
