//! The mix of pods that a cluster runs: their shapes, and how common each is.

use std::fmt;
use std::str::FromStr;

/// The demand of a pod, or of a gang of equal pods on one fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Demand {
    /// GPUs of each pod.
    pub gpus: u32,
    /// NICs of each pod.
    pub nics: u32,
    /// Number of pods, each on its own node; 1 means no gang.
    pub nodes: u32,
}

/// Not a pod shape with its share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid pod shape with share `{0}`: write `GPUSxNICS=SHARE`, such as `8x8=2`, or for a gang of 4 pods `4*8x8=1`"
)]
pub struct ParseMixError(String);

/// How common each shape is.
///
/// Shares are in millionths, so that equal mixes give equal costs on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix {
    shares: Vec<(Demand, u32)>,
}

/// One, in millionths.
const WHOLE: u64 = 1_000_000;

impl Demand {
    /// A pod with this many GPUs and as many NICs.
    pub fn gpus(gpus: u32) -> Self {
        Self { gpus, nics: gpus, nodes: 1 }
    }

    /// A gang of this many such pods, each on its own node, all on one fabric.
    #[must_use]
    pub fn on(self, nodes: u32) -> Self {
        Self { nodes, ..self }
    }

    /// The shape's weight: its GPUs, or its NICs if it has no GPUs.
    pub fn worth(self) -> u64 {
        let each = if self.gpus == 0 { self.nics } else { self.gpus };
        u64::from(each) * u64::from(self.nodes)
    }

    /// The devices that must be in one cell, and how many such units the pod requests.
    /// Admission gives each GPU its own NICs if they divide evenly (`dranet.io/pairing:
    /// each`), otherwise all devices together.
    pub(super) fn units(self) -> (Self, u32) {
        let count = match (self.gpus, self.nics) {
            (0, nics) => nics.max(1),
            (gpus, nics) if nics.is_multiple_of(gpus) => gpus,
            _ => 1,
        };
        (Self { gpus: self.gpus / count, nics: self.nics / count, nodes: 1 }, count)
    }
}

impl Mix {
    /// Creates a mix from how common each shape is, in any unit. Repeated shapes add up;
    /// shapes without devices are dropped.
    pub fn new(counts: impl IntoIterator<Item = (Demand, u32)>) -> Self {
        let mut shares: Vec<(Demand, u64)> = Vec::new();
        for (demand, count) in counts.into_iter().filter(|(demand, _)| demand.worth() > 0) {
            match shares.iter_mut().find(|(known, _)| *known == demand) {
                Some((_, sum)) => *sum += u64::from(count),
                None => shares.push((demand, count.into())),
            }
        }
        let all: u64 = shares.iter().map(|(_, count)| count).sum::<u64>().max(1);
        let shares = shares.into_iter().map(|(demand, count)| {
            let share = u32::try_from(count * WHOLE / all).unwrap_or(u32::MAX);
            (demand, share)
        });
        Self::of_shares(shares.collect())
    }

    /// The mix with these shares in millionths.
    pub(crate) fn of_shares(mut shares: Vec<(Demand, u32)>) -> Self {
        shares.sort_unstable();
        Self { shares }
    }

    /// The shapes and their shares in millionths, small to large.
    pub fn shares(&self) -> &[(Demand, u32)] {
        &self.shares
    }

    /// Whether the share of any shape differs by more than this many millionths.
    pub fn differs(&self, other: &Self, millionths: u32) -> bool {
        let mut all = self.shares.iter().chain(&other.shares);
        all.any(|(it, _)| self.share(*it).abs_diff(other.share(*it)) > millionths)
    }

    fn share(&self, demand: Demand) -> u32 {
        let found = self.shares.iter().find(|(known, _)| *known == demand);
        found.map_or(0, |(_, share)| *share)
    }
}

impl Default for Mix {
    /// Pods of 1, 2, 4 and 8 GPUs with as many NICs, and gangs of 2, 4 and 8 whole nodes;
    /// each half as common as the next smaller one.
    fn default() -> Self {
        let whole = Demand::gpus(8);
        let pods = [1, 2, 4].map(Demand::gpus);
        let gangs = [1, 2, 4, 8].map(|nodes| whole.on(nodes));
        Self::new(pods.into_iter().chain(gangs).zip([64, 32, 16, 8, 4, 2, 1]))
    }
}

/// `8x8`; for a gang `4*8x8`.
impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gpus, nics, nodes } = self;
        match nodes {
            1 => write!(f, "{gpus}x{nics}"),
            _ => write!(f, "{nodes}*{gpus}x{nics}"),
        }
    }
}

/// `1x1=3,2x2=1,4*8x8=1`: shapes and how common each is.
impl FromStr for Mix {
    type Err = ParseMixError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let counts: Option<Vec<_>> = text.split(',').map(entry).collect();
        let mix = Self::new(counts.ok_or_else(|| ParseMixError(text.to_owned()))?);
        if mix.shares.iter().all(|(_, share)| *share == 0) {
            return Err(ParseMixError(text.to_owned()));
        }
        Ok(mix)
    }
}

fn entry(text: &str) -> Option<(Demand, u32)> {
    let (demand, share) = text.trim().split_once('=')?;
    Some((shape(demand)?, share.parse().ok()?))
}

/// Reads what a shape is printed as.
pub(crate) fn shape(text: &str) -> Option<Demand> {
    let (nodes, pod) = text.split_once('*').unwrap_or(("1", text));
    let (gpus, nics) = pod.split_once('x')?;
    let demand = Demand { gpus: count(gpus)?, nics: count(nics)?, nodes: count(nodes)? };
    (demand.nodes > 0).then_some(demand)
}

/// Limited to 1,000, so that costs cannot overflow. No node has that many devices, and no
/// gang that many nodes.
fn count(text: &str) -> Option<u32> {
    text.parse().ok().filter(|count| *count <= 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read_and_shares_add_up() {
        let mix: Mix = "1x1=3, 2*8x8=1,1x1=4".parse().unwrap();
        assert_eq!(mix.shares(), [(Demand::gpus(1), 875_000), (Demand::gpus(8).on(2), 125_000)]);
        assert_eq!(mix.shares()[1].0.to_string(), "2*8x8");
        for text in ["", "1x1", "1=1", "x=1", "1x1=", "0*1x1=1", "0x0=1", "1x1=0", "1001x1=1"] {
            assert!(text.parse::<Mix>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_mix_differs_if_one_shape_differs() {
        let mix = |ones, twos| Mix::new([(Demand::gpus(1), ones), (Demand::gpus(2), twos)]);
        assert!(!mix(50, 50).differs(&mix(51, 49), 20_000));
        assert!(mix(50, 50).differs(&mix(60, 40), 20_000));
        assert!(mix(50, 50).differs(&Mix::new([(Demand::gpus(1), 1)]), 20_000));
    }
}
